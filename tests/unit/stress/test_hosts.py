# SPDX-License-Identifier: GPL-2.0-or-later
"""stress.hosts: the guest's definition, and answers that do not know it yet."""

import json
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from stress import hosts
from stress.hosts import BASE, CLASS, NAME, backlog, definition, missing
from stress.scene import StressError
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


@pytest.mark.parametrize(
    "known",
    [HELD, {"classes": {CLASS: {"blk-read": {"held_p99_ms": 0.0, "backlog_requests": 1}}}}],
)
def test_a_guest_that_is_held_to_its_limits_lacks_nothing(known):
    assert missing(SHOWN, known) == {}


@pytest.mark.parametrize(
    ("shown", "known", "lacks"),
    [
        (
            {**SHOWN, "agent": {"connected": False, "error": "it is silent"}},
            HELD,
            {"a connected agent": "it is silent"},
        ),
        (
            {**SHOWN, "classes": []},
            HELD,
            {
                "a limit of blk-read": "sluiced has none",
                "a limit of blk-write": "sluiced has none",
            },
        ),
        (SHOWN, {}, {"a request that was held": "no error"}),
        (
            SHOWN,
            {"error": "page: not refreshed", "classes": {}},
            {"a request that was held": "page: not refreshed"},
        ),
        (
            SHOWN,
            {"classes": {CLASS: {"blk-write": {"held_p99_ms": None, "backlog_requests": 0}}}},
            {"a request that was held": "no error"},
        ),
    ],
)
def test_what_a_guest_lacks_is_named_with_why(shown, known, lacks):
    assert missing(shown, known) == lacks


class Host:
    """Answers `sluice show` and `sluice live` in turn."""

    name = "host2"

    def __init__(self, *answers):
        self.answers = list(answers)

    def out(self, _command):
        return json.dumps(self.answers.pop(0))

    def ssh(self, _command, check):
        return SimpleNamespace(
            returncode=0, stdout=json.dumps({"domains": {NAME: self.answers.pop(0)}})
        )


def test_an_agent_and_a_held_request_may_be_seen_one_after_the_other(monkeypatch):
    monkeypatch.setattr(hosts.time, "sleep", lambda _seconds: None)
    silent = {**SHOWN, "agent": {"connected": False, "error": "it is silent"}}
    host = Host(SHOWN, {}, silent, {}, silent, HELD)
    hosts.wait_shaped(host, print)
    assert host.answers == []


def test_what_was_never_seen_is_named(monkeypatch):
    times = iter(range(0, 10000, 400))
    monkeypatch.setattr(hosts.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(hosts.time, "monotonic", lambda: next(times))
    with pytest.raises(StressError, match=r"host2 lacks a request that was held \(no error\)"):
        hosts.wait_shaped(Host(SHOWN, {}, SHOWN, {}), print)
