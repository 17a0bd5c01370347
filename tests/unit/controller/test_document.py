# SPDX-License-Identifier: GPL-2.0-or-later
"""The OpenAPI document says what the calls take and answer: each call is made."""

import threading
from contextvars import copy_context
from typing import Annotated, get_origin

import pytest
from typer.testing import CliRunner

from sluice_controller.domain import limits, queues, scheduling
from sluice_controller.domain.agent_messages import Table
from sluice_controller.domain.knobs import hints, knob
from sluice_controller.domain.models import adapter, members, parse
from sluice_controller.entry.api import calls
from sluice_controller.entry.api.app import create_app, openapi
from sluice_controller.entry.api.calls import OPERATIONS, merged
from sluice_controller.entry.cli.main import app
from sluice_controller.entry.config import DEFAULTS, Config
from sluice_controller.entry.wiring import Services
from unit.controller.nightly_facts import result
from unit.controller.test_catalogue import PROCESS, Agents, Host
from unit.controller.test_state import EXAMPLE, yaml

DOCUMENT = openapi()
CALLS = [
    (path, method, one)
    for path, methods in DOCUMENT["paths"].items()
    for method, one in methods.items()
]


ROW = {
    **PROCESS,
    **dict.fromkeys(("cmdline", "user", "unit", "cgroup"), "x"),
    **dict.fromkeys(("ppid", "threads", "rss_bytes"), 7),
    **dict.fromkeys(("cpu_ratio", "read_bps", "write_bps"), 0.5),
    **{"class": None, "rule": None, "inherited": False},
}


class Guests(Agents):
    """Agents that say all of a process."""

    def processes(self, domain):
        table = Table(1, False, [ROW])
        return {**super().processes(domain), "table": table, "processes": table.rows}


@pytest.fixture
def client(tmp_path):
    """A host on which there is one of everything."""
    given = dict.fromkeys(("run_dir", "state_dir", "etc_dir"), tmp_path)
    services = Services(Config(**{**DEFAULTS, **given, "libvirt_uri": "test:///default"}))
    services.catalogue.host, services.catalogue.agents = Host(), Guests()
    services.catalogue.host.uuids = {"media": "u-1", "web1": "u-2", "test": "u-3"}
    services.states.put(yaml.safe_load(EXAMPLE.read_text()))
    services.catalogue.put_grant("test", "batch", {})
    services.catalogue.assign("media", PROCESS["pid"], {"class": "batch"})
    services.nightly.add({"result": result(), "page": "<p>"})
    services.host.refresh()
    yield create_app(services, "secret").test_client()
    services.stop()


