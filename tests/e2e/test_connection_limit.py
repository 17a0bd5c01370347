# SPDX-License-Identifier: GPL-2.0-or-later
"""A limit of new connections hits strangers' SYNs before the guest sees them.

httperf on the clients' side marks nothing. The agent's port map puts its connections into the
class of the server's user, and QEMU drops the SYNs beyond the limit. With overload control the
limit follows the server's accept queue, of which the agent tells.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from measure import loads
from measure.qmp import ask
from testbed import Controller, Guest, Testbed, patience
from testbed.clients import parse_httperf

CLASS = "served"
PORT = 8080
OFFERED_PER_SECOND = 40
OFFERED = 400
LIMIT_PER_SECOND = 1
MOST_PER_SECOND = 100
# Of a look by SSH, with a connection of its own at most.
SSH_SEGMENTS = 200
GIVE_UP_SECONDS = 5


@dataclass(frozen=True)
class Load:
    """Figures of one run of httperf: connections, SYNs that QEMU dropped, and TCP segments that
    the guest's kernel received."""

    replies: int
    opened: int
    segments: int
    dropped: int
    seconds: float


@pytest.fixture
def served(controller: Controller, guest: Guest) -> Iterator[str]:
    """The path of a granted class; a server of its user listens, and its port is in the map."""
    path = f"/v1/domains/{guest.name}/classes/{CLASS}"
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": CLASS, "priority": 5})
    controller.call("PUT", path, {"limits": {}})
    match = {"user": "player"}
    rule = controller.call(
        "POST", "/v1/rules", {"domain": guest.name, "class": CLASS, "match": match}
    )
    guest.ssh("cat >/run/serve-http.pl", input=loads.web_server(PORT))
    guest.spawn("exec runuser -u player -- perl /run/serve-http.pl", unit="limited-server")
    yield path
    guest.kill_unit("limited-server")
    controller.call("DELETE", f"/v1/rules/{rule['id']}")
    controller.call("DELETE", path)
    controller.call("DELETE", f"/v1/classes/{CLASS}")


def of_class(guest: Guest) -> dict:
    """Counters of the class for received traffic so far."""
    (shaper,) = ask(guest, "query-shapers")
    rows = next(one["stats"] for one in shaper["classes"] if one["class"] == CLASS)
    return next(row for row in rows if row["resource"] == "net-rx")


def seen_by(guest: Guest) -> tuple[int, int]:
    """Connections that the guest's kernel has accepted so far, and segments of TCP it received."""
    names, values = guest.ssh("grep ^Tcp: /proc/net/snmp").stdout.splitlines()
    counts = dict(zip(names.split(), values.split(), strict=True))
    return int(counts["PassiveOpens"]), int(counts["InSegs"])


def await_server(testbed: Testbed, guest: Guest) -> None:
    """Until a visitor's request is answered and counted in the class."""
    deadline = time.monotonic() + patience.seconds(60)
    while not any(one["class"] == CLASS for one in ask(guest, "query-shapers")[0]["classes"]):
        assert time.monotonic() < deadline, "QEMU was not given the class"
        time.sleep(0.1)
    start = of_class(guest)["requests"]
    while of_class(guest)["requests"] == start:
        assert time.monotonic() < deadline, "no visit is of the class"
        visit = ["curl", "-s", "-m", "10", f"http://{guest.address}:{PORT}/"]
        testbed.client_run(["sh", "-c", " ".join([*visit, "|| sleep 0.5"])])


def visit(testbed: Testbed, guest: Guest) -> Load:
    start = time.monotonic()
    opened_before, segments_before = seen_by(guest)
    dropped = of_class(guest)["drops"]["connection"]
    command = loads.httperf(guest.address, PORT, OFFERED_PER_SECOND, OFFERED, GIVE_UP_SECONDS)
    found = parse_httperf(testbed.client_run(command, timeout_seconds=patience.seconds(60)).stdout)
    assert found is not None
    dropped = of_class(guest)["drops"]["connection"] - dropped
    # A look of this test, which comes by SSH, may be one of them, and has segments.
    opened, segments = seen_by(guest)
    return Load(
        found.replies,
        opened - opened_before,
        segments - segments_before,
        dropped,
        time.monotonic() - start,
    )


def test_excess_connections_never_reach_the_guest(
    testbed: Testbed, controller: Controller, guest: Guest, served: str
):
    await_server(testbed, guest)
    free = visit(testbed, guest)
    limit = {"limits": {}, "queues": {"net-rx": {"connections_per_second": LIMIT_PER_SECOND}}}
    controller.call("PUT", served, limit)
    limited = visit(testbed, guest)
    print(f"without a limit {free}; with one {limited}")
    assert free.dropped == 0 and free.replies > 0
    # Each visitor whose connection the guest never opened has lost at least one SYN.
    assert limited.dropped >= OFFERED - limited.opened > 0
    # Not one of the dropped SYNs was among what the guest received.
    assert limited.segments < free.segments * limited.opened / free.opened + SSH_SEGMENTS
    # The burst is one connection.
    assert 1 <= limited.replies <= LIMIT_PER_SECOND * limited.seconds + 1


def control(controller: Controller, served: str) -> dict:
    return controller.call("GET", served)["overload"]


def limit_in_force(guest: Guest) -> int:
    (shaper,) = ask(guest, "query-shapers")
    rows = next(one["queues"] for one in shaper["classes"] if one["class"] == CLASS)
    return next(row["connections-per-second"] for row in rows if row["resource"] == "net-rx")


def await_control(controller: Controller, served: str, is_due: Callable[[dict], bool]) -> dict:
    deadline = time.monotonic() + patience.seconds(90)
    while not is_due(now := control(controller, served)):
        assert time.monotonic() < deadline, now
        time.sleep(0.5)
    return now


def test_a_full_accept_queue_cuts_the_limit_and_an_empty_one_raises_it(
    testbed: Testbed, controller: Controller, guest: Guest, served: str
):
    await_server(testbed, guest)
    queue = {"connections_per_second": MOST_PER_SECOND, "overload": "auto"}
    controller.call("PUT", served, {"limits": {}, "queues": {"net-rx": queue}})
    free = await_control(controller, served, lambda now: "waits to be accepted" in now["reason"])
    assert free["connections_per_second"] == MOST_PER_SECOND
    # The kernel takes connections on, and nobody accepts them.
    guest.ssh("pkill -STOP -u player perl")
    command = loads.httperf(guest.address, PORT, OFFERED_PER_SECOND, OFFERED, GIVE_UP_SECONDS)
    client = testbed.client_popen(command, name="httperf")
    few = MOST_PER_SECOND / 8
    cut = await_control(
        controller,
        served,
        lambda now: now["connections_per_second"] <= few and limit_in_force(guest) <= few,
    )
    print(f"free {free}; cut {cut}")
    assert f"port {PORT}: " in cut["reason"]
    guest.ssh("pkill -CONT -u player perl")
    client.stop()
    whole = await_control(
        controller, served, lambda now: now["connections_per_second"] == MOST_PER_SECOND
    )
    assert "waits to be accepted" in whole["reason"]
