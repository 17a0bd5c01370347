# SPDX-License-Identifier: GPL-2.0-or-later
"""The modules that talk to sluiced, with a real sluiced."""

import pytest

from ansible_collection import run_module

BATCH = {"name": "batch", "title": "Batch", "priority": 7}
LIMITS = {"blk-read": "20MB/s", "net-tx": {"rate": "8Mbit/s", "burst": "64KiB"}}
AS_STORED = {
    "blk-read": {"bytes_per_second": 20_000_000},
    "net-tx": {"bytes_per_second": 1_000_000, "burst_bytes": 65536},
}


@pytest.fixture
def module(daemon):
    """Runs a module against the daemon."""
    env = {"SLUICE_SOCKET": str(daemon.socket), "SLUICE_TOKEN_FILE": str(daemon.token_file)}

    def run(module, /, **arguments):
        return run_module(module, env=env, **arguments)

    return run


@pytest.fixture(autouse=True)
def nothing_defined(daemon):
    """Each test begins and ends with no class but default."""
    yield
    for stream in daemon.call("GET", "/v1/streams"):
        daemon.call("DELETE", f"/v1/streams/{stream['name']}")
    for rule in daemon.call("GET", "/v1/rules"):
        daemon.call("DELETE", f"/v1/rules/{rule['id']}")
    for grant in daemon.call("GET", "/v1/domains/test")["classes"]:
        name = grant["class"]
        if name == "default":
            daemon.call("PUT", "/v1/domains/test/classes/default", {"limits": {}, "dscp": []})
        else:
            daemon.call("DELETE", f"/v1/domains/test/classes/{name}")
    for shaping_class in daemon.call("GET", "/v1/classes"):
        if shaping_class["name"] != "default":
            daemon.call("DELETE", f"/v1/classes/{shaping_class['name']}")
    daemon.call("PUT", "/v1/domains/test/ceiling", {})


def twice(module, which, /, **arguments):
    """Check mode foresees, the first run changes, the second does not."""
    foreseen = module(which, check=True, **arguments)
    first = module(which, **arguments)
    second = module(which, **arguments)
    assert [answer["changed"] for answer in (foreseen, first, second)] == [True, True, False]
    assert foreseen["diff"] == first["diff"]
    assert second["diff"]["before"] == second["diff"]["after"] == first["diff"]["after"]
    return first


def stored_class(daemon, name):
    return next((c for c in daemon.call("GET", "/v1/classes") if c["name"] == name), None)


def test_a_class_is_made_changed_and_removed(module, daemon):
    twice(module, "sluice_class", **BATCH)
    assert stored_class(daemon, "batch")["priority"] == 7
    # What is not given stays.
    twice(module, "sluice_class", name="batch", stream=True)
    stored = stored_class(daemon, "batch")
    assert (stored["title"], stored["priority"], stored["is_stream"]) == ("Batch", 7, True)
    assert module("sluice_class", name="batch", state="absent", check=True)["changed"] is True
    assert stored_class(daemon, "batch")
    assert module("sluice_class", name="batch", state="absent")["changed"] is True
    assert module("sluice_class", name="batch", state="absent")["changed"] is False
    assert stored_class(daemon, "batch") is None


def test_a_grant_holds_just_these_limits(module, daemon):
    module("sluice_class", **BATCH)
    grant = {"domain": "test", "class_name": "batch"}
    answer = twice(module, "sluice_grant", **grant, limits=LIMITS, dscp=[8])
    after = answer["diff"]["after"]
    assert (after["limits"], after["dscp"]) == (AS_STORED, [8])
    twice(module, "sluice_grant", **grant, limits={"blk-read": 5_000_000})
    granted = daemon.call("GET", "/v1/domains/test")["classes"][1]
    assert list(granted["limits"]) == ["blk-read"] and granted["dscp"] == []
    assert module("sluice_grant", **grant, state="absent")["changed"] is True
    assert module("sluice_grant", **grant, state="absent")["changed"] is False