GRANT = "/domains/test/classes/batch"
BODIES = {
    "PUT /domains/{domain}/ceiling": {"blk-read": {"bytes_per_second": "5MB/s"}},
    "PUT /domains/{domain}/classes/{class}": {"limits": {"net-tx": {"bytes_per_second": 5e6}}},
    "PUT /streams/{stream}": {"domain": "media", "class": "movie", "nominal_bytes_per_second": 9e5},
    "POST /streams/{stream}/reports": {"window_ms": 1000},
    "PUT /groups/{group}": {"resource": "blk", "bytes_per_second": "90MB/s"},
    "POST /rules": {"class": "batch", "match": {"user": "www"}},
    "POST /rules/preview": {"class": "batch", "match": {"user": "www"}},
    "PUT /domains/{domain}/assignments/{pid}": {"class": "batch"},
    "POST /nightly": {"result": {**result(), "run_id": "0" * 32}},
}
NAMES = {
    **{"domain": "media", "class": "batch", "group": "disks", "stream": "film", "rule": 1},
    **{"card": "aa:bb:cc:dd:ee:ff", "resource": "net-tx", "pid": PROCESS["pid"], "night": 1},
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_a_call_answers_what_the_document_says(client, operation):
    key = f"{operation.method} {operation.path}"
    names = dict(NAMES)
    of_test = ("/domains/{domain}/attach", "/domains/{domain}/detach", "/domains/{domain}/cards")
    if operation.path.startswith(of_test):
        names["domain"] = "test"
    path = operation.path.format(**names)
    if operation.path == "/history":
        path += "?domain=test"
    if operation.streams is not None:
        path += "?follow=false"
    answer = copy_context().run(
        client.open,
        f"/v1{path}",
        method=operation.method,
        json=BODIES.get(key, {}) if operation.body is not None else None,
        headers={"Authorization": "Bearer secret"},
    )
    responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    assert str(answer.status_code) in responses, answer.get_json()
    if answer.status_code < 300 and operation.answer is not None:
        adapter(operation.answer).validate_python(answer.get_json())
    # libvirt's test driver has one domain, "test", which cannot be shaped; no agent has a table.
    asks_libvirt = key == "GET /domains/{domain}" or "/ceiling" in key
    needs_a_guest = "tach" in key or key == "POST /domains/{domain}/agent"
    if not needs_a_guest and not asks_libvirt and "classes/{class}" not in key:
        in_use = operation.method == "DELETE" and operation.path in ("/groups/{group}",)
        assert answer.status_code < 300 or in_use, answer.get_json()


@pytest.mark.parametrize(("path", "method", "one"), CALLS)
def test_a_body_that_is_too_large_is_answered_as_the_document_says(
    client, monkeypatch, path, method, one
):
    monkeypatch.setitem(client.application.config, "MAX_CONTENT_LENGTH", 1)
    address = "/v1" + path.format(**NAMES)
    headers = {"Authorization": "Bearer secret"}
    if "requestBody" in one:
        answer = copy_context().run(client.open, address, method=method, json={}, headers=headers)
        assert answer.status_code == 413 and "413" in one["responses"]


@pytest.mark.parametrize(("path", "method", "one"), CALLS)
def test_each_example_is_one_that_the_call_takes_or_gives(path, method, one):
    (operation,) = [o for o in OPERATIONS if o.path == path and o.method == method.upper()]
    for status, response in one["responses"].items():
        if "content" in response:
            given = response["content"]["application/json"]["example"]
            adapter(operation.answer).validate_python(given)
            assert status in ("200", "201")
    if "requestBody" in one:
        given = one["requestBody"]["content"]["application/json"]["example"]
        parse(operation.body, given)


def test_every_parameter_and_reference_is_there():
    def walk(value):
        if isinstance(value, dict):
            if "$ref" in value:
                found = DOCUMENT
                for part in value["$ref"].removeprefix("#/").split("/"):
                    found = found[part]
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(DOCUMENT)
    assert len({one["operationId"] for _, _, one in CALLS}) == len(CALLS) == len(OPERATIONS)


@pytest.mark.parametrize("shape", [limits.Limit, scheduling.Scheduling, queues.Queue])
def test_every_knob_has_help_and_a_range_for_people(shape):
    for name, annotation in hints(shape).items():
        if get_origin(annotation) is Annotated:
            assert knob(shape, name).help, name
            described = DOCUMENT["components"]["schemas"][f"{shape.__name__}Input"]["properties"]
            assert described[name]["description"] == knob(shape, name).help
    assert members(shape) == list(hints(shape))


def test_a_patch_changes_what_it_names(client):
    def ask(method, path, body=None):
        headers = {"Authorization": "Bearer secret"}
        run = copy_context().run
        answer = run(client.open, f"/v1{path}", method=method, json=body, headers=headers)
        assert answer.status_code == 200, answer.get_json()
        return answer.get_json()

    before = ask("GET", "/classes/batch")
    assert ask("PATCH", "/classes/batch", {"weight": 7}) == {**before, "weight": 7}
    limit = {"limits": {"blk-read": {"burst_bytes": None}, "net-tx": None}}
    after = ask("PATCH", "/groups/disks", {"bytes_per_second": "9MB/s"})
    assert (after["rate_per_second"], after["resource"]) == (9_000_000, "blk")
    # A burst that was not given follows the rate, and one that was stays.
    assert after["burst"] == 450_000
    ask("PATCH", "/groups/disks", {"burst_bytes": 10**6})
    assert ask("PATCH", "/groups/disks", {"bytes_per_second": 1e7})["burst"] == 10**6
    assert ask("PATCH", "/groups/disks/members/media", {})["domains"][0]["weight"] == 300
    assert ask("PATCH", "/classes/new", {"priority": 7})["weight"] == 100
    assert ask("PATCH", "/streams/film", {"nominal_bytes_per_second": 9e5})["domain"] == "media"
    assert merged({"limits": {"blk-read": {"a": 1, "burst_bytes": 2}, "net-tx": {}}}, limit) == {
        "limits": {"blk-read": {"a": 1}}
    }


@pytest.mark.parametrize(
    ("path", "body", "thing"),
    [
        ("/classes/batch", {"wieght": 7}, "wieght"),
        ("/domains/test/classes/batch", {"limit": {}}, "limit"),
        ("/groups/disks", {"rate": 7}, "rate"),
        ("/streams/film", {"nominal": 7}, "nominal"),
        ("/classes/batch", {"wieght": None}, "wieght"),
        (f"{GRANT}/scheduling/net-tx", {"windw": None}, "scheduling.net-tx.windw"),
        ("/streams/film", {"domain": "\ud800"}, "domain"),
        (f"{GRANT}/limits/net-tx", {"limit": 7}, "limits.net-tx.limit"),
        (
            f"{GRANT}/limits/net-tx",
            {"bytes_per_second": "100B/s"},
            "limits.net-tx.bytes_per_second",
        ),
        ("/domains/test/ceiling/net-tx", {"rate": 7}, "ceiling.net-tx.rate"),
    ],
)
def test_a_patch_takes_what_a_put_takes(client, path, body, thing):
    headers = {"Authorization": "Bearer secret"}
    answer = copy_context().run(client.patch, f"/v1{path}", json=body, headers=headers)
    assert (answer.status_code, answer.get_json()["thing"]) == (422, thing)


@pytest.mark.parametrize("path", ["classes/none", "groups/none", "streams/none", "rules/99"])
def test_the_remedy_for_a_missing_thing_is_a_command_that_there_is(client, path):
    headers = {"Authorization": "Bearer secret"}
    answer = copy_context().run(client.get, f"/v1/{path}", headers=headers)
    assert answer.status_code == 404
    words = answer.get_json()["remedy"].removeprefix("see: sluice ").split()
    assert words[-1] == "list"
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


BLK_READ = {"bytes_per_second": 6e6}
DSCP = {"dscp": [40]}
FILM = "/streams/film"
OTHERS = {"domains": {"media": {"classes": {"movie": {}}}}}


@pytest.mark.parametrize(
    ("path", "one", "other", "after"),
    [
        (
            "/classes/batch",
            {"weight": 7},
            ("PATCH", "/classes/batch", {"priority": 8}),
            {"weight": 7, "priority": 8},
        ),
        # A whole class that comes second replaces the first.
        (
            "/classes/batch",
            {"weight": 7},
            ("PUT", "/state", {"classes": {"batch": {"priority": 8}}}),
            {"weight": 100, "priority": 8},
        ),
        (FILM, {"nominal_bytes_per_second": 9e5}, ("DELETE", FILM), None),
        (GRANT, DSCP, ("PATCH", f"{GRANT}/limits/blk-read", BLK_READ), DSCP),
        (
            f"{GRANT}/limits/blk-read",
            {"operations_per_second": 50},
            ("PATCH", f"{GRANT}/limits/blk-read", BLK_READ),
            {},
        ),
        (GRANT, DSCP, ("DELETE", GRANT), None),
        (GRANT, DSCP, ("PUT", "/state?prune=true", OTHERS), None),
    ],
)  # fmt: skip
def test_of_two_who_change_parts_at_once_neither_is_lost(
    client, monkeypatch, path, one, other, after
):
    def ask(method, path, body=None):
        headers = {"Authorization": "Bearer secret"}
        made = client.application.test_client()
        return copy_context().run(
            made.open, f"/v1{path}", method=method, json=body, headers=headers
        )

    merge, answers = calls.merged, []
    second = threading.Thread(target=lambda: answers.append(ask(*other)))

    def merged(present, patch):
        """Between the look at what is there and the change."""
        if second.ident is None:
            second.start()
            # Either it is done by now, or it waits until the first has changed its part.
            second.join(0.2)
        return merge(present, patch)

    monkeypatch.setattr(calls, "merged", merged)
    assert ask("PATCH", path, one).status_code == 200
    second.join(60)
    assert answers[0].status_code in (200, 204), answers[0].get_json()
    found = ask("GET", path.partition("/limits")[0])
    if after is None:
        assert found.status_code == 404
        return
    found = found.get_json()
    assert {name: found[name] for name in after} == after
    if other[-1] is BLK_READ:
        assert found["limits"]["blk-read"]["bytes_per_second"] == 6e6
        wanted = one.get("operations_per_second")
        assert found["limits"]["blk-read"]["operations_per_second"] == wanted


def test_many_who_change_a_resource_each_at_once_change_all(client):
    """Each would else write back whole what it has read."""
    rates = {resource: 1000 * i for i, resource in enumerate(limits.RESOURCES, 1)}
    paths = ("/domains/test/ceiling", "/domains/test/classes/batch/limits")

    def ask(method, path, body=None):
        made = client.application.test_client()
        headers = {"Authorization": "Bearer secret"}
        run = copy_context().run
        return run(made.open, f"/v1{path}", method=method, json=body, headers=headers).get_json()

    def change(path, resource, rate):
        ask("PATCH", f"{path}/{resource}", {"operations_per_second": rate})

    wanted = [(path, *pair) for path in paths for pair in rates.items()]
    threads = [threading.Thread(target=change, args=one) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    test = ask("GET", "/state")["domains"]["test"]
    for found in (test["ceiling"], test["classes"]["batch"]["limits"]):
        assert {r: limit["operations_per_second"] for r, limit in found.items()} == rates


def test_an_operator_of_the_page_does_not_choose_what_runs_as_root(client):
    def put(role, path, body):
        headers = {"Authorization": "Bearer secret", "X-Sluice-Role": role}
        answer = copy_context().run(client.put, f"/v1{path}", json=body, headers=headers)
        return answer.status_code, answer.get_json()

    emulator = {"emulator": "/sbin/reboot"}
    for path, body in (("/settings", emulator), ("/state", {"settings": emulator})):
        status, said = put("operator", path, body)
        assert status == 403 and said["thing"].endswith("emulator"), said
        assert (
            put("operator", path, {**body, "settings": {}} if "settings" in body else {})[0] == 200
        )
        assert put("admin", path, body)[0] == 200
        # Members that are there already may be said again.
        assert put("operator", path, body)[0] == 200
        assert put("admin", "/settings", {"emulator": "/usr/bin/qemu"})[0] == 200
