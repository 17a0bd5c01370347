# SPDX-License-Identifier: GPL-2.0-or-later
"""A real server on the loopback: slow clients, many clients, and TLS.

A deadline that must pass is short, any other so long that a busy machine does not reach it.
"""

import contextlib
import errno
import http.client
import math
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from sluice_web import cli, connections, server
from sluice_web.app import create_app
from sluice_web.certificate import Certificate
from sluice_web.config import Config
from sluice_web.connections import REQUESTS_AHEAD, Patience
from sluice_web.controller import Answer
from sluice_web.live import MAX_STREAMS, STREAMS_PER_USER
from sluice_web.store import Store
from unit.web.test_web_access import HASHER, OPERATOR, PASSWORD, Recorder
from unit.web.test_web_start import needs_openssl, pair

# For what must come, on a machine that does other work, too; and what it must not wait for.
AT_ONCE_SECONDS = 300.0
LATE_SECONDS = 3600.0
HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 1000\r\n\r\nuser="
)
PATIENT = Patience(read_seconds=LATE_SECONDS, unread_seconds=LATE_SECONDS)
SHORT = Patience(read_seconds=0.5, unread_seconds=0.5)


class Talkative(Recorder):
    """Answers as much as it is told to."""

    said = b"[]"

    def call(self, method, path, **more):
        super().call(method, path, **more)
        return Answer(200, "application/json", self.said)

    def stream(self, path, **more):
        if more["query"]:
            return self.call("GET", path, **more)
        self.headers, self.flows = more["headers"], [*getattr(self, "flows", ()), Flow()]
        return self.flows[-1]


