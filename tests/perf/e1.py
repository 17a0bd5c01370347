# SPDX-License-Identifier: GPL-2.0-or-later
"""E1: what the shaper costs a guest that no limit touches (SCS Table 1, TAP Table 2).

*Two guests*, alike but for their QEMU: one runs the stock emulator, built from the
same source with the same options, the other the patched one with a shaper and no
limit. Both have disk rings of the size that attaching a shaper asks for. The same load
runs in both, and they take turns of a fifth of a second, in which the other's QEMU is
stopped, so that the machine's slow moments hit both. Processes of one emulator differ by
some per cent, too, though they go on from the same saved guest: so both are saved, and
restored into new processes several times.

*One guest*, the patched one, has each device twice: once with the shaper and once
without. Loads on both take short turns. Its first device may differ from its second: so
there is another such guest, which has the shaper on the other of the two, and what
favours a place cancels out.

Guests, and the devices of one, differ for as long as they run, for no reason that can be
told, and by more than the bar of one per cent. So there are *rounds*, and all guests
are booted anew in each. A round gives one ratio. What is judged is the geometric mean
of all rounds, by its interval of 95 % from drawing rounds anew.

Beside throughput of two guests, the CPU time of the QEMU process per unit of work is
compared: it says the same on a machine that is busy with other things.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import libvirt

from perf import guest_turns, loads, machine, turns
from perf.bars import COST_ROUNDS_MIN, Row
from perf.choice import Choice
from perf.pooled import mean_ratio
from perf.rings import disk_rings
from perf.rows import Rows
from perf.spread import spread
from perf.subjects.net import tap_of
from testbed import CLIENT_ADDRESS, Guest, GuestSpec, Testbed, paths

TITLE = "patched and unlimited against stock"
# Rounds, if nothing else is asked for.
REPEATS = COST_ROUNDS_MIN
# In the order of their places.
DISKS, CARDS = ("vdb", "vdc"), ("eth0", "eth1")
SERVERS = (CLIENT_ADDRESS, machine.SECOND_CLIENT)
DISK_MIB = 256
DEPTH = 16
# What attaching a shaper gives a disk that has no size of its own.
RING_SIZE = 1024
UNLIMITED_LINK_BPS = 5_000_000_000
# For so long loads of one guest take turns in each round.
TURNS_SECONDS = 12
# So often two guests are restored in each round, and take turns for so long with each load.
RESTORES = 4
RESTORED_SECONDS = 7
# A server of iperf3 serves one flow, so each of two guests has a port.
PORTS = (loads.IPERF_PORT, loads.IPERF_PORT + 1)
STOCK, PATCHED, CROSSED = "stock", "patched", "crossed"
# One processor: with two, which of them a load, and its device's interrupts, happen to be
# on is worth more than what is to be seen.
VCPUS = 1
# In a definition that libvirt is given back.
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
QEMU_NS = "{http://libvirt.org/schemas/domain/qemu/1.0}"
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
    # On a guest's first device and on its second, for so many seconds.
    beside: Callable[[int], tuple[turns.Load, turns.Load]]
    # On the first devices of two guests, for so many seconds.
    across: Callable[[Guest, Guest, int], tuple[guest_turns.Load, guest_turns.Load]]


def _disk_load(name: str, request_bytes: int) -> Load:
    def command(disk: str, seconds: int) -> str:
        return loads.fio("read", disk, request_bytes, DEPTH, seconds)

    def on(disk: str, seconds: int) -> turns.Load:
        counter = f"/sys/block/{disk}/stat"
        return turns.Load(f"load-{disk}", command(disk, seconds), counter, DEPTH * 10)

    def of(guest: Guest, seconds: int) -> guest_turns.Load:
        def count() -> float:
            reads, *_ = guest.domain.blockStats(DISKS[0])
            return reads

        return guest_turns.Load(guest, command(DISKS[0], seconds), count, DEPTH * 10)

    return Load(
        name,
        "disk",
        lambda seconds: tuple(on(disk, seconds) for disk in DISKS),
        lambda one, other, seconds: (of(one, seconds), of(other, seconds)),
    )


def _tcp_load(name: str, to_guest: bool) -> Load:
    def on(card: str, address: str, seconds: int) -> turns.Load:
        counter = f"/sys/class/net/{card}/statistics/{'rx' if to_guest else 'tx'}_bytes"
        command = loads.iperf(seconds, to_guest=to_guest, server=address)
        return turns.Load(f"load-{card}", command, counter, 2**20)

    def of(guest: Guest, port: int, seconds: int) -> guest_turns.Load:
        tap = tap_of(guest)

        def count() -> float:
            received_bytes, _, _, _, sent_bytes, *_ = guest.domain.interfaceStats(tap)
            return received_bytes if to_guest else sent_bytes

        command = loads.iperf(seconds, to_guest=to_guest, port=port)
        return guest_turns.Load(guest, command, count, 2**20)

    return Load(
        name,
        "network",
        lambda seconds: tuple(on(*both, seconds) for both in zip(CARDS, SERVERS, strict=True)),
        lambda one, other, seconds: (of(one, PORTS[0], seconds), of(other, PORTS[1], seconds)),
    )


LOADS = (
    _disk_load("fio 4 KiB, requests/s", 4096),
    _disk_load("fio 128 KiB, requests/s", 131072),
    _tcp_load("TCP out, bytes/s", to_guest=False),
    _tcp_load("TCP in, bytes/s", to_guest=True),
)


@dataclass
class Round:
    """What one load did while the same guests ran.

    ``across`` are the turns of the stock guest and the patched one, each time that they were
    restored; ``taken`` are those of the guest that has the shaper on its first devices, then
    those of the one that has it on its second.
    """

    across: list[Sequence[turns.Turn]] = field(default_factory=list)
    taken: list[Sequence[turns.Turn]] = field(default_factory=list)


class Guests(NamedTuple):
    stock: Guest
    # Has the shaper on its first devices, and the next on its second.
    patched: Guest
    crossed: Guest


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; ``repeats`` is the number of rounds. Returns the wanted rows."""
    stock_emulator = paths.require(paths.STOCK_BUILD, "make qemu-stock")
    rows = Rows(say, choice)
    rounds: dict[str, list[Round]] = {load.name: [] for load in LOADS}
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed("perf-e1", link_bps=UNLIMITED_LINK_BPS))
        guests = _defined(testbed, stock_emulator)
        machine.second_client(testbed)
        for address, port in (
            (SERVERS[0], PORTS[0]),
            (SERVERS[1], PORTS[0]),
            (SERVERS[0], PORTS[1]),
        ):
            stack.enter_context(loads.iperf_server(testbed, address, port=port))
        for number in range(repeats):
            name = f"round {number + 1} of {repeats}"
            measure = partial(_round, testbed, guests, number, rounds, rows, say, name)
            rows.guard("guests", name, measure)
        accelerator = testbed.accelerator.name
    for load in LOADS:
        for part, figures in ((load.part + ONE_GUEST, figures_of_one), (load.part, figures_of_two)):
            rows.add(part, load.name, partial(_row, part, load, figures, rounds[load.name]))
    return {
        "experiment": "E1",
        "title": TITLE,
        "accelerator": accelerator,
        "repeats": repeats,
        "note": f"A run is a round, for which all guests are booted: {TURNS_SECONDS} s of turns of"
        f" {turns.LOOK_SECONDS:g} s in each of two, and, {RESTORES} times, {RESTORED_SECONDS} s of"
        f" turns of {guest_turns.LOOK_SECONDS:g} s of two that are restored.",
        **rows.as_dict(),
    }


