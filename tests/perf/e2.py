# SPDX-License-Identifier: GPL-2.0-or-later
"""E2: the rate that passes against the rate that was set (TAP Fig. 3).

A guest reads at random with sixteen requests outstanding. Sluice's token bucket
and QEMU's own throttling take turns at the same rates on the same disk in the
same run. The rate is taken from the host's count of completed bytes; the
longest wait is what the guest's fio saw.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from perf.accuracy import Sample, assess, fluid_wait_seconds
from testbed import FileDisk, Guest, GuestSpec, Testbed, paths

TITLE = "achieved rate against set rate, disk reads"
DEPTH = 16
RUN_SECONDS = 13
# The first second may hold what the guest had outstanding before the limit.
SKIP_SECONDS = 1.5
DOMAIN = "e2"
DISK = "vdb"


@dataclass(frozen=True)
class Point:
    """One rate, and the request size that shows it without drowning in requests."""

    rate_bps: int
    request_bytes: int


POINTS = (
    Point(64 * 1024, 4096),
    Point(256 * 1024, 4096),
    Point(4 * 2**20, 4096),
    Point(4 * 2**20, 65536),
    Point(40 * 2**20, 65536),
)
Setter = Callable[[Testbed, Guest, int | None], None]


def set_sluice(testbed: Testbed, _guest: Guest, rate_bps: int | None) -> None:
    """Limit disk reads of the guest's default class, or lift the limit."""
    path = f"/v1/domains/{DOMAIN}/classes/default/limits/blk-read"
    if rate_bps is None:
        testbed.controller.call("DELETE", path)
    else:
        testbed.controller.call("PUT", path, {"bytes_per_second": rate_bps, "burst_bytes": 65536})


def set_qemu_throttle(_testbed: Testbed, guest: Guest, rate_bps: int | None) -> None:
    """Do the same with libvirt's iotune, which is QEMU's throttle group."""
    guest.domain.setBlockIoTune(DISK, {"read_bytes_sec": rate_bps or 0}, 0)


SUBJECTS: dict[str, Setter] = {"sluice": set_sluice, "qemu-throttle": set_qemu_throttle}


def run(repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the experiment; return its rows. Raises what the testbed raises."""
    disk = paths.image("media-data.img")
    spec = GuestSpec(DOMAIN, disks=(FileDisk(disk, readonly=True),), agent=False)
    with Testbed("perf-e2") as testbed:
        guest = testbed.add_guest(spec)
        testbed.start_controller()
        testbed.controller.call("POST", f"/v1/domains/{DOMAIN}/attach", {})
        guest.start()
        say(f"guest ready after {guest.wait_ready():.0f} s ({testbed.accelerator.name})")
        _await_shaper(testbed)
        rows = list(_rows(testbed, guest, repeats, say))
        return {
            "experiment": "E2",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "depth": DEPTH,
            "rows": rows,
        }


def _await_shaper(testbed: Testbed, timeout_seconds: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not testbed.controller.call("GET", f"/v1/domains/{DOMAIN}")["active"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the shaper of {DOMAIN} is not active after {timeout_seconds} s")
        time.sleep(0.2)


def _rows(
    testbed: Testbed, guest: Guest, repeats: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    for point in POINTS:
        # Subjects take turns, so that a slow minute of the machine hits both.
        found: dict[str, list[dict[str, float]]] = {name: [] for name in SUBJECTS}
        for _ in range(repeats):
            for name, set_rate in SUBJECTS.items():
                set_rate(testbed, guest, point.rate_bps)
                try:
                    found[name].append(_measure(guest, point))
                finally:
                    set_rate(testbed, guest, None)
        for name, measured in found.items():
            row = {"subject": name, **vars(point), **_spread(measured)}
            say(_line(row))
            yield row


def _measure(guest: Guest, point: Point) -> dict[str, float]:
    guest.drop_caches()
    command = (
        f"fio --name=e2 --filename=/dev/{DISK} --readonly --rw=randread --direct=1"
        f" --ioengine=libaio --iodepth={DEPTH} --bs={point.request_bytes}"
        f" --time_based --runtime={RUN_SECONDS} --norandommap --output-format=json"
        " --output=/tmp/e2.json"
    )
    guest.spawn(command, unit="e2")
    samples = _sample(guest, RUN_SECONDS + 1)
    fio = json.loads(guest.ssh("cat /tmp/e2.json", timeout_seconds=60).stdout)
    wait_ns = fio["jobs"][0]["read"]["clat_ns"]["max"]
    # Not before the first request was counted, and not after fio's last.
    first = next(n for n, (_, count) in enumerate(samples) if count > samples[0][1])
    accuracy = assess(
        samples[first:], point.rate_bps, point.request_bytes, skip_seconds=SKIP_SECONDS
    )
    ideal = fluid_wait_seconds(DEPTH, point.request_bytes, point.rate_bps)
    return {**accuracy.as_dict(), "longest_wait_ratio": wait_ns / 1e9 / ideal}


def _sample(guest: Guest, seconds: float) -> list[Sample]:
    domain, samples = guest.domain, []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        samples.append((now, float(domain.blockStats(DISK)[1])))
        time.sleep(0.01)
    return samples


def _spread(measured: list[dict[str, float]]) -> dict[str, Any]:
    return {
        key: {
            "median": median(one[key] for one in measured),
            "min": min(one[key] for one in measured),
            "max": max(one[key] for one in measured),
        }
        for key in measured[0]
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['subject']:<14} {row['rate_bps'] / 2**20:8.4f} MiB/s"
        f" {row['request_bytes']:6d} B: mean {row['mean_error_ratio']['median']:+.2%},"
        f" worst 1 s {row['worst_window_error_ratio']['median']:+.2%}"
        f" (one request is {row['quantum_ratio']['median']:.2%}),"
        f" longest wait {row['longest_wait_ratio']['median']:.2f} of the ideal"
    )
