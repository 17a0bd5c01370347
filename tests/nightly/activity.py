# SPDX-License-Identifier: GPL-2.0-or-later
"""What guests move, from two readings of libvirt's counters. Pure.

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


def _sum(counters: Counters, group: str, ends: tuple[str, ...]) -> int:
    return sum(
        value
        for name, value in counters.items()
        if name.startswith(f"{group}.") and name.endswith(ends) and isinstance(value, int)
    )


def totals(counters: Counters) -> tuple[int, int, int]:
    """Return (disk bytes, network bytes, processor ns) of a domain so far."""
    disk = _sum(counters, "block", (".rd.bytes", ".wr.bytes"))
    network = _sum(counters, "net", (".rx.bytes", ".tx.bytes"))
    cpu = counters.get("cpu.time", 0)
    return disk, network, cpu if isinstance(cpu, int) else 0


def activity(
    before: Mapping[str, Counters], after: Mapping[str, Counters], seconds: float
) -> tuple[GuestActivity, ...]:
    """Return what each guest of ``after`` moved, in the order of names.

    A guest that was not there before has begun to run: all it did counts. One
    whose counters went back was started anew, or lost a device: what it has
    now counts.
    """
    if seconds <= 0:
        raise ValueError(f"{seconds} s between two readings")
    found = []
    for name in sorted(after):
        now = totals(after[name])
        then = totals(before.get(name, {}))
        moved = [n - t if n >= t else n for n, t in zip(now, then, strict=True)]
        disk, network, cpu_ns = (amount / seconds for amount in moved)
        found.append(GuestActivity(name, disk, network, cpu_ns / 1e9))
    return tuple(found)
