# SPDX-License-Identifier: GPL-2.0-or-later
"""Of a domain's channel: whether it is there and used, and why not."""

import re
from dataclasses import replace

import pytest

from sluice_controller.domain.channel import channel_json
from sluice_controller.domain.guests import Description, Guest

BARE = Description(shaper_id="sluice0")
WITH = replace(BARE, has_channel=True)
NO_BUS = replace(BARE, no_channel_because="the domain has no PCI bus")
NOT_CONNECTED = {"connected": False, "channel": None}
OLD = {"connected": True, "channel": None}
MAPPED = {"connected": True, "channel": {"version": 1, "port_map": True, "why": ""}}
UNMAPPED = {"connected": True, "channel": {"version": 0, "port_map": False, "why": "no uio"}}


def guest(defined, live=None):
    return Guest("web1", "u-1", "running" if live else "shut off", 1, defined, live)


@pytest.mark.parametrize(
    ("defined", "live", "why"),
    [
        (Description(), None, "not attached"),
        (BARE, None, "attach added none.*--upgrade"),
        (BARE, BARE, "attach added none.*--upgrade.*--restart"),
        (NO_BUS, NO_BUS, "no PCI bus"),
        (WITH, BARE, "with a restart: .*--upgrade.*--restart"),
        (WITH, Description(), "waits for a restart"),
    ],
)
def test_a_domain_without_a_channel_says_why(defined, live, why):
    said = channel_json(guest(defined, live), MAPPED)
    assert not said["present"] and not said["port_map"] and said["unused_because"] is None
    assert re.search(why, said["absent_because"])
    assert said["absent_because"] in said["sentence"]


@pytest.mark.parametrize(
    ("live", "agent", "why"),
    [
        (None, NOT_CONNECTED, "the domain is off"),
        (WITH, NOT_CONNECTED, "no agent is connected"),
        (WITH, OLD, "a version that does not use it"),
        (WITH, UNMAPPED, "no uio"),
    ],
)
def test_a_channel_that_is_not_used_says_why(live, agent, why):
    said = channel_json(guest(WITH, live), agent)
    assert said["present"] and not said["port_map"] and why in said["unused_because"]
    assert why in said["sentence"]


def test_a_channel_with_a_port_map_in_force_says_so():
    said = channel_json(guest(WITH, WITH), MAPPED)
    assert said["present"] and said["port_map"]
    assert said["absent_because"] is said["unused_because"] is None
    assert "port map in force" in said["sentence"]
