# SPDX-License-Identifier: GPL-2.0-or-later
"""FLOOD: what a class that floods its device does to its neighbours.

A limited class of one guest keeps 512 disk reads outstanding, or sends datagrams
as fast as it can. Meanwhile another class of the same guest, without a limit,
reads one block at a time, or answers pings, and another guest does the same.

Their 99th percentile is compared with a control in which everything is the same
but where the flood goes: to another device of the same guest. The two take
turns, so that the machine's slow minutes hit both. For the other guest the
control is the same class at the same rate which keeps one request outstanding:
it uses what it is granted and fills no ring.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from perf import loads, machine
from perf.spread import spread
from testbed import CLIENT_ADDRESS, CLIENTS, FileDisk, Guest, GuestSpec, Testbed, paths

TITLE = "a flooding class and its neighbours"
SECONDS = 10
WARM_SECONDS = 2
UNLIMITED_LINK_BPS = 5_000_000_000
FLOOD_CLASS = "bulk"
FLOOD_UNIT = "flood"
DISK_BPS = 4 * 2**20
NET_BPS = 2 * 2**20
DISK_DEPTH = 512
SECOND_CLIENT = "10.78.0.200"
SECOND_GUEST = "10.78.0.11"
BARS = {"same guest": 1.1, "other guest": 1.05}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A pair of floods, and the latency that is measured beside them."""

    part: str
    subject: str
    flood: str
    control: str
    latencies_ms: Callable[[], list[float]]


def percentile99(values: list[float]) -> float:
    """Return the 99th percentile. Raises ValueError for fewer than 100 values."""
    if len(values) < 100:
        raise ValueError(f"{len(values)} values are too few for a 99th percentile")
    return quantiles(values, n=100, method="inclusive")[98]


def parse_ping(text: str) -> list[float]:
    """Read the milliseconds of ping's replies."""
    return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


def run(repeats: int, say: Say) -> dict[str, Any]:
    """Run the experiment; return its rows. Raises what the testbed raises."""
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed("perf-flood", link_bps=UNLIMITED_LINK_BPS))
        busy, calm = _guests(testbed, say)
        stack.enter_context(loads.iperf_server(testbed))
        stack.enter_context(loads.iperf_server(testbed, SECOND_CLIENT))
        rows = [_row(testbed, busy, case, repeats, say) for case in _cases(testbed, busy, calm)]
        return {
            "experiment": "FLOOD",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"The flooding class is limited to {DISK_BPS / 2**20:g} MiB/s of disk reads"
            f" and {NET_BPS / 2**20:g} MiB/s sent. Latencies are 99th percentiles in ms.",
            "rows": rows,
        }


def _guests(testbed: Testbed, say: Say) -> tuple[Guest, Guest]:
    data = FileDisk(paths.image("media-data.img"), readonly=True)
    other = FileDisk(paths.image("web-data.img"), readonly=True)
    busy = testbed.add_guest(GuestSpec("busy", disks=(data, other), nics=2))
    calm = testbed.add_guest(GuestSpec("calm", disks=(data,), agent=False))
    testbed.start_controller()
    for guest in (busy, calm):
        machine.attach(testbed, guest)
        guest.start()
    for guest in (busy, calm):
        say(f"guest {guest.name} ready after {guest.wait_ready():.0f} s")
        machine.await_shaper(testbed, guest)
    testbed.controller.wait_for_agent(busy.name)
    _second_network(testbed, busy)
    call = testbed.controller.call
    call("PUT", f"/v1/classes/{FLOOD_CLASS}", {"title": "Bulk", "priority": 7, "is_stream": False})
    limits = {"blk-read": {"bytes_per_second": DISK_BPS}, "net-tx": {"bytes_per_second": NET_BPS}}
    call("PUT", f"/v1/domains/{busy.name}/classes/{FLOOD_CLASS}", {"limits": limits, "dscp": []})
    rule = {"domain": busy.name, "class": FLOOD_CLASS, "match": {"unit": f"{FLOOD_UNIT}.service"}}
    call("POST", "/v1/rules", rule)
    # Both programs are in the guests' page cache before anything is limited.
    for guest in (busy, calm):
        guest.ssh(loads.fio_read("vdb", 4096, 1, 1), timeout_seconds=60)
    return busy, calm


