# SPDX-License-Identifier: GPL-2.0-or-later
"""E1: the cost of the shaper for a guest that no limit touches (SCS Table 1, TAP Table 2).

A guest is booted and saved, its load under way. The saved guest then goes on, many times, under
the stock emulator and under the patched one, built from the same source with the same options;
there it has a shaper, and no limit. So both begin alike in all that the guest's memory holds.
Two of these guests run at the same time, each with one of the host's processors for all of its
QEMU (``lanes``): the shaper's time is missing in the guest.

Each process differs from the next by some per cent for its whole life, whichever its emulator;
so there are hundreds, and each is measured once. They come in fours: stock, patched, patched,
stock in one lane, and at the same time the other way round in the other. A four gives a ratio,
a *round* the mean of its fours; in each round guests are booted anew, and both emulators are
linked anew, since the places of their functions are luck, too (``layouts``). The judged figure
is the geometric mean of all rounds, by its interval of 95 % from drawing rounds anew.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

import libvirt

from measure import loads
from measure.experiments import lanes, layouts, machine
from measure.experiments.bars import COST_ROUNDS_MIN, Row
from measure.experiments.choice import Choice
from measure.experiments.lanes import Lane
from measure.experiments.pooled import mean_ratio
from measure.experiments.rows import Rows
from measure.experiments.spread import spread
from measure.experiments.subjects.net import tap_of
from measure.experiments.twin import emulator_of, on_processor, under, under_stock
from measure.qmp import ask
from testbed import Guest, GuestSpec, Task, Testbed, paths

TITLE = "patched and unlimited against stock"
# Rounds, if nothing else is asked for.
REPEATS = COST_ROUNDS_MIN
STOCK, PATCHED = "stock", "patched"
# A guest's disk and the ring that attaching a shaper gives it.
DISK = "vdb"
RING_SIZE = 1024
DISK_MIB = 256
DEPTH = 16
UNLIMITED_LINK_BPS = 5_000_000_000
# So many guests at the same time, if the host has as many processors.
LANES = 2
# The order of a lane's emulators; the other lane has the other emulator at any time.
FOUR = (STOCK, PATCHED, PATCHED, STOCK)
# In a definition that libvirt is given back.
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
# How long a load runs before its guest is saved.
UNDER_WAY_SECONDS = 2.0
# From each end of a round's ratios so much is left out: TCP may lose a moment by itself.
TRIMMED = 0.1
Say = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """A load, and the unit of its work: requests or bytes.

    ``command`` is the guest's part, which is under way when the guest is saved; ``client`` the
    part of the sender or receiver outside, if there is one, which begins with each process.
    ``fours`` is the number in a round, greater for loads whose processes differ more (3.5 to
    5.4 %, by the scatter of rounds): twenty rounds have a standard error of 0.25 to 0.3 % from
    that.
    """

    name: str
    part: str
    command: str
    count: Callable[[Guest], Callable[[], float]]
    # Growth of the count that nothing else in the guest makes.
    begun: float
    # The shaper's resource, and the name of its counter of work.
    resource: str
    counter: str
    fours: int
    client: Callable[[Guest], list[str]] | None = None


def _disk_load(name: str, request_bytes: int, fours: int) -> Load:
    def count(guest: Guest) -> Callable[[], float]:
        return lambda: guest.domain.blockStats(DISK)[0]

    return Load(
        name,
        "disk",
        loads.fio("read", DISK, request_bytes, DEPTH, 3600),
        count,
        begun=DEPTH * 10,
        resource="blk-read",
        counter="requests",
        fours=fours,
    )


def _tcp_load(name: str, to_guest: bool, fours: int) -> Load:
    """Return one TCP flow. The guest serves: it waits when it is saved, and has no flow."""

    def count(guest: Guest) -> Callable[[], float]:
        tap = tap_of(guest)

        def read() -> float:
            received_bytes, _, _, _, sent_bytes, *_ = guest.domain.interfaceStats(tap)
            return received_bytes if to_guest else sent_bytes

        return read

    def client(guest: Guest) -> list[str]:
        command = ["iperf3", "--client", guest.address, "--time", "60"]
        return command if to_guest else [*command, "--reverse"]

    return Load(
        name,
        "network",
        "iperf3 --server",
        count,
        begun=2**20,
        resource="net-rx" if to_guest else "net-tx",
        counter="bytes",
        fours=fours,
        client=client,
    )


LOADS = (
    _disk_load("fio 4 KiB, requests/s", 4096, fours=8),
    _disk_load("fio 128 KiB, requests/s", 131072, fours=5),
    _tcp_load("TCP out, bytes/s", to_guest=False, fours=7),
    _tcp_load("TCP in, bytes/s", to_guest=True, fours=5),
)


@dataclass
class Round:
    """The rates of a load in one round of guests.

    ``fours`` has, for each lane of each four, the rates under stock and under patched.
    """

    fours: list[dict[str, list[float]]] = field(default_factory=list)


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; ``repeats`` is the number of rounds. Returns the wanted rows."""
    stock_emulator = paths.require(paths.STOCK_BUILD, "make qemu-stock").resolve()
    rows = Rows(say, choice)
    rounds: dict[str, list[Round]] = {load.name: [] for load in LOADS}
    with Testbed("perf-e1", link_bps=UNLIMITED_LINK_BPS) as testbed:
        mine = _lanes(testbed, stock_emulator)
        for number in range(repeats):
            name = f"round {number + 1} of {repeats}"
            measure = partial(_round, testbed, mine, number, rounds, rows, say, name)
            rows.guard("guests", name, measure)
        accelerator = testbed.accelerator.name
    for load in LOADS:
        rows.add(load.part, load.name, partial(_row, load, rounds[load.name]))
    return {
        "experiment": "E1",
        "title": TITLE,
        "accelerator": accelerator,
        "repeats": repeats,
        "note": f"A run is a round, for which {len(mine)} guests are booted, and then go on from"
        f" where they were saved in processes that are measured for {lanes.LOOK_SECONDS:g} s each:"
        + ", ".join(f" {4 * len(mine) * load.fours} of {load.name}" for load in LOADS)
        + ". The ends of the ratio are those of its interval of 95 %.",
        **rows.as_dict(),
    }