def _defined(testbed: Testbed, stock_emulator: Path) -> Guests:
    """Define the three guests, and attach the shapers; none of them runs yet."""
    disk = machine.disk_in_memory(testbed, "memory", DISK_MIB, readonly=True)
    spec = {
        "agent": False,
        "disks": (disk, disk),
        "disk_queue_size": RING_SIZE,
        "nics": 2,
        "vcpus": VCPUS,
    }
    guests = Guests(
        testbed.add_guest(GuestSpec(STOCK, emulator=stock_emulator.resolve(), **spec)),
        testbed.add_guest(GuestSpec(PATCHED, **spec)),
        testbed.add_guest(GuestSpec(CROSSED, **spec)),
    )
    testbed.start_controller()
    for guest, plain in ((guests.patched, SECOND), (guests.crossed, FIRST)):
        machine.attach(testbed, guest)
        _leave_out(guest, plain)
    return guests


@contextmanager
def _booted(testbed: Testbed, guests: Guests, number: int, say: Say) -> Iterator[None]:
    """Have all guests run, alike and with both their networks.

    In which order they are booted may be worth something too: it alternates.
    """
    try:
        for guest in order(number, guests):
            guest.start()
            say(f"guest {guest.name} ready after {guest.wait_ready():.0f} s")
        for number, guest in enumerate((guests.patched, guests.crossed)):
            machine.await_shaper(testbed, guest)
            machine.second_address(guest, number)
        for guest in guests:
            machine.main_loop_apart(guest)
        _require_like_rings(*guests)
        yield
    finally:
        for guest in guests:
            guest.stop()


