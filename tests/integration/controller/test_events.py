# SPDX-License-Identifier: GPL-2.0-or-later
"""The stream of events over a real daemon, its socket and the command line."""

import json
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import pytest

from integration.controller.conftest import BIN
from sluice_controller.domain.events import MOST_EVENTS, Event
from sluice_controller.entry.api.app import create_app
from sluice_controller.entry.daemon import api_server
from sluice_controller.services.events import MOST_READERS, Events
from testbed import patience

EVENTS = "/v1/events"


class Stream:
    """A client's events, read as they come."""

    def __init__(self, answer):
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self):
        """The next event's fields; a keep-alive is passed over."""
        fields = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                return {**fields, "data": json.loads(fields["data"])}
            else:
                fields = {}
        return None

    def until(self, kind):
        """The first event of this kind from here on."""
        while (one := self.next()) is not None:
            if one["data"]["kind"] == kind:
                return one
        raise AssertionError(f"the stream ended without {kind}")


@contextmanager
def opened(daemon, query="", **headers):
    transport = httpx.HTTPTransport(uds=str(daemon.socket), verify=False)
    headers = {"Authorization": f"Bearer {daemon.token()}", **headers}
    timeout = patience.seconds(30)
    with (
        httpx.Client(transport=transport, base_url="http://x", timeout=timeout) as client,
        client.stream("GET", EVENTS + query, headers=headers) as answer,
    ):
        # The first bytes come at once: from here on it is a reader.
        stream = Stream(answer)
        if answer.status_code == 200:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert next(stream._lines) == "retry: 1000"
        yield stream


def change(daemon, priority):
    daemon.call("PUT", "/v1/classes/batch", {"priority": priority})


def listed(daemon, query=""):
    return daemon.call("GET", f"{EVENTS}?follow=false{query}")


def test_changes_come_as_they_are_made_with_their_author(daemon):
    with opened(daemon, "?kind=set+class") as stream:
        change(daemon, 3)
        one = stream.next()
        assert int(one["id"]) == one["data"]["id"]
        assert one["data"]["sentence"] == "cli: set class batch"
        assert one["data"]["subject"]["class"] == "batch"
        change(daemon, 4)
        assert stream.next()["data"]["id"] > one["data"]["id"]


def test_a_client_that_comes_back_goes_on_where_it_was(daemon):
    with opened(daemon, "?kind=set+class") as stream:
        change(daemon, 3)
        last = stream.next()["id"]
    change(daemon, 4)
    change(daemon, 5)
    for query, headers in ((f"?after={last}", {}), ("", {"Last-Event-ID": last})):
        with opened(daemon, query, **headers) as stream:
            assert [stream.until("set class")["data"]["kind"] for _ in range(2)]
    assert [one["kind"] for one in listed(daemon, f"&after={last}&kind=set")] == ["set class"] * 2


def test_a_domain_and_a_grant_are_told_of_and_filtered(daemon):
    change(daemon, 3)
    daemon.call("PUT", "/v1/domains/test/classes/batch", {})
    daemon.call("PUT", "/v1/domains/test/classes/batch/limits/blk-read", {"bytes_per_second": 9e6})
    with opened(daemon, "?domain=test&kind=domain&limit=9") as stream:
        stream.until("domain running")
    kinds = [one["kind"] for one in listed(daemon, "&domain=test")]
    assert {"grant", "limit"} <= set(kinds) and "set class" not in kinds
    limit = listed(daemon, "&domain=test&kind=limit")[-1]
    assert limit["subject"]["resource"] == "blk-read"
    daemon.call("DELETE", "/v1/domains/test/classes/batch")


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?domain=nothere", {}, 404),
        ("?since=yesterday", {}, 422),
        ("?after=-1", {}, 422),
        ("?limit=0", {}, 422),
        ("?kind=", {}, 422),
        ("?what=1", {}, 422),
        ("", {"Last-Event-ID": "7x"}, 422),
        ("", {"Authorization": "Bearer wrong"}, 401),
    ],
)
def test_what_makes_no_sense_is_refused(daemon, query, headers, status):
    with opened(daemon, query, **headers) as stream:
        assert stream.answer.status_code == status
        stream.answer.read()
        assert stream.answer.json()["remedy"]


def test_many_clients_leave_the_api_its_threads_and_one_too_many_is_refused(daemon):
    streams = []
    try:
        for _ in range(MOST_READERS):
            streams.append(opened(daemon))
            streams[-1].__enter__()
        with opened(daemon) as refused:
            assert refused.answer.status_code == 503
            assert "end one of them" in json.loads(refused.answer.read())["remedy"]
        # Each of these would wait for a thread that a stream has.
        for _ in range(MOST_READERS):
            assert daemon.request("GET", "/v1/status").status_code == 200
    finally:
        for one in streams:
            one.__exit__(None, None, None)
    # The clients that left make room, within a second or so.
    attempts = threading.Event()
    for _ in range(100):
        with opened(daemon) as stream:
            if stream.answer.status_code == 200:
                break
            attempts.wait(0.1)
    else:
        raise AssertionError("there is no room again")


