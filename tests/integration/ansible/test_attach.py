# SPDX-License-Identifier: GPL-2.0-or-later
"""attach.yml and sluice_apply with a real sluiced, which has one domain, "test"."""

import importlib
import socket

import pytest

from ansible_collection import MODULES, failure_of, recap, run_module
from integration.ansible.conftest import ControlNode

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
STATE = {
    "classes": {"batch": {"title": "Batch work", "priority": 7}},
    "domains": {
        "test": {"classes": {"batch": {"limits": {"blk-read": {"bytes_per_second": "20MB/s"}}}}}
    },
    "groups": {"disks": {"resource": "blk", "bytes_per_second": "200MB/s"}},
    "rules": [{"class": "batch", "match": {"exe": "/usr/bin/rsync"}}],
    "auto": {"floors_bytes_per_second": {"blk-read": "2MB/s"}},
    "settings": {"history_seconds": 7200},
}
NOTHING = {"classes": {}, "domains": {}, "groups": {}, "rules": [], "streams": {}}


@pytest.fixture
def environment(daemon):
    """How the daemon is reached; what a test declared is gone at its end."""
    where = {"SLUICE_SOCKET": str(daemon.socket), "SLUICE_TOKEN_FILE": str(daemon.token_file)}
    yield where
    daemon.call("PUT", "/v1/state?prune=true", NOTHING)


def test_a_state_is_foreseen_applied_once_and_taken_back(daemon, environment):
    before = daemon.call("GET", "/v1/state")
    foreseen = run_module("sluice_apply", check=True, env=environment, state=STATE)
    assert daemon.call("GET", "/v1/state") == before
    first = run_module("sluice_apply", env=environment, state=STATE)
    second = run_module("sluice_apply", env=environment, state=STATE)
    assert [answer["changed"] for answer in (foreseen, first, second)] == [True, True, False]
    assert foreseen["diff"] == first["diff"] and second["diff"] == {"before": "", "after": ""}
    assert "20000000" in first["diff"]["after"]
    granted = daemon.call("GET", "/v1/domains/test")["classes"]
    limits = next(grant["limits"] for grant in granted if grant["class"] == "batch")
    assert limits["blk-read"]["bytes_per_second"] == 20_000_000
    assert [group["name"] for group in daemon.call("GET", "/v1/groups")] == ["disks"]
    assert daemon.call("GET", "/v1/settings")["history_seconds"] == 7200
    # The audit says by whom.
    assert daemon.call("GET", "/v1/audit?limit=1")[0]["actor"] == "ansible"

    fewer = {**STATE, "rules": []}
    assert not run_module("sluice_apply", env=environment, state=fewer)["changed"]
    assert run_module("sluice_apply", env=environment, state=fewer, prune=True)["changed"]
    assert daemon.call("GET", "/v1/rules") == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"clases": {}}, "clases"),
        ({"domains": {"web1": {"classes": {}}}}, "web1"),
        (
            {"groups": {"disks": {"resource": "blk", "bytes_per_second": "20 parsecs"}}},
            "'20 parsecs'",
        ),
    ],
)
def test_a_state_that_cannot_be_is_refused_whole_in_the_controllers_words(
    daemon, environment, state, words
):
    before = daemon.call("GET", "/v1/state")
    both = {"classes": STATE["classes"], **state}
    answer = run_module("sluice_apply", env=environment, state=both)
    assert answer["failed"] and words in answer["msg"]
    assert daemon.call("GET", "/v1/state") == before


@pytest.mark.parametrize("lost", ["SLUICE_SOCKET", "SLUICE_TOKEN_FILE"])
def test_a_daemon_that_is_not_there_is_named(environment, lost):
    answer = run_module("sluice_apply", env={**environment, lost: "/nowhere/x"}, state=STATE)
    assert answer["failed"] and "'/nowhere/x' cannot be re" in answer["msg"]


def test_a_daemon_that_does_not_answer_in_time_is_told_from_one_that_is_not_there(
    monkeypatch, tmp_path
):
    module = importlib.import_module(f"{MODULES}.sluice_apply")
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        with pytest.raises(module.Refused, match="has not answered within 0.1 s, and may still"):
            module.put(str(tmp_path / "silent.sock"), "token", "", STATE)


def test_a_host_without_sluice_is_named(control):
    done = attach(control, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    assert "install Sluice there with sluice.appliance.site" in failure_of(done.stdout, "here")


def attach(control: ControlNode, environment, *options: str, **given):
    inventory = {"sluice_hosts": {"hosts": {"here": {**LOCAL, **given}}}}
    return control.play("sluice.appliance.attach", inventory, *options, **environment)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sluice_domains": [{"name": "media"}]}, "domain 'media' is not defined in libvirt"),
        (
            {"sluice_domains": [{"name": "test", "devices": ["vdz"]}]},
            "device 'vdz' of domain 'test' does not exist or cannot be shaped",
        ),
        ({"sluice_state": {**STATE, "streams": {"film": {}}}}, "film"),
    ],
)
def test_a_playbook_that_is_refused_changes_nothing(daemon, control, environment, given, words):
    before = daemon.call("GET", "/v1/state")
    done = attach(control, environment, **{"sluice_state": STATE, **given})
    assert words in failure_of(done.stdout, "here")
    assert daemon.call("GET", "/v1/state") == before


def test_a_playbook_says_in_check_mode_what_it_changes_and_changes_it_once(
    daemon, control, environment
):
    for changed, options in ((1, ["--check", "--diff"]), (1, []), (0, [])):
        done = attach(control, environment, *options, sluice_state=STATE)
        assert done.returncode == 0, done.stdout
        assert recap(done.stdout)["here"]["changed"] == changed, done.stdout
        if options:
            assert "20000000" in done.stdout
            assert daemon.call("GET", "/v1/rules") == []
    assert len(daemon.call("GET", "/v1/rules")) == 1
