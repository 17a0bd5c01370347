# SPDX-License-Identifier: GPL-2.0-or-later
"""FLOOD: the effect of a class that floods its device on its neighbours.

*Same guest.* A limited class keeps 512 disk reads outstanding, which is less than
the ring, or sends datagrams from several sockets, as fast as it can, which fills
its buffer. Meanwhile another class, without a limit,
reads at a steady pace, or answers pings. The control differs in one thing: the
flood goes to another device of the same guest.

*Other guest.* A guest with a single class fills its rings to the last slot:
twice as many reads as a ring has, and more datagrams than the ring holds; another
guest reads and answers pings. The control differs in how many are under way: the same
programs, as fast as the same limit lets them, have so few that no ring is full. Each
guest has a processor of its own, and that of the flooding guest is kept busy in both.

Flood and control take turns, many times and not for long, so that the machine's
slow minutes hit both; all waits of a kind make one percentile. Before and after
each measurement QEMU is asked how much of the ring it holds.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from measure import loads
from measure.experiments import machine
from measure.experiments.bars import CALM_MAX, FULL_MIN
from measure.experiments.choice import Choice
from measure.experiments.latencies import Latencies, at_a_pace, p99_ratio, parse_ping
from measure.experiments.pooled import ratio_of_p99
from measure.experiments.rings import (
    DISK_SPARE,
    TRANSMIT_SPARE,
    Ring,
    disk_rings,
    given_back,
    transmit_ring,
)
from measure.experiments.rows import Rows
from measure.experiments.spread import spread
from testbed import CLIENT_ADDRESS, FileDisk, Guest, GuestSpec, Testbed, paths

TITLE = "a flooding class and its neighbours"
SAME, OTHER = "same guest", "other guest"
SECONDS = 10
# Pairs of a row, if nothing else is asked for.
REPEATS = 12
# How long a flood may take to fill its ring, and how long it lasts at most.
FILL_SECONDS = 20
FLOOD_SECONDS = 90
# Of so many readings the fullest counts: a slot that was let go is filled again.
READINGS = 20
READING_SECONDS = 0.05
UNLIMITED_LINK_BPS = 5_000_000_000
FLOOD_CLASS = "bulk"
FLOOD_UNIT = "flood"
SPIN_UNIT = "spin"
DISK_BPS = 4 * 2**20
NET_BPS = 2 * 2**20
DISK_DEPTH = 512
DISK_BYTES = 65536
# Twice and a half of two rings of 1,024; small, so that they drain in seconds.
FULL_JOBS, FULL_DEPTH, FULL_BYTES = 4, 640, 16384
# 400 together: less than half of one ring.
CALM_DEPTH = 100
# By Linux's default 92 datagrams of a socket are on their way at most, more than two rings of
# 24 sockets; with the other, four.
SENDERS = 24
FULL_SOCKET_BYTES, CALM_SOCKET_BYTES = 212992, 8192
DATAGRAM_BYTES = 1400
READS_PER_SECOND = 500
PINGS_PER_SECOND = 200
Say = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A pair of floods, the latency that is measured beside them, and the ring's fill.

    ``fill_ratio`` is 1 or more if the flood holds all that it is meant to hold, and, where
    more is dropped, if at least as much is dropped as goes; of a card's whole ring, if more
    is to be sent than it has slots.
    ``elsewhere_ratio`` is the same of the device to which the control's flood goes.
    """

    part: str
    subject: str
    flood: str
    control: str
    latencies: Callable[[], Latencies]
    fill_ratio: Callable[[], float]
    elsewhere_ratio: Callable[[], float] | None = None


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; return the wanted rows. Raises what the testbed raises."""
    rows = Rows(say, choice)
    with Testbed("perf-flood", link_bps=UNLIMITED_LINK_BPS) as testbed:
        busy, calm = _guests(testbed, say)
        _limit_a_class(testbed, busy)
        with loads.iperf_server(testbed), loads.iperf_server(testbed, machine.SECOND_CLIENT):
            for case in _same_guest(testbed, busy):
                rows.add(case.part, case.subject, partial(_row, busy, case, repeats, say))
        _limit_all(testbed, busy)
        busy_processor, calm_processor = machine.keep_apart((busy, calm))
        server = loads.iperf_server(testbed, processor=busy_processor)
        with server, _never_idle(busy):
            for case in _other_guest(testbed, busy, calm, calm_processor):
                rows.add(case.part, case.subject, partial(_row, busy, case, repeats, say))
        return {
            "experiment": "FLOOD",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"The flooding class is limited to {DISK_BPS / 2**20:g} MiB/s of disk reads"
            f" and {NET_BPS / 2**20:g} MiB/s sent. Latencies are 99th percentiles in ms; a lost"
            " ping has taken infinitely long.",
            **rows.as_dict(),
        }


# --- the guests


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
    machine.second_client(testbed)
    machine.second_address(busy)
    machine.without_scheduler(busy, ("vdb", "vdc"))
    # All programs are in the guests' page cache before anything is limited.
    for guest in (busy, calm):
        guest.ssh(loads.fio_logged("read", "vdb", 4096, 1, 1), timeout_seconds=60)
    busy.ssh("iperf3 --version")
    return busy, calm


def _limits() -> dict[str, Any]:
    return {
        "blk-read": {"bytes_per_second": DISK_BPS},
        "net-tx": {"bytes_per_second": NET_BPS},
    }


def _limit_a_class(testbed: Testbed, busy: Guest) -> None:
    """Have the flood in a class of its own."""
    call = testbed.controller.call
    call("PUT", f"/v1/classes/{FLOOD_CLASS}", {"title": "Bulk", "priority": 7, "is_stream": False})
    grant = {"limits": _limits(), "dscp": []}
    call("PUT", f"/v1/domains/{busy.name}/classes/{FLOOD_CLASS}", grant)
    rule = {"domain": busy.name, "class": FLOOD_CLASS, "match": {"unit": f"{FLOOD_UNIT}.service"}}
    call("POST", "/v1/rules", rule)


def _limit_all(testbed: Testbed, busy: Guest) -> None:
    """Leave the guest one class: only then a flood may hold a whole ring of a card."""
    call = testbed.controller.call
    call("DELETE", f"/v1/domains/{busy.name}/classes/{FLOOD_CLASS}")
    for resource, limit in _limits().items():
        call("PUT", f"/v1/domains/{busy.name}/classes/default/limits/{resource}", limit)


@contextmanager
def _never_idle(guest: Guest) -> Iterator[None]:
    """Keep a guest's processors busy whenever they would be idle.

    One of the host's processors is slower while another is at work with anything: by 1.6 % in
    the median of forty tries, a third of the bar. A flood keeps processors at work, and its
    control would not.
    """
    spin = "(while :; do :; done) &"
    command = f"{spin * guest.vcpus()} wait"
    guest.spawn(f"exec nice -n 19 sh -c '{command}'", unit=SPIN_UNIT)
    try:
        yield
    finally:
        guest.kill_unit(SPIN_UNIT)


# --- floods


def _same_guest(testbed: Testbed, busy: Guest) -> Iterator[Case]:
    def disk(device: str) -> str:
        return loads.fio("read", device, DISK_BYTES, DISK_DEPTH, FLOOD_SECONDS)

    def held(device: str) -> float:
        return sum(ring.held for ring in disk_rings(busy, device)) / DISK_DEPTH

    yield Case(
        SAME,
        "disk read",
        disk("vdb"),
        disk("vdc"),
        lambda: reads(busy),
        lambda: held("vdb"),
        lambda: held("vdc"),
    )
    yield Case(
        SAME,
        "ping",
        _datagrams(CLIENT_ADDRESS, FULL_SOCKET_BYTES),
        _datagrams(machine.SECOND_CLIENT, FULL_SOCKET_BYTES),
        lambda: pings(testbed, busy),
        lambda: _buffer_fill(testbed, busy, 0),
        lambda: _buffer_fill(testbed, busy, 1),
    )


def _other_guest(
    testbed: Testbed, busy: Guest, calm: Guest, calm_processor: int | None
) -> Iterator[Case]:
    yield Case(
        OTHER,
        "disk read",
        _disk_reads(FULL_DEPTH),
        _disk_reads(CALM_DEPTH),
        lambda: reads(calm),
        lambda: full_ratio(disk_rings(busy, "vdb"), spare=DISK_SPARE),
    )
    yield Case(
        OTHER,
        "ping",
        _datagrams(CLIENT_ADDRESS, FULL_SOCKET_BYTES),
        _datagrams(CLIENT_ADDRESS, CALM_SOCKET_BYTES),
        lambda: pings(testbed, calm, calm_processor),
        lambda: _transmit_demand(busy),
    )


def _disk_reads(depth: int) -> str:
    """Return a command that keeps a depth of reads outstanding for each of its jobs."""
    jobs = f"--numjobs={FULL_JOBS} --cpus_allowed=0-1 --cpus_allowed_policy=split"
    return loads.fio("read", "vdb", FULL_BYTES, depth, FLOOD_SECONDS, more=jobs)


def _datagrams(client: str, socket_bytes: int) -> str:
    """Return a command that sends as fast as it may, by sockets with so much room each.

    iperf3's own option would change the receiver's, too.
    """
    return (
        f"echo {socket_bytes} > /proc/sys/net/core/wmem_default && exec"
        f" iperf3 --client {client} --udp --parallel {SENDERS} --bitrate 0"
        f" --length {DATAGRAM_BYTES} --time {FLOOD_SECONDS}"
    )


def full_ratio(rings: Sequence[Ring], spare: int = 0) -> float:
    """Return held ÷ size of the least full ring; ``spare`` slots are never used."""
    return min(ring.held / (ring.size - spare) for ring in rings)


def _transmit_demand(busy: Guest) -> float:
    """Return packets in a card's ring, and in the guest waiting for its slots, ÷ its slots.

    The number in the ring goes up and down: Linux refills a full ring only when three quarters
    of it have come back.
    """
    ring = transmit_ring(busy)
    listed = busy.ssh("tc -s -j qdisc show dev eth0", timeout_seconds=30).stdout
    return (ring.held + waiting_packets(listed)) / (ring.size - TRANSMIT_SPARE)


def waiting_packets(listed: str) -> int:
    """Read from tc's JSON how many packets wait in the queues of a card."""
    return sum(queue["qlen"] for queue in json.loads(listed) if "root" in queue)