def test_scheduling_and_queues_are_set_left_alone_and_taken_back(module, daemon):
    module("sluice_class", **BATCH)
    twice(module, "sluice_class", name="batch", weight=300, unmanaged=True)
    twice(module, "sluice_class", name="batch", unmanaged=False)
    # What is not given stays.
    assert (stored_class(daemon, "batch")["weight"], stored_class(daemon, "batch")["priority"]) == (
        300,
        7,
    )
    grant = {"domain": "test", "class_name": "batch", "limits": LIMITS}
    scheduling = {
        "blk-read": {"reserve": "2MB/s", "policy": "token-leaky", "peak": "30MB/s"},
        "net-tx": {"window": "1KiB/20ms", "may_miss": "1/10"},
    }
    queues = {"net-rx": {"bytes": "256KiB", "aqm": "codel", "ecn": True, "connections": 200}}
    twice(module, "sluice_grant", **grant, scheduling=scheduling, queues=queues)
    stored = daemon.call("GET", "/v1/domains/test")["classes"][1]
    assert stored["scheduling"]["net-tx"]["window"]["of"] == 10
    assert stored["queues"]["net-rx"]["connections_per_second"] == 200
    assert module("sluice_grant", **grant)["changed"] is False
    twice(module, "sluice_grant", **grant, scheduling={"blk-read": {"reserve": "2MB/s"}})
    twice(module, "sluice_grant", **grant, scheduling={}, queues={})
    stored = daemon.call("GET", "/v1/domains/test")["classes"][1]
    assert (stored["scheduling"], stored["queues"]) == ({}, {})


def test_the_default_class_is_limited_without_a_grant(module):
    twice(module, "sluice_grant", domain="test", class_name="default", limits={"blk-read": "5MB/s"})


def test_a_rule_is_known_by_what_it_says(module, daemon):
    module("sluice_class", **BATCH)
    module("sluice_grant", domain="test", class_name="batch")
    rule = {"domain": "test", "class_name": "batch", "match": {"exe": "/bin/cat", "user": "7"}}
    twice(module, "sluice_rule", **rule)
    twice(module, "sluice_rule", class_name="batch", match={"unit": "a.service"})
    assert len(daemon.call("GET", "/v1/rules")) == 2
    assert module("sluice_rule", **rule, state="absent")["changed"] is True
    assert module("sluice_rule", **rule, state="absent")["changed"] is False
    assert [r["domain"] for r in daemon.call("GET", "/v1/rules")] == [None]


def test_a_stream_is_declared_and_removed(module):
    module("sluice_class", name="film", stream=True)
    module("sluice_grant", domain="test", class_name="film")
    stream = {"name": "film", "domain": "test", "class_name": "film", "rate": "7Mbit/s"}
    twice(module, "sluice_stream", **stream)
    twice(module, "sluice_stream", **{**stream, "rate": "8Mbit/s"})
    assert module("sluice_stream", name="film", state="absent")["changed"] is True
    assert module("sluice_stream", name="film", state="absent")["changed"] is False


def test_settings_change_only_what_is_given(module, daemon):
    before = daemon.call("GET", "/v1/settings")
    twice(module, "sluice_settings", history_seconds=7200, uplink="lo")
    assert daemon.call("GET", "/v1/settings") == {
        **before,
        "history_seconds": 7200,
        "uplink": "lo",
    }
    twice(module, "sluice_settings", uplink="", history_seconds=before["history_seconds"])
    assert module("sluice_settings")["changed"] is False


def test_what_is_not_named_is_taken_away(module, daemon):
    for name in ("batch", "film"):
        module("sluice_class", name=name, stream=name == "film")
        module("sluice_grant", domain="test", class_name=name)
    module("sluice_stream", name="film", domain="test", class_name="film", rate="7Mbit/s")
    for exe in ("/a", "/b"):
        module("sluice_rule", domain="test", class_name="batch", match={"exe": exe})
    kept = {
        "domain": "test",
        "classes": ["batch"],
        "rules": [{"class": "batch", "match": {"exe": "/a"}}],
    }
    foreseen = module("sluice_only", **kept, check=True)
    assert len(foreseen["removed"]) == 3
    assert module("sluice_only", **kept)["removed"] == foreseen["removed"]
    assert module("sluice_only", **kept)["changed"] is False
    assert [r["match"] for r in daemon.call("GET", "/v1/rules")] == [{"exe": "/a"}]
    granted = [g["class"] for g in daemon.call("GET", "/v1/domains/test")["classes"]]
    assert granted == ["default", "batch"]