def _round(
    testbed: Testbed,
    guests: Guests,
    number: int,
    rounds: dict[str, list[Round]],
    rows: Rows,
    say: Say,
    name: str,
) -> None:
    """Boot the guests and measure each load; what fails is left out, and the rest is there."""
    found = {load.name: Round() for load in LOADS}
    for load in LOADS:
        rounds[load.name].append(found[load.name])
    with _booted(testbed, guests, number, say):
        for load in LOADS:
            take = partial(_take_turns, load, guests, number, found[load.name])
            rows.attempt(load.part + ONE_GUEST, load.name, take)
            _tell(load, f"{name}: {load.name}", found[load.name], say)
        if rows.choice.of([(load.part, load.name) for load in LOADS]):
            guests.crossed.stop()
            _restore_and_take_turns(testbed, guests, number, found, rows, say, name)


def _restore_and_take_turns(
    testbed: Testbed,
    guests: Guests,
    number: int,
    found: dict[str, Round],
    rows: Rows,
    say: Say,
    name: str,
) -> None:
    with TemporaryDirectory(prefix="saved-", dir=testbed.folder) as saved:
        for guest in (guests.stock, guests.patched):
            guest.save(Path(saved, guest.name))
        for again in range(RESTORES):
            both = order(number + again, (guests.stock, guests.patched))
            with _restored(testbed, guests.patched, both, Path(saved)):
                for load in LOADS:
                    one = Round()
                    take = partial(_take_turns_across, load, testbed, both, one)
                    rows.attempt(load.part, load.name, take)
                    found[load.name].across += one.across
                    _tell(load, f"{name}, {again + 1} of {RESTORES}: {load.name}", one, say)


@contextmanager
def _restored(
    testbed: Testbed, patched: Guest, both: Sequence[Guest], saved: Path
) -> Iterator[None]:
    """Have both go on where they were saved, in processes of their own, and stop them again."""
    try:
        for guest in both:
            guest.restore(saved / guest.name)
        for guest in both:
            guest.wait_ready()
            machine.main_loop_apart(guest)
        machine.await_shaper(testbed, patched)
        yield
    finally:
        for guest in both:
            guest.stop()