def _buffer_fill(testbed: Testbed, busy: Guest, card: int) -> float:
    """Return how full the class's buffer is, if it is this card that the class sends by."""
    before, began = transmit_ring(busy, card), time.monotonic()
    time.sleep(READING_SECONDS)
    after, ended = transmit_ring(busy, card), time.monotonic()
    live = testbed.controller.call("GET", f"/v1/live?domain={busy.name}")
    # Neither is there as long as the page has not been read, or is late.
    classes = live["domains"].get(busy.name, {}).get("classes", {})
    sample = classes.get(FLOOD_CLASS, {}).get("net-tx")
    carried = given_back(before, after) / (ended - began)
    return min(overflow_ratio(sample), carried_ratio(carried, sample))


def carried_ratio(packets_per_second: float, sample: Mapping[str, Any] | None) -> float:
    """Return a card's packets ÷ half of those that the class sent, or wanted to, meanwhile."""
    if not sample or not sample["requests_per_second"] or not sample["drops_per_second"]:
        return 0.0
    wanted = sample["requests_per_second"] + sample["drops_per_second"]["backlog"]
    return 2 * packets_per_second / wanted


def overflow_ratio(sample: Mapping[str, Any] | None) -> float:
    """Return frames that found the buffer full ÷ frames that went, in the last second.

    The present buffer tells less: it holds a sixteenth of a second of the traffic, and is empty
    for a moment whenever the guest's processors were elsewhere for longer.
    """
    if not sample or not sample["requests_per_second"] or not sample["drops_per_second"]:
        return 0.0
    return sample["drops_per_second"]["backlog"] / sample["requests_per_second"]


