# SPDX-License-Identifier: GPL-2.0-or-later
"""The ports beneath bridges, bonds and VLANs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.uplinks import NO_QUEUE, Link, ports

HOST = [
    Link(2, "eno1", queue="mq", master=4),
    Link(3, "eno2", queue="mq", master=4),
    Link(4, "bond0", "bond", NO_QUEUE),
    Link(5, "bond0.7", "vlan", NO_QUEUE, master=6, beneath=4),
    Link(6, "br0", "bridge", NO_QUEUE),
    Link(7, "vnet0", "tun", "fq_codel", master=6),
    Link(8, "veth1", "veth", NO_QUEUE, master=6, beneath=2),
    Link(9, "virbr0", "bridge", NO_QUEUE),
    Link(10, "vnet1", "tun", "fq_codel", master=9),
    Link(11, "br1", "bridge", NO_QUEUE),
    Link(12, "eno3", queue="mq", master=11),
    Link(13, "eno4", queue="mq", master=11),
    Link(14, "br2", "bridge", "cake"),
]


def names(name, links=HOST):
    return [port.name for port in ports(links, name)]


@pytest.mark.parametrize("name", ["bond0", "bond0.7", "br0"])
def test_frames_wait_in_the_ports_beneath(name):
    assert names(name) == ["eno1", "eno2"]


def test_a_bond_waits_at_its_port_in_use():
    active = [
        Link(4, "bond0", "bond", NO_QUEUE, active=3),
        *(one for one in HOST if one.index != 4),
    ]
    assert names("br0", active) == ["eno2"]
    gone = [Link(4, "bond0", "bond", NO_QUEUE, active=99), *(one for one in HOST if one.index != 4)]
    assert names("br0", gone) == ["eno1", "eno2"]


@pytest.mark.parametrize("name", ["eno1", "vnet0", "br2"])
def test_a_queue_of_its_own_is_watched(name):
    assert names(name) == [name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eno9", "no interface eno9; there are bond0, "),
        ("br1", "bridge br1 has several ways out; name one of eno3, eno4"),
        ("virbr0", "bridge virbr0 has no port that leads out"),
        ("veth1", "veth1 has no queue"),
    ],
)
def test_what_cannot_be_watched_says_why_and_what_to_do(name, words):
    with pytest.raises(ValueError, match=words):
        ports(HOST, name)


def test_a_host_without_interfaces_says_so():
    with pytest.raises(ValueError, match="there are none"):
        ports([], "eno1")


indices = st.integers(1, 6)
links = st.builds(
    lambda index, **more: Link(index, f"if{index}", **more),
    indices,
    kind=st.sampled_from(["", "bridge", "bond", "vlan", "tun"]),
    queue=st.sampled_from([NO_QUEUE, "mq"]),
    master=st.none() | indices,
    beneath=st.none() | indices,
    active=st.none() | indices,
)


@given(st.lists(links, unique_by=lambda link: link.index), indices)
def test_any_listing_ends_in_queues_or_a_reason(found, index):
    """Interfaces on top of each other in a ring, too."""
    try:
        resolved = ports(found, f"if{index}")
    except ValueError as error:
        assert "interface" in str(error) or "beneath itself" in str(error) or "way" in str(error)
        return
    assert resolved and all(port in found and port.queue != NO_QUEUE for port in resolved)
