# SPDX-License-Identifier: GPL-2.0-or-later
"""The testbed's network: a bridge for the guests, and an uplink of limited rate.

    guests ── tap ── br-sluice ── uplink0 ══ LINK ══ eth0 (namespace ``clients``)
                        │
                     10.77.0.1, the host

``uplink0`` stands for the host's network card: a token bucket of ``tc`` sends
out at LINK and queues LINK_QUEUE_BYTES. All addresses are private to the
sandbox; nothing is routed out of it.
"""

import json
from dataclasses import dataclass

from testbed.sandbox import Sandbox

BRIDGE = "br-sluice"
UPLINK = "uplink0"
CLIENTS = "clients"
PREFIX = 24
HOST_ADDRESS = "10.77.0.1"
CLIENT_ADDRESS = "10.77.0.200"
# A bucket must hold the largest packet that segmentation offload makes.
LINK_BURST_BYTES = 128 * 1024
LINK_QUEUE_BYTES = 500 * 1024


@dataclass(frozen=True)
class LinkCounters:
    """Traffic of the uplink since it was made, and its present queue."""

    sent_bytes: int
    sent_packets: int
    dropped_packets: int
    backlog_bytes: int


def guest_address(index: int) -> str:
    """Return the address of the guest with this index, counted from 0."""
    if not 0 <= index < 100:
        raise ValueError(f"guest index {index} is outside 0 to 99")
    return f"10.77.0.{11 + index}"


def tbf(device: str, bytes_per_second: int, queue_bytes: int) -> list[str]:
    """Return the tc command that limits the traffic out of ``device``."""
    if bytes_per_second < 100_000:
        raise ValueError(f"link of {bytes_per_second} bytes/s: use at least 100000")
    return (
        f"tc qdisc replace dev {device} root tbf rate {bytes_per_second * 8}bit "
        f"burst {LINK_BURST_BYTES} limit {queue_bytes}"
    ).split()


def set_up(sandbox: Sandbox, link_bps: int, ingress_bps: int | None, queue_bytes: int) -> None:
    """Make bridge, uplink and the clients' namespace."""
    script = f"""
        ip link add {BRIDGE} type bridge stp_state 0 forward_delay 0
        ip address add {HOST_ADDRESS}/{PREFIX} dev {BRIDGE}
        ip link set {BRIDGE} up
        ip netns add {CLIENTS}
        ip link add {UPLINK} type veth peer name eth0 netns {CLIENTS}
        ip link set {UPLINK} master {BRIDGE} up
    """
    for line in filter(None, map(str.strip, script.splitlines())):
        sandbox.run(line.split())
    inside = f"""
        sysctl -qw net.ipv6.conf.all.disable_ipv6=1
        ip link set lo up
        ip address add {CLIENT_ADDRESS}/{PREFIX} dev eth0
        ip link set eth0 up
    """
    for line in filter(None, map(str.strip, inside.splitlines())):
        sandbox.run(line.split(), netns=CLIENTS)
    limit_uplink(sandbox, link_bps, queue_bytes)
    if ingress_bps:
        sandbox.run(tbf("eth0", ingress_bps, queue_bytes), netns=CLIENTS)


def limit_uplink(sandbox: Sandbox, link_bps: int, queue_bytes: int) -> None:
    """Give the uplink its rate and its queue, in place of any former ones."""
    sandbox.run(tbf(UPLINK, link_bps, queue_bytes))


def link_counters(sandbox: Sandbox) -> LinkCounters:
    """Read the uplink's queue."""
    answer = sandbox.run(["tc", "-s", "-j", "qdisc", "show", "dev", UPLINK, "root"])
    queue = json.loads(answer.stdout)[0]
    return LinkCounters(queue["bytes"], queue["packets"], queue["drops"], queue["backlog"])