def _lanes(testbed: Testbed, stock_emulator: Path) -> list[Lane]:
    """Define the guests, attach shapers, and make the definition for the stock emulator of each."""
    disk = machine.disk_in_memory(testbed, "memory", DISK_MIB, readonly=True)
    processors = sorted(os.sched_getaffinity(0))[:LANES]
    spec = {"agent": False, "disks": (disk,), "disk_queue_size": RING_SIZE, "vcpus": 1}
    guests = [testbed.add_guest(GuestSpec(f"lane{number}", **spec)) for number in processors]
    testbed.start_controller()
    found = []
    for guest, processor in zip(guests, processors, strict=True):
        machine.attach(testbed, guest)
        patched = on_processor(guest.domain.XMLDesc(INACTIVE), processor)
        definitions = {PATCHED: patched, STOCK: under_stock(patched, stock_emulator)}
        found.append(Lane(guest, processor, definitions))
    # It asks each new process for its shaper, just during the measurement, and so at its
    # expense. The subject here is QEMU, for which a definition is enough.
    testbed.controller.stop()
    return found


def _round(
    testbed: Testbed,
    mine: Sequence[Lane],
    number: int,
    rounds: dict[str, list[Round]],
    rows: Rows,
    say: Say,
    name: str,
) -> None:
    """Boot the guests and measure each load; a failed load is left out."""
    with TemporaryDirectory(prefix="saved-", dir=testbed.folder) as folder:
        booted = Path(folder, "booted")
        mine = _relinked(mine, number, Path(folder))
        _boot_and_save(mine, booted, say)
        for load in LOADS:
            found = Round()
            rounds[load.name].append(found)
            measure = partial(_measure, testbed, mine, load, number, booted, found)
            rows.attempt(load.part, load.name, measure)
            if found.fours:
                ratio = figures([found])["pooled_ratio"]["median"]
                say(f"{name}: {load.name}, patched ÷ stock {ratio:.3f}")


def _relinked(mine: Sequence[Lane], seed: int, folder: Path) -> list[Lane]:
    """Return the lanes with both emulators linked anew, in an order drawn by a seed."""

    def relinked(emulator: str) -> Path:
        as_built = emulator_of(mine[0].definitions[emulator]).resolve()
        return layouts.relink(as_built.parent, seed, folder / emulator)

    with ThreadPoolExecutor() as pool:
        programs = dict(zip((STOCK, PATCHED), pool.map(relinked, (STOCK, PATCHED)), strict=True))
    return [
        replace(
            lane,
            definitions={
                emulator: under(xml, programs[emulator])
                for emulator, xml in lane.definitions.items()
            },
        )
        for lane in mine
    ]


def _boot_and_save(mine: Sequence[Lane], saved: Path, say: Say) -> None:
    for lane in mine:
        lane.guest.domain.connect().defineXML(lane.definitions[STOCK])
    with _ended(mine):
        for lane in mine:
            lane.guest.start()
        for lane in mine:
            say(f"guest {lane.guest.name} ready after {lane.guest.wait_ready():.0f} s")
        for lane in mine:
            lane.guest.save(saved / lane.guest.name)


def _at_once(mine: Sequence[Lane], do: Callable[[Lane], None]) -> None:
    """Do the same to all lanes at the same time: most of it is libvirt's waiting."""
    with ThreadPoolExecutor(len(mine)) as pool:
        list(pool.map(do, mine))


@contextmanager
def _ended(mine: Sequence[Lane]) -> Iterator[None]:
    try:
        yield
    finally:
        _at_once(mine, lambda lane: lane.guest.kill())


