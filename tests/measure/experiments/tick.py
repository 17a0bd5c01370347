#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of one tick of sluiced, and whether a locked database delays it.

Simulated guests of 16 slots: a counters page of each in memory, written as QEMU writes it, and
the daemon's own sampler, tuner, records and database. Between two ticks none, a tenth or all of
the slots change. Processor time is that of the thread that ticks: mean, median and longest of
the ticks. The bar is on the mean, which gives the share of a processor that the ticks take.
Beside it are, for each tick, the time of the thread that writes history, and the sum of both.

Then another process locks the database for a while, and the longest tick is measured by
the clock. Exit status 1: a bar was missed.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice_controller.adapters.block_devices import BlockDevices
from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain import counters
from sluice_controller.domain.guests import Description, Guest
from sluice_controller.domain.model import Grant, ShapingClass, Stream
from sluice_controller.entry.daemon import spare_the_collector
from sluice_controller.services.auto import Auto
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.beyond import Beyond
from sluice_controller.services.declared import Declared
from sluice_controller.services.gates import Gates
from sluice_controller.services.nominal import Nominals
from sluice_controller.services.records import Records
from sluice_controller.services.sampler import SAMPLE_HZ, Sampler
from sluice_controller.services.streams import Streams
from sluice_controller.services.workers import Workers

CLASSES = ("default", "batch", "web", "movie")
RESOURCES = 4
TICK_NS = 1_000_000_000 // SAMPLE_HZ
GUESTS = (10, 50, 200)
# The share of slots that change between two ticks, and how long the disk takes for a read
# in each second: from 90 ms on the stream suffers, and auto-shaping holds all others.
AT_EASE_MS, SUFFERING_MS = (3,), (200, 3, 3, 3, 3)
LOADS = {
    "none": (0.0, AT_EASE_MS),
    "a tenth": (0.1, AT_EASE_MS),
    "all": (1.0, AT_EASE_MS),
    "all, and held": (1.0, SUFFERING_MS),
}
MEASURED_TICKS = 50
LOCKED_SECONDS = 8
ENGINE = Path(__file__).parents[2] / "build" / "bench" / "engine.json"

# Milliseconds of one tick with 200 guests, by how long QEMU's own throttle core takes for a
# decision on the machine (`make bench`). In between the bar rises evenly.
BAR_GUESTS = 200
FAST_NS, FAST_MS = 25, 10
SLOW_NS, SLOW_MS = 94, 25
# By the clock, so with the delays of other work on the machine. A tick that asked the database
# would wait for as long as it is locked.
LONGEST_MS = 500


@dataclass(frozen=True)
class Cost:
    """Milliseconds of processor time of the thread that ticks, and of the store's for each."""

    mean: float
    median: float
    longest: float
    store: float