class Flow:
    """Stands for the controller's stream of events: a keep-alive each 10 ms, until it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    def pieces(self):
        yield b"id: 7\ndata: {}\n\n"
        while not self.closed.wait(0.01):
            yield b": still here\n\n"

    def close(self):
        self.closed.set()


class Page:
    """A server that runs, and its clients."""

    def __init__(self, folder, patience, tls):
        self.store = Store(folder, HASHER)
        self.controller = Talkative()
        self.certificate = Certificate(*tls) if tls else None
        config = Config(state_dir=folder)
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address = listening.getsockname()
        app = create_app(config, self.store, self.controller)
        self.server = server.Server(app, listening, self.certificate, patience)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        self.open = contextlib.ExitStack()

    def stop(self):
        self.open.close()
        self.server.stop()
        self.thread.join(AT_ONCE_SECONDS)
        assert not self.thread.is_alive()

    def channels(self):
        """The server's ends of all connections."""
        return list(self.server._listener.active_channels.values())

    def raw(self, sent=b""):
        """A connection of a client that says what it likes."""
        sock = self.open.enter_context(socket.create_connection(self.address, AT_ONCE_SECONDS))
        sock.sendall(sent)
        return sock

    def trusting(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def ask(self, path="/healthz", method="GET", body=None, headers=(), expect=200):
        """One request of an honest client."""
        if self.certificate:
            client = http.client.HTTPSConnection(
                *self.address, timeout=AT_ONCE_SECONDS, context=self.trusting()
            )
        else:
            client = http.client.HTTPConnection(*self.address, timeout=AT_ONCE_SECONDS)
        with contextlib.closing(client):
            client.request(method, path, body, dict(headers))
            answer = client.getresponse()
            text = answer.read()
            assert answer.status == expect, text
            return answer, text

    def user(self, name):
        """The headers of a user's program."""
        self.store.add_user(name, "operator", PASSWORD, now=1.0, actor="test")
        token = self.store.add_token(name, "x", OPERATOR, now=1.0, actor=name)
        return {"Authorization": f"Bearer {token}"}

    def stream(self, headers, path="/events?topic=auto"):
        """An event stream that has begun, or the status of its refusal."""
        client = self.open.enter_context(
            contextlib.closing(http.client.HTTPConnection(*self.address, timeout=AT_ONCE_SECONDS))
        )
        client.request("GET", path, headers=headers)
        answer = self.open.enter_context(client.getresponse())
        if answer.status == 200:
            assert answer.fp.readline()
        return client, answer


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as pages:

        def start(patience=PATIENT, tls=None):
            page = Page(tmp_path / "state", patience, tls)
            pages.callback(page.stop)
            return page

        yield start


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return pair(tmp_path_factory.mktemp("tls"), "page")


def wait_until(question):
    """The first true answer."""
    deadline = time.monotonic() + AT_ONCE_SECONDS
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


def ended(sock):
    """True once the server has closed this connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("many", [64, 200])
@pytest.mark.parametrize("half", [b"", HALF_A_HEAD, HALF_A_BODY], ids=["silence", "head", "body"])
def test_half_a_request_on_many_connections_leaves_the_page_answering(serve, half, many):
    page = serve()
    for _ in range(many):
        page.raw(half)
    page.ask()


@needs_openssl
@pytest.mark.parametrize("many", [64, 200])
@pytest.mark.parametrize("half", [b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_half_a_handshake_on_many_connections_leaves_the_page_answering(serve, tls, half, many):
    page = serve(tls=tls)
    for _ in range(many):
        page.raw(half)
    page.ask()


@pytest.mark.parametrize("half", [b"", HALF_A_HEAD, HALF_A_BODY], ids=["silence", "head", "body"])
def test_single_bytes_do_not_move_the_end_of_reading(serve, half):
    page = serve(SHORT)
    begun = time.monotonic()
    sock = page.raw(half)
    sock.settimeout(0.05)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while time.monotonic() - begun < AT_ONCE_SECONDS:
            with contextlib.suppress(TimeoutError):
                if ended(sock):
                    break
            sock.sendall(b"x")
    assert SHORT.read_seconds < time.monotonic() - begun < AT_ONCE_SECONDS


@needs_openssl
def test_a_handshake_ends_in_time_too(serve, tls):
    page = serve(SHORT, tls)
    assert ended(page.raw(b"\x16"))
    page.ask()


def test_an_idle_connection_is_kept_for_a_while_and_then_ends(serve):
    page = serve()
    sock = page.raw()
    for _ in range(2):
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with http.client.HTTPResponse(sock) as answer:
            answer.begin()
            assert answer.status == 200 and answer.read()
    (channel,) = page.channels()
    deadline = wait_until(lambda: channel.deadline < math.inf and channel.deadline)
    # Empty lines between requests keep nothing alive; the loop has read them before it
    # accepts who comes later.
    sock.sendall(b"\r\n\r\n")
    page.ask()
    assert channel.deadline == deadline
    channel.deadline = 0.0
    assert ended(sock)


def test_who_comes_as_the_time_of_another_is_over_is_let_in(tmp_path):
    """The new connection gets the descriptor of the one that just ended."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(Config(state_dir=tmp_path), Store(tmp_path, HASHER), Talkative())
    made = server.Server(app, listening)
    with contextlib.ExitStack() as clients:
        for _ in range(3):
            # One waits to be accepted while the time of the one before goes by.
            clients.enter_context(socket.create_connection(listening.getsockname()))
            for channel in made._listener.active_channels.values():
                channel.deadline = 0.0
            made.turn()
            made.turn(0.01)
            assert made.connections() == 1
    made.stop()
    made.run()


@pytest.fixture
def loop(tmp_path):
    """A server, and the thread that runs it."""
    app = create_app(Config(state_dir=tmp_path), Store(tmp_path, HASHER), Talkative())
    made = server.Server(app, socket.create_server(("127.0.0.1", 0)))
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made, thread
    made.stop()
    thread.join()


def test_a_server_that_is_told_again_writes_to_no_file_of_others(loop):
    made, thread = loop
    made.stop()
    thread.join()
    made.stop()


def test_a_server_ends_no_sooner_than_who_tells_it_has_told(loop, monkeypatch):
    made, thread = loop
    pull = made._listener.pull_trigger

    def slow():
        pull()
        # Time enough for a loop that would not wait.
        thread.join(0.2)
        pull()

    monkeypatch.setattr(made._listener, "pull_trigger", slow)
    made.stop()


def test_an_answer_that_takes_longer_than_reading_may_comes_all_the_same(serve):
    page = serve()
    call, overdue = page.controller.call, []

    def much_later(*arguments, **more):
        (channel,) = page.channels()
        overdue.append(channel.overdue(time.monotonic() + 2 * LATE_SECONDS, time.time()))
        return call(*arguments, **more)

    page.controller.call = much_later
    page.ask("/api/v1/auto", headers=page.user("olga"))
    assert overdue == [False]


def test_there_is_room_for_a_new_connection_at_any_time(serve):
    page = serve(replace(PATIENT, connections=20))
    first = page.raw(HALF_A_HEAD)
    for _ in range(30):
        page.raw(HALF_A_HEAD)
    page.ask()
    assert ended(first)


def unread_request(page):
    """A request whose answer is more than a socket holds."""
    page.controller.said = b"[" + b" " * (16 << 20) + b"]"
    token = page.user("olga")["Authorization"]
    return f"GET /api/v1/auto HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()


def test_clients_that_read_nothing_leave_room_for_others(serve):
    page = serve(replace(PATIENT, connections=3))
    request = unread_request(page)
    for _ in range(3):
        page.raw(request).recv(1)
    page.ask()
    assert page.server.connections() <= 3


def test_what_nobody_reads_is_not_kept(serve):
    page = serve(SHORT)
    page.raw(unread_request(page)).recv(1)
    wait_until(lambda: page.server.connections() == 0)


STATIC_FILE = b"GET /static/js/processes.js HTTP/1.1\r\nHost: x\r\n\r\n"


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_a_few_requests_may_come_before_their_answers(serve):
    page = serve()
    sock = page.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * REQUESTS_AHEAD)
    said = b""
    while said.count(b"HTTP/1.1 200 OK") < REQUESTS_AHEAD:
        assert (more := sock.recv(65536))
        said += more