def _second_network(testbed: Testbed, guest: Guest) -> None:
    """Give the guest's second card, and the clients, addresses of another network."""
    guest.ssh(f"ip address add {SECOND_GUEST}/24 dev eth1 && ip link set eth1 up")
    address = ["ip", "address", "add", f"{SECOND_CLIENT}/24", "dev", "eth0"]
    testbed.sandbox.run(address, netns=CLIENTS)


def _cases(testbed: Testbed, busy: Guest, calm: Guest) -> list[Case]:
    total = WARM_SECONDS + SECONDS + 2

    def disk(device: str, depth: int) -> str:
        return loads.fio_read(device, 65536, depth, total, name="flood")

    def net(client: str, rate: str) -> str:
        return f"iperf3 --client {client} --udp --bitrate {rate} --length 1400 --time {total}"

    at_rate = f"{NET_BPS * 8}"
    return [
        Case(
            "same guest",
            "disk read",
            disk("vdb", DISK_DEPTH),
            disk("vdc", DISK_DEPTH),
            _reads(busy),
        ),
        Case(
            "same guest",
            "ping",
            net(CLIENT_ADDRESS, "0"),
            net(SECOND_CLIENT, "0"),
            _pings(testbed, busy),
        ),
        Case("other guest", "disk read", disk("vdb", DISK_DEPTH), disk("vdb", 1), _reads(calm)),
        Case(
            "other guest",
            "ping",
            net(CLIENT_ADDRESS, "0"),
            net(CLIENT_ADDRESS, at_rate),
            _pings(testbed, calm),
        ),
    ]


def _reads(guest: Guest) -> Callable[[], list[float]]:
    """Return what measures single reads of a guest's first data disk."""

    def measure() -> list[float]:
        guest.ssh(loads.fio_read("vdb", 4096, 1, SECONDS), timeout_seconds=SECONDS + 60)
        log = loads.fio_log(guest)
        return [int(line.split(",")[1]) / 1e6 for line in log.splitlines()]

    return measure


def _pings(testbed: Testbed, guest: Guest) -> Callable[[], list[float]]:
    """Return what measures pings from the clients: the reply leaves by the guest's queue."""

    def measure() -> list[float]:
        command = ["ping", "-n", "-i", "0.01", "-c", str(SECONDS * 100), "-W", "5", guest.address]
        done = testbed.client_run(command, timeout_seconds=SECONDS + 60, check=False)
        return parse_ping(done.stdout)

    return measure


@contextmanager
def _flooding(testbed: Testbed, busy: Guest, command: str):
    """Run a flood in the class that is limited; the block begins when it is held."""
    busy.spawn(command, unit=FLOOD_UNIT)
    try:
        busy.ssh(f"sleep {WARM_SECONDS}")
        yield
    finally:
        busy.kill_unit(FLOOD_UNIT)


def _row(testbed: Testbed, busy: Guest, case: Case, repeats: int, say: Say) -> dict[str, Any]:
    found: dict[str, list[float]] = {"flood": [], "control": []}
    for number in range(repeats):
        order = ("flood", "control") if number % 2 == 0 else ("control", "flood")
        for which in order:
            with _flooding(testbed, busy, getattr(case, which)):
                found[which].append(percentile99(case.latencies_ms()))
    ratios = [flood / control for flood, control in zip(*found.values(), strict=True)]
    row = {
        "part": case.part,
        "subject": case.subject,
        "flood_p99_ms": spread(found["flood"]),
        "control_p99_ms": spread(found["control"]),
        "p99_ratio": spread(ratios),
        "bar_ratio": BARS[case.part],
    }
    say(
        f"{case.part:<12} {case.subject:<10} p99 {row['flood_p99_ms']['median']:.2f} ms,"
        f" control {row['control_p99_ms']['median']:.2f} ms, ratio"
        f" {row['p99_ratio']['median']:.3f} ({row['p99_ratio']['min']:.3f} …"
        f" {row['p99_ratio']['max']:.3f}), bar {row['bar_ratio']}"
    )
    return row