class Served:
    """The API's own server over events that the test tells; it has no domains."""

    def __init__(self, socket):
        self.socket = socket
        self.events = Events(time.time)
        app = create_app(SimpleNamespace(events=self.events), "secret")
        self.server = api_server(app, socket, self.events)
        threading.Thread(target=self.server.run, daemon=True).start()

    def token(self):
        return "secret"


@pytest.fixture
def served(tmp_path):
    found = Served(tmp_path / "api.sock")
    yield found
    found.server.task_dispatcher.shutdown()


def test_a_client_that_does_not_read_delays_nobody_and_hears_of_its_loss(served):
    """More is told than the ring and all buffers on the way can hold."""
    with opened(served) as slow, opened(served, "?kind=last") as quick:
        for i in range(5 * MOST_EVENTS):
            served.events.add(Event(float(i), "gate moved", "x" * 200))
        served.events.add(Event(0.0, "last", "this is all"))
        last = quick.until("last")["data"]["id"]
        seen, gaps = last - 5 * MOST_EVENTS - 1, 0
        while seen < last:
            one = slow.next()["data"]
            assert one["id"] - seen == (one["lost"] or 1)
            gaps += one["kind"] == "gap"
            seen = one["id"]
        assert gaps


def test_the_end_of_sluiced_ends_streams_at_once_and_a_new_one_tells_of_the_gap(make_daemon):
    daemon = make_daemon()
    change(daemon, 3)
    ended = threading.Event()
    with opened(daemon, "?limit=1&kind=set") as stream, opened(daemon) as unread:
        last = stream.next()
        reading = threading.Thread(target=lambda: stream.next() is None and ended.set())
        reading.start()
        assert daemon.stop() == 0
        reading.join(patience.seconds(10))
        assert ended.is_set() and unread is not None
    assert "still running" not in daemon.log.read_text()
    daemon.start()
    with opened(daemon, **{"Last-Event-ID": last["id"]}) as stream:
        gap = stream.next()
        assert (gap["event"], gap["data"]["lost"]) == ("gap", None)
        assert int(gap["id"]) > int(last["id"])
        assert stream.until("domain running")["data"]["subject"]["domains"] == ["test"]


# The command


def followed(daemon, *options):
    command = [str(BIN / "sluice"), "events", "--follow", *options]
    environment = {"SLUICE_SOCKET": str(daemon.socket), "SLUICE_TOKEN_FILE": str(daemon.token_file)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, **pipes)


def test_the_command_shows_the_last_events_and_says_when_there_are_none(daemon):
    change(daemon, 3)
    lines = daemon.cli("events", "--kind", "set", "--limit", "1").stdout.splitlines()
    assert len(lines) == 1 and lines[0].endswith("set class       cli: set class batch")
    (shown,) = json.loads(daemon.cli("events", "--kind=set", "--limit=1", "--json").stdout)
    assert daemon.cli("events", "--after", str(shown["id"]), "--kind=set").stdout == (
        "no events of these\n"
    )
    refused = daemon.cli("events", "--domain", "nothere")
    assert refused.returncode == 1 and "nothere" in refused.stderr


def test_the_command_leaves_out_nothing_behind_an_event_unless_told_to(daemon):
    change(daemon, 3)
    (first,) = listed(daemon, "&kind=set+class&limit=1")
    for i in range(25):
        change(daemon, i % 8)
    behind = ("--kind=set class", "--json", f"--after={first['id']}")
    assert len(json.loads(daemon.cli("events", *behind).stdout)) == 25
    assert len(json.loads(daemon.cli("events", *behind, "--limit=3").stdout)) == 3
    with followed(daemon, *behind) as run:
        ids = [json.loads(run.stdout.readline())["id"] for _ in range(25)]
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=patience.seconds(30))
    assert ids == sorted(ids) and ids[0] > first["id"]


def test_following_goes_on_over_a_restart_and_says_so_and_ends_quietly(make_daemon):
    daemon = make_daemon()
    change(daemon, 3)
    with followed(daemon, "--json", "--limit=1", "--kind=set class") as run:
        first = json.loads(run.stdout.readline())
        change(daemon, 4)
        assert json.loads(run.stdout.readline())["id"] > first["id"]
        daemon.stop()
        assert run.stderr.readline() == (
            "sluice: sluiced has ended the stream; trying again until it answers\n"
        )
        daemon.start()
        gap = json.loads(run.stdout.readline())
        assert (gap["kind"], gap["lost"]) == ("gap", None)
        assert run.stderr.readline() == "sluice: sluiced answers again\n"
        change(daemon, 5)
        assert json.loads(run.stdout.readline())["kind"] == "set class"
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=patience.seconds(30)) == ("", "")
    assert run.returncode == 0


def test_following_ends_with_its_reader_and_without_a_sluiced_at_once(make_daemon):
    daemon = make_daemon()
    change(daemon, 3)
    with followed(daemon, "--limit=1") as run:
        assert run.stdout.readline()
        run.stdout.close()
        change(daemon, 4)
        run.wait(patience.seconds(30))
        assert "Traceback" not in run.stderr.read()
    daemon.stop()
    with followed(daemon) as run:
        assert "cannot be reached" in run.communicate(timeout=patience.seconds(30))[1]
        assert run.returncode == 1
