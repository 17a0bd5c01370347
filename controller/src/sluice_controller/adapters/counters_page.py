# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads counters pages from their files.

Nothing is mapped: QEMU may shorten its page, and a process that then touches a mapping of it
ends (SIGBUS). One broken QEMU must not take the daemon from all guests.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from ..domain.counters import BadPage, Reading, read_page

# QEMU's group may write the folder of pages: links in it are not followed, and opening a pipe
# there does not wait for its other end.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class CountersPages:
    """Opens the file anew for each reading, so that one which replaced it is seen."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self.monotonic_ns = monotonic_ns

    def read(self, path: str, before: Reading | None = None) -> Reading:
        """A reading; raises OSError or BadPage, both with a sentence to show.

        `before` is the last reading of this path: its unchanged parts are kept.
        """
        descriptor = os.open(path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise BadPage("the page is no regular file")
            return read_page(
                lambda offset, length: os.pread(descriptor, length, offset),
                status.st_size,
                self.monotonic_ns(),
                before,
            )
        finally:
            os.close(descriptor)
