# SPDX-License-Identifier: GPL-2.0-or-later
"""Maps counters pages and reads them."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable

from ..domain.counters import (
    PAGE_BYTES,
    PAGE_BYTES_LIMIT,
    BadPage,
    Reading,
    read_header,
    read_page,
)


class CountersPages:
    """Keeps one mapping per path, and maps again when the file was replaced."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self.monotonic_ns = monotonic_ns
        self._maps: dict[str, tuple[tuple[int, int], mmap.mmap]] = {}

    def read(self, path: str) -> Reading:
        """A reading; raises OSError or BadPage, both with a sentence to show."""
        page = self._mapped(path)
        return read_page(page, self.monotonic_ns())

    def _mapped(self, path: str) -> mmap.mmap:
        status = os.stat(path)
        identity = (status.st_dev, status.st_ino)
        known = self._maps.get(path)
        if known is not None and known[0] == identity:
            return known[1]
        self.forget(path)
        if status.st_size < PAGE_BYTES:
            raise BadPage(f"the page has {status.st_size} bytes, expected {PAGE_BYTES}")
        size = min(status.st_size, PAGE_BYTES_LIMIT)
        with open(path, "rb") as file:
            page = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        try:
            read_header(page)
        except BadPage:
            page.close()
            raise
        self._maps[path] = (identity, page)
        return page

    def forget(self, path: str) -> None:
        known = self._maps.pop(path, None)
        if known is not None:
            with contextlib.suppress(BufferError):
                known[1].close()

    def paths(self) -> set[str]:
        return set(self._maps)