def _take_turns(load: Load, guests: Guests, number: int, found: Round) -> None:
    both = load.beside(turns.commands_last(TURNS_SECONDS))
    mine = (guests.patched, guests.crossed)
    # Not in step with the order of booting.
    in_turn = order(number // 2, mine)
    taken = {guest.name: turns.take(guest, both, TURNS_SECONDS) for guest in in_turn}
    done = [taken[guest.name] for guest in mine]
    # One in which nothing was done must not spoil the figures of all rounds.
    figures_of_one(load, [Round(taken=done)])
    found.taken = done


def _take_turns_across(
    load: Load, testbed: Testbed, both: tuple[Guest, Guest], found: Round
) -> None:
    last = turns.commands_last(RESTORED_SECONDS)
    taken = guest_turns.take(testbed, load.across(*both, last), RESTORED_SECONDS)
    figures_of_two(load, [Round(across=[taken])])
    found.across = [taken]


def order(number: int, all_of_them: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return in which order they come for the time of that number: it alternates."""
    return all_of_them if number % 2 == 0 else all_of_them[::-1]


def _tell(load: Load, what: str, found: Round, say: Say) -> None:
    """Say what was measured, if anything was; an interval of one round has no width."""
    if found.taken:
        ratio = figures_of_one(load, [found])["shaped_ratio"]["median"]
        say(f"{what}, with a shaper ÷ without {ratio:.3f}")
    if found.across:
        ratio = figures_of_two(load, [found])["pooled_ratio"]["median"]
        say(f"{what}, patched ÷ stock {ratio:.3f}")


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


def _row(
    part: str, load: Load, figures: Callable[[Load, Sequence[Round]], Row], rounds: Sequence[Round]
) -> Row:
    return {"part": part, "subject": load.name, **figures(load, rounds)}


def figures_of_one(load: Load, rounds: Sequence[Round]) -> Row:
    """Return the figures of the rounds' turns, with and without a shaper in one guest.

    Raises ValueError if nothing was done in four turns, or there is no round with turns.
    """
    units = [one.unit for one in load.beside(0)]
    rates = [
        [[turns.rates(taken, unit) for unit in units] for taken in one.taken]
        for one in rounds
        if one.taken
    ]
    both = [
        (_median_ratio(first, second), _median_ratio(crossed_second, crossed_first))
        for (first, second), (crossed_first, crossed_second) in rates
    ]
    return {
        "runs": len(rates),
        # Where the second guest has no shaper is where the first has one.
        "shaped_ratio": mean_ratio([geometric_mean(ratios) for ratios in both]),
        "place_ratio": mean_ratio([(one / other) ** 0.5 for one, other in both]),
        "plain": spread([rate for (_, one), (other, _) in rates for rate in (*one, *other)]),
        "shaped": spread([rate for (one, _), (_, other) in rates for rate in (*one, *other)]),
    }


def figures_of_two(_load: Load, rounds: Sequence[Round]) -> Row:
    """Return the figures of the rounds' turns of the patched guest and the stock one.

    Raises ValueError if nothing was done in four turns, or there is no round with turns.
    """
    each = [one.across for one in rounds if one.across]
    rates = [
        [[turns.rates(taken, unit) for unit in (PATCHED, STOCK)] for taken in restores]
        for restores in each
    ]
    ratios = [geometric_mean([_median_ratio(*both) for both in restores]) for restores in rates]
    cpu = [
        [guest_turns.cpu_per_work(list(chain(*restores)), unit) for unit in (PATCHED, STOCK)]
        for restores in each
    ]
    return {
        "runs": len(each),
        "stock": spread([rate for restores in rates for _, its in restores for rate in its]),
        "patched": spread([rate for restores in rates for mine, _ in restores for rate in mine]),
        "pooled_ratio": mean_ratio(ratios),
        "cpu_ratio": mean_ratio([_ratio(mine, its) for mine, its in cpu]),
    }


def _median_ratio(mine: Sequence[float], its: Sequence[float]) -> float:
    return median(_ratio(*both) for both in zip(mine, its, strict=True))


def _ratio(mine: float, its: float) -> float:
    if not (mine > 0 and its > 0):
        raise ValueError("in one of a pair nothing was done")
    return mine / its