def _measure(
    testbed: Testbed,
    mine: Sequence[Lane],
    load: Load,
    number: int,
    booted: Path,
    found: Round,
) -> None:
    """Save the guests with the load under way, and measure its processes."""
    with TemporaryDirectory(prefix="load-", dir=testbed.folder) as folder:
        saved = Path(folder, "load")
        _begin_and_save(mine, load, booted, saved)
        for four in range(load.fours):
            rates = [{STOCK: [], PATCHED: []} for _ in mine]
            for emulators in emulators_of(number + four, len(mine)):
                taken = _processes(testbed, mine, emulators, load, saved)
                for its, emulator, rate in zip(rates, emulators, taken, strict=True):
                    its[emulator].append(rate)
            found.fours += rates


def emulators_of(four: int, lane_count: int) -> list[tuple[str, ...]]:
    """Return, for each time of the four with that number, the emulator of each lane."""
    both = (FOUR, tuple(PATCHED if one == STOCK else STOCK for one in FOUR))
    return list(zip(*(both[(four + lane) % 2] for lane in range(lane_count)), strict=True))


def _begin_and_save(mine: Sequence[Lane], load: Load, booted: Path, saved: Path) -> None:
    with _ended(mine):
        _at_once(mine, lambda lane: lane.go_on(STOCK, booted))
        for lane in mine:
            lane.guest.wait_ready()
            lane.guest.spawn(f"exec {load.command}", unit="load")
            if not load.client:
                lanes.begin(load.count(lane.guest), load.begun)
        time.sleep(UNDER_WAY_SECONDS)
        for lane in mine:
            lane.guest.save(saved / lane.guest.name)


def _processes(
    testbed: Testbed, mine: Sequence[Lane], emulators: Sequence[str], load: Load, saved: Path
) -> list[float]:
    """Have each lane's guest go on under its emulator; return the rate of each."""
    with _ended(mine), ExitStack() as clients:
        under = dict(zip(mine, emulators, strict=True))
        _at_once(mine, lambda lane: lane.go_on(under[lane], saved))
        if load.client:
            for lane in mine:
                clients.callback(_client(testbed, lane, load).stop)
        counts = [load.count(lane.guest) for lane in mine]
        for count in counts:
            lanes.begin(count, load.begun)
        time.sleep(lanes.SETTLE_SECONDS)
        rates = lanes.look(counts)
        for lane, emulator, rate in zip(mine, emulators, rates, strict=True):
            if emulator == PATCHED:
                _require_shaped(lane.guest, load, rate * lanes.LOOK_SECONDS)
        return rates


def _client(testbed: Testbed, lane: Lane, load: Load) -> Task:
    command = loads.on_processor(lane.processor, load.client(lane.guest))
    return testbed.client_popen(command, name=f"client-{lane.guest.name}")


def _require_shaped(guest: Guest, load: Load, work: float) -> None:
    """Raise NotAlike if the work of a patched guest did not pass its shaper, or has a limit."""
    (shaper,) = ask(guest, "query-shapers")
    passed = shaped_work(shaper, load.resource, load.counter)
    # Headers count differently; traffic past the shaper would be missing altogether.
    if passed < work / 2:
        raise machine.NotAlike(
            f"the shaper of {guest.name} saw {passed:.0f} {load.counter} of {load.resource} and"
            f" the host {work:.0f}"
        )
    if shaper["ceiling"] or any(one["limits"] for one in shaper["classes"]):
        raise machine.NotAlike(f"{guest.name} has a limit, and is to have none")


def shaped_work(shaper: dict[str, Any], resource: str, counter: str) -> float:
    """Return a shaper's count of a resource, all its classes together."""
    stats = (one for each in shaper["classes"] for one in each["stats"])
    return sum(one[counter] for one in stats if one["resource"] == resource)


def _row(load: Load, rounds: Sequence[Round]) -> Row:
    return {"part": load.part, "subject": load.name, **figures(rounds)}


def figures(rounds: Sequence[Round]) -> Row:
    """Return the figures of all rounds in which something was measured.

    Raises ValueError if there is none, or a process did nothing.
    """
    each = [one.fours for one in rounds if one.fours]
    rates = {
        emulator: [rate for fours in each for its in fours for rate in its[emulator]]
        for emulator in FOUR[:2]
    }
    return {
        "runs": len(each),
        "stock": spread(rates[STOCK]),
        "patched": spread(rates[PATCHED]),
        "pooled_ratio": mean_ratio([trimmed_mean(map(_ratio, fours)) for fours in each]),
    }


def _ratio(four: dict[str, list[float]]) -> float:
    if not all(rate > 0 for rates in four.values() for rate in rates):
        raise ValueError("a process did nothing")
    return geometric_mean(four[PATCHED]) / geometric_mean(four[STOCK])


def trimmed_mean(ratios: Iterator[float]) -> float:
    """Return the geometric mean without the least and the greatest tenth."""
    ordered = sorted(ratios)
    out = math.floor(TRIMMED * len(ordered))
    return geometric_mean(ordered[out : len(ordered) - out])
