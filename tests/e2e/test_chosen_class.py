# SPDX-License-Identifier: GPL-2.0-or-later
"""Nobody chooses a class for himself: neither a guest's process nor a stranger.

The agent of a real guest writes the port map into the channel's device, and QEMU classes frames
by it, in both directions. A user without privileges marks his traffic with the DSCP of another
granted class, and the sender of what he receives does so, too. He lays the I/O priority down by
which his disk requests are classed, as often as he can.
"""

import time

import pytest

from measure import loads
from measure.qmp import ask
from testbed import CLIENT_ADDRESS, CLIENTS, Controller, Guest, Testbed, patience

OWN, WISHED = "own", "wished"
SECONDS = 4
# More than iperf3's control connection moves.
MAPPED_BYTES = 500_000
FLOW = f"iperf3 --client {CLIENT_ADDRESS} --time {SECONDS} --dscp {{dscp}} {{more}}"
REQUESTS = 40
PORT = 8080
PAGE_BYTES = 20_000
SERVER = f"""
use IO::Socket::INET;
my $server = IO::Socket::INET->new(Listen => 20, LocalPort => {PORT}, ReuseAddr => 1) or die;
while (my $visit = $server->accept) {{
    print $visit "x" x {PAGE_BYTES};
    close $visit;
}}
"""
# Each request is a connection of its own, and says how many bytes came.
VISIT = f"""
import socket, sys
for _ in range({REQUESTS}):
    with socket.create_connection((sys.argv[1], {PORT}), 20) as visit:
        while visit.recv(65536):
            pass
"""
# ioprio_set() of itself, its group and its user, to none, to each level and to idle; again in a
# child, which goes on with it while the parent writes. Numbers of x86-64. With a host's first rule
# the agent tags before the kernel has its programs; a tag that was laid down till then comes back.
FILE = "/home/player/bytes"
WRITE_BYTES = 4 * 2**20
LAY_DOWN = f"""
sub is_tagged {{ syscall(252, 1, 0) >> 13 == 1 }}
sub is_kept {{ is_tagged() && syscall(251, 1, 0, 0) < 0 }}
my $is_kept;
for (1 .. 600) {{ last if $is_kept = is_kept(); select(undef, undef, undef, 0.1) }}
$is_kept or die is_tagged() ? "the tag can be laid down" : "the process has no tag";
my $laid_down = 0;
sub lay_down {{
    for my $prio (0, 3 << 13, map {{ 2 << 13 | $_ }} 0 .. 7) {{
        for ([1, 0], [1, $$], [2, 0], [3, $<]) {{
            $laid_down++ if syscall(251, $$_[0], $$_[1], $prio) >= 0;
        }}
    }}
}}
lay_down();
my $child = fork() // die;
while (!$child) {{ lay_down(); exit 1 if $laid_down; exit 0 if getppid() == 1 }}
my $file = "if=/dev/zero of={FILE} bs=64k conv=notrunc oflag=direct status=none";
my $count = {WRITE_BYTES} / 65536;
for my $how ("-c3", "-c2 -n0", "-c2 -n7", "-c0") {{
    system("ionice -t $how dd $file count=" . $count / 4) == 0 or die;
}}
kill "KILL", $child;
wait();
die "laid down" if $laid_down || $? >> 8;
"""


@pytest.fixture
def tags(controller: Controller, guest: Guest):
    """The tags of two granted classes without limits; the user ``player`` belongs to OWN."""
    domain = f"/v1/domains/{guest.name}"
    for name in (OWN, WISHED):
        controller.call("PUT", f"/v1/classes/{name}", {"title": name, "priority": 5})
        controller.call("PUT", f"{domain}/classes/{name}", {"limits": {}})
    rule = controller.call(
        "POST", "/v1/rules", {"domain": guest.name, "class": OWN, "match": {"user": "player"}}
    )
    await_map(controller, guest)
    granted = controller.call("GET", domain)["classes"]
    yield {one["class"]: one["tag"] for one in granted}
    controller.call("DELETE", f"/v1/rules/{rule['id']}")
    for name in (OWN, WISHED):
        controller.call("DELETE", f"{domain}/classes/{name}")
        controller.call("DELETE", f"/v1/classes/{name}")


def await_map(controller: Controller, guest: Guest) -> None:
    deadline = time.monotonic() + patience.seconds(30)
    while not in_force(guest):
        assert time.monotonic() < deadline, controller.call("GET", f"/v1/domains/{guest.name}")
        time.sleep(0.2)


def in_force(guest: Guest) -> bool:
    (shaper,) = ask(guest, "query-shapers")
    return ask(guest, "query-shaper-channel", id=shaper["id"])["port-map"]


def bytes_of(guest: Guest, resource: str) -> dict[str, int]:
    """Bytes of each class so far."""
    (shaper,) = ask(guest, "query-shapers")
    return {
        one["class"]: row["bytes"]
        for one in shaper["classes"]
        for row in one["stats"]
        if row["resource"] == resource
    }


def await_bytes(guest: Guest, resource: str, name: str, count: int) -> dict[str, int]:
    """Bytes of each class as soon as one of them has moved ``count`` of them."""
    deadline = time.monotonic() + patience.seconds(20)
    while (now := bytes_of(guest, resource)).get(name, 0) < count:
        assert time.monotonic() < deadline, f"{name} has moved {now} of {count} bytes"
        time.sleep(0.05)
    return now


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items()}