def test_a_ceiling_is_set_and_left_alone(module, daemon):
    seen = module("sluice_domain", name="test", state="seen")
    assert (seen["changed"], seen["needs_restart"]) == (False, False)
    assert seen["domain"]["attached"] is False
    assert daemon.call("GET", "/v1/domains/test")["ceiling"] == {}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("sluice_class", {"name": "Batch"}, "'Batch' is not a class name"),
        ("sluice_class", {"name": "batch", "priority": 12}, "priority 12 is not an integer from 0"),
        ("sluice_class", {"name": "default", "state": "absent"}, "always exists"),
        ("sluice_grant", {"domain": "test", "class_name": "nosuch"}, "'nosuch' does not exist"),
        ("sluice_grant", {"domain": "nosuch", "class_name": "default"}, "nosuch"),
        (
            "sluice_grant",
            {"domain": "test", "class_name": "default", "limits": {"blk-read": "fast"}},
            "limits blk-read: 'fast' is not a rate: write for example 20MB/s",
        ),
        (
            "sluice_grant",
            {"domain": "test", "class_name": "default", "scheduling": {"disk": {}}},
            "scheduling has the unknown resource 'disk': use blk-read",
        ),
        (
            "sluice_grant",
            {"domain": "test", "class_name": "default", "queues": {"net-tx": {"ecn": True}}},
            "queues net-tx: {'ecn': True} has ecn, which marks nothing without aqm",
        ),
        (
            "sluice_stream",
            {"name": "s", "domain": "test", "class_name": "default", "rate": "fast"},
            "rate 'fast' is not a rate: write for example",
        ),
        ("sluice_settings", {"history_seconds": 5}, "history_seconds 5 is not an integer from 60"),
        (
            "sluice_domain",
            {"name": "nosuch"},
            "domain 'nosuch' is not defined in libvirt on this host: define it with 'virsh define",
        ),
        ("sluice_domain", {"name": "test"}, "type"),
        ("sluice_domain", {"name": "test", "devices": ["vdz"]}, "device 'vdz' of domain 'test'"),
    ],
)
def test_a_refusal_is_said_in_full(module, name, arguments, words):
    answer = module(name, **arguments)
    assert answer["failed"] is True
    assert words in answer["msg"]


def test_a_domain_that_is_not_there_may_be_left_out(module):
    for check in (False, True):
        answer = module("sluice_domain", name="nosuch", missing="skip", check=check)
        assert (answer["changed"], answer["domain"]) == (False, None)
        assert answer["missing"] is True
    assert module("sluice_domain", name="test", state="seen")["missing"] is False


def test_of_a_domain_that_is_not_there_yet_nothing_is_surplus(module):
    foreseen = module("sluice_only", domain="nosuch", check=True)
    assert (foreseen.get("changed"), foreseen.get("removed")) == (False, [])
    assert "does not exist" in module("sluice_only", domain="nosuch")["msg"]


def test_attached_domains_are_asked_of_the_daemon(module):
    answer = module("attached_domains")
    assert answer["source"] == "sluiced"
    assert (answer["attached"], answer["defined"]) == ([], ["test"])


@pytest.mark.parametrize(
    "name", ["sluice_class", "sluice_settings", "sluice_domain", "attached_domains"]
)
def test_check_mode_before_the_first_installation(tmp_path, name):
    arguments = {
        "attached_domains": {"uri": "test:///default"},
        "sluice_settings": {"uplink": "eno1"},
    }
    answer = run_module(
        name,
        check=True,
        **arguments.get(name, {"name": "x"}),
        env={"SLUICE_SOCKET": str(tmp_path / "none"), "SLUICE_TOKEN_FILE": str(tmp_path / "no")},
    )
    assert not answer.get("failed"), answer
    assert answer["changed"] is (name != "attached_domains")


def test_a_daemon_that_is_not_there_is_named(tmp_path):
    token = tmp_path / "token"
    token.write_text("x")
    env = {"SLUICE_SOCKET": str(tmp_path / "none"), "SLUICE_TOKEN_FILE": str(token)}
    answer = run_module("sluice_class", name="batch", env=env)
    assert f"sluiced at '{tmp_path}/none' cannot be reached" in answer["msg"]
    assert "systemctl start sluiced" in answer["msg"]
    token.unlink()
    answer = run_module("sluice_class", name="batch", env=env)
    assert f"token file '{token}' cannot be read" in answer["msg"]
