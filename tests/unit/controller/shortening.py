# SPDX-License-Identifier: GPL-2.0-or-later
"""Uses pages that somebody else shortens meanwhile; run as a program of its own.

Access to a mapping beyond the end of its file would end the process (SIGBUS), so
this cannot be tried in the process of the tests.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.group_pages import GroupPages
from sluice_controller.domain.counters import BadPage
from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.group_page import GroupLimit

READS = 3000
LIMIT = GroupLimit("bytes", 1_000_000, 65_536)
FASTER = GroupLimit("bytes", 2_000_000, 65_536)


def write_while_it_is_shortened(folder: Path) -> None:
    """The clock is asked between the look at the page and the change of it."""
    path = folder / "disks.group"

    def shorten_and_tell() -> int:
        os.truncate(path, 0)
        return 10**9

    GroupPages(folder, None, lambda: 10**9).ensure("disks", LIMIT)
    pages = GroupPages(folder, None, lambda: 2 * 10**9)
    pages.created_ns("disks")
    calls = iter([lambda: 2 * 10**9, lambda: 2 * 10**9, shorten_and_tell])
    pages.now_ns = lambda: next(calls)()
    try:
        pages.ensure("disks", FASTER)
    except BadValue as problem:
        print(problem)


def shorten_over_and_over(path: Path) -> None:
    """Make the file empty and whole again, for as long as whoever started this lives."""
    parent, whole = os.getppid(), path.read_bytes()
    descriptor = os.open(path, os.O_RDWR)
    while os.getppid() == parent:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, whole, 0)


def _count(path: Path, read: Callable[[], bool]) -> None:
    """Print what reading gives, and how often, while another process shortens the file."""
    other = subprocess.Popen([sys.executable, __file__, "shorten_over_and_over", str(path)])
    said: dict[str, int] = {}
    try:
        # Until the other one is at work, and a good while from then on.
        while len(said) < 2 or sum(said.values()) < READS:
            try:
                found = str(read())
            except (BadValue, BadPage) as problem:
                found = f"refused: {problem}"
            said[found] = said.get(found, 0) + 1
    finally:
        other.kill()
        other.wait()
    print("\n".join(f"{count} {words}" for words, count in said.items()))


def read_while_it_is_shortened(folder: Path) -> None:
    pages = GroupPages(folder, None, lambda: 10**9)
    pages.ensure("disks", LIMIT)
    _count(
        pages.path("disks"),
        lambda: pages.limit("disks") == LIMIT and pages.members("disks") == [],
    )


def read_counters_while_they_are_shortened(path: Path) -> None:
    pages = CountersPages(lambda: 10**9)
    _count(path, lambda: pages.read(str(path)).header.shaper_id == "sluice0")


def read_counters_that_are_shortened_then(path: Path) -> None:
    """The clock is asked between the look at the file and that at the page."""
    pages = CountersPages(lambda: os.truncate(path, 0) or 10**9)
    try:
        print(pages.read(str(path)))
    except BadPage as problem:
        print(f"refused: {problem}")


def shortened(case: str, place: Path) -> subprocess.CompletedProcess:
    """Run one of the cases above."""
    return subprocess.run(
        [sys.executable, __file__, case, str(place)], capture_output=True, text=True, timeout=120
    )


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
