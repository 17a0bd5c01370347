# SPDX-License-Identifier: GPL-2.0-or-later
"""The modules on a host whose sluiced is of an earlier release."""

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from ansible_collection import run_module

NEWER = {"weight", "unmanaged", "scheduling", "queues"}


def without_newer(value):
    if isinstance(value, dict):
        return {key: without_newer(one) for key, one in value.items() if key not in NEWER}
    return [without_newer(one) for one in value] if isinstance(value, list) else value


class _Handler(BaseHTTPRequestHandler):
    """Passes on to the real sluiced what an earlier release knew."""

    def do_GET(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw) if raw else None
        unknown = NEWER & set(body or {})
        if unknown:
            detail = f"{min(unknown)} is refused (Unknown field)"
            return self._answer(422, {"detail": detail})
        answer = self.server.daemon.request(self.command, self.path, body)
        return self._answer(answer.status_code, answer.json() if answer.content else None)

    do_PUT = do_DELETE = do_GET

    def _answer(self, status, value):
        text = b"" if value is None else json.dumps(without_newer(value)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def module(daemon, tmp_path):
    """Runs a module against it."""
    place = str(tmp_path / "older.sock")
    env = {"SLUICE_SOCKET": place, "SLUICE_TOKEN_FILE": str(daemon.token_file)}
    with socketserver.ThreadingUnixStreamServer(place, _Handler) as server:
        server.daemon = daemon
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield lambda which, /, **arguments: run_module(which, env=env, **arguments)
        server.shutdown()
        thread.join()
    for path in ("domains/test/classes/batch", "classes/batch"):
        daemon.request("DELETE", f"/v1/{path}")


def test_what_an_earlier_sluiced_knows_is_set_there(module, daemon):
    batch = {"name": "batch", "priority": 7, "weight": 100, "unmanaged": False}
    made = module("sluice_class", **batch)
    assert made.get("changed") is True, made
    assert made["class"]["priority"] == 7
    again = module("sluice_class", **batch)
    assert again.get("changed") is False, again
    assert again["diff"]["before"]["weight"] == 100
    grant = {"domain": "test", "class_name": "batch", "limits": {"blk-read": "20MB/s"}}
    given = module("sluice_grant", **grant, scheduling={}, queues={})
    assert given.get("changed") is True, given
    assert given["grant"]["limits"]["blk-read"]["bytes_per_second"] == 20_000_000
    assert module("sluice_grant", **grant).get("changed") is False
    assert module("sluice_grant", **grant, state="absent").get("changed") is True


@pytest.mark.parametrize(
    ("which", "arguments", "words"),
    [
        ("sluice_class", {"weight": 300}, "weight 300 of class 'batch' cannot be set"),
        ("sluice_class", {"unmanaged": True}, "unmanaged True of class 'batch' cannot be set"),
        (
            "sluice_grant",
            {"queues": {"net-rx": {"aqm": "codel"}}},
            "of class 'batch' of domain 'test' cannot be set",
        ),
        (
            "sluice_grant",
            {"scheduling": {"blk-read": {"reserve": "2MB/s"}}},
            "of class 'batch' of domain 'test' cannot be set",
        ),
    ],
)
def test_what_it_does_not_know_is_named_with_the_remedy(module, daemon, which, arguments, words):
    daemon.call("PUT", "/v1/classes/batch", {"priority": 7})
    name = (
        {"name": "batch"} if which == "sluice_class" else {"domain": "test", "class_name": "batch"}
    )
    refused = module(which, **name, **arguments)
    key = next(iter(arguments))
    assert refused.get("failed") is True
    assert refused["msg"].startswith(f"{key} ") and words in refused["msg"]
    assert f"has no {key}; upgrade the controller" in refused["msg"]
    stored = daemon.call("GET", "/v1/classes")
    assert next(c for c in stored if c["name"] == "batch")["weight"] == 100
    assert all(g["class"] != "batch" for g in daemon.call("GET", "/v1/domains/test")["classes"])
