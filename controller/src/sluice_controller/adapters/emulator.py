# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a file is a QEMU with shaping. It is asked, by running it.

The choice of a path gives no root rights: a file that others than root can change is not run at
all, and other files run as nobody if that is possible.
"""

from __future__ import annotations

import math
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from ..domain.errors import Conflict
from .channel_device import DRIVER as CHANNEL

PROBE_SECONDS = 20
PROBLEM_AGE_SECONDS = 60.0
REMEDY = "install sluice-qemu, or set its path: sluice settings --emulator PATH"
NOBODY = 65534
NO_MACHINE = ("-machine", "none", "-display", "none")
PROBE = (*NO_MACHINE, "-object", "shaper,help")
# Its status is 0 without the device, too; only with the device it lists properties.
CHANNEL_PROBE = (*NO_MACHINE, "-device", f"{CHANNEL},help")
# Of a shell or of the loader: it cannot be run, or not by this user.
NOT_RUN = (126, 127)


def weak_spot(status: os.stat_result) -> str | None:
    """How a user other than root and this process's user can change the file or folder."""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to the user {status.st_uid}"
    # The sticky bit protects files of other users in a folder.
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid):
        return f"is writable for others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _check_owners(emulator: str) -> None:
    """Conflict unless the file and its folders belong to root or to this process's user."""
    file = Path(emulator)
    for path in (file, *file.parents):
        problem = weak_spot(path.stat())
        if problem is not None:
            where = "" if path == file else f"is in the folder {path}, which "
            raise Conflict(
                "emulator",
                emulator,
                f"is not started: it {where}{problem}",
                f"give it to root alone: chown root:root {path}; chmod go-w {path}",
            )


def _run(
    emulator: str, probe: tuple[str, ...], user: int | None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [emulator, *probe],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROBE_SECONDS,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )


def _asked(emulator: str, probe: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    if os.geteuid() == 0:
        try:
            answer = _run(emulator, probe, NOBODY)
            if answer.returncode not in NOT_RUN:
                return answer
        except PermissionError:
            # A folder on the way that only root may enter, or a unit that may not change users.
            pass
    return _run(emulator, probe, None)


def check(emulator: str) -> None:
    """Conflict for a QEMU that is missing, others can change, does not run, or cannot shape."""
    if not os.access(emulator, os.X_OK):
        raise Conflict("emulator", emulator, "is not an executable file", REMEDY)
    # The file that was checked is the file that runs: no link on the way is followed later.
    emulator = os.path.realpath(emulator)
    try:
        _check_owners(emulator)
        status = _asked(emulator, PROBE).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Conflict("emulator", emulator, f"does not run ({error})", REMEDY) from error
    if status != 0:
        problem = "is a QEMU without shaping (no object type shaper)"
        raise Conflict("emulator", emulator, problem, REMEDY)


def has_channel(emulator: str) -> bool:
    """Whether it has the device sluice-channel. An emulator that is not started has not:
    `check` says why."""
    emulator = os.path.realpath(emulator)
    try:
        _check_owners(emulator)
        return f"{CHANNEL} options:".encode() in _asked(emulator, CHANNEL_PROBE).stdout
    except (Conflict, OSError, subprocess.TimeoutExpired):
        return False


class Emulators:
    """Findings of checks, kept as long as the files do not change.

    A failed check is repeated after a while: the host may only have been busy.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._found: dict[tuple[str, int, int], tuple[str | None, float]] = {}
        # Each list of domains asks; one asker runs the file, and the others wait for its
        # finding.
        self._running = threading.Lock()

    def problem(self, emulator: str) -> str | None:
        """Why this one cannot shape; None if it can."""
        try:
            status = os.stat(emulator)
        except OSError as error:
            return f"emulator '{emulator}' cannot be found ({error.strerror}): {REMEDY}"
        key = emulator, status.st_ino, status.st_mtime_ns
        if not self._is_known(key):
            with self._running:
                if not self._is_known(key):
                    self._found[key] = _problem(emulator), self.monotonic()
        return self._found[key][0]

    def _is_known(self, key: tuple[str, int, int]) -> bool:
        problem, at = self._found.get(key, ("", -math.inf))
        return problem is None or self.monotonic() - at < PROBLEM_AGE_SECONDS


def _problem(emulator: str) -> str | None:
    try:
        check(emulator)
    except Conflict as error:
        return str(error)
    return None
