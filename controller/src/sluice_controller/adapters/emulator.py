# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a file is a QEMU with shaping. It is asked, by running it."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Callable

from ..domain.errors import Conflict

PROBE_SECONDS = 20
PROBLEM_AGE_SECONDS = 60.0
REMEDY = "install sluice-qemu, or set its path: sluice settings --emulator PATH"


def check(emulator: str) -> None:
    """Conflict for a QEMU that is missing, does not run, or does not know shapers."""
    if not os.access(emulator, os.X_OK):
        raise Conflict("emulator", emulator, "is not an executable file", REMEDY)
    try:
        probe = subprocess.run(
            [emulator, "-machine", "none", "-display", "none", "-object", "shaper,help"],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Conflict("emulator", emulator, f"does not run ({error})", REMEDY) from error
    if probe.returncode != 0:
        problem = "is a QEMU without shaping (no object type shaper)"
        raise Conflict("emulator", emulator, problem, REMEDY)


class Emulators:
    """What checks found, for as long as the files stay what they are.

    What went wrong is asked again after a while: the host may only have been busy.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._found: dict[tuple[str, int, int], tuple[str | None, float]] = {}

    def problem(self, emulator: str) -> str | None:
        """Why this one cannot shape; None if it can."""
        try:
            status = os.stat(emulator)
        except OSError as error:
            return f"emulator '{emulator}' cannot be found ({error.strerror}): {REMEDY}"
        key = emulator, status.st_ino, status.st_mtime_ns
        problem, at = self._found.get(key, ("", -math.inf))
        if problem is not None and self.monotonic() - at >= PROBLEM_AGE_SECONDS:
            try:
                check(emulator)
                problem = None
            except Conflict as error:
                problem = str(error)
            self._found[key] = problem, self.monotonic()
        return problem
