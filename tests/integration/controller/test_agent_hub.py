# SPDX-License-Identifier: GPL-2.0-or-later
"""The hub against agents on real sockets: one that behaves, and others."""

import json
import socket
import threading
import time

import pytest

from sluice_controller.adapters.agent_hub import AgentHub
from sluice_controller.domain.agent_protocol import BAN_S
from testbed import patience

HELLO = {
    "protocol": 2,
    "agent_version": "0.1.0",
    "kernel": "6.12",
    "hostname": "vm",
    "boot_id": "b",
    "max_tag": 7,
}
RULES = {"classes": [{"name": "batch", "tag": 1}], "rules": []}
SECONDS = 20


class Guest:
    """The far end of a channel. Accepts one connection at a time, as QEMU does."""

    def __init__(self, path):
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        self.listener.settimeout(patience.seconds(SECONDS))

    def accept(self):
        connection, _ = self.listener.accept()
        connection.settimeout(patience.seconds(SECONDS))
        self.connection, self.lines = connection, connection.makefile("rb")
        return self

    def read(self):
        return json.loads(self.lines.readline())

    def send(self, **message):
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def raw(self, data):
        self.connection.sendall(data)

    def greet(self):
        call = self.read()
        assert (call["method"], call["params"]) == ("hello", {"protocol": 2})
        self.send(id=call["id"], result=HELLO)
        return self

    def close(self):
        self.lines.close()
        self.connection.close()


@pytest.fixture
def hub():
    hub = AgentHub(time.time, time.monotonic)
    ending = threading.Event()

    def run():
        while not ending.is_set():
            hub.round()

    thread = threading.Thread(target=run)
    thread.start()
    yield hub
    ending.set()
    hub.wake()
    thread.join()
    hub.close()


@pytest.fixture
def guest(hub, tmp_path):
    guest = Guest(tmp_path / "agent.sock")
    hub.set_targets({"vm": guest.path})
    yield guest.accept()
    guest.close()
    guest.listener.close()


def until(question):
    deadline = time.monotonic() + patience.seconds(SECONDS)
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer


def test_hello_rules_and_table(hub, guest):
    hub.set_rules("vm", RULES)
    guest.greet()
    call = guest.read()
    assert call["method"] == "set_rules"
    assert call["params"]["classes"] == RULES["classes"]
    assert until(lambda: hub.status("vm")["connected"])
    assert hub.max_tag("vm") == 7
    table = {"revision": call["params"]["revision"], "truncated": False, "processes": []}
    guest.send(method="processes", params=table)
    assert until(lambda: hub.processes("vm"))["processes"] == []


def test_a_message_that_arrives_in_pieces(hub, guest):
    call = guest.read()
    whole = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": HELLO}).encode() + b"\n"
    for byte in whole:
        guest.raw(bytes([byte]))
    assert until(lambda: hub.status("vm")["connected"])


def test_an_agent_that_dies_in_mid_message_is_reconnected(hub, guest):
    guest.greet()
    assert until(lambda: hub.status("vm")["connected"])
    guest.raw(b'{"jsonrpc":"2.0","method":"proc')
    guest.close()
    assert until(lambda: not hub.status("vm")["connected"])
    assert "closed" in hub.status("vm")["error"]
    guest.accept().greet()
    assert until(lambda: hub.status("vm")["connected"])
    assert hub.status("vm")["error"] is None


def test_nonsense_ends_the_connection_and_is_explained(hub, guest):
    guest.greet()
    guest.raw(b"nonsense\n" * 30)
    assert until(lambda: "minute" in (hub.status("vm")["error"] or ""))
    assert hub.processes("vm") is None
    # Shut out: nobody connects although the socket listens.
    guest.listener.settimeout(3)
    with pytest.raises(TimeoutError):
        guest.listener.accept()
    assert BAN_S == 60


