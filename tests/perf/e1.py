# SPDX-License-Identifier: GPL-2.0-or-later
"""E1: what the shaper costs a guest that no limit touches (SCS Table 1, TAP Table 2).

*Two guests*, alike but for their QEMU: one runs the stock emulator, built from the
same source with the same options, the other the patched one with a shaper and no
limit. Both have disk rings of the size that attaching a shaper asks for. They
take turns at each load, in pairs, in an order that alternates, so that the
machine's slow minutes hit both. A pair gives one ratio. What is judged is the
median of all pairs' ratios, by its interval of 95 %: a single ratio says little
where the bar is one per cent.

*One guest*, the patched one, has each device twice: once with the shaper and once
without. Loads on both take short turns. Two guests differ for as long as they run,
by luck of where things lie in memory; one guest does not differ from itself. Its first
device may differ from its second: so there is another such guest, which has the shaper
on the other of the two. Where a device has its place is in neither's favour then.

Beside throughput of two guests, the CPU time of the QEMU process per unit of work is
compared: it says the same on a machine that is busy with other things.
"""

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import libvirt

from perf import loads, machine, turns
from perf.bars import COST_PAIRS_MIN
from perf.pooled import crossed_ratio, median_ratio
from perf.rings import disk_rings
from perf.rows import Rows
from perf.spread import spread
from testbed import CLIENT_ADDRESS, Guest, GuestSpec, Testbed, paths

TITLE = "patched and unlimited against stock"
# Pairs of a row, if nothing else is asked for.
REPEATS = COST_PAIRS_MIN
# In the order of their places.
DISKS, CARDS = ("vdb", "vdc"), ("eth0", "eth1")
SERVERS = (CLIENT_ADDRESS, machine.SECOND_CLIENT)
DISK = DISKS[0]
DISK_MIB = 256
DEPTH = 16
SECONDS = 5
# What attaching a shaper gives a disk that has no size of its own.
RING_SIZE = 1024
UNLIMITED_LINK_BPS = 5_000_000_000
# For so long, for each pair of guests that is asked for, loads of one guest take turns.
TURNS_SECONDS = 12
# One processor: with two, which of them a load, and its device's interrupts, happen to be
# on is worth more than what is to be seen.
VCPUS = 1
# In a definition that libvirt is given back.
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
QEMU_NS = "{http://libvirt.org/schemas/domain/qemu/1.0}"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# Places of devices, and of guests by the place of their shaper.
FIRST, SECOND = 0, 1
# What is added to the name of a part.
ONE_GUEST = ", one guest"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """A load and what it yields: units of work per second (requests, bytes)."""

    name: str
    part: str
    run: Callable[[Guest], float]
    # On the first device and on the second: the command for so many seconds, and the counter.
    beside: Callable[[int], tuple[turns.Load, turns.Load]]


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


def _fio_beside(request_bytes: int) -> Callable[[int], tuple[turns.Load, turns.Load]]:
    def load(disk: str, seconds: int) -> turns.Load:
        command = loads.fio("read", disk, request_bytes, DEPTH, seconds)
        return turns.Load(f"load-{disk}", command, f"/sys/block/{disk}/stat", DEPTH * 10)

    return lambda seconds: tuple(load(disk, seconds) for disk in DISKS)


def _tcp_beside(to_guest: bool) -> Callable[[int], tuple[turns.Load, turns.Load]]:
    def load(card: str, address: str, seconds: int) -> turns.Load:
        counter = f"/sys/class/net/{card}/statistics/{'rx' if to_guest else 'tx'}_bytes"
        command = loads.iperf(seconds, to_guest=to_guest, server=address)
        return turns.Load(f"load-{card}", command, counter, 2**20)

    return lambda seconds: tuple(load(*both, seconds) for both in zip(CARDS, SERVERS, strict=True))


def _tcp(to_guest: bool) -> Callable[[Guest], float]:
    def run(guest: Guest) -> float:
        return loads.iperf_bps(guest, SECONDS, to_guest=to_guest)

    return run


LOADS = (
    Load("fio 4 KiB, requests/s", "disk", _fio(4096), _fio_beside(4096)),
    Load("fio 128 KiB, requests/s", "disk", _fio(131072), _fio_beside(131072)),
    Load("TCP out, bytes/s", "network", _tcp(False), _tcp_beside(False)),
    Load("TCP in, bytes/s", "network", _tcp(True), _tcp_beside(True)),
)


