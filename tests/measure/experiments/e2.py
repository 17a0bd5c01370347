# SPDX-License-Identifier: GPL-2.0-or-later
"""E2: the rate that passes against the rate that was set (TAP Fig. 3).

On the disk a guest reads, then writes, at random with so many requests outstanding that one
waits for a fifth of a second; on the network one TCP flow runs from it, then to it. This load
has a class of its own: the guest's other work is not limited. Sluice and its peers take turns
at the same rates on the same guest in the same run. Bytes are counted behind all shapers:
requests when QEMU has done them, sent bytes at the uplink, received bytes in the guest. The
longest wait is that of the guest's fio.

In each turn the load also runs without a limit. This control must do more than the rate, or
else the limit did not keep it. Its standstills are the machine's, and excuse those of a shaper.

The highest rate of each part is 90 % of the least rate without any limit; disk and link have a
set, constant speed. Requests and frames are so small that one is less than 1 % of a second:
larger ones could not show the bar of 1 %.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from measure import loads
from measure.experiments import guest_counter, load_class, machine
from measure.experiments.accuracy import Sample, assess, fluid_wait_seconds, mean_bps
from measure.experiments.bars import EXPECTED, UNLIMITED
from measure.experiments.choice import Choice
from measure.experiments.load_class import LoadClass
from measure.experiments.rows import Rows, reason_of
from measure.experiments.spread import spreads
from measure.experiments.subjects import (
    LEAKY_BUCKET,
    Sluice,
    Subject,
    Unavailable,
    Unlimited,
    limited,
)
from measure.experiments.subjects.disk import CgroupThrottle, QemuThrottle
from measure.experiments.subjects.net import LibvirtBandwidth, TcHtb, TcTbf
from testbed import FileDisk, Guest, GuestSpec, Testbed

TITLE = "achieved rate against set rate: disk reads and writes, network out and in"
# Runs of a row, if nothing else is asked for.
REPEATS = 3
LOAD = "load"
# The wait of a request in a perfect shaper, from the number outstanding. A stop of 11 ms, as of
# machines in a cloud, is a twentieth of it, and the bar is a tenth.
IDEAL_SECONDS = 0.2
# Half of a ring: requests that do not fit in there would wait unseen.
DEPTH_MAX = 512
CAPACITY_DEPTH = 16
RUN_SECONDS = 13
# The first second may hold requests that were outstanding before the limit.
SKIP_SECONDS = 1.5
# Ten windows of a second, after the skipped time.
MEASURE_SECONDS = SKIP_SECONDS + 10.1
CAPACITY_SECONDS = 5
CAPACITY_RUNS = 3
# A flow goes on for so long after it has been measured, and is ended.
SLACK_SECONDS = 10
# Readings are taken a hundred times a second; further apart than this they lie by accident.
INTERVAL_SECONDS = 2 * loads.SAMPLE_SECONDS
# All disks are in the host's memory, which does five times as much and not always the same:
# 150 MiB/s of the largest requests, for which the ideal wait fits half of a ring.
DISK_MIB = 256
DISK_REQUESTS_PER_SECOND = 2400
# Where libvirt counts a disk's bytes.
COUNTERS = {"read": 1, "write": 3}
FRAME_BYTES = 1514
# Ethernet, IPv4 and TCP around the smallest segment that a host must take.
SMALL_SEGMENT_BYTES = 536
SMALL_FRAME_BYTES = 54 + SMALL_SEGMENT_BYTES
# The guest must not be at its own limit, and it counts received bytes itself: with 100 Mbit/s
# in, its counter was read too late to show one per cent of a second.
LINK_OUT_BPS = 12_500_000
LINK_IN_BPS = 6_250_000
Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One rate, and the request size that shows it without drowning in requests."""

    rate_bps: int
    request_bytes: int

    @property
    def depth(self) -> int:
        """Return how many requests must be outstanding for the ideal wait."""
        return min(DEPTH_MAX, math.ceil(IDEAL_SECONDS * self.rate_bps / self.request_bytes))


DISK_POINTS = (
    Point(64 * 1024, 512),
    Point(256 * 1024, 2048),
    Point(4 * 2**20, 4096),
    Point(4 * 2**20, 32768),
    Point(40 * 2**20, 65536),
)
NET_POINTS = (
    Point(64 * 1024, SMALL_FRAME_BYTES),
    Point(2**20, FRAME_BYTES),
    Point(10 * 2**20, FRAME_BYTES),
)


