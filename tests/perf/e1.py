# SPDX-License-Identifier: GPL-2.0-or-later
"""E1: what the shaper costs a guest that no limit touches (SCS Table 1, TAP Table 2).

Two guests, alike but for their QEMU: one runs the stock emulator, built from the
same source with the same options, the other the patched one with a shaper and no
limit. Both have disk rings of the size that attaching a shaper asks for. They
take turns at each load, in pairs, in an order that alternates, so that the
machine's slow minutes hit both. A pair gives one ratio. What is judged is the
median of all pairs' ratios, by its interval of 95 %: a single ratio says little
where the bar is one per cent.

Beside throughput, the CPU time of the QEMU process per unit of work is compared:
it says the same on a machine that is busy with other things.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from perf import loads, machine
from perf.bars import COST_PAIRS_MIN
from perf.pooled import median_ratio
from perf.rings import disk_rings
from perf.rows import Rows
from perf.spread import spread
from testbed import FileDisk, Guest, GuestSpec, Testbed, paths

TITLE = "patched and unlimited against stock"
# Pairs of a row, if nothing else is asked for.
REPEATS = COST_PAIRS_MIN
DISK = "vdb"
DEPTH = 16
SECONDS = 5
# What attaching a shaper gives a disk that has no size of its own.
RING_SIZE = 1024
UNLIMITED_LINK_BPS = 5_000_000_000
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """A load and what it yields: units of work per second (requests, bytes)."""

    name: str
    part: str
    run: Callable[[Guest], float]


class Cost(NamedTuple):
    """Units of work per second, and CPU seconds of QEMU for each unit."""

    work: float
    cpu_seconds: float


def _fio(request_bytes: int) -> Callable[[Guest], float]:
    def run(guest: Guest) -> float:
        command = loads.fio_logged("read", DISK, request_bytes, DEPTH, SECONDS)
        guest.ssh(command, timeout_seconds=SECONDS + 60)
        return float(loads.fio_result(guest, "read")["iops"])

    return run


def _tcp(to_guest: bool) -> Callable[[Guest], float]:
    def run(guest: Guest) -> float:
        return loads.iperf_bps(guest, SECONDS, to_guest=to_guest)

    return run


LOADS = (
    Load("fio 4 KiB, requests/s", "disk", _fio(4096)),
    Load("fio 128 KiB, requests/s", "disk", _fio(131072)),
    Load("TCP out, bytes/s", "network", _tcp(False)),
    Load("TCP in, bytes/s", "network", _tcp(True)),
)


def run(repeats: int, say: Say) -> dict[str, Any]:
    """Run the experiment; ``repeats`` is the number of pairs of each load."""
    stock_emulator = paths.require(paths.STOCK_BUILD, "make qemu-stock")
    disks = (FileDisk(paths.image("media-data.img"), readonly=True),)
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed("perf-e1", link_bps=UNLIMITED_LINK_BPS))
        spec = {"disks": disks, "disk_queue_size": RING_SIZE, "agent": False}
        stock = testbed.add_guest(GuestSpec("stock", emulator=stock_emulator.resolve(), **spec))
        patched = testbed.add_guest(GuestSpec("patched", **spec))
        testbed.start_controller()
        machine.attach(testbed, patched)
        for guest in (stock, patched):
            guest.start()
            say(f"guest {guest.name} ready after {guest.wait_ready():.0f} s")
        machine.await_shaper(testbed, patched)
        _require_like_rings(stock, patched)
        stack.enter_context(loads.iperf_server(testbed))
        rows = Rows(say)
        for load in LOADS:
            row = partial(_row, load, testbed, stock, patched, repeats, say)
            rows.add(load.part, load.name, row)
        return {
            "experiment": "E1",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"A run is a pair of {SECONDS} s each, in alternating order.",
            **rows.as_dict(),
        }


def _require_like_rings(stock: Guest, patched: Guest) -> None:
    """Raise NotAlike if the guests differ in more than their QEMU."""
    sizes = [[ring.size for ring in disk_rings(guest, DISK)] for guest in (stock, patched)]
    if sizes[0] != sizes[1]:
        raise machine.NotAlike(
            f"{DISK} has rings of {sizes[0]} in the stock guest and {sizes[1]} in the patched one;"
            f" the stock QEMU must take queue_size {RING_SIZE}"
        )


def _row(
    load: Load, testbed: Testbed, stock: Guest, patched: Guest, pairs: int, say: Say
) -> dict[str, Any]:
    found: dict[str, list[Cost]] = {stock.name: [], patched.name: []}
    for order in turns(pairs, (stock, patched)):
        for guest in order:
            found[guest.name].append(_measure(load, testbed, guest))
    row = {
        "part": load.part,
        "subject": load.name,
        "runs": pairs,
        **figures(found[stock.name], found[patched.name]),
    }
    ratio, cpu = row["pooled_ratio"], row["cpu_ratio"]
    say(
        f"{load.name:<24} patched ÷ stock {ratio['median']:.3f}"
        f" ({ratio['min']:.3f} … {ratio['max']:.3f} with 95 %),"
        f" CPU time {cpu['median']:.3f} ({cpu['min']:.3f} … {cpu['max']:.3f})"
    )
    return row


def turns(pairs: int, both: tuple[Guest, Guest]) -> Iterator[tuple[Guest, Guest]]:
    """Return in which order each pair is measured: it alternates."""
    for number in range(pairs):
        yield both if number % 2 == 0 else both[::-1]


def figures(stock: Sequence[Cost], patched: Sequence[Cost]) -> dict[str, dict[str, float]]:
    """Return a row's figures. Raises ValueError if nothing was done in one of a pair."""
    theirs, mine = ([one.work for one in costs] for costs in (stock, patched))
    pooled = median_ratio(mine, theirs)
    pairs = list(zip(patched, stock, strict=True))
    return {
        "stock": spread(theirs),
        "patched": spread(mine),
        "pooled_ratio": pooled,
        "throughput_ratio": spread([one.work / its.work for one, its in pairs]),
        "cpu_ratio": spread([one.cpu_seconds / its.cpu_seconds for one, its in pairs]),
    }


def _measure(load: Load, testbed: Testbed, guest: Guest) -> Cost:
    before = _cpu_seconds(testbed, guest)
    work = load.run(guest)
    used = _cpu_seconds(testbed, guest) - before
    if not (work > 0 and used > 0):
        raise ValueError(f"{guest.name} did {work:g} {load.name} with {used:g} s of CPU time")
    return Cost(work, used / (work * SECONDS))


def _cpu_seconds(testbed: Testbed, guest: Guest) -> float:
    stat = testbed.sandbox.path(f"/proc/{guest.qemu_pid()}/stat").read_text()
    # After the name in parentheses: state is field 3, utime 14, stime 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
