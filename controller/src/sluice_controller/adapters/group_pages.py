# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of group pages: created whole, changed in place, never shortened.

QEMU processes keep them mapped, so a file lives on when the daemon ends, and is
taken up again by the next one.

A damaged page is made anew with an empty bucket, so damage gains nothing. Its members join the
new page, because its group's object has another id. A page of another Unix group than QEMU's
counts as damaged, too: users of that group may have it open.
"""

from __future__ import annotations

import logging
import os
import struct

from ..domain.errors import BadValue, NotFound
from ..domain.group_page import (
    MAGIC,
    GroupLimit,
    GroupMember,
    checked,
    members,
    new_page,
    read_limit,
    write_limit,
)
from .shared_pages import SharedPages

_WORD = struct.Struct("=Q")

log = logging.getLogger(__name__)


class GroupPages(SharedPages):
    """Pages by the names of their groups."""

    kind, suffix, magic = "group", ".group", MAGIC

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

    def limit(self, name: str) -> GroupLimit | None:
        """None if it is half written or damaged; ensure() repairs that."""
        return read_limit(self._read(name), self.now_ns())

    def members(self, name: str) -> list[GroupMember]:
        return members(self._read(name), self.now_ns())
