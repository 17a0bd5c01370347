# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that QEMU processes map together: the pages of groups, and of devices' gates.

They may also write one, and so shorten it. A program that then touches its mapping gets SIGBUS;
the daemon, which all guests of the host need, maps nothing: it reads copies and writes words
through the file. The creation time of a page is remembered as it was first seen, so a forged
time does not have the page made anew.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from ..domain.errors import BadValue, NotFound
from ..domain.group_page import PAGE_BYTES, check_identity, created_ns

FILE_MODE = 0o660
DIRECTORY_MODE = 0o750

log = logging.getLogger(__name__)


def _gid(group: str | None) -> int:
    """For chown; -1 leaves files as they are."""
    if group is None or os.geteuid() != 0:
        return -1
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        log.warning("there is no group %s: shared pages are left to root", group)
        return -1


class SharedPages:
    """Pages by their names.

    `qemu_group` is the Unix group that QEMU runs with, or None to leave files to
    the daemon's own.
    """

    kind: ClassVar[str]
    suffix: ClassVar[str]
    magic: ClassVar[bytes]

    def __init__(self, folder: Path, qemu_group: str | None, now_ns: Callable[[], int]) -> None:
        self.folder = folder
        self.now_ns = now_ns
        self.gid = _gid(qemu_group)
        # Held while a page is made or written, which has one writer.
        self._writing = threading.Lock()
        self._made: dict[str, tuple[tuple[int, int], int]] = {}  # by name: file, created_ns

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{self.suffix}"

    def created_ns(self, name: str) -> int:
        """When the page was made: another page has another."""
        with self._opened(name) as descriptor:
            page = self._copy(name, descriptor)
            return self._first_seen(name, descriptor, page)

    def _first_seen(self, name: str, descriptor: int, page: bytes) -> int:
        status = os.fstat(descriptor)
        file = (status.st_dev, status.st_ino)
        known, when_ns = self._made.get(name, (None, 0))
        if known != file:
            when_ns = created_ns(page)
            self._made[name] = (file, when_ns)
        return when_ns

    def names(self) -> list[str]:
        """The names that have a file."""
        return sorted(path.stem for path in self.folder.glob(f"*{self.suffix}"))

    def _create(self, name: str, page: bytes) -> None:
        """The file appears whole, and with its rights."""
        self.folder.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        os.chown(self.folder, -1, self.gid)
        temporary = self.folder / f".{name}.{os.getpid()}"
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchown(descriptor, -1, self.gid)
                os.fchmod(descriptor, FILE_MODE)
                file.write(page)
                self._made.pop(name, None)
                self._first_seen(name, descriptor, page)
            os.rename(temporary, self.path(name))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        # Neither a link is followed nor a writer of a pipe waited for.
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self.path(name), flags)
        except FileNotFoundError:
            raise NotFound(self.kind, name, "has no page", f"create the {self.kind}") from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise self._unusable(name, "it is a link") from None
        try:
            self._check_file(name, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _unusable(self, name: str, why: str) -> BadValue:
        return BadValue(
            f"{self.kind} page",
            str(self.path(name)),
            f"is unusable: {why}",
            "nothing to do; sluiced makes it anew",
        )

    def _check_file(self, name: str, status: os.stat_result) -> None:
        """QEMU asks for no less."""
        if not stat.S_ISREG(status.st_mode):
            raise self._unusable(name, "it is not a file")
        if status.st_uid != os.geteuid():
            raise self._unusable(name, f"it belongs to user {status.st_uid}")
        if self.gid not in (-1, status.st_gid):
            raise self._unusable(name, f"it belongs to group {status.st_gid}, not {self.gid}")
        if status.st_mode & stat.S_IWOTH:
            raise self._unusable(name, "everybody may write it")

    def _copy(self, name: str, descriptor: int) -> bytes:
        """A copy of the file; BadValue unless it is such a page."""
        # One byte more than there may be, so that a longer file is seen too.
        page = os.pread(descriptor, PAGE_BYTES + 1, 0)
        if len(page) != PAGE_BYTES:
            raise self._unusable(name, f"{len(page)} bytes were read, not {PAGE_BYTES}")
        found = check_identity(page, self.magic)
        if found != name:
            raise self._unusable(name, f"it is the page of {found!r}")
        return page

    def _read(self, name: str) -> bytes:
        with self._opened(name) as descriptor:
            return self._copy(name, descriptor)

    def remove(self, name: str) -> None:
        """Takes the name away; members that still have the page keep it."""
        self._made.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))