def test_a_connection_with_many_requests_ahead_ends(serve, monkeypatch):
    page = serve()
    # None is answered meanwhile.
    monkeypatch.setattr(page.server._pools, "add_task", lambda _channel: None)
    assert ended(page.raw(STATIC_FILE * (REQUESTS_AHEAD + 1)))


def test_an_answer_that_is_not_read_keeps_no_file_open(serve):
    page = serve()
    # Less than one answer, on either side.
    page.server._listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    page.ask("/static/js/processes.js")
    before, unread = open_files(), 8
    for _ in range(unread):
        sock = page.open.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(page.address)
        sock.sendall(STATIC_FILE * REQUESTS_AHEAD)
        assert sock.recv(1)
    page.ask()
    # Of each its two ends, and at most the one file that a thread reads now.
    assert open_files() <= before + 3 * unread


# The page in a process of its own, which may open few files: that of the tests keeps its limit.
FEW_FILES = 64
PAGE_OF_FEW_FILES = """
import contextlib, os, pathlib, resource, socket, sys
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.connections import Patience
from sluice_web.server import Server
from sluice_web.store import Store

folder, descriptor, files, free = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
app = create_app(Config(state_dir=folder), Store(folder))
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
server = Server(app, socket.socket(fileno=descriptor), patience=Patience(read_seconds=600))
taken = []
with contextlib.suppress(OSError):
    while True:
        taken.append(os.dup(0))
for number in taken[-free:]:
    os.close(number)
print("ready", flush=True)
server.run()
"""


@pytest.fixture
def page_of_few_files(tmp_path):
    """Start a page that has so many of FEW_FILES free; returns its address."""
    with contextlib.ExitStack() as processes:

        def start(free):
            with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
                descriptor = listening.fileno()
                command = [sys.executable, "-c", PAGE_OF_FEW_FILES, tmp_path]
                command += [descriptor, FEW_FILES, free]
                process = processes.enter_context(
                    subprocess.Popen(
                        list(map(str, command)), pass_fds=[descriptor], stdout=subprocess.PIPE
                    )
                )
                processes.callback(process.kill)
                assert process.stdout.readline() == b"ready\n"
                return listening.getsockname()

        yield start


