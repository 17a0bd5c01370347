# SPDX-License-Identifier: GPL-2.0-or-later
"""E2: the rate that passes against the rate that was set (TAP Fig. 3).

On the disk a guest reads at random with sixteen requests outstanding; on the
network one TCP flow runs from it, then to it. Sluice and its peers take turns
at the same rates on the same guest in the same run. Bytes are counted on the
host where they leave the shaper; the longest wait is what the guest's fio saw.

The highest rate of each part is 90 % of what was measured without any limit.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from perf import loads, machine
from perf.accuracy import assess, fluid_wait_seconds
from perf.spread import spreads
from perf.subjects import LEAKY_BUCKET, Sluice, Subject, Unavailable, limited
from perf.subjects.disk import CgroupThrottle, QemuThrottle
from perf.subjects.net import LibvirtBandwidth, TcHtb, TcTbf, tap_of
from testbed import FileDisk, Guest, GuestSpec, Testbed, paths

TITLE = "achieved rate against set rate: disk reads, network out and in"
DEPTH = 16
RUN_SECONDS = 13
# The first second may hold what the guest had outstanding before the limit.
SKIP_SECONDS = 1.5
# Ten windows of a second, after what is skipped.
MEASURE_SECONDS = SKIP_SECONDS + 10.1
CAPACITY_SECONDS = 5
DISK = "vdb"
FRAME_BYTES = 1514
UNLIMITED_LINK_BPS = 5_000_000_000
Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One rate, and the request size that shows it without drowning in requests."""

    rate_bps: int
    request_bytes: int


DISK_POINTS = (
    Point(64 * 1024, 4096),
    Point(256 * 1024, 4096),
    Point(4 * 2**20, 4096),
    Point(4 * 2**20, 65536),
    Point(40 * 2**20, 65536),
)
NET_RATES_BPS = (64 * 1024, 2**20, 10 * 2**20)


def run(repeats: int, say: Say) -> dict[str, Any]:
    """Run the experiment; return its rows. Raises what the testbed raises."""
    image = paths.image("media-data.img")
    spec = GuestSpec("e2", disks=(FileDisk(image, readonly=True),), agent=False)
    with Testbed("perf-e2", link_bps=UNLIMITED_LINK_BPS) as testbed:
        guest = testbed.add_guest(spec)
        testbed.start_controller()
        machine.attach(testbed, guest)
        guest.start()
        say(f"guest ready after {guest.wait_ready():.0f} s ({testbed.accelerator.name})")
        machine.await_shaper(testbed, guest)
        rows = list(_disk_rows(testbed, guest, repeats, say))
        loads.without_offload(testbed, guest)
        with loads.iperf_server(testbed):
            for to_guest in (False, True):
                rows += _net_rows(testbed, guest, repeats, say, to_guest=to_guest)
        return {
            "experiment": "E2",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"Disk: {DEPTH} requests outstanding. Network: one TCP flow, frames of"
            f" {FRAME_BYTES} bytes.",
            "rows": rows,
        }


# --- disk


def _disk_rows(testbed: Testbed, guest: Guest, repeats: int, say: Say) -> Iterator[dict[str, Any]]:
    image = paths.image("media-data.img")
    subjects = [Sluice("blk-read"), Sluice("blk-read", LEAKY_BUCKET)]
    subjects += [QemuThrottle(DISK), CgroupThrottle(image)]

    def measure(_subject: Subject | None, point: Point, seconds: int) -> dict[str, float]:
        return _measure_disk(guest, point, seconds)

    capacity = _disk_capacity(guest)
    say(f"disk without a limit: {capacity / 2**20:.0f} MiB/s")
    points = [*DISK_POINTS, Point(int(0.9 * capacity), 65536)]
    yield from _compare("disk read", testbed, guest, subjects, points, repeats, measure, say)


def _disk_capacity(guest: Guest) -> float:
    command = loads.fio_read(DISK, 65536, DEPTH, CAPACITY_SECONDS)
    guest.ssh(command, timeout_seconds=CAPACITY_SECONDS + 30)
    return float(loads.fio_result(guest)["bw_bytes"])


