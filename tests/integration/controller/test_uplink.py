# SPDX-License-Identifier: GPL-2.0-or-later
"""An interface's queue and rate, as this kernel tells of them."""

import contextlib
import json
import subprocess
import sys

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from sluice_controller.adapters.uplink import link_of, shaped_rate

MAKE = """
ip link add out0 type veth peer name away
ip link set out0 up
ip link set away up
ip link add br0 type bridge
ip link set br0 up
ip link set out0 master br0
"""
ASK = """
import json
from dataclasses import asdict
from sluice_controller.adapters.uplink import LinuxUplinks
uplinks = LinuxUplinks()
def said(name):
    try:
        return asdict(uplinks.read(name))
    except OSError as error:
        return str(error)
print(json.dumps([uplinks.names(), said("out0"), said("br0")]))
"""
ASK_ALONE = """
import json
from sluice_controller.adapters.uplink import LinuxUplinks
uplinks = LinuxUplinks()
uplinks._links = None
print(json.dumps(uplinks.read("out0").ports))
"""


def told(*commands, ask=ASK):
    """The answer to ``ask`` in a namespace of its own: (names, reading of ``out0``, reading of
    ``br0``), unless another is asked for."""
    script = "\n".join(["set -e", MAKE, *commands, f"exec {sys.executable} -c '{ask}'"])
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", script], capture_output=True, text=True, check=False
    )
    if "qdisc kind is unknown" in done.stderr:
        pytest.skip(f"this kernel has none: {commands[0]}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_waits_where_there_is_no_queue():
    names, reading, bridge = told()
    assert names == []
    assert "out0 has no queue" in reading
    assert "br0 has no port that leads out" in bridge


@pytest.mark.parametrize(
    "discipline",
    [
        "tbf rate 40mbit burst 10k latency 10ms",
        "cake bandwidth 40mbit",
        "netem rate 40mbit",
        "htb",
    ],
)
def test_a_discipline_s_rate_is_the_link_s(discipline):
    more = ["tc class add dev out0 parent 1: classid 1:1 htb rate 9mbit ceil 40mbit"]
    root = f"tc qdisc add dev out0 root handle 1: {discipline}"
    names, reading, _ = told(root, *(more if discipline == "htb" else []))
    assert names == ["out0"]
    assert reading["link_bytes_per_second"] == 5_000_000
    assert reading["ports"] == ["out0"]


def test_an_interface_with_a_queue_is_found_without_a_list_of_all():
    """A host has some for each guest, and a tick has 100 ms."""
    queue = "tc qdisc add dev out0 root tbf rate 40mbit burst 10k latency 10ms"
    assert told(queue, ask=ASK_ALONE) == ["out0"]


RENAME = """
import json, subprocess
from sluice_controller.adapters.uplink import LinuxUplinks
uplinks, said = LinuxUplinks(), []
def ask(name):
    try:
        said.append(uplinks.read(name).ports)
    except OSError as error:
        said.append(str(error))
def ip(*words):
    subprocess.run(["ip", "link", "set", *words], check=True)
ask("WATCHED")
ip("out0", "down")
ip("out0", "name", "lan0")
ask("WATCHED")
ask("lan0")
print(json.dumps(said))
"""
QUEUE = "tc qdisc add dev out0 root tbf rate 40mbit burst 10k latency 10ms"


def test_a_link_that_is_renamed_is_missed_at_once():
    before, after, renamed = told(QUEUE, ask=RENAME.replace("WATCHED", "out0"))
    assert (before, renamed) == (["out0"], ["lan0"])
    assert after.startswith("there is no interface out0; there are ") and "lan0" in after


def test_a_port_that_is_renamed_is_found_at_once_beneath_what_is_above_it():
    on_out0 = "ip link add link out0 name mac0 up type macvlan"
    above = ["ip link set out0 nomaster", on_out0]
    before, after, renamed = told(QUEUE, *above, ask=RENAME.replace("WATCHED", "mac0"))
    assert (before, after, renamed) == (["out0"], ["lan0"], ["lan0"])


def test_a_port_that_joins_a_bridge_is_found_at_once():
    # A veth pair's end in a bridge is taken for a guest's.
    port = ["ip link add out1 type ifb", QUEUE.replace("out0", "out1"), "ip link set out1 up"]
    join = RENAME.replace("WATCHED", "br0").replace('"out0", "down"', '"out1", "master", "br0"')
    before, after, _ = told(*port, ask=join.replace('ip("out0", "name", "lan0")\n', ""))
    assert "br0 has no port" in before
    assert after == ["out1"]


ASK_FOR_ONE = """
import json
from pyroute2.netlink.rtnl.tcmsg import tcmsg
from sluice_controller.adapters.uplink import LinuxUplinks
uplinks, decoded, decode = LinuxUplinks(), [], tcmsg.decode
def counted(message):
    decoded.append(1)
    decode(message)
tcmsg.decode = counted
uplinks.read("out0")
print(json.dumps(len(decoded)))
"""


def test_of_the_queues_of_all_interfaces_one_is_decoded():
    """The kernel lists those of all guests' cards, ten times a second."""
    guests = [
        line
        for n in range(20)
        for line in (f"ip tuntap add tap{n} mode tap", f"tc qdisc add dev tap{n} root pfifo")
    ]
    assert told(QUEUE, *guests, ask=ASK_FOR_ONE) == 1


def through_the_kernel_s_format(kind, **options):
    """A discipline as netlink carries it, without a kernel that has it."""
    options = {"attrs": list(options.items())}
    return carried(tcmsg, [["TCA_KIND", kind], ["TCA_OPTIONS", options]])


def carried(form, attributes):
    message = form()
    message["index"] = 1
    message["attrs"] = attributes
    message.encode()
    read = form(bytes(message.data))
    with contextlib.suppress(AttributeError):
        read.decode()
    return read


@pytest.mark.parametrize(("more", "beneath"), [([], 7), ([["IFLA_LINK_NETNSID", 0]], None)])
def test_a_number_of_another_namespace_is_of_none_here(more, beneath):
    told_of = [["IFLA_IFNAME", "over0"], ["IFLA_LINK", 7], *more]
    assert link_of(carried(ifinfmsg, told_of)).beneath == beneath


def test_cake_s_rate_is_read():
    assert shaped_rate(through_the_kernel_s_format("cake", TCA_CAKE_BASE_RATE64=5_000_000)) == 5e6
    assert shaped_rate(through_the_kernel_s_format("cake", TCA_CAKE_BASE_RATE64=0)) is None
    assert shaped_rate(through_the_kernel_s_format("fq_codel")) is None
