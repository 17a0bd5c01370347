# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of group pages: created whole, changed in place, never shortened.

QEMU processes keep them mapped, so a file lives on when the daemon ends, and is
taken up again by the next one.

They may also write it, and so shorten it. A program that then touches its mapping gets SIGBUS;
the daemon, which all guests of the host need, maps nothing: it reads copies and writes words
through the file. The creation time of a page is remembered as it was first seen, so a forged
time does not have the page made anew, with a full bucket.

A damaged page is made anew with an empty bucket, so damage gains nothing. Its members join the
new page, because its group's object has another id. A page of another Unix group than QEMU's
counts as damaged, too: users of that group may have it open.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import logging
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ..domain.errors import BadValue, NotFound
from ..domain.group_page import (
    PAGE_BYTES,
    GroupLimit,
    GroupMember,
    check_identity,
    checked,
    created_ns,
    members,
    new_page,
    read_limit,
    write_limit,
)

SUFFIX = ".group"
FILE_MODE = 0o660
DIRECTORY_MODE = 0o750
_WORD = struct.Struct("=Q")

log = logging.getLogger(__name__)


def _gid(group: str | None) -> int:
    """For chown; -1 leaves files as they are."""
    if group is None or os.geteuid() != 0:
        return -1
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        log.warning("there is no group %s: group pages are left to root", group)
        return -1


class GroupPages:
    """Pages by the names of their groups.

    `qemu_group` is the Unix group that QEMU runs with, or None to leave files to
    the daemon's own.
    """

    def __init__(self, folder: Path, qemu_group: str | None, now_ns: Callable[[], int]) -> None:
        self.folder = folder
        self.now_ns = now_ns
        self.gid = _gid(qemu_group)
        # Held while a page is made or written, which has one writer.
        self._writing = threading.Lock()
        self._made: dict[str, tuple[tuple[int, int], int]] = {}  # by name: file, created_ns

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

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
        """The groups that have a file."""
        return sorted(path.stem for path in self.folder.glob(f"*{SUFFIX}"))

    def ensure(self, name: str, limit: GroupLimit) -> None:
        """The page exists with this limit; one in use is changed in place.

        BadValue if a limit is out of range, or if the file is damaged meanwhile.
        """
        checked(limit)
        with self._writing:
            try:
                made_ns = self.created_ns(name)
            except NotFound:
                self._create(name, new_page(name, limit, self.now_ns()))
                return
            except BadValue as error:
                self._make_anew(name, limit, str(error))
                return
            if made_ns > self.now_ns():
                # From before the host was started anew, by another clock.
                self._create(name, new_page(name, limit, self.now_ns()))
                return
            self._write(name, limit)

    def renew(self, name: str, limit: GroupLimit, why: str) -> None:
        """Makes another page, even if the file looks whole."""
        with self._writing:
            self._make_anew(name, checked(limit), why)

    def _make_anew(self, name: str, limit: GroupLimit, why: str) -> None:
        self._create(name, new_page(name, limit, self.now_ns(), empty=True))
        log.error("group %s: its page is made anew, which its members join: %s", name, why)

    def _write(self, name: str, limit: GroupLimit) -> None:
        with self._opened(name, os.O_RDWR) as descriptor:
            before = self._copy(name, descriptor)
            found = read_limit(before, self.now_ns())
            if found == limit:
                return
            if found is not None and found.unit != limit.unit:
                # Nothing in the page means the same in another unit, and we never change it.
                self._make_anew(name, limit, f"it counts {found.unit}, not {limit.unit}")
                return

            # A reader that meets half a word finds that the check does not match.
            def put_word(offset: int, value: int) -> None:
                os.pwrite(descriptor, _WORD.pack(value), offset)

            write_limit(before, limit, self.now_ns(), put_word)
            # Shortened meanwhile, it would now be an odd bit of a page.
            self._copy(name, descriptor)

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
            raise NotFound("group", name, "has no page", "create the group") from None
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
            "group page",
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
        """A copy of the file; BadValue unless it is a group page."""
        # One byte more than there may be, so that a longer file is seen too.
        page = os.pread(descriptor, PAGE_BYTES + 1, 0)
        if len(page) != PAGE_BYTES:
            raise self._unusable(name, f"{len(page)} bytes were read, not {PAGE_BYTES}")
        found = check_identity(page)
        if found != name:
            raise self._unusable(name, f"it is the page of {found!r}")
        return page

    def _read(self, name: str) -> bytes:
        with self._opened(name) as descriptor:
            return self._copy(name, descriptor)

    def limit(self, name: str) -> GroupLimit | None:
        """None if it is half written or damaged; ensure() repairs that."""
        return read_limit(self._read(name), self.now_ns())

    def members(self, name: str) -> list[GroupMember]:
        return members(self._read(name), self.now_ns())

    def remove(self, name: str) -> None:
        """Takes the name away; members that still have the page keep it."""
        self._made.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))