@pytest.mark.parametrize(("resource", "more"), [("net-tx", ""), ("net-rx", "--reverse")])
def test_a_dscp_chooses_nothing(testbed: Testbed, guest: Guest, tags, resource, more):
    dscp = tags[WISHED] << 2 | 3
    start = bytes_of(guest, resource)
    with loads.iperf_server(testbed):
        flow = FLOW.format(dscp=dscp, more=more)
        guest.spawn(f"exec runuser -u player -- {flow} >/dev/null", unit="flow")
        # A client's first frames may come before its port is in the map. From then on all
        # frames are of its class.
        mapped = await_bytes(guest, resource, OWN, start[OWN] + MAPPED_BYTES)
        guest.wait_unit("flow", timeout_seconds=60)
    end = bytes_of(guest, resource)
    moved = grown(mapped, end)
    print(f"{resource}: {grown(start, end)}, of which with the port in the map: {moved}")
    assert grown(start, end)[WISHED] == 0
    assert moved[OWN] >= 1_000_000 and moved[OWN] >= 0.9 * sum(moved.values())


def test_an_io_priority_cannot_be_laid_down(guest: Guest, tags):
    guest.ssh("cat >/run/lay-down.pl", input=LAY_DOWN)
    guest.ssh(f"install -o player /dev/null {FILE}; head -c {WRITE_BYTES} /dev/zero >{FILE}; sync")
    before = bytes_of(guest, "blk-write")
    guest.ssh("runuser -u player -- perl /run/lay-down.pl", timeout_seconds=120)
    moved = grown(before, bytes_of(guest, "blk-write"))
    print(f"blk-write: {moved}")
    # Others of the guest write, too, and the file system's own thread: in the class `default`.
    assert moved[WISHED] == 0
    assert moved[OWN] >= WRITE_BYTES


@pytest.mark.parametrize("how", ["oflag=direct", "conv=notrunc && sync -d {file}"])
def test_root_of_the_guest_shapes_a_command(guest: Guest, tags, how):
    """In a class that no rule names: the host has granted it. Data that the page cache has is of
    the class, too, if a process of the class has it written."""
    guest.ssh(f"install -o player /dev/null {FILE}; head -c {WRITE_BYTES} /dev/zero >{FILE}; sync")
    before = bytes_of(guest, "blk-write")
    dd = f"dd if=/dev/zero of={FILE} bs=64k count={WRITE_BYTES // 65536} {how.format(file=FILE)}"
    guest.ssh(f"sluice-agent shape --class {WISHED} -- sh -c '{dd}'", timeout_seconds=120)
    moved = grown(before, bytes_of(guest, "blk-write"))
    print(f"blk-write: {moved}")
    assert moved[WISHED] >= WRITE_BYTES
    refused = guest.ssh(
        f"runuser -u player -- sluice-agent shape --class {WISHED} -- true 2>&1 || echo refused"
    )
    assert "may not choose" in refused.stdout and "refused" in refused.stdout


def test_a_rule_names_a_container(controller: Controller, guest: Guest, tags):
    """By the scope that systemd makes for Docker."""
    container = "4b0f2f1a6c1e7d3b" * 4
    match = {"container": container[:12]}
    body = {"domain": guest.name, "class": WISHED, "match": match}
    rule = controller.call("POST", "/v1/rules", body)
    guest.ssh(f"head -c {WRITE_BYTES} /dev/zero >{FILE}; sync")
    before = bytes_of(guest, "blk-write")
    dd = f"dd if=/dev/zero of={FILE} bs=64k count={WRITE_BYTES // 65536} oflag=direct conv=notrunc"
    script = f"until ionice -p $$ | grep -q realtime; do sleep 0.1; done; {dd}"
    scope = f"systemd-run --scope --unit docker-{container}.scope"
    guest.ssh(f"{scope} sh -c '{script}'", timeout_seconds=120)
    moved = grown(before, bytes_of(guest, "blk-write"))
    controller.call("DELETE", f"/v1/rules/{rule['id']}")
    print(f"blk-write: {moved}")
    assert moved[WISHED] >= WRITE_BYTES


def test_short_connections_are_counted(testbed: Testbed, guest: Guest, tags):
    """A server's connections have its port: each is in its class from the first frame on."""
    guest.ssh("cat >/run/serve.pl", input=SERVER)
    guest.spawn("exec runuser -u player -- perl /run/serve.pl", unit="short-server")
    deadline = time.monotonic() + patience.seconds(20)
    while str(PORT) not in guest.ssh("ss -Htln").stdout:
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.1)
    # The agent has a second to see the port without the kernel's help.
    time.sleep(2)
    sent, received = bytes_of(guest, "net-tx"), bytes_of(guest, "net-rx")
    testbed.sandbox.run(["python3", "-c", VISIT, guest.address], netns=CLIENTS)
    sent = grown(sent, bytes_of(guest, "net-tx"))
    received = grown(received, bytes_of(guest, "net-rx"))
    guest.kill_unit("short-server")
    print(f"sent {sent}, received {received}")
    assert sent[OWN] >= REQUESTS * PAGE_BYTES
    assert sent[OWN] >= 0.99 * sum(sent.values())
    assert received[OWN] >= 0.95 * sum(received.values())