class Guests:
    """Counters pages, as their QEMUs write them, and libvirt's word that they run."""

    def __init__(self, folder: Path, count: int) -> None:
        self.ticks = 0
        self.service_ns = 0
        self.files, self.all = [], []
        for number in range(count):
            path = folder / f"g{number}.page"
            page = _new_page()
            path.write_bytes(page)
            self.files.append((path.open("r+b", buffering=0), page))
            live = Description(shaper_id="sluice0", page_path=str(path))
            self.all.append(Guest(f"g{number}", f"u{number}", "running", number, live, live))

    def guests(self) -> list[Guest]:
        return list(self.all)

    def move(self, now_ns: int, share: float, service_ms: Sequence[int] = AT_EASE_MS) -> None:
        """Some slots of each page change, others each time."""
        self.ticks += 1
        second = self.ticks // SAMPLE_HZ
        self.service_ns += 10 * 1_000_000 * service_ms[second % len(service_ms)]
        every = round(1 / share) if share else 0
        for number, (file, page) in enumerate(self.files):
            struct.pack_into("<Q", page, 40, now_ns)
            for slot in range(len(CLASSES) * RESOURCES):
                if every and (number + slot + self.ticks) % every == 0:
                    self._change(page, counters.HEADER_BYTES + slot * counters.SLOT_BYTES)
            file.seek(0)
            file.write(page)

    def _change(self, page: bytearray, at: int) -> None:
        (sequence,) = struct.unpack_from("<I", page, at)
        struct.pack_into("<I", page, at, sequence + 2)
        done = self.ticks * 10
        struct.pack_into("<QQQQ", page, at + 40, done, done * 20_000, done // 2, done * 1_000_000)
        struct.pack_into("<QQ", page, at + counters.SERVICE_OFFSET, done, self.service_ns)
        struct.pack_into("<Q", page, at + counters.HISTOGRAM_OFFSET + 40, done // 2)

    def close(self) -> None:
        for file, _page in self.files:
            file.close()


def _new_page() -> bytearray:
    page = bytearray(counters.PAGE_BYTES + counters.SLOT_COUNT * counters.GATE_BYTES)
    slot, count = counters.SLOT_BYTES, counters.SLOT_COUNT
    page[:8] = counters.MAGIC
    struct.pack_into("<IIII", page, 8, counters.VERSION, counters.HEADER_BYTES, slot, count)
    struct.pack_into("<Q", page, 24, 5)
    struct.pack_into("<I", page, 52, counters.GATE_BYTES)
    struct.pack_into("<Q", page, 120, counters.PAGE_BYTES)
    for tag, name in enumerate(CLASSES):
        for resource in range(RESOURCES):
            at = counters.HEADER_BYTES + (tag * RESOURCES + resource) * slot
            struct.pack_into("<IBBBB", page, at, 2, 1, tag, resource, 5)
            page[at + 8 : at + 8 + len(name)] = name.encode()
    return page


class Daemon:
    """The parts of sluiced that tick, and the thread that writes; the clock is the caller's."""

    def __init__(self, folder: Path, guests: Guests, auto: bool) -> None:
        self.now_ns = time.monotonic_ns()
        self.store = SqlStore(f"sqlite:///{folder / 'sluice.db'}")
        with self.store.transaction() as unit:
            for name in CLASSES:
                unit.put_class(ShapingClass(name, name, is_stream=name == "movie"))
            for guest in guests.all:
                unit.remember_domain(guest.name, guest.uuid)
                for tag, name in enumerate(CLASSES):
                    unit.put_grant(Grant(guest.name, name, tag))
            unit.put_stream(Stream("film", "g0", "movie", 875e3))
            unit.put_value("auto", {"enabled": auto})
        declared = Declared(self.store)
        self.records = Records(self.store, declared, time.time, time.monotonic)
        pages = CountersPages(lambda: self.now_ns)
        self.sampler = Sampler(declared, self.records, guests, pages, None, time.time)
        nominals = Nominals(self.records, {})
        streams = Streams(self.store, declared, self.sampler, time.time, None, nominals.now)
        self.auto = Auto(
            self.store,
            declared,
            self.records,
            self.sampler,
            streams,
            AutoLimits(),
            # These guests have no disk that could be under a gate.
            Gates(guests, BlockDevices(), None, Workers(1, "gates", time.monotonic)),
            Beyond(declared),
            time.time,
            lambda domain: None,
            nominals,
        )

    def tick(self) -> None:
        self.sampler.tick(self.now_ns)
        self.auto.tick(self.now_ns)


@contextmanager
def daemon(count: int, auto: bool = True) -> Iterator[tuple[Guests, Daemon]]:
    # Pages are in memory on every host (/run), and so is this.
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sluice-bench-") as folder:
        guests = Guests(Path(folder), count)
        run = Daemon(Path(folder), guests, auto)
        try:
            yield guests, run
        finally:
            run.store.close()
            guests.close()


def cost(count: int, share: float, service_ms: Sequence[int]) -> Cost:
    """Of a tick, after a second has filled the windows; history is written as it comes."""
    ticks, writes = [], []
    with daemon(count) as (guests, run):
        spare_the_collector()
        for number in range(SAMPLE_HZ + MEASURED_TICKS):
            run.now_ns += TICK_NS
            guests.move(run.now_ns, share, service_ms)
            began = time.thread_time()
            run.tick()
            ticked = time.thread_time()
            if (number + 1) % SAMPLE_HZ == 0:
                run.records.round()
            if number >= SAMPLE_HZ:
                ticks.append(1000 * (ticked - began))
                writes.append(1000 * (time.thread_time() - ticked))
    mean, store = statistics.fmean(ticks), statistics.fmean(writes)
    return Cost(mean, statistics.median(ticks), max(ticks), store)


LOCK = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
"""


def longest_beside_a_lock(count: int, seconds: float) -> tuple[float, int]:
    """(milliseconds by the clock, seconds of history that were there afterwards)."""
    durations = []
    with daemon(count) as (guests, run):
        stopping = threading.Event()

        def write() -> None:
            while not stopping.is_set():
                run.records.wait()
                run.records.round()

        spare_the_collector()
        run.now_ns = time.monotonic_ns()
        guests.move(run.now_ns, 1.0)
        run.tick()
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        path = run.store.engine.url.database
        lock = subprocess.Popen(
            [sys.executable, "-c", LOCK, path, str(seconds)], stdout=subprocess.PIPE
        )
        lock.stdout.readline()
        while lock.poll() is None:
            run.now_ns = time.monotonic_ns()
            guests.move(run.now_ns, 1.0)
            began = time.monotonic()
            run.tick()
            durations.append(1000 * (time.monotonic() - began))
            time.sleep(max(0.0, began + 1 / SAMPLE_HZ - time.monotonic()))
        lock.stdout.close()
        stopping.set()
        run.records.wake()
        writer.join()
        # Rows that came while the writer waited.
        run.records.round()
        with sqlite3.connect(path) as database:
            (rows,) = database.execute("SELECT count(DISTINCT at) FROM history").fetchone()
    return max(durations), rows


def throttle_core_ns() -> float | None:
    """Of this machine, if `make bench` has measured it here."""
    try:
        rows = json.loads(ENGINE.read_text())
    except (OSError, ValueError):
        return None
    return next((row["value"] for row in rows if row["name"] == "qemu-throttle-core"), None)


def bar_ms(core_ns: float) -> float:
    way = min(1.0, max(0.0, (core_ns - FAST_NS) / (SLOW_NS - FAST_NS)))
    return FAST_MS + way * (SLOW_MS - FAST_MS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-tick", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--throttle-core",
        type=float,
        metavar="NS",
        help="qemu-throttle-core of this machine (default: what 'make bench' found here, else"
        f" {FAST_NS}, which has the strictest bar)",
    )
    given = parser.parse_args().throttle_core
    core_ns = given or throttle_core_ns() or FAST_NS
    bar, missed = bar_ms(core_ns), []
    print(f"bar for {BAR_GUESTS} guests: {bar:.0f} ms (qemu-throttle-core {core_ns:.0f} ns)")
    print("processor time of one tick, ms; 16 slots a guest, auto-shaping on:")
    print("guests  slots that change    mean    bar  median  longest  store's  mean with it")
    for count in GUESTS:
        for name, (share, service_ms) in LOADS.items():
            found = cost(count, share, service_ms)
            held = count == BAR_GUESTS
            is_missed = held and found.mean > bar
            shown = f"{bar:7.0f}" if held else "       "
            print(
                f"{count:6}  {name:17}  {found.mean:6.2f}{shown}  {found.median:6.2f}"
                f"  {found.longest:7.2f}  {found.store:7.2f}  {found.mean + found.store:12.2f}"
                f"{'  MISSED' if is_missed else ''}",
                flush=True,
            )
            if is_missed:
                missed.append(f"{count} guests, {name}: {found.mean:.1f} ms, bar {bar:.0f}")
    longest, rows = longest_beside_a_lock(BAR_GUESTS, LOCKED_SECONDS)
    print(
        f"longest tick by the clock, {BAR_GUESTS} guests, database locked for {LOCKED_SECONDS} s:"
        f" {longest:.1f} ms, bar {LONGEST_MS:.0f}; {rows} s of history arrived afterwards"
    )
    if longest > LONGEST_MS:
        missed.append(f"beside a locked database: {longest:.0f} ms, bar {LONGEST_MS:.0f}")
    if rows < LOCKED_SECONDS:
        missed.append(f"beside a locked database: {rows} s of history of {LOCKED_SECONDS}")
    for miss in missed:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
