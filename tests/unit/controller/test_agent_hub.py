# SPDX-License-Identifier: GPL-2.0-or-later
"""The hub when something that nobody foresaw happens to one of its connections."""

import json
import socket
import threading

import pytest

from sluice_controller.adapters import agent_hub
from sluice_controller.adapters.agent_hub import AgentHub
from sluice_controller.domain import agent_protocol
from sluice_controller.domain.agent_messages import PROTOCOL
from sluice_controller.domain.agent_protocol import BREACHES_ALLOWED, PROCESSOR_SHARE


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def rounds_until(hub, condition):
    """Rounds of the hub, each of a quarter of a second at most, up to a bound."""
    for _ in range(200):
        if condition():
            return
        hub.round()
    raise AssertionError(hub.status("good"))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def hub(clock, monkeypatch):
    monkeypatch.setattr(agent_hub, "ROUND_SECONDS", 0.02)
    found = AgentHub(clock, clock)
    yield found
    found.close()


@pytest.fixture
def guest(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "good"))
        listener.listen(64)
        listener.settimeout(20)
        yield listener


def test_a_guest_that_cannot_be_connected_to_keeps_no_other_from_it(hub, guest, caplog):
    # A path that no system call takes, and no OSError says so.
    hub.set_targets({"bad": "\ud800", "good": guest.getsockname()})
    hub.round()
    hub.round()
    with guest.accept()[0] as connection:
        connection.settimeout(20)
        assert b"hello" in connection.recv(4096)
    assert "UnicodeEncodeError" in hub.status("bad")["error"]
    assert hub.status("good")["error"] is None


def test_a_connection_that_the_selector_refuses_keeps_no_other_from_its_own(
    hub, guest, clock, monkeypatch
):
    """The kernel bounds how many a user may watch."""
    register, is_full = hub._selector.register, [True]

    def refuse(file, events, peer=None):
        if is_full and peer is hub._peers["bad"]:
            raise OSError(28, "No space left on device")
        return register(file, events, peer)

    monkeypatch.setattr(hub._selector, "register", refuse)
    hub.set_targets({"bad": guest.getsockname(), "good": guest.getsockname()})
    for _ in range(3):
        hub.round()
    assert "No space left" in hub.status("bad")["error"]
    assert hub.status("good")["error"] is None
    is_full.clear()
    clock.now += 60
    hub.round()
    assert hub.status("bad")["error"] is None


def test_what_one_agent_sends_ends_no_other_s_connection(hub, guest, clock, tmp_path, monkeypatch):
    read = agent_hub.read_line

    def fails(line):
        if line == b"bad":
            raise ZeroDivisionError(line)
        return read(line)

    monkeypatch.setattr(agent_hub, "read_line", fails)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "bad"))
        other.listen(64)
        other.settimeout(20)
        hub.set_targets({"bad": other.getsockname(), "good": guest.getsockname()})
        hub.round()
        for _ in range(BREACHES_ALLOWED):
            with other.accept()[0] as connection:
                connection.sendall(b"bad\n")
                rounds_until(hub, lambda: hub.status("bad")["error"] is not None)
            clock.now += 2.0
            hub.round()
        # Now it has to wait: what it sends would fill the log.
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    with guest.accept()[0] as connection:
        connection.settimeout(20)
        assert b"hello" in connection.recv(4096)
    guest.setblocking(False)
    with pytest.raises(BlockingIOError):
        guest.accept()


def test_what_an_agent_logs_is_short_in_the_journal(hub, guest, caplog):
    hub.set_targets({"good": guest.getsockname()})
    hub.round()
    said = {"level": "error", "text": chr(0xE0001) * 2000}
    with guest.accept()[0] as connection:
        message = {"jsonrpc": "2.0", "method": "log", "params": said}
        connection.sendall(json.dumps(message).encode() + b"\n")
        rounds_until(hub, lambda: caplog.records)
    assert len(caplog.records[0].getMessage().encode()) < 4096


def test_an_agent_that_sends_without_end_is_let_go(hub, guest, monkeypatch):
    """Also without a single line, of which a breach could be counted."""
    monkeypatch.setattr(agent_protocol, "BYTES_PER_MINUTE", 1 << 20)
    hub.set_targets({"good": guest.getsockname()})
    hub.round()
    with guest.accept()[0] as connection:
        connection.setblocking(False)
        while hub.status("good")["error"] is None:
            try:
                connection.sendall(bytes(65536))
            except BlockingIOError:
                pass
            except OSError:
                break
            hub.round()
    assert "too much" in hub.status("good")["error"]


def accepted(guest):
    connection = guest.accept()[0]
    connection.settimeout(20)
    return connection, connection.makefile("rb")


def greeting(lines):
    hello = json.loads(lines.readline())
    assert hello["method"] == "hello"
    return hello


