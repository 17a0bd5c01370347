# SPDX-License-Identifier: GPL-2.0-or-later
"""stress.hosts: the guest's definition, and answers that do not know it yet."""

from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from stress.hosts import BASE, CLASS, NAME, backlog, definition, missing
from testbed.domain_xml import FileDisk, GuestSpec, Placement

LIVE = {"blk-read": {"backlog_requests": 2}, "blk-write": {"backlog_requests": 3}}
SHOWN = {
    "agent": {"connected": True},
    "classes": [
        {"class": "default", "limits": {"net-tx": {}}},
        {"class": CLASS, "limits": {"blk-read": {}, "blk-write": {}}},
    ],
}
HELD = {"classes": {CLASS: {"blk-write": {"held_p99_ms": 4.5}, "blk-read": {"held_p99_ms": None}}}}


def test_the_root_disks_backing_is_declared_and_no_others():
    placement = Placement(
        accelerator="kvm",
        emulator=Path("/q"),
        kernel=Path("/k"),
        initrd=Path("/i"),
        root_overlay=Path("/o.qcow2"),
        console_log=Path("/c"),
        address="10.78.0.31",
        mac="52:54:00:78:00:31",
    )
    spec = GuestSpec(NAME, disks=(FileDisk(Path("/data.raw")),))
    domain = ET.fromstring(definition(SimpleNamespace(spec=spec, placement=placement)))
    by_target = {disk.find("target").get("dev"): disk for disk in domain.iter("disk")}
    backing = by_target["vda"].find("backingStore")
    assert backing.get("type") == "block"
    assert backing.find("source").get("dev") == BASE
    assert backing.find("format").get("type") == "raw"
    assert backing.find("backingStore") is not None
    assert by_target["vdb"].find("backingStore") is None


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"classes": {}},
        {"classes": {CLASS: {"blk-read": {"backlog_requests": 1}}}},
    ],
)
def test_a_backlog_that_sluiced_does_not_know_is_none(known):
    assert backlog(known) is None


def test_the_backlog_of_both_resources_is_added():
    assert backlog({"classes": {CLASS: LIVE}}) == 5


def test_a_guest_that_is_held_to_its_limits_lacks_nothing():
    assert missing(SHOWN, HELD) == []


@pytest.mark.parametrize(
    ("shown", "known", "lacks"),
    [
        (
            {**SHOWN, "agent": {"connected": False, "error": "it is silent"}},
            HELD,
            ["a connected agent (it is silent)"],
        ),
        (
            {**SHOWN, "classes": []},
            HELD,
            ["limit of blk-read", "limit of blk-write"],
        ),
        (SHOWN, {}, ["a request that was held (no error)"]),
        (
            SHOWN,
            {"error": "page: not refreshed", "classes": {}},
            ["a request that was held (page: not refreshed)"],
        ),
        (
            SHOWN,
            {"classes": {CLASS: {"blk-write": {"held_p99_ms": None}}}},
            ["a request that was held (no error)"],
        ),
    ],
)
def test_what_a_guest_lacks_is_named_with_why(shown, known, lacks):
    assert missing(shown, known) == lacks