def _measure_disk(guest: Guest, point: Point, seconds: int) -> dict[str, float]:
    guest.spawn(loads.fio_read(DISK, point.request_bytes, DEPTH, seconds), unit="load")
    domain = guest.domain
    samples = loads.sample_load(lambda: float(domain.blockStats(DISK)[1]), MEASURE_SECONDS)
    # What is outstanding at its end still has to pass, at the rate that was set.
    guest.wait_unit("load", timeout_seconds=60)
    wait_seconds = loads.longest_wait_seconds(loads.fio_log(guest), seconds)
    accuracy = assess(
        samples,
        point.rate_bps,
        point.request_bytes,
        skip_seconds=SKIP_SECONDS,
    )
    ideal = fluid_wait_seconds(DEPTH, point.request_bytes, point.rate_bps)
    return {**accuracy.as_dict(), "longest_wait_ratio": wait_seconds / ideal}


# --- network


def _net_rows(
    testbed: Testbed, guest: Guest, repeats: int, say: Say, *, to_guest: bool
) -> list[dict[str, Any]]:
    title = "net in" if to_guest else "net out"
    tap = tap_of(guest)
    outbound = not to_guest
    resource = "net-rx" if to_guest else "net-tx"
    subjects = [Sluice(resource), Sluice(resource, LEAKY_BUCKET)]
    subjects += [TcTbf(outbound), TcHtb(outbound), LibvirtBandwidth(outbound)]

    def measure(subject: Subject | None, point: Point, seconds: int) -> dict[str, float]:
        on_tap = not isinstance(subject, TcTbf | TcHtb)
        read = loads.net_counter(testbed, tap, to_guest=to_guest, shaped_on_tap=on_tap)
        guest.spawn(loads.iperf(seconds + 2, to_guest=to_guest), unit="load")
        samples = loads.sample_load(read, seconds)
        guest.kill_unit("load")
        skip = min(SKIP_SECONDS, seconds / 4)
        windows = int(seconds - skip - 1)
        return assess(
            samples, point.rate_bps, point.request_bytes, skip_seconds=skip, windows=windows
        ).as_dict()

    free = measure(None, Point(1, FRAME_BYTES), CAPACITY_SECONDS)
    capacity = free["mean_error_ratio"] + 1
    say(f"{title} without a limit: {capacity / 2**20:.0f} MiB/s")
    rates = [rate for rate in NET_RATES_BPS if rate < 0.9 * capacity] + [int(0.9 * capacity)]
    points = [Point(rate, FRAME_BYTES) for rate in rates]
    return list(_compare(title, testbed, guest, subjects, points, repeats, measure, say))


# --- both

Measure = Callable[[Subject | None, Point, int], dict[str, float]]


def _compare(
    part: str,
    testbed: Testbed,
    guest: Guest,
    subjects: list[Subject],
    points: list[Point],
    repeats: int,
    measure: Measure,
    say: Say,
) -> Iterator[dict[str, Any]]:
    """Measure all subjects at all points; they take turns at each."""
    for point in points:
        # Turns, so that a slow minute of the machine hits all of them.
        found: dict[str, list[dict[str, float]]] = {subject.name: [] for subject in subjects}
        for _ in range(repeats):
            for subject in subjects:
                with ExitStack() as stack:
                    try:
                        subject.open(testbed, guest)
                    except Unavailable as reason:
                        say(f"{part}: {subject.name} is left out: {reason}")
                        continue
                    stack.callback(subject.close)
                    stack.enter_context(limited(subject, point.rate_bps))
                    found[subject.name].append(measure(subject, point, RUN_SECONDS))
        for name, measured in found.items():
            if measured:
                row = {"part": part, "subject": name, **vars(point), **spreads(measured)}
                say(_line(row))
                yield row


def _line(row: dict[str, Any]) -> str:
    wait = row.get("longest_wait_ratio")
    return (
        f"{row['part']:<9} {row['subject']:<17} {row['rate_bps'] / 2**20:9.4f} MiB/s"
        f" {row['request_bytes']:6d} B: mean {row['mean_error_ratio']['median']:+.2%},"
        f" worst 1 s {row['worst_window_error_ratio']['median']:+.2%}"
        f" (one request is {row['quantum_ratio']['median']:.2%})"
        + (f", longest wait {wait['median']:.2f} of the ideal" if wait else "")
    )