def run(repeats: int, say: Say) -> dict[str, Any]:
    """Run the experiment; ``repeats`` is the number of pairs of each load."""
    stock_emulator = paths.require(paths.STOCK_BUILD, "make qemu-stock")
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed("perf-e1", link_bps=UNLIMITED_LINK_BPS))
        disk = machine.disk_in_memory(testbed, DISK_MIB)
        spec = {"disks": (disk, disk), "disk_queue_size": RING_SIZE, "nics": 2, "vcpus": VCPUS}
        emulator = stock_emulator.resolve()
        stock = testbed.add_guest(GuestSpec("stock", emulator=emulator, agent=False, **spec))
        patched = testbed.add_guest(GuestSpec("patched", agent=False, **spec))
        crossed = testbed.add_guest(GuestSpec("crossed", agent=False, **spec))
        testbed.start_controller()
        for guest, plain in ((patched, SECOND), (crossed, FIRST)):
            machine.attach(testbed, guest)
            _leave_out(guest, plain)
        for guest in (stock, patched, crossed):
            guest.start()
            say(f"guest {guest.name} ready after {guest.wait_ready():.0f} s")
        for guest in (patched, crossed):
            machine.await_shaper(testbed, guest)
        _require_like_rings(stock, patched, crossed)
        machine.second_network(testbed, patched, crossed)
        for address in SERVERS:
            stack.enter_context(loads.iperf_server(testbed, address))
        rows = Rows(say)
        for load in LOADS:
            row = partial(_row_of_one, load, (patched, crossed), repeats * TURNS_SECONDS, say)
            rows.add(load.part + ONE_GUEST, load.name, row)
        for load in LOADS:
            row = partial(_row, load, testbed, stock, patched, repeats, say)
            rows.add(load.part, load.name, row)
        return {
            "experiment": "E1",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"A run is a pair of {SECONDS} s each, in alternating order; in one guest it"
            f" is four turns of {turns.LOOK_SECONDS:g} s.",
            **rows.as_dict(),
        }


def _require_like_rings(stock: Guest, *shaped: Guest) -> None:
    """Raise NotAlike if the guests differ in more than their QEMU."""
    of_stock = [[ring.size for ring in disk_rings(stock, disk)] for disk in DISKS]
    for guest in shaped:
        sizes = [[ring.size for ring in disk_rings(guest, disk)] for disk in DISKS]
        if sizes != of_stock:
            raise machine.NotAlike(
                f"the disks have rings of {of_stock} in the stock guest and {sizes} in"
                f" {guest.name}; the stock QEMU must take queue_size {RING_SIZE}"
            )


def _leave_out(guest: Guest, place: int) -> None:
    """Take the shaper from the disk and the card in one of the two places again."""
    root = ET.fromstring(guest.domain.XMLDesc(INACTIVE))
    disks = {disk.find("target").get("dev"): disk for disk in root.iterfind("devices/disk")}
    plain = (disks[DISKS[place]], root.findall("devices/interface")[place])
    names = {device.find("alias").get("name") for device in plain}
    override = root.find(f"{QEMU_NS}override")
    for device in list(override):
        if device.get("alias") in names:
            override.remove(device)
    guest.domain.connect().defineXML(ET.tostring(root, encoding="unicode"))


def _row_of_one(
    load: Load, guests: tuple[Guest, Guest], seconds: float, say: Say
) -> dict[str, Any]:
    """Measure in one guest, then twice in the other, then in the first again."""
    found: list[list[turns.Turn]] = [[], []]
    part_seconds = seconds / 4
    both = load.beside(turns.commands_last(part_seconds))
    for number in (FIRST, SECOND, SECOND, FIRST):
        found[number] += turns.take(guests[number], both, part_seconds)
    row = {
        "part": load.part + ONE_GUEST,
        "subject": load.name,
        **figures_of_one(found, [one.unit for one in both]),
    }
    ratio, places = row["shaped_ratio"], row["place_ratio"]
    say(
        f"{load.name:<24} with a shaper ÷ without {ratio['median']:.3f}"
        f" ({ratio['min']:.3f} … {ratio['max']:.3f} with 95 %), {row['runs']} times four turns;"
        f" first device ÷ second {places['median']:.3f}"
    )
    return row


def figures_of_one(found: Sequence[Sequence[turns.Turn]], units: Sequence[str]) -> dict[str, Any]:
    """Return the figures of two guests' turns.

    ``units`` are the loads of the first device and of the second; the first guest has the
    shaper on the first. Raises ValueError if nothing was done in four turns.
    """
    rates = [[turns.rates(one, unit) for unit in units] for one in found]
    (shaped, plain), (crossed_plain, crossed_shaped) = rates
    return {
        "runs": len(shaped) + len(crossed_shaped),
        "shaped_ratio": crossed_ratio([(shaped, plain), (crossed_shaped, crossed_plain)]),
        "place_ratio": crossed_ratio([(shaped, plain), (crossed_plain, crossed_shaped)]),
        "plain": spread(plain + crossed_plain),
        "shaped": spread(shaped + crossed_shaped),
    }


def _row(
    load: Load, testbed: Testbed, stock: Guest, patched: Guest, pairs: int, say: Say
) -> dict[str, Any]:
    found: dict[str, list[Cost]] = {stock.name: [], patched.name: []}
    for order in orders(pairs, (stock, patched)):
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


def orders(pairs: int, both: tuple[Guest, Guest]) -> Iterator[tuple[Guest, Guest]]:
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
