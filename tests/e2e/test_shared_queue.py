# SPDX-License-Identifier: GPL-2.0-or-later
"""A class that waits keeps nothing of a queue that it shares with others.

Linux counts the bytes that a card has not given back (byte queue limits), and stops
the card's queue for all senders when they are more than a limit, which shrinks while
some never come back (decision 0012). So while a flood waits for its limit, there are
moments at which all has come back.
"""

import time

import pytest

from measure import loads
from measure.experiments import load_class, machine
from measure.qmp import ask
from testbed import CLIENT_ADDRESS, Controller, Guest, Testbed, patience

CLASS = "flood"
LIMIT_BPS = 125_000
UNIT = "flood"
# A flood holds some packets all the time; of so many looks one finds the queue empty.
LOOKS = 50
INFLIGHT = "/sys/class/net/eth0/queues/tx-0/byte_queue_limits/inflight"


@pytest.fixture
def limited_dscp(testbed: Testbed, controller: Controller, guest: Guest):
    """The DSCP of a class whose sending is limited to LIMIT_BPS."""
    machine.await_shaper(testbed, guest)
    limits = {"net-tx": {"bytes_per_second": LIMIT_BPS}}
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": "Flood", "priority": 5})
    controller.call("PUT", f"/v1/domains/{guest.name}/classes/{CLASS}", {"limits": limits})
    load_class.count_dscp(controller, guest, "both")
    granted = controller.call("GET", f"/v1/domains/{guest.name}")["classes"]
    yield next(one["tag"] for one in granted if one["class"] == CLASS) << 2 | 3
    load_class.count_dscp(controller, guest, "auto")
    controller.call("DELETE", f"/v1/domains/{guest.name}/classes/{CLASS}")
    controller.call("DELETE", f"/v1/classes/{CLASS}")


@pytest.fixture
def flood(testbed: Testbed, guest: Guest, limited_dscp: int):
    """Four TCP flows out of the guest, which the class has to hold back."""
    command = f"iperf3 --client {CLIENT_ADDRESS} --parallel 4 --time 120 --dscp {limited_dscp}"
    with loads.iperf_server(testbed):
        guest.spawn(command, unit=UNIT)
        yield
        guest.kill_unit(UNIT)


def held_requests(guest: Guest) -> int:
    """Return how many packets of the class QEMU holds."""
    classes = (one for shaper in ask(guest, "query-shapers") for one in shaper["classes"])
    found = next((one for one in classes if one["class"] == CLASS), {"stats": []})
    return sum(row["backlog-requests"] for row in found["stats"] if row["resource"] == "net-tx")


@pytest.mark.usefixtures("flood")
def test_what_waits_has_left_the_queue(guest: Guest):
    deadline = time.monotonic() + patience.seconds(60)
    while held_requests(guest) == 0:
        assert time.monotonic() < deadline, "nothing is held: the flood has not come to its limit"
        time.sleep(0.5)
    look = f"for n in $(seq {LOOKS}); do cat {INFLIGHT}; sleep 0.05; done"
    inflight_bytes = [int(line) for line in guest.ssh(look, timeout_seconds=60).stdout.split()]
    assert held_requests(guest) > 0
    print(f"not given back: {sorted(inflight_bytes)} bytes")
    assert min(inflight_bytes) == 0
