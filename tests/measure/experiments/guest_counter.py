# SPDX-License-Identifier: GPL-2.0-or-later
"""Bytes that a guest received, counted in the guest.

A counter of the host's tap has the bytes sent towards the guest, before its QEMU held or
dropped any of them. So a script in the guest reads its own card's counter. Times are the
guest's; the error of its clock against the host's is found from two moments that lie far apart.
"""

import time
from pathlib import Path
from typing import NamedTuple

from measure.experiments.accuracy import Sample
from testbed import Guest

SCRIPT = Path(__file__).with_name("count.sh")
UNIT = "count"
COUNTER = "/sys/class/net/eth0/statistics/rx_bytes"
# Of this many readings of the guest's clock the fastest counts.
MARKS = 5


class Mark(NamedTuple):
    """A moment by both clocks, and half of the time that asking the guest took."""

    host_seconds: float
    guest_seconds: float
    unsure_seconds: float


def start(guest: Guest, begun_bytes: int, seconds: float, patience_seconds: float) -> None:
    """Have the guest count from when it has received so many bytes."""
    guest.ssh("cat >/run/count.sh", input=SCRIPT.read_text())
    # Ahead of all that the load has the guest do, its kernel's threads too.
    words = f"{COUNTER} {begun_bytes} {seconds:.0f} {patience_seconds:.0f}"
    guest.spawn(f"exec chrt --fifo 1 bash /run/count.sh {words} >/run/count.log", unit=UNIT)


def finish(guest: Guest) -> list[Sample]:
    """Return the samples when their time is over. Raises ValueError if there are none."""
    guest.wait_unit(UNIT, timeout_seconds=60)
    return parse(guest.ssh("cat /run/count.log", timeout_seconds=60).stdout)


def parse(text: str) -> list[Sample]:
    """Read the script's lines. Raises ValueError if there is none."""
    rows = [[int(word) for word in line.split()] for line in text.splitlines()]
    if not rows:
        raise ValueError("the guest received nothing that could be counted")
    return [
        Sample((before + after) / 2e6, float(count), (after - before) / 2e6)
        for before, after, count in rows
    ]


def mark(guest: Guest) -> Mark:
    """Read the guest's clock beside the host's."""
    return min((_mark(guest) for _ in range(MARKS)), key=lambda one: one.unsure_seconds)


def _mark(guest: Guest) -> Mark:
    before = time.monotonic()
    told = guest.ssh("exec bash -c 'LC_ALL=C; echo $EPOCHREALTIME'").stdout
    after = time.monotonic()
    return Mark((before + after) / 2, float(told), (after - before) / 2)


def clock_error_ratio(first: Mark, last: Mark) -> float:
    """Return by how much the guest's clock may go wrong, whichever way.

    Raises ValueError if no time lies between the two.
    """
    passed = last.host_seconds - first.host_seconds
    if passed <= 0:
        raise ValueError("the two moments are the same")
    drift = (last.guest_seconds - first.guest_seconds) / passed - 1
    return abs(drift) + (first.unsure_seconds + last.unsure_seconds) / passed