def test_an_agent_that_never_reads_does_not_hold_up_the_hub(hub, guest, tmp_path):
    guest.greet()
    assert until(lambda: hub.status("vm")["connected"])
    other = Guest(tmp_path / "other.sock")
    hub.set_targets({"vm": guest.path, "other": other.path})
    for i in range(200):
        big = [{"id": f"r{n}", "class": "batch", "match": {"exe": "/x" * 500}} for n in range(100)]
        hub.set_rules("vm", {"classes": [{"name": "batch", "tag": 1}], "rules": big, "n": i})
    other.accept().greet()
    assert until(lambda: hub.status("other")["connected"])
    other.close()
    other.listener.close()


def test_an_endless_line_takes_no_memory_and_is_a_breach(hub, guest):
    guest.greet()
    assert until(lambda: hub.status("vm")["connected"])
    for _ in range(40):
        guest.raw(b"x" * 100_000)
    guest.raw(b"\n")
    assert "longer" in until(lambda: hub.status("vm")["error"])
    assert hub.status("vm")["connected"]


def test_a_refusal_of_rules_is_shown(hub, guest):
    guest.greet()
    hub.set_rules("vm", RULES)
    call = guest.read()
    error = {"code": -32602, "message": "bad rule", "data": {"field": "rules[0]", "value": 1}}
    guest.send(id=call["id"], error=error)
    assert "bad rule" in until(lambda: hub.status("vm")["error"])


def test_a_rule_that_is_refused_by_itself_is_named(hub, guest):
    guest.greet()
    hub.set_rules("vm", RULES)
    call = guest.read()
    refused = [{"id": "rule-1", "why": "no room"}]
    result = {"revision": call["params"]["revision"], "matched": 0, "refused": refused}
    guest.send(id=call["id"], result=result)
    assert until(hub.refused) == {"vm": {"rule-1": "no room"}}
    assert hub.status("vm")["error"] is None


def test_an_older_agent_is_spoken_with_as_it_can(hub, guest):
    hub.set_rules("vm", RULES)
    call = guest.read()
    guest.send(id=call["id"], error={"code": -32602, "message": "protocol: 2 is refused"})
    call = guest.read()
    assert (call["method"], call["params"]) == ("hello", {"protocol": 1})
    guest.send(id=call["id"], result={**HELLO, "protocol": 1})
    assert guest.read()["method"] == "set_rules"
    assert hub.status("vm")["error"] is None
    assert "too old" in hub.preview(["vm"], {"exe": "/x"})["vm"].untold


def test_a_preview_waits_for_the_agents_that_are_connected(hub, guest):
    guest.greet()
    assert until(lambda: hub.status("vm")["connected"])
    found = {}
    match = {"cmdline": "x"}
    asking = threading.Thread(target=lambda: found.update(hub.preview(["vm", "other"], match)))
    asking.start()
    call = guest.read()
    assert (call["method"], call["params"]) == ("preview_rule", {"match": match})
    guest.send(id=call["id"], result={"pids": [7]})
    asking.join()
    assert {domain: one.pids for domain, one in found.items()} == {"vm": [7]}


def test_a_preview_ends_with_its_connection_or_in_time(hub, guest, monkeypatch):
    guest.greet()
    assert until(lambda: hub.status("vm")["connected"])
    found = {}
    asking = threading.Thread(target=lambda: found.update(hub.preview(["vm"], {"exe": "/x"})))
    began = time.monotonic()
    asking.start()
    guest.read()
    guest.close()
    asking.join()
    assert "not answered" in found["vm"].untold
    guest.accept().greet()
    assert until(lambda: hub.status("vm")["connected"])
    monkeypatch.setattr("sluice_controller.adapters.agent_hub.PREVIEW_SECONDS", 0.01)
    assert "within 0.01 s" in hub.preview(["vm"], {"exe": "/x"})["vm"].untold
    assert time.monotonic() - began < patience.seconds(SECONDS)


def test_a_domain_that_is_gone_is_let_go(hub, guest):
    guest.greet()
    assert until(lambda: hub.status("vm")["connected"])
    hub.set_targets({})
    assert guest.lines.readline() == b""
    assert hub.status("vm")["connected"] is False


def test_a_socket_that_is_not_there_is_named(hub, tmp_path):
    hub.set_targets({"vm": str(tmp_path / "absent")})
    assert "absent" in until(lambda: hub.status("vm")["error"])
