# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests' traffic and processor time, from two readings of libvirt's counters. Pure.

libvirt's bulk statistics name the counters of a domain ``cpu.time`` (ns),
``block.N.rd.bytes``, ``block.N.wr.bytes``, ``net.N.rx.bytes`` and
``net.N.tx.bytes`` (bytes since the domain's start).
"""

from collections.abc import Mapping
from dataclasses import dataclass

Counters = Mapping[str, object]


@dataclass(frozen=True)
class GuestActivity:
    """One running guest: bytes per second, and how many processors it kept busy."""

    name: str
    disk_bytes_per_s: float
    net_bytes_per_s: float
    processors: float


DISK = ("block.", (".rd.bytes", ".wr.bytes"))
NETWORK = ("net.", (".rx.bytes", ".tx.bytes"))
PROCESSORS = ("cpu.time", ("",))


def _of(counters: Counters, group: tuple[str, tuple[str, ...]]) -> dict[str, int]:
    begin, ends = group
    return {
        name: value
        for name, value in counters.items()
        if name.startswith(begin) and name.endswith(ends) and isinstance(value, int)
    }


def tells_disks(counters: Counters) -> bool:
    """Whether a guest's disks are told of; libvirt leaves that out during some of its jobs."""
    return not counters.get("block.count") or bool(_of(counters, DISK))


def _moved(before: Counters | None, after: Counters, group: tuple[str, tuple[str, ...]]) -> int:
    now = _of(after, group)
    if before is None:
        return sum(now.values())
    then = _of(before, group)
    both = [(now[name], then[name]) for name in now if name in then]
    return sum(new - old if new >= old else new for new, old in both)


def activity(
    before: Mapping[str, Counters], after: Mapping[str, Counters], seconds: float
) -> tuple[GuestActivity, ...]:
    """Return the activity of each guest of ``after``, in the order of names.

    A guest that is new in ``after`` has begun to run: its counters count whole. Where a counter
    went back, the guest was started anew, or has another device: its new value counts. A
    counter that was missing before says nothing yet.
    """
    if seconds <= 0:
        raise ValueError(f"{seconds} s between two readings")
    found = []
    for name in sorted(after):
        disk, network, cpu_ns = (
            _moved(before.get(name), after[name], group) / seconds
            for group in (DISK, NETWORK, PROCESSORS)
        )
        found.append(GuestActivity(name, disk, network, cpu_ns / 1e9))
    return tuple(found)
