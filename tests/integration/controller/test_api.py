# SPDX-License-Identifier: GPL-2.0-or-later
"""The API and the command line over a real daemon and a real socket."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_controller.domain.limits import RESOURCES
from testbed import patience

BATCH = "/v1/domains/test/classes/batch"
LIMIT = f"{BATCH}/limits/blk-read"
SCHEDULING = f"{BATCH}/scheduling/blk-read"
TOKEN_LEAKY = {"policy": "token-leaky", "peak_bytes_per_second": 6e6}


@pytest.fixture(autouse=True)
def classes(daemon):
    """batch and movie, granted to the domain test, and afterwards nothing again."""
    daemon.call("PUT", "/v1/classes/batch", {"title": "Batch"})
    daemon.call("PUT", "/v1/classes/movie", {"title": "Movie", "priority": 1, "is_stream": True})
    for name in ("batch", "movie"):
        daemon.call("PUT", f"/v1/domains/test/classes/{name}", {"limits": {}, "dscp": []})
    yield
    for stream in daemon.call("GET", "/v1/streams"):
        daemon.call("DELETE", f"/v1/streams/{stream['name']}")
    for rule in daemon.call("GET", "/v1/rules"):
        daemon.call("DELETE", f"/v1/rules/{rule['id']}")
    for grant in daemon.call("GET", "/v1/domains/test")["classes"]:
        if grant["class"] != "default":
            daemon.call("DELETE", f"/v1/domains/test/classes/{grant['class']}")
    for shaping_class in daemon.call("GET", "/v1/classes"):
        if shaping_class["name"] != "default":
            daemon.call("DELETE", f"/v1/classes/{shaping_class['name']}")


def grant(daemon, name="batch"):
    found = daemon.call("GET", "/v1/domains/test")["classes"]
    return next(g for g in found if g["class"] == name)


def refused(daemon, method, path, body=None, **options):
    answer = daemon.request(method, path, body, **options)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert set(problem) == {"type", "title", "status", "detail", "thing", "value", "remedy"}
    return problem


def test_the_openapi_document_names_every_call_of_the_specification(daemon):
    document = daemon.request("GET", "/v1/openapi.json", headers={}).json()
    offered = {(m.upper(), path) for path, calls in document["paths"].items() for m in calls}
    names = {"D": "{domain}", "C": "{class}", "R": "{resource}", "S": "{stream}"}
    names |= {"PID": "{pid}", "ID": "{rule}", "G": "{group}", "NIGHT": "{night}", "CARD": "{card}"}
    spec = Path(__file__).parents[3] / "docs" / "specs" / "controller-api.md"
    wanted = set()
    for line in spec.read_text().splitlines():
        for quoted in line.split("|")[1].split("`")[1::2] if line.startswith("| `") else ():
            method, _, path = quoted.partition(" ")
            parts = path.partition("?")[0].split("/")[2:]
            if path.startswith("/v1/"):
                wanted.add((method, "/" + "/".join(names.get(part, part) for part in parts)))
    assert len(wanted) > 25
    assert wanted == offered


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": "x"}])
def test_without_the_token_nothing_is_told(daemon, headers):
    assert refused(daemon, "GET", "/v1/domains", headers=headers)["status"] == 401


def test_tags_are_the_smallest_free(daemon):
    assert (grant(daemon)["tag"], grant(daemon, "movie")["tag"]) == (1, 2)
    daemon.call("DELETE", BATCH)
    daemon.call("PUT", "/v1/classes/third", {})
    assert daemon.call("PUT", "/v1/domains/test/classes/third", {})["tag"] == 1


def test_limits_of_one_resource_and_of_all(daemon):
    daemon.call("PUT", LIMIT, {"bytes_per_second": 2e6, "burst_bytes": 65536})
    daemon.call("PUT", f"{BATCH}/limits/net-tx", {"operations_per_second": 100})
    assert set(grant(daemon)["limits"]) == {"blk-read", "net-tx"}
    daemon.call("DELETE", LIMIT)
    assert set(grant(daemon)["limits"]) == {"net-tx"}
    daemon.call("PUT", BATCH, {"limits": {}, "dscp": [46]})
    assert (grant(daemon)["limits"], grant(daemon)["dscp"]) == ({}, [46])


def test_the_default_class_can_be_limited_and_not_revoked(daemon):
    path = "/v1/domains/test/classes/default"
    daemon.call("PUT", f"{path}/limits/blk-read", {"bytes_per_second": 5e6})
    assert grant(daemon, "default")["limits"]["blk-read"]["bytes_per_second"] == 5e6
    assert refused(daemon, "DELETE", path)["status"] == 409
    daemon.call("DELETE", f"{path}/limits/blk-read")


def test_scheduling_and_queues_of_one_resource_and_of_all(daemon):
    daemon.call("PUT", LIMIT, {"bytes_per_second": 9e6})
    answer = daemon.call("PUT", SCHEDULING, {"reservation_bytes_per_second": 5e6})
    one = answer["scheduling"]["blk-read"]
    assert (one["reservation_bytes_per_second"], one["policy"]) == (5e6, "token-bucket")
    daemon.call("PUT", f"{BATCH}/queues/net-rx", {"aqm": "codel", "ecn": True})
    assert grant(daemon)["queues"]["net-rx"]["ecn"] is True
    # What one call sets another leaves alone, and a default takes no room.
    daemon.call("PUT", LIMIT, {"bytes_per_second": 8e6})
    daemon.call("PUT", f"{BATCH}/queues/net-tx", {"aqm": "none"})
    assert set(grant(daemon)["scheduling"]) == {"blk-read"}
    assert set(grant(daemon)["queues"]) == {"net-rx"}
    daemon.call("DELETE", SCHEDULING)
    assert grant(daemon)["scheduling"] == {}
    window = {"period_ns": 20_000_000, "bytes": 65536}
    whole = {
        "limits": {"net-tx": {"bytes_per_second": 5e6}},
        "dscp": [],
        "scheduling": {"net-tx": {"window": window}},
        "queues": {},
    }
    answer = daemon.call("PUT", BATCH, whole)
    assert answer["scheduling"]["net-tx"]["window"] == {**window, "may_miss": 0, "of": 1}
    assert answer["queues"] == {}
    # A body from before there was scheduling replaces all, as it always did.
    daemon.call("PUT", BATCH, {"limits": {}, "dscp": []})
    assert grant(daemon)["scheduling"] == {}


def test_weight_and_unmanaged_belong_to_the_class(daemon):
    body = {"title": "Batch", "priority": 5, "weight": 300, "unmanaged": True}
    answer = daemon.call("PUT", "/v1/classes/batch", body)
    assert (answer["weight"], answer["unmanaged"]) == (300, True)
    assert (grant(daemon)["weight"], grant(daemon)["unmanaged"]) == (300, True)
    answer = daemon.call("PUT", "/v1/classes/batch", {"title": "Batch"})
    assert (answer["weight"], answer["unmanaged"]) == (100, False)


def test_what_goes_beyond_the_limit_conflicts_from_either_side(daemon):
    refused_first = refused(daemon, "PUT", SCHEDULING, TOKEN_LEAKY)
    assert refused_first["status"] == 409 and "has no limit" in refused_first["detail"]
    daemon.call("PUT", LIMIT, {"bytes_per_second": 5e6})
    daemon.call("PUT", SCHEDULING, {**TOKEN_LEAKY, "reservation_bytes_per_second": 4e6})
    before = grant(daemon)
    for body, word in (
        ({"bytes_per_second": 3e6}, "reserves"),
        ({"bytes_per_second": 9e6}, "peak"),
    ):
        problem = refused(daemon, "PUT", LIMIT, body)
        assert problem["status"] == 409 and word in problem["detail"]
    assert refused(daemon, "DELETE", LIMIT)["thing"] == "scheduling.blk-read.policy"
    assert grant(daemon) == before


REFUSALS = [
    ("PUT", LIMIT, {"bytes_per_second": -1}, 422, "limits.blk-read.bytes_per_second"),
    ("PUT", LIMIT, {"bytes_per_second": "20"}, 422, "limits.blk-read.bytes_per_second"),
    ("PUT", LIMIT, {"bytes_per_hour": 1}, 422, "limits.blk-read.bytes_per_hour"),
    ("PUT", f"{BATCH}/limits/disk", {"bytes_per_second": 5000}, 422, "resource"),
    ("PUT", BATCH, {"limits": {"disk": {}}}, 422, "limits.disk"),
    ("PUT", BATCH, {"dscp": [99]}, 422, "dscp[0]"),
    ("PUT", SCHEDULING, {"policy": "fast"}, 422, "scheduling.blk-read.policy"),
    ("PUT", SCHEDULING, {"speed": 1}, 422, "scheduling.blk-read.speed"),
    ("PUT", f"{BATCH}/scheduling/disk", {}, 422, "resource"),
    ("PUT", f"{BATCH}/queues/blk-read", {}, 422, "queues.blk-read"),
    ("PUT", f"{BATCH}/queues/net-rx", {"ecn": True}, 422, "queues.net-rx.ecn"),
    (
        "PUT",
        BATCH,
        {
            "limits": {"net-tx": {"bytes_per_second": 5000}},
            "scheduling": {"net-tx": {"reservation_bytes_per_second": 5001}},
        },
        422,
        "scheduling.net-tx.reservation_bytes_per_second",
    ),
    ("PUT", BATCH, {"queues": {"net-rx": {"aqm": 5}}}, 422, "queues.net-rx.aqm"),
    ("PUT", "/v1/classes/batch", {"weight": 0}, 422, "weight"),
    ("PUT", "/v1/classes/batch", {"weight": 1001}, 422, "weight"),
    ("PUT", "/v1/classes/batch", {"unmanaged": "yes"}, 422, "unmanaged"),
    ("PUT", "/v1/domains/nope/classes/batch", {}, 404, "domain"),
    ("PUT", "/v1/domains/test/classes/nope", {}, 404, "class"),
    ("PUT", "/v1/classes/Bad%20Name", {}, 422, "class"),
    ("PUT", "/v1/classes/batch", {"priority": 12}, 422, "priority"),
    ("DELETE", "/v1/classes/batch", None, 409, "class"),
    ("DELETE", "/v1/classes/default", None, 409, "class"),
    ("POST", "/v1/rules", {"class": "batch", "match": {"exe": "cat"}}, 422, "match.exe"),
    ("POST", "/v1/rules", {"class": "batch", "match": {"cmdline": ""}}, 422, "match.cmdline"),
    ("POST", "/v1/rules", {"class": "batch", "match": {}}, 422, "match"),
    ("POST", "/v1/rules", {"class": "nope", "match": {"exe": "/x"}}, 404, "class"),
    ("POST", "/v1/rules", {"domain": 7, "class": "batch", "match": {"exe": "/x"}}, 422, "domain"),
    ("DELETE", "/v1/rules/99", None, 404, "rule"),
    ("PUT", "/v1/streams/m", {"domain": "test", "class": "batch"}, 422, None),
    ("PUT", "/v1/streams/m", {"class": "movie"}, 422, "domain"),
    ("DELETE", "/v1/streams/m", None, 404, "stream"),
    ("PUT", "/v1/auto", {"enabled": "yes"}, 422, "enabled"),
    ("PUT", "/v1/auto", {"floors_bytes_per_second": {"blk-read": 1}}, 422, None),
    ("PUT", "/v1/settings", {"history_seconds": -5}, 422, "history_seconds"),
    ("PUT", "/v1/settings", {"colour": "red"}, 422, "colour"),
    ("GET", "/v1/history?domain=test&step=0", None, 422, "step"),
    ("GET", "/v1/history", None, 422, "domain"),
    ("GET", "/v1/audit?limit=0", None, 422, "limit"),
    ("GET", "/v1/audit?limit=x", None, 422, "limit"),
    ("POST", "/v1/domains/test/attach", {"restart": "yes"}, 422, "restart"),
    ("POST", "/v1/domains/nope/attach", {}, 404, "domain"),
    ("POST", "/v1/domains/test/detach", {}, 409, "domain"),
    ("GET", "/v1/domains/test/processes", None, 503, "agent of domain"),
    ("GET", "/v1/nothing", None, 404, "path"),
    ("PATCH", "/v1/classes", None, 405, "request"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "thing"), REFUSALS)
def test_refusals_change_nothing(daemon, method, path, body, status, thing):
    def state():
        watched = ("classes", "rules", "streams", "settings", "auto", "domains/test")
        return [daemon.call("GET", f"/v1/{part}") for part in watched]

    before = state()
    problem = refused(daemon, method, path, body)
    assert problem["status"] == status
    if thing is not None:
        assert problem["thing"] == thing
    assert state() == before


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"", "application/json"), (b"{", "application/json"), (b"[1]", "application/json")]
    + [(b"[" * 100_000, "application/json"), (b'{"bytes_per_second": 5000}', "text/plain")],
)
def test_a_body_that_is_no_json_object_is_not_taken_for_an_empty_one(daemon, content, kind):
    daemon.call("PUT", LIMIT, {"bytes_per_second": 2e6})
    headers = {"Authorization": f"Bearer {daemon.token()}", "Content-Type": kind}
    answer = daemon.request("PUT", LIMIT, content=content, headers=headers)
    assert (answer.status_code, answer.json()["thing"]) == (422, "body")
    assert grant(daemon)["limits"]["blk-read"]["bytes_per_second"] == 2e6


def test_revoking_takes_the_rules_along(daemon):
    body = {"domain": "test", "class": "batch", "match": {"exe": "/bin/cat"}}
    rule = daemon.call("POST", "/v1/rules", body)
    everywhere = daemon.call("POST", "/v1/rules", {**body, "domain": None})
    assert [r["id"] for r in daemon.call("DELETE", BATCH)["rules"]] == [rule["id"]]
    assert [r["id"] for r in daemon.call("GET", "/v1/rules")] == [everywhere["id"]]


def test_a_stream_without_an_agent_is_judged_by_the_host(daemon):
    body = {"domain": "test", "class": "default", "nominal_bytes_per_second": 875000}
    stream = daemon.call("PUT", "/v1/streams/tv", body)
    assert (stream["class"], stream["source"]) == ("default", "host")
    assert stream["nominal"]["sentence"] == "875 kB/s, declared"
    learnt = daemon.call("PATCH", "/v1/streams/tv", {"nominal_bytes_per_second": None})
    assert (learnt["nominal_bytes_per_second"], learnt["nominal"]["source"]) == (None, "supposed")
    wrong = refused(daemon, "PUT", "/v1/streams/tv", {**body, "class": "batch"})
    assert "is not" in wrong["detail"]
    daemon.call("DELETE", "/v1/streams/tv")


def test_a_stream_from_report_to_verdict(daemon):
    body = {"domain": "test", "class": "movie", "nominal_bytes_per_second": 875000}
    assert daemon.call("PUT", "/v1/streams/m", body)["verdict"] == "unknown"
    clean = {"received_bytes": 875000, "window_ms": 1000}
    assert daemon.call("POST", "/v1/streams/m/reports", clean) == {"verdict": "perfect"}
    bad = {**clean, "continuity_errors": 4}
    assert daemon.call("POST", "/v1/streams/m/reports", bad) == {"verdict": "poor"}
    (stream,) = daemon.call("GET", "/v1/streams")
    assert (stream["verdict"], stream["source"]) == ("poor", "client")
    assert stream["last_report"]["continuity_errors"] == 4
    history = daemon.call("GET", "/v1/streams/m/history?since=0")
    assert [row["verdict"] for row in history] == ["perfect", "poor"]
    assert refused(daemon, "DELETE", "/v1/domains/test/classes/movie")["status"] == 409
    assert refused(daemon, "PUT", "/v1/classes/movie", {"is_stream": False})["status"] == 409


def test_the_audit_says_who_changed_what(daemon):
    headers = {"Authorization": f"Bearer {daemon.token()}", "X-Sluice-Actor": "ada"}
    daemon.request("PUT", LIMIT, {"bytes_per_second": 3e6}, headers=headers)
    (entry,) = daemon.call("GET", "/v1/audit?limit=1")
    assert (entry["actor"], entry["action"]) == ("ada", "limit")
    assert entry["thing"] == "test/batch/blk-read"
    assert (entry["before"], entry["after"]["bytes_per_second"]) == (None, 3e6)


def test_why_a_class_is_slow_of_each_resource(daemon):
    answer = daemon.call("GET", f"{BATCH}/why")
    assert (answer["domain"], answer["class"]) == ("test", "batch")
    assert [one["resource"] for one in answer["resources"]] == [*RESOURCES]
    # The test driver's domain has no shaper.
    assert {one["reason"] for one in answer["resources"]} == {"unseen"}
    said = daemon.cli("why", "test", "batch").stdout
    assert said.splitlines() == [f"{one['sentence']}." for one in answer["resources"]]
    of_all = json.loads(daemon.cli("why", "test", "--json").stdout)
    assert [one["class"] for one in of_all] == ["default", "batch", "movie"]
    assert refused(daemon, "GET", "/v1/domains/test/classes/nope/why")["status"] == 404
    assert refused(daemon, "GET", "/v1/domains/nope/classes/batch/why")["status"] == 404


def test_auto_shaping_is_switched(daemon):
    answer = daemon.call("PUT", "/v1/auto", {"enabled": True, "dry_run": True})
    assert (answer["state"], answer["dry_run"]) == ("watching", True)
    floors = {"floors_bytes_per_second": {"blk-read": 2e6}}
    answer = daemon.call("PUT", "/v1/auto", {"enabled": False, "dry_run": False, **floors})
    assert (answer["state"], answer["floors_bytes_per_second"]["blk-read"]) == ("off", 2e6)


@pytest.mark.parametrize(
    ("command", "method", "path", "body"),
    [
        (("show", "nope"), "GET", "/v1/domains/nope", None),
        (
            ("limit", "test", "batch", "blk-read", "100B/s"),
            "PATCH",
            LIMIT,
            {"bytes_per_second": "100B/s"},
        ),
        (("revoke", "test", "default"), "DELETE", "/v1/domains/test/classes/default", None),
        (("class", "remove", "batch"), "DELETE", "/v1/classes/batch", None),
        (("rule", "remove", "99"), "DELETE", "/v1/rules/99", None),
        (("attach", "test"), "POST", "/v1/domains/test/attach", {}),
    ],
)
def test_the_command_refuses_in_the_apis_words(daemon, command, method, path, body):
    problem = refused(daemon, method, path, body)
    run = daemon.cli(*command)
    assert (run.returncode, run.stderr.strip()) == (1, f"sluice: {problem['detail']}")
    assert run.stdout == ""


def test_the_command_sets_scheduling_and_queues(daemon):
    def run(*command, code=0):
        done = daemon.cli(*command)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    def now(kind, resource):
        return grant(daemon)[kind].get(resource, {})

    on_disk = ("schedule", "test", "batch", "blk-read")
    assert "by default" in run(*on_disk)
    said = run(*on_disk, "--reserve", "5MB/s", "--charge", "device", "--min-charge", "0")
    assert "at least 5.00 MB/s, minimum charge 0 B, charge device" in said
    # What is not given stays; what no longer goes with it does not.
    run(*on_disk, "--window", "64KiB/20ms", "--may-miss", "1/10")
    one = now("scheduling", "blk-read")
    assert one["window"] == {"period_ns": 20_000_000, "bytes": 65536, "may_miss": 1, "of": 10}
    assert (one["reservation_bytes_per_second"], one["charge"]) == (None, "device")
    run(*on_disk, "--may-miss", "2/5")
    assert now("scheduling", "blk-read")["window"]["of"] == 5
    run("limit", "test", "batch", "blk-read", "20MB/s")
    run(*on_disk, "--policy", "token-leaky", "--peak", "30MB/s", "--window", "none")
    assert "token-leaky, peak 30.0 MB/s" in run("show", "test")
    run(*on_disk, "--policy", "leaky-bucket", "--min-charge", "default", "--charge", "all")
    assert now("scheduling", "blk-read")["peak_bytes_per_second"] is None
    run(*on_disk, "--default")
    assert grant(daemon)["scheduling"] == {}
    run("schedule", "test", "batch", "net-tx", "--dynamic", "latency")

    queue = ("queue", "test", "batch", "net-rx")
    run(*queue, "--bytes", "256KiB", "--packets", "500", "--aqm", "codel", "--ecn")
    said = run(*queue, "--connections", "200", "--burst-connections", "10")
    expected = "at most 256 KiB, at most 500 frames, codel, with ECN, 200 new connections/s"
    assert f"{expected}, 10 at once" in said
    run(*queue, "--aqm", "none", "--connections", "unlimited", "--packets", "default")
    assert now("queues", "net-rx") == {
        "limit_bytes": 262144,
        "limit_packets": None,
        "aqm": "none",
        "ecn": False,
        "connections_per_second": None,
        "burst_connections": None,
        "overload": "off",
    }
    run("grant", "test", "batch", "--dscp", "46")
    assert now("queues", "net-rx")["limit_bytes"] == 262144
    assert now("scheduling", "net-tx")["dynamic"] == "latency"
    run("class", "set", "batch", "--weight", "300", "--unmanaged")
    run("class", "set", "batch", "--priority", "7")
    assert (grant(daemon)["weight"], grant(daemon)["unmanaged"]) == (300, True)
    run("class", "set", "batch", "--managed")
    assert grant(daemon)["unmanaged"] is False
    assert "300" in run("class", "list")
    for wrong, word in (
        ((*on_disk, "--window", "64KiB"), "64KiB/20ms"),
        ((*on_disk, "--window", "64KiB/2"), "is not a time"),
        ((*on_disk, "--may-miss", "1/10"), "window.period_ns null is missing"),
        ((*queue, "--packets", "many"), "is not a number"),
        ((*queue, "--packets", "9" * 400), "9…' is out of range"),
        ((*on_disk, "--min-charge", "9" * 400 + "B"), "9…' is out of range"),
        ((*on_disk, "--window", f"1KiB/{'9' * 400}s"), "9…' is out of range"),
        ((*on_disk, "--window", "1B/1s", "--may-miss", f"1/{'9' * 5000}"), "9…' is out of range"),
        (
            ("limit", "test", "batch", "blk-read", "9" * 300 + "B/s"),
            "…' is above 100000000000: give",
        ),
        (("limit", "test", "batch", "blk-read", "100B/s"), "'100B/s' is below 1024"),
        (("limit", "test", "batch", "blk-read", "1MB/s", "--ops", "inf"), "'inf' is out of range"),
        (("limit", "test", "batch", "blk-read", "1MB/s", "--burst", "9" * 400), "9…' has no unit"),
        (("stream", "set", "m", "test", "movie", "9" * 400 + "B/s"), "9…' is out of range"),
        (("auto", "on", "--floor", "blk-read=fast"), "'fast' is not a rate"),
        (("group", "add", "g", "--resource", "blk", "--rate", "1B/s"), "'1B/s' is below 1024"),
        (("queue", "test", "movie2", "net-rx"), "sluice grant test movie2"),
    ):
        assert word in run(*wrong, code=1)


def test_what_a_command_is_not_given_stays(daemon):
    def run(*command):
        done = daemon.cli(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def limit():
        values = grant(daemon)["limits"].get("blk-read", {})
        return {name: one for name, one in values.items() if one is not None}

    on_disk = ("limit", "test", "batch", "blk-read")
    run(*on_disk, "20MB/s", "--burst", "1MiB", "--ops", "500", "--burst-ops", "10")
    assert "30.0 MB/s, 500 ops/s" in run(*on_disk, "30MB/s")
    assert limit() == {
        "bytes_per_second": 30e6,
        "burst_bytes": 2**20,
        "operations_per_second": 500,
        "burst_operations": 10,
    }
    assert "30.0 MB/s, 500 ops/s" in run(*on_disk)
    run(*on_disk, "--ops", "none")
    assert limit() == {"bytes_per_second": 30e6, "burst_bytes": 2**20}
    run(*on_disk, "--burst", "none", "--ops", "70")
    assert limit() == {"bytes_per_second": 30e6, "operations_per_second": 70}
    run(*on_disk, "unlimited", "--ops", "80")
    assert limit() == {"operations_per_second": 80}
    run(*on_disk, "unlimited")
    assert limit() == {}
    run("ceiling", "test", "net-tx", "9MB/s", "--ops", "900")
    assert "8.00 MB/s, 900 ops/s" in run("ceiling", "test", "net-tx", "8MB/s")
    run("ceiling", "test", "net-tx", "unlimited")
    assert daemon.call("GET", "/v1/domains/test")["ceiling"] == {}
    run("group", "add", "disks", "--resource", "blk", "--rate", "9MB/s", "--burst", "1MB")
    run("group", "add", "disks", "--resource", "blk", "--rate", "8MB/s")
    run("group", "member", "disks", "test", "--weight", "300")
    assert "weight 300" in run("group", "member", "disks", "test")
    (group,) = daemon.call("GET", "/v1/groups")
    assert (group["rate_per_second"], group["burst"]) == (8e6, 1e6)
    run("group", "leave", "disks", "test")
    run("group", "remove", "disks")


def test_commands_at_once_lose_nothing(daemon):
    """Each changes one resource, of what was written back whole."""
    rates = {"blk-read": "1MB/s", "blk-write": "2MB/s", "net-tx": "3MB/s", "net-rx": "4MB/s"}
    environment = {"SLUICE_SOCKET": str(daemon.socket), "SLUICE_TOKEN_FILE": str(daemon.token_file)}
    sluice = Path(sys.executable).parent / "sluice"
    running = [
        subprocess.Popen([sluice, "ceiling", "test", *pair], env=environment)
        for pair in rates.items()
    ]
    assert [one.wait(patience.seconds(60)) for one in running] == [0] * len(rates)
    assert set(daemon.call("GET", "/v1/domains/test")["ceiling"]) == set(rates)
    daemon.call("PUT", "/v1/domains/test/ceiling", {})


def completed(shell, socket, token_file, *words):
    """What the shell is told when the last of the words was begun."""
    environment = {
        "SLUICE_SOCKET": str(socket),
        "SLUICE_TOKEN_FILE": str(token_file),
        "_SLUICE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": " ".join(("sluice", *words)),
        "COMP_CWORD": str(len(words)),
        "_TYPER_COMPLETE_ARGS": " ".join(("sluice", *words)),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    sluice = Path(sys.executable).parent / "sluice"
    done = subprocess.run(
        [sluice], capture_output=True, text=True, env=environment, timeout=patience.seconds(60)
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_completes_names_that_sluiced_has(daemon):
    here = (daemon.socket, daemon.token_file)

    def expect(names, shell, socket, token_file, *words):
        # A busy machine may not answer within the second that a shell waits.
        for _ in range(20):
            said = completed(shell, socket, token_file, *words)
            if said:
                break
        assert said == names

    daemon.call("PUT", "/v1/classes/batch-2", {})
    batches = ["batch", "batch-2"]
    expect(["test"], "bash", *here, "show", "t")
    expect(batches, "bash", *here, "grant", "test", "b")
    expect(["movie"], "bash", *here, "rule", "add", "mov")
    expect(["test"], "bash", *here, "rule", "list", "--domain", "te")
    # Options of the whole command count, as they do when it is run.
    options = ("--socket", str(daemon.socket), "--token-file", str(daemon.token_file))
    expect(["test"], "bash", "/nowhere", "/nowhere", *options, "live", "te")
    expect(batches, "fish", *here, "grant", "test", "b")
    quoted = ["_arguments", "'*:", ':(("batch"', '"batch-2"))\'']
    expect(quoted, "zsh", *here, "grant", "test", "b")
    assert completed("bash", *here, "show", "T") == []


def test_the_shell_is_told_nothing_where_sluiced_does_not_answer(daemon, tmp_path):
    silent = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(silent))
        listener.listen()
        for place, token_file in (
            (silent, daemon.token_file),
            (tmp_path / "nobody.sock", daemon.token_file),
            (daemon.socket, tmp_path / "no-token"),
            (daemon.socket, silent),
        ):
            assert completed("bash", place, token_file, "grant", "te") == []


def test_the_shell_completes_words(daemon):
    def completions(*words):
        return completed("bash", daemon.socket, daemon.token_file, *words)

    assert completions("limit", "vm", "batch", "net") == ["net-tx", "net-rx"]
    schedule = ("schedule", "vm", "batch", "net-tx")
    assert completions(*schedule, "--policy", "leaky") == ["leaky-bucket"]
    assert "--reserve" in completions(*schedule, "--r")
    assert completions("queue", "vm", "batch", "net-rx", "--aqm", "c") == ["codel"]
    assert "set" in completions("events", "--kind", "s")


def test_wrong_usage_is_exit_code_two(daemon):
    assert daemon.cli("limit", "test").returncode == 2
    assert daemon.cli("nonsense").returncode == 2


def test_the_command_does_what_the_api_does(daemon):
    def run(*command):
        done = daemon.cli(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("limit", "test", "batch", "blk-read", "16Mbit/s", "--burst", "256KiB")
    why = "test: not in force yet, the domain is not attached: sluice attach test"
    assert said.splitlines()[1:] == [why]
    assert grant(daemon)["limits"]["blk-read"]["bytes_per_second"] == 2e6
    run("grant", "test", "batch", "--dscp", "46")
    assert grant(daemon)["limits"]["blk-read"]["burst_bytes"] == 262144
    assert grant(daemon)["dscp"] == [46]
    run("limit", "test", "batch", "blk-read", "unlimited")
    assert grant(daemon)["limits"] == {}
    run("ceiling", "test", "net-tx", "400Mbit/s")
    assert json.loads(run("show", "test", "--json"))["ceiling"]["net-tx"]["bytes_per_second"] == 5e7
    run("ceiling", "test", "net-tx", "unlimited")
    assert daemon.call("GET", "/v1/domains/test")["ceiling"] == {}
    run("class", "set", "batch", "--priority", "8")
    assert grant(daemon)["priority"] == 8
    added = json.loads(run("rule", "add", "batch", "--exe", "/bin/cat", "--json"))
    assert str(added["id"]) in run("rule", "list")
    run("rule", "remove", str(added["id"]))
    run("stream", "set", "m", "test", "movie", "7Mbit/s")
    assert "875 kB/s" in run("stream", "list")
    assert "rate: not known yet" in run("stream", "set", "m", "test", "movie")
    run("stream", "remove", "m")
    assert "watching" in run("auto", "on")
    assert "off" in run("auto", "off")
    for name, names in (("san1", {"/srv/san1": "san1"}), ("none", {})):
        named = run("auto", "device", "/srv/san1", name, "--json")
        assert json.loads(named)["device_names"] == names
    assert "test" in run("list")
    for command in (
        ("status",),
        ("settings",),
        ("audit",),
        ("live",),
        ("top",),
        ("auto", "log"),
        ("nightly", "list"),
    ):
        assert run(*command)
        json.loads(run(*command, "--json"))
    assert "Example" in run("attach", "--help")


EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "state.yaml"
# Of libvirt's test driver, with the domains of the example.
NODE = Path(__file__).parent / "example_node.xml"


def test_the_example_is_applied_whole_and_once(make_daemon, tmp_path):
    daemon = make_daemon(uri=f"test://{NODE}")

    def run(*command, code=0):
        done = daemon.cli("apply", *command)
        assert done.returncode == code, done.stderr
        return done.stdout.splitlines() or done.stderr.splitlines()

    changed = run("-f", str(EXAMPLE))
    assert changed[0].endswith(" changes")
    assert [line.partition(":")[0] for line in changed[1:]] == ["media", "web1"]
    assert run("-f", str(EXAMPLE)) == [f"{EXAMPLE}: no change"]
    exported = daemon.cli("export").stdout
    audit = daemon.call("GET", "/v1/audit?limit=1000")
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    wrong = tmp_path / "wrong.yaml"
    for place, typed in (
        ("domains.media.classes.batch.limits.net-tx.bytes_per_second", "80Mbit/s"),
        ("groups.disks.bytes_per_second", "200MB/s"),
        ("streams.film.nominal_bytes_per_second", "7Mbit/s"),
    ):
        (at,) = [i for i, line in enumerate(lines) if typed in line]
        bad = [line.replace(typed, "8B/s") if i == at else line for i, line in enumerate(lines)]
        # And one that is right, and is not made.
        wrong.write_text("".join(bad).replace("priority: 4", "priority: 3"))
        (said,) = run("-f", str(wrong), code=1)
        assert said.startswith(f"sluice: {wrong}:{at + 1}: {place} '8B/s' is below 1024: give")
    assert daemon.cli("export").stdout == exported
    assert daemon.call("GET", "/v1/audit?limit=1000") == audit


def test_a_file_of_state_is_applied_whole_or_refused_with_its_line(daemon, tmp_path):
    file = tmp_path / "state.yaml"
    file.write_text(
        "domains:\n  test:\n    classes:\n      batch:\n"
        "        limits: {blk-read: {bytes_per_second: 5MB/s}}\n"
    )
    shown = daemon.cli("apply", "-f", str(file), "--diff")
    place = "domains.test.classes.batch.limits"
    assert shown.stdout.splitlines() == [
        f'{place}: nothing → {{"blk-read": {{"bytes_per_second": 5000000}}}}',
        f"{file}: 1 change",
        "test: not in force yet, the domain is not attached: sluice attach test",
    ]
    assert daemon.cli("apply", "-f", str(file)).stdout == f"{file}: no change\n"
    file.write_text(file.read_text().replace("5MB/s", "5") + "classes: {new: {}}\n")
    refused = daemon.cli("apply", "-f", str(file))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"sluice: {file}:5: {place}.blk-read.bytes_per_second 5 is")
    exported = daemon.cli("export")
    assert "new" not in exported.stdout
    file.write_text(exported.stdout)
    assert daemon.cli("apply", "-f", str(file), "--prune").stdout == f"{file}: no change\n"