def test_a_line_on_which_nothing_is_heard_is_renewed_ever_more_rarely(hub, guest, clock):
    hub.set_targets({"good": guest.getsockname()})
    hub.round()
    connection, _ = accepted(guest)
    for patience_s in (60.0, 120.0, 240.0, 480.0, 960.0, 960.0):
        clock.now += patience_s
        hub.round()
        assert "has said nothing" in hub.status("good")["error"]
        clock.now += 1.0
        hub.round()
        assert "nothing was heard" in hub.status("good")["error"]
        with connection:
            while connection.recv(4096):
                pass
        clock.now += 1.0
        hub.round()
        connection, _ = accepted(guest)
    connection.close()


def test_an_agent_that_is_heard_on_a_renewed_line_is_connected(hub, guest, clock, caplog):
    caplog.set_level("INFO")
    hub.set_targets({"good": guest.getsockname()})
    hub.round()
    hub.round()
    first, lines = accepted(guest)
    before = greeting(lines)
    clock.now += 61.0
    hub.round()
    clock.now += 1.0
    hub.round()
    hub.round()
    lines.close()
    first.close()
    connection, lines = accepted(guest)
    hello = greeting(lines)
    assert hello["id"] != before["id"]
    said = {
        "protocol": PROTOCOL,
        "agent_version": "0.1.0",
        "kernel": "6.12",
        "hostname": "media",
        "boot_id": "b",
        "max_tag": 15,
    }
    # What it was asked over the line before it may answer, too.
    for request in (before, hello):
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": said}
        connection.sendall(json.dumps(answer).encode() + b"\n")
    rounds_until(hub, lambda: hub.status("good")["connected"])
    assert hub.status("good")["error"] is None
    assert "the agent speaks, version '0.1.0'" in caplog.text
    lines.close()
    connection.close()
    rounds_until(hub, lambda: not hub.status("good")["connected"])
    assert "the connection was closed" in caplog.text


HELLO = {
    "protocol": PROTOCOL,
    "agent_version": "0.1.0",
    "kernel": "6",
    "hostname": "m",
    "max_tag": 15,
}


def answered(connection, request, result):
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
    connection.sendall(json.dumps(answer).encode() + b"\n")


@pytest.fixture
def greeted(hub, guest):
    """A connection on which the agent has greeted, and what is read from it."""
    hub.set_targets({"good": guest.getsockname()})
    hub.round()
    hub.round()
    connection, lines = accepted(guest)
    answered(connection, greeting(lines), HELLO)
    rounds_until(hub, lambda: hub.status("good")["connected"])
    yield connection, lines
    lines.close()
    connection.close()


def test_nobody_waits_for_the_lock_while_a_line_is_parsed(hub, greeted, monkeypatch):
    read, others = agent_hub.read_line, []

    def slowly(line):
        asks = threading.Thread(target=lambda: others.append(hub.status("good")))
        asks.start()
        asks.join(20)
        return read(line)

    monkeypatch.setattr(agent_hub, "read_line", slowly)
    greeted[0].sendall(b"x\n")
    rounds_until(hub, lambda: others)
    assert others[0]["connected"]


def test_who_asks_gets_a_table_of_now(hub, greeted):
    connection, lines = greeted
    asks = threading.Thread(target=hub.refresh, args=(["good", "another"],))
    asks.start()
    hub.round()
    hub.round()
    call = json.loads(lines.readline())
    assert call["method"] == "get_processes"
    answered(connection, call, {"revision": 0, "truncated": False, "processes": []})
    rounds_until(hub, lambda: hub.processes("good") is not None)
    asks.join(20)
    assert not asks.is_alive()
    assert hub.processes("good")["table"].text == "[]"


def test_a_guest_that_costs_too_much_is_read_later(hub, greeted, clock):
    connection, _ = greeted
    spent = [0.0]

    def processor_s():
        spent[0] += 1.0
        return spent[0]

    hub.processor_s = processor_s
    params = {"level": "info", "text": "x"}
    said = json.dumps({"jsonrpc": "2.0", "method": "log", "params": params}).encode() + b"\n"
    connection.sendall(said)
    rounds_until(hub, lambda: spent[0])
    assert "costs too much" in hub.status("good")["error"]
    connection.sendall(said)
    before = spent[0]
    for _ in range(3):
        hub.round()
    assert spent[0] == before
    clock.now += 1.0 / PROCESSOR_SHARE
    rounds_until(hub, lambda: spent[0] != before)


def test_round_trips_are_asked_for_and_told_by_tag(hub, greeted, clock):
    connection, lines = greeted
    assert hub.round_trips("good") == [] == hub.round_trips("another")
    hub.round()
    call = json.loads(lines.readline())
    assert call["method"] == "watch_streams"
    answered(connection, call, {})
    row = {"record": 0, "tag": 2, "round_trip_us": 180_000, "least_us": 20_000}
    said = {"jsonrpc": "2.0", "method": "streams", "params": {"streams": [row]}}
    connection.sendall(json.dumps(said).encode() + b"\n")
    rounds_until(hub, lambda: hub.round_trips("good"))
    ((tag, trip),) = hub.round_trips("good")
    assert (tag, trip.at_ns, trip.smoothed_s, trip.least_s) == (2, clock() * 1e9, 0.18, 0.02)