# --- latencies


def reads(guest: Guest) -> Latencies:
    """Read single blocks of a guest's first data disk at a steady pace."""
    command = loads.fio_logged("read", "vdb", 4096, 1, SECONDS)
    guest.ssh(f"{command} --rate_iops={READS_PER_SECOND}", timeout_seconds=SECONDS + 120)
    waits_ms = [1e3 * wait for _at, wait in loads.fio_waits(loads.fio_log(guest))]
    return Latencies(at_a_pace(waits_ms, 1e3 / READS_PER_SECOND))


def pings(testbed: Testbed, guest: Guest, processor: int | None = None) -> Latencies:
    """Ping from the clients, from a processor if given: the reply leaves by the guest's queue."""
    count = SECONDS * PINGS_PER_SECOND
    command = ["ping", "-n", "-i", f"{1 / PINGS_PER_SECOND:g}", "-c", f"{count}", "-W", "5"]
    # It ends with an error if replies are lost, which is a figure here.
    command = loads.on_processor(processor, [*command, guest.address])
    done = testbed.client_run(command, timeout_seconds=SECONDS + 120, check=False)
    return parse_ping(done.stdout, count)


# --- measuring


@dataclass(frozen=True)
class Measured:
    latencies: Latencies
    fill_ratio: float
    elsewhere_ratio: float | None = None


# Flood and control.
Pair = tuple[Measured, Measured]


@contextmanager
def _flooding(busy: Guest, command: str) -> Iterator[None]:
    busy.spawn(command, unit=FLOOD_UNIT)
    try:
        yield
    finally:
        busy.ssh(f"systemctl stop {FLOOD_UNIT}", check=False, timeout_seconds=120)