@dataclass(frozen=True)
class Disk:
    """One way to use a disk: its name, and its form on the host."""

    way: str
    device: str
    file: FileDisk


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; return the rows of the wanted parts. Raises what the testbed raises."""
    with Testbed("perf-e2", link_bps=LINK_OUT_BPS, ingress_bps=LINK_IN_BPS) as testbed:
        pairs = (
            (_disk(testbed, "read", "vdb"), _disk(testbed, "read", "vdc", on_loop=True)),
            (_disk(testbed, "write", "vdd"), _disk(testbed, "write", "vde", on_loop=True)),
        )
        files = tuple(disk.file for pair in pairs for disk in pair)
        guest = testbed.add_guest(GuestSpec("e2", disks=files, agent=False, vcpus=1))
        testbed.start_controller()
        machine.attach(testbed, guest)
        guest.start()
        say(f"guest ready after {guest.wait_ready():.0f} s ({testbed.accelerator.name})")
        machine.await_shaper(testbed, guest)
        machine.main_loop_apart(guest)
        devices = [disk.device for pair in pairs for disk in pair]
        machine.without_scheduler(guest, devices)
        machine.of_constant_speed(guest, devices, DISK_REQUESTS_PER_SECOND)
        comparison = Comparison(load_class.grant(testbed, guest), repeats, Rows(say, choice), say)
        for disk, loop in pairs:
            comparison.part(f"disk {disk.way}", partial(_disk_rows, comparison, disk, loop))
        loads.without_offload(testbed, guest)
        with loads.iperf_server(testbed):
            for title, to_guest in (("net out", False), ("net in", True)):
                comparison.part(title, partial(_net_rows, comparison, to_guest=to_guest))
        return {
            "experiment": "E2",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"Disk: so many requests outstanding that one waits for"
            f" {1e3 * IDEAL_SECONDS:g} ms. Network: one TCP flow, frames of"
            f" {FRAME_BYTES} bytes, at the lowest rate of {SMALL_FRAME_BYTES}.",
            **comparison.rows.as_dict(),
        }


# --- disk


def _disk(testbed: Testbed, way: str, device: str, *, on_loop: bool = False) -> Disk:
    make = machine.disk_on_loop if on_loop else machine.disk_in_memory
    return Disk(way, device, make(testbed, f"{way}-{device}", DISK_MIB, readonly=way == "read"))


def _disk_rows(comparison: "Comparison", disk: Disk, loop: Disk) -> None:
    """Compare on a disk; block throttling, which wants a block device, on one on a loop."""
    load, resource = comparison.load, f"blk-{disk.way}"
    subjects: list[Subject] = [Sluice(load, resource), Sluice(load, resource, LEAKY_BUCKET)]
    subjects += [QemuThrottle(disk.device, disk.way), CgroupThrottle(loop.file.path, disk.way)]

    def measure(point: Point, subject: str) -> dict[str, float]:
        return _measure_disk(load, loop if subject == CgroupThrottle.name else disk, point)

    capacity = _capacity(partial(_disk_capacity, load.guest, disk))
    comparison.say(f"disk {disk.way} without a limit: {capacity / 2**20:.0f} MiB/s")
    points = with_capacity(DISK_POINTS, capacity, 65536)
    comparison.compare(f"disk {disk.way}", subjects, points, measure)


def with_capacity(points: Sequence[Point], capacity_bps: float, request_bytes: int) -> list[Point]:
    """Return the points below 90 % of a capacity, and one at it.

    Raises ValueError if there is no capacity.
    """
    if not capacity_bps >= 2:
        raise ValueError(f"without a limit {capacity_bps:g} bytes pass in a second")
    highest = Point(int(0.9 * capacity_bps), request_bytes)
    return [point for point in points if point.rate_bps < highest.rate_bps] + [highest]


def _capacity(measure: Callable[[], float]) -> float:
    """Return the least of some measurements: a rate that the load can always do."""
    return min(measure() for _ in range(CAPACITY_RUNS))


def _disk_capacity(guest: Guest, disk: Disk) -> float:
    command = loads.fio_logged(disk.way, disk.device, 65536, CAPACITY_DEPTH, CAPACITY_SECONDS)
    guest.ssh(command, timeout_seconds=CAPACITY_SECONDS + 30)
    return float(loads.fio_result(guest, disk.way)["bw_bytes"])


def _measure_disk(load: LoadClass, disk: Disk, point: Point) -> dict[str, float]:
    guest = load.guest
    ideal = fluid_wait_seconds(point.depth, point.request_bytes, point.rate_bps)
    # Beyond the end, for twice the time that a request begun before it may wait.
    seconds = RUN_SECONDS + math.ceil(2 * ideal) + 1
    size, depth = point.request_bytes, point.depth
    command = loads.fio_logged(disk.way, disk.device, size, depth, seconds)
    guest.spawn(load.disk_command(command), unit=LOAD)
    domain = guest.domain
    samples = loads.sample_load(
        lambda: float(domain.blockStats(disk.device)[COUNTERS[disk.way]]), MEASURE_SECONDS
    )
    # Asking whether it has ended would take time from the guest, and show in the waits.
    time.sleep(seconds - MEASURE_SECONDS)
    guest.wait_unit(LOAD, timeout_seconds=60)
    wait_seconds = loads.longest_wait_seconds(loads.fio_log(guest), RUN_SECONDS)
    return {**_accuracy(samples, point), "longest_wait_ratio": wait_seconds / ideal}


# --- network


def _net_rows(comparison: "Comparison", *, to_guest: bool) -> None:
    load = comparison.load
    title = "net in" if to_guest else "net out"
    outbound = not to_guest
    resource = "net-rx" if to_guest else "net-tx"
    subjects: list[Subject] = [Sluice(load, resource), Sluice(load, resource, LEAKY_BUCKET)]
    subjects += [TcTbf(outbound), TcHtb(outbound), LibvirtBandwidth(outbound)]

    # Only the guest's own counts have its clock in them.
    clock = {"guest_clock_ratio": comparison.guest_clock_ratio()} if to_guest else {}

    def samples(seconds: float, segment: int | None) -> list[Sample]:
        command = loads.iperf_marked(
            math.ceil(seconds) + SLACK_SECONDS, load.dscp, to_guest=to_guest, segment_bytes=segment
        )
        found = (_received if to_guest else _sent)(load, command, seconds)
        load.guest.kill_unit(LOAD)
        return found

    def measure(point: Point, _subject: str) -> dict[str, float]:
        segment = SMALL_SEGMENT_BYTES if point.request_bytes == SMALL_FRAME_BYTES else None
        return {**_accuracy(samples(MEASURE_SECONDS, segment), point), **clock}

    capacity = _capacity(lambda: mean_bps(samples(CAPACITY_SECONDS, None), skip_seconds=1.0))
    comparison.say(f"{title} without a limit: {capacity / 2**20:.0f} MiB/s")
    points = with_capacity(NET_POINTS, capacity, FRAME_BYTES)
    comparison.compare(title, subjects, points, measure)


def _sent(load: LoadClass, command: str, seconds: float) -> list[Sample]:
    """Count bytes that leave by the uplink, behind all shapers."""
    load.guest.spawn(command, unit=LOAD)
    return loads.sample_load(loads.uplink_counter(load.testbed, to_guest=False), seconds)


def _received(load: LoadClass, command: str, seconds: float) -> list[Sample]:
    """Count bytes that the guest got: its tap also counts held and dropped ones."""
    guest, whole_seconds = load.guest, math.ceil(seconds)
    guest_counter.start(guest, loads.BEGUN_BYTES, whole_seconds, loads.START_SECONDS)
    try:
        guest.spawn(command, unit=LOAD)
        loads.await_load(loads.uplink_counter(load.testbed, to_guest=True))
        # Meanwhile no command is given to the guest: it would count too.
        time.sleep(whole_seconds + 1)
        return guest_counter.finish(guest)
    finally:
        guest.kill_unit(guest_counter.UNIT)


# --- both


def _accuracy(samples: Sequence[Sample], point: Point) -> dict[str, float]:
    found = assess(
        samples,
        point.rate_bps,
        point.request_bytes,
        skip_seconds=SKIP_SECONDS,
        interval_seconds=INTERVAL_SECONDS,
    )
    return found.as_dict()


Figures = dict[str, float]
Measure = Callable[[Point, str], Figures]


def beside_control(turn: Mapping[str, Figures]) -> Iterator[tuple[str, Figures]]:
    """Return each subject's figures of a turn, with those of the turn's control.

    Without the control the others say nothing, and none is returned.
    """
    if UNLIMITED not in turn:
        return
    control = turn[UNLIMITED]
    for name, figures in turn.items():
        yield name, figures if name == UNLIMITED else {**figures, **_of_control(control)}


def _of_control(control: Figures) -> Figures:
    rate_ratio = 1 + control["mean_error_ratio"]
    found = {
        "unlimited_rate_ratio": rate_ratio,
        "unlimited_standstill_ms": control["longest_standstill_ms"],
    }
    if "longest_wait_ratio" in control:
        # Its own ideal is shorter, as it does more than the rate.
        ideal_ratio = 1 / rate_ratio if rate_ratio > 0 else 0.0
        found["unlimited_stall_ratio"] = max(0.0, control["longest_wait_ratio"] - ideal_ratio)
    return found


class Comparison:
    """Subjects that take turns, their measurements, and the missing ones."""

    def __init__(self, load: LoadClass, repeats: int, rows: Rows, say: Say):
        self.load = load
        self.say = say
        self.rows = rows
        self._repeats = repeats
        self._began = guest_counter.mark(load.guest)

    def guest_clock_ratio(self) -> float:
        """Return how wrong the guest's clock may go, from the beginning until now."""
        return guest_counter.clock_error_ratio(self._began, guest_counter.mark(self.load.guest))

    def part(self, title: str, measure: Callable[[], None]) -> None:
        """Measure a part, of which some row is wanted: its subjects take turns.

        A part that fails does not end the others.
        """
        if self.rows.choice.of(name for name in EXPECTED["E2"] if name[0] == title):
            self.rows.guard(title, "every subject", measure)

    def compare(
        self, part: str, subjects: list[Subject], points: Sequence[Point], measure: Measure
    ) -> None:
        """Measure the control and all subjects at all points; they take turns at each."""
        order = [Unlimited(), *subjects]
        for point in points:
            found: dict[str, list[Figures]] = {subject.name: [] for subject in order}
            for number in range(self._repeats):
                # Turns, so that a slow minute of the machine hits all of them.
                turn = order if number % 2 == 0 else order[::-1]
                for name, figures in beside_control(self._turn(part, turn, point, measure)):
                    found[name].append(figures)
            for name, measured in found.items():
                if measured:
                    row = {"part": part, "subject": name, **vars(point), "runs": len(measured)}
                    self.rows.rows.append({**row, **spreads(measured)})
                    self.say(_line(self.rows.rows[-1]))

    def _turn(
        self, part: str, subjects: Sequence[Subject], point: Point, measure: Measure
    ) -> dict[str, Figures]:
        """Measure each subject once; failed ones are reported and left out."""
        found = {}
        for subject in subjects:
            try:
                found[subject.name] = self._measure(subject, point, measure)
            except Unavailable as reason:
                self.rows.leave_out(part, subject.name, str(reason))
            except Exception as failure:
                rate = f"at {point.rate_bps / 2**20:.4g} MiB/s"
                self.rows.leave_out(part, subject.name, f"{rate}: {reason_of(failure)}")
        return found

    def _measure(self, subject: Subject, point: Point, measure: Measure) -> Figures:
        guest = self.load.guest
        with ExitStack() as stack:
            subject.open(self.load.testbed, guest)
            stack.callback(subject.close)
            # Not before the limit is lifted: outstanding requests pass soon then.
            stack.callback(guest.kill_unit, LOAD)
            stack.enter_context(limited(subject, point.rate_bps))
            return measure(point, subject.name)


def _line(row: dict[str, Any]) -> str:
    wait = row.get("longest_wait_ratio")
    return (
        f"{row['part']:<10} {row['subject']:<17} {row['rate_bps'] / 2**20:9.4f} MiB/s"
        f" {row['request_bytes']:6d} B: mean {row['mean_error_ratio']['median']:+.2%},"
        f" worst 1 s {row['worst_window_error_ratio']['median']:+.2%}"
        f" (one request is {row['quantum_ratio']['median']:.2%},"
        f" the clock {row['clock_ratio']['max']:.2%}),"
        f" standstill {row['longest_standstill_ms']['max']:.0f} ms"
        + (f", longest wait {wait['median']:.2f} of the ideal" if wait else "")
    )
