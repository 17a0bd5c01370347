# SPDX-License-Identifier: GPL-2.0-or-later
"""The OpenAPI document says what the calls take and answer: each call is made."""

import threading
from contextvars import copy_context
from typing import Annotated, get_origin

import pytest

from sluice_controller.domain import limits, queues, scheduling
from sluice_controller.domain.agent_messages import Table
from sluice_controller.domain.knobs import hints, knob
from sluice_controller.domain.models import adapter, members, parse, without_nulls
from sluice_controller.entry.api import calls
from sluice_controller.entry.api.app import create_app, openapi
from sluice_controller.entry.api.calls import OPERATIONS, merged
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
    **{"resource": "net-tx", "pid": PROCESS["pid"], "night": 1},
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_a_call_answers_what_the_document_says(client, operation):
    key = f"{operation.method} {operation.path}"
    names = dict(NAMES)
    if operation.path.startswith(("/domains/{domain}/attach", "/domains/{domain}/detach")):
        names["domain"] = "test"
    path = operation.path.format(**names)
    if operation.path == "/history":
        path += "?domain=test"
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
    asks_libvirt = key in ("GET /domains/{domain}", "PUT /domains/{domain}/ceiling")
    if "tach" not in key and not asks_libvirt and "classes/{class}" not in key:
        in_use = operation.method == "DELETE" and operation.path in ("/groups/{group}",)
        assert answer.status_code < 300 or in_use, answer.get_json()


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
        parse(operation.body, without_nulls(given))


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
        ("/streams/film", {"domain": "\ud800"}, "domain"),
    ],
)
def test_a_patch_takes_what_a_put_takes(client, path, body, thing):
    headers = {"Authorization": "Bearer secret"}
    answer = copy_context().run(client.patch, f"/v1{path}", json=body, headers=headers)
    assert (answer.status_code, answer.get_json()["thing"]) == (422, thing)


@pytest.mark.parametrize(
    ("path", "one", "other", "looks"),
    [
        ("/classes/batch", {"weight": 7}, ("PATCH", "", {"priority": 8}), "_class"),
        (
            "/domains/test/classes/batch",
            {"limits": {"net-tx": {"bytes_per_second": 5e6}}},
            ("PUT", "/limits/blk-read", {"bytes_per_second": 6e6}),
            "_grant",
        ),
    ],
)
def test_of_two_who_change_parts_at_once_neither_is_lost(
    client, monkeypatch, path, one, other, looks
):
    def ask(method, path, body=None):
        headers = {"Authorization": "Bearer secret"}
        made = client.application.test_client()
        return copy_context().run(
            made.open, f"/v1{path}", method=method, json=body, headers=headers
        )

    look = getattr(calls, looks)
    method, below, body = other
    second = threading.Thread(target=lambda: ask(method, path + below, body))

    def looked(services, asked):
        found = look(services, asked)
        if second.ident is None:
            second.start()
            # Either it is done by now, or it waits until the first has changed its part.
            second.join(0.2)
        return found

    monkeypatch.setattr(calls, looks, looked)
    assert ask("PATCH", path, one).status_code == 200
    second.join(60)
    after = ask("GET", path).get_json()
    if looks == "_class":
        assert (after["weight"], after["priority"]) == (7, 8)
    else:
        rates = {r: limit["bytes_per_second"] for r, limit in after["limits"].items()}
        assert rates == {"net-tx": 5e6, "blk-read": 6e6}


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