def fullest(fill_ratio: Callable[[], float], enough: float = math.inf) -> float:
    """Return the fullest of some readings; none is taken after one that is enough."""
    found = 0.0
    for _ in range(READINGS):
        found = max(found, fill_ratio())
        if found >= enough:
            break
        time.sleep(READING_SECONDS)
    return found


def _await_full(fill_ratio: Callable[[], float]) -> float:
    deadline = time.monotonic() + FILL_SECONDS
    while (found := fullest(fill_ratio, FULL_MIN)) < FULL_MIN and time.monotonic() < deadline:
        pass
    return found


def _measure_flood(busy: Guest, case: Case) -> Measured:
    """Measure beside a flood that is full before and after."""
    with _flooding(busy, case.flood):
        before = _await_full(case.fill_ratio)
        latencies = case.latencies()
        return Measured(latencies, min(before, fullest(case.fill_ratio, FULL_MIN)))


def _measure_control(busy: Guest, case: Case) -> Measured:
    """Measure beside the control, whose flood, if it has one, is full elsewhere."""
    elsewhere = case.elsewhere_ratio
    with _flooding(busy, case.control):
        full = _await_full(elsewhere) if elsewhere else None
        before = fullest(case.fill_ratio)
        latencies = case.latencies()
        most = max(before, fullest(case.fill_ratio))
        full = min(full, fullest(elsewhere, FULL_MIN)) if elsewhere else None
        return Measured(latencies, most, full)


def is_sound(flood: Measured, control: Measured) -> bool:
    """Whether a pair says anything: the flood was full, the control was not."""
    elsewhere = control.elsewhere_ratio
    return (
        flood.fill_ratio >= FULL_MIN
        and control.fill_ratio <= CALM_MAX
        and (elsewhere is None or elsewhere >= FULL_MIN)
    )


def gather(repeats: int, measure: Callable[[int], Pair]) -> tuple[list[Pair], list[Pair]]:
    """Return the valid pairs, and the pairs set aside.

    Half as many as asked for may be measured again; if that is not enough, all count, and the
    judge sees their faults.
    """
    sound: list[Pair] = []
    aside: list[Pair] = []
    while len(sound) < repeats and len(aside) <= repeats // 2:
        pair = measure(len(sound) + len(aside))
        (sound if is_sound(*pair) else aside).append(pair)
    return (sound, aside) if len(sound) == repeats else (sound + aside, [])


def _pair(busy: Guest, case: Case, number: int) -> Pair:
    measures = {"flood": _measure_flood, "control": _measure_control}
    order = ("flood", "control") if number % 2 == 0 else ("control", "flood")
    found = {which: measures[which](busy, case) for which in order}
    return found["flood"], found["control"]


def _row(busy: Guest, case: Case, repeats: int, say: Say) -> dict[str, Any]:
    pairs, aside = gather(repeats, partial(_pair, busy, case))
    row = {"part": case.part, "subject": case.subject, "runs": len(pairs), **figures(pairs)}
    row["set_aside"] = spread([len(aside)])
    say(
        f"{case.part:<12} {case.subject:<10} p99 {row['flood_p99_ms']['median']:.2f} ms,"
        f" control {row['control_p99_ms']['median']:.2f} ms, ratio of all runs"
        f" {row['pooled_p99_ratio']['median']:.3f} ({row['pooled_p99_ratio']['min']:.3f} …"
        f" {row['pooled_p99_ratio']['max']:.3f}); held ÷ full {row['flood_fill_ratio']['min']:.2f},"
        f" control {row['control_fill_ratio']['max']:.2f};"
        f" lost at most {row['flood_lost']['max']}, control {row['control_lost']['max']}"
    )
    return row


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return a row's figures from its pairs of flood and control."""
    flood, control = ([pair[which] for pair in pairs] for which in (0, 1))
    elsewhere = [one.elsewhere_ratio for one in control if one.elsewhere_ratio is not None]
    waits = ([one.latencies.waits_ms() for one in measured] for measured in (flood, control))
    return {
        "flood_p99_ms": spread([one.latencies.percentile99_ms() for one in flood]),
        "control_p99_ms": spread([one.latencies.percentile99_ms() for one in control]),
        "pooled_p99_ratio": ratio_of_p99(*waits),
        "p99_ratio": spread([p99_ratio(mine.latencies, its.latencies) for mine, its in pairs]),
        "asked": spread([one.latencies.asked for one in (*flood, *control)]),
        "flood_lost": spread([one.latencies.lost for one in flood]),
        "control_lost": spread([one.latencies.lost for one in control]),
        "flood_fill_ratio": spread([one.fill_ratio for one in flood]),
        "control_fill_ratio": spread([one.fill_ratio for one in control]),
        **({"elsewhere_fill_ratio": spread(elsewhere)} if elsewhere else {}),
    }