@pytest.mark.parametrize(
    ("free", "request_text"),
    [
        # Connections alone would use them up: answers need some as well.
        (FEW_FILES, STATIC_FILE),
        # Others use them.
        (4, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ],
)
def test_where_no_file_can_be_opened_there_is_room_for_a_new_connection(
    page_of_few_files, free, request_text
):
    address = page_of_few_files(free)
    with contextlib.ExitStack() as clients:

        def client(sent):
            sock = clients.enter_context(socket.create_connection(address, AT_ONCE_SECONDS))
            sock.sendall(sent)
            return sock

        waiting = [client(HALF_A_HEAD) for _ in range(2 * FEW_FILES)]
        # Connections are accepted in their order: those before have all been.
        assert client(request_text).recv(12) == b"HTTP/1.1 200"
        assert ended(waiting[0])
        waiting[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting[-1].recv(1)


def test_a_page_that_has_no_room_to_make_says_so_and_rests(tmp_path, monkeypatch, caplog):
    def accept(_listener):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(connections, "REST_SECONDS", 0.1)
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(Config(state_dir=tmp_path), Store(tmp_path, HASHER), Talkative())
    made = server.Server(app, listening)
    with socket.create_connection(listening.getsockname()), monkeypatch.context() as full:
        full.setattr("waitress.wasyncore.dispatcher.accept", accept)
        begun = time.monotonic()
        made.turn()
        assert time.monotonic() - begun >= 0.1
    assert "a connection waits: Too many open files" in caplog.text
    made.stop()
    made.run()


def test_streams_take_no_thread_from_requests(serve, monkeypatch):
    monkeypatch.setattr(server, "REQUEST_THREADS", 2)
    page = serve()
    headers = page.user("olga")
    for path in ("/events?topic=auto", "//events?topic=auto", "/%2Fevents?topic=auto"):
        assert page.stream(headers, path)[1].status == 200
    page.ask()


def test_a_user_has_few_streams_and_all_have_a_bounded_number(serve):
    page = serve()
    users = [page.user(f"user-{n}") for n in range(MAX_STREAMS // STREAMS_PER_USER + 1)]
    for headers in users[:-1]:
        for _ in range(STREAMS_PER_USER):
            _, answer = page.stream(headers)
            assert answer.status == 200
        _, answer = page.stream(headers)
        assert answer.status == 429
        assert b"close one, then reload this one" in answer.read()
    _, answer = page.stream(users[-1])
    assert answer.status == 503 and b"48 get live data already" in answer.read()
    page.ask()


def test_a_page_that_is_closed_gives_its_place_back(serve, monkeypatch):
    monkeypatch.setattr("sluice_web.live.STREAMS_PER_USER", 1)
    monkeypatch.setattr("sluice_web.live.LOOK_SECONDS", 0.05)
    page = serve()
    headers = page.user("olga")
    client, answer = page.stream(headers)
    assert page.stream(headers)[1].status == 429
    answer.close()
    client.close()
    wait_until(lambda: page.stream(headers)[1].status == 200)


def test_asking_for_the_head_of_a_stream_takes_no_place(serve):
    page = serve()
    headers = page.user("olga")
    for _ in range(STREAMS_PER_USER + 1):
        page.ask("/events?topic=auto", "HEAD", headers=headers)


EVENTS = "/api/v1/events"


def test_the_controllers_events_take_a_place_and_no_thread_from_requests(serve, monkeypatch):
    monkeypatch.setattr(server, "REQUEST_THREADS", 2)
    page = serve()
    headers = page.user("olga")
    for n in range(STREAMS_PER_USER):
        _, answer = page.stream({**headers, "Last-Event-ID": str(n)}, EVENTS)
        assert answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream"
        assert answer.fp.readline() == b"id: 7\n"
    assert page.controller.headers["Last-Event-ID"] == str(STREAMS_PER_USER - 1)
    assert page.stream(headers, EVENTS)[1].status == 429
    page.ask()
    page.ask(EVENTS, expect=401)


def test_the_controllers_events_end_with_the_client_and_with_its_right(serve, monkeypatch):
    monkeypatch.setattr("sluice_web.live.STILL_ALLOWED_SECONDS", 0.05)
    page = serve()
    headers = page.user("olga")
    client, answer = page.stream(headers, EVENTS)
    answer.close()
    client.close()
    assert page.controller.flows[0].closed.wait(AT_ONCE_SECONDS)
    _, answer = page.stream(headers, EVENTS)
    (token,) = page.store.tokens()
    page.store.remove_token(token["id"], now=1.0, actor="test")
    answer.fp.read()
    assert page.controller.flows[1].closed.wait(AT_ONCE_SECONDS)


def test_a_list_of_events_and_the_head_of_a_stream_take_no_place(serve):
    page = serve()
    headers = page.user("olga")
    for _ in range(STREAMS_PER_USER + 1):
        assert page.ask(f"{EVENTS}?follow=false", headers=headers)[1] == b"[]"
        page.ask(EVENTS, "HEAD", headers=headers)


@needs_openssl
def test_long_bodies_and_answers_pass_tls_whole(serve, tls):
    page = serve(tls=tls)
    headers = {**page.user("olga"), "Content-Type": "application/json"}
    page.controller.said = bytes(range(256)) * 20000
    body = b'{"enabled": true' + b" " * 900_000 + b"}"
    _, text = page.ask("/api/v1/auto", "PUT", body, headers)
    assert text == page.controller.said
    assert page.controller.calls[-1][4] == {"enabled": True}


@needs_openssl
def test_a_renewed_certificate_is_served_without_a_restart(serve, tmp_path):
    cert, key = pair(tmp_path, "page")
    page = serve(tls=(cert, key))

    def served():
        with page.trusting().wrap_socket(page.raw()) as client:
            return client.getpeercert(binary_form=True)

    before = served()
    other_cert, other_key = pair(tmp_path, "other")
    key.write_bytes(other_key.read_bytes())
    # Half of a pair is none: the one before stays.
    assert served() == before
    cert.write_bytes(other_cert.read_bytes())
    after = served()
    assert after != before
    assert after == ssl.PEM_cert_to_DER_cert(other_cert.read_text())


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"\x16\x03\x01 \r\n\r\n", 400),
        (b"GET http://[x HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_in_words(serve, request_text, status):
    page = serve()
    answer = http.client.HTTPResponse(page.raw(request_text))
    answer.begin()
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert b'"remedy": "' in answer.read()


def test_an_address_in_use_is_said_with_its_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "files", lambda _: tmp_path)
    libraries = tmp_path / "static" / "vendor"
    libraries.mkdir(parents=True)
    (libraries / "uPlot.iife.min.js").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        status = cli.main(["--bind", bind, "--state-dir", str(tmp_path / "state")])
    said = capsys.readouterr()
    assert status == cli.FAILED_NOW
    assert f"--bind {bind}: Address already in use; stop what listens there" in said.err
    # No password was shown that nobody then sees used.
    assert said.out == ""
