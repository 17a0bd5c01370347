# SPDX-License-Identifier: GPL-2.0-or-later
"""What a poll of libvirt keeps: a connection of this process, with domains that are only XML."""

import threading
from concurrent.futures import Future

import libvirt
import pytest

from sluice_controller.adapters.libvirt_host import MOST_QUESTIONS, LibvirtHost
from sluice_controller.domain.errors import NotFound, Unavailable
from unit.controller.libvirt_model import PLAIN

ATTACHED = PLAIN.replace(
    "</domain>",
    "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
    "<qemu:arg value='-object'/><qemu:arg value='shaper,id=sluice0'/>"
    "</qemu:commandline></domain>",
)
# Deeper than the parser takes.
METADATA = "<metadata>" + "<m>" * 300 + "</m>" * 300 + "</metadata>"
DEEP = PLAIN.replace("<devices>", METADATA + "<devices>")


# Of those who wait for an answer that comes, on a host that has much to do; and of those
# who wait in vain.
PATIENT, IMPATIENT = 120.0, 0.2
# For what waits for nobody.
SECONDS = PATIENT / 2


class Domain:
    def __init__(self, number, xml=PLAIN):
        self.number, self.xml, self.fails = number, xml, None
        self.reading = lambda: None

    def UUIDString(self):
        return f"u-{self.number}"

    def name(self):
        return f"web{self.number}"

    def ID(self):
        return -1

    def state(self):
        return [libvirt.VIR_DOMAIN_SHUTOFF, 0]

    def isActive(self):
        return 0

    def isPersistent(self):
        return 1

    def XMLDesc(self, _flags):
        if self.fails:
            raise libvirt.libvirtError(self.fails)
        xml = self.xml
        self.reading()
        return xml


class Connection:
    def __init__(self, *domains):
        self.domains = list(domains)

    def getAllDomainStats(self, _stats, _flags):
        return [(d, {"state.state": libvirt.VIR_DOMAIN_SHUTOFF}) for d in self.domains]

    def lookupByName(self, name):
        return next(d for d in self.domains if d.name() == name)

    def isAlive(self):
        return 1

    def getLibVersion(self):
        return 11_003_000


@pytest.fixture
def host(monkeypatch):
    """(the host, the connection that it opens)"""
    connection = Connection()
    monkeypatch.setattr(libvirt, "open", lambda _uri: connection)
    now = [0.0]
    host = LibvirtHost("test:///", lambda: now[0], answer_seconds=PATIENT)

    def passes(seconds):
        now[0] += seconds

    host.passes = passes
    return host, connection


def names(host):
    return [guest.name for guest in host.guests()]


def test_a_domain_that_cannot_be_parsed_keeps_no_other_from_being_seen(host):
    host, connection = host
    connection.domains = [Domain(1), Domain(2, DEEP), Domain(3)]
    host.refresh()
    assert names(host) == ["web1", "web3"]


def test_a_domain_that_cannot_be_read_stays_as_it_was(host):
    host, connection = host
    connection.domains = [Domain(1), Domain(2)]
    host.refresh()
    connection.domains[0].fails = "cannot acquire state change lock"
    connection.domains[1].xml = ATTACHED
    connection.domains.append(Domain(3))
    host.passes(60)
    host.refresh()
    assert [(g.name, g.attached) for g in host.guests()] == [
        ("web1", False), ("web2", True), ("web3", False),
    ]  # fmt: skip


def test_a_poll_does_not_take_back_what_was_read_meanwhile(host):
    """As when a domain is attached while the poll has its old definition in hand."""
    host, connection = host
    connection.domains = [Domain(1)]

    def attach():
        domain = connection.domains[0]
        domain.xml, domain.reading = ATTACHED, lambda: None
        host.passes(0.1)
        assert host.guest("web1").attached
        connection.domains.append(Domain(2))
        assert host.guest("web2")

    connection.domains[0].reading = attach
    host.refresh()
    assert [(g.name, g.attached) for g in host.guests()] == [("web1", True), ("web2", False)]


def test_a_domain_that_is_gone_is_gone_with_the_next_poll(host):
    host, connection = host
    connection.domains = [Domain(1), Domain(2)]
    host.refresh()
    host.guest("web2")
    del connection.domains[1]
    host.passes(0.5)
    host.refresh()
    assert names(host) == ["web1"]


# libvirt is there, and does not answer


class Stuck:
    """A call that does not come back before it is let go."""

    def __init__(self):
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, *_arguments):
        self.begun.set()
        assert self.let_go.wait(2 * PATIENT)
        return 1


@pytest.fixture
def stuck():
    call = Stuck()
    yield call
    call.let_go.set()


def beside(what):
    """Its answer, from a thread of its own; TimeoutError if there is none within SECONDS."""
    answer = Future()

    def run():
        try:
            answer.set_result(what())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


class Gone(libvirt.libvirtError):
    def get_error_code(self):
        return libvirt.VIR_ERR_NO_DOMAIN


def test_what_was_seen_is_listed_while_libvirt_is_asked_if_it_lives(host, stuck):
    host, connection = host
    connection.domains = [Domain(1)]
    host.refresh()
    connection.getLibVersion = stuck
    losing = beside(lambda: host.lost(libvirt.libvirtError("broken")))
    assert stuck.begun.wait(SECONDS)
    assert beside(lambda: names(host)).result(SECONDS) == ["web1"]
    assert beside(host.connection).result(SECONDS)["connected"]
    # And a domain is read anew, as the connection may well be good.
    assert beside(lambda: host.guest("web1")).result(SECONDS).name == "web1"
    stuck.let_go.set()
    losing.result(SECONDS)


def test_what_was_seen_is_listed_while_a_poll_does_not_end(host, stuck):
    host, connection = host
    connection.domains = [Domain(1)]
    host.refresh()
    connection.getAllDomainStats = stuck
    beside(host.refresh)
    assert stuck.begun.wait(SECONDS)
    assert beside(lambda: names(host)).result(SECONDS) == ["web1"]


def test_nobody_waits_for_ever_for_a_connection_that_is_being_opened(host, stuck, monkeypatch):
    host, _connection = host
    host.answer_seconds = IMPATIENT
    monkeypatch.setattr(libvirt, "open", stuck)
    beside(host.refresh)
    assert stuck.begun.wait(SECONDS)
    assert not beside(host.connection).result(SECONDS)["connected"]
    for ask in (host.guests, host.open, lambda: host.guest("web1")):
        with pytest.raises(Unavailable):
            beside(ask).result(SECONDS)


def test_nobody_waits_for_ever_for_a_domain_that_is_read(host, stuck):
    host, connection = host
    connection.domains = [Domain(1), Domain(2)]
    host.refresh()
    connection.domains[0].state = stuck
    host.answer_seconds = IMPATIENT
    with pytest.raises(Unavailable, match=r"does not answer within 0\.2 s"):
        beside(lambda: host.guest("web1")).result(SECONDS)
    host.answer_seconds = PATIENT
    assert host.guest("web2").name == "web2"
    host.answer_seconds = IMPATIENT
    # Those who asked are still there; there are not more of them each time.
    for _ in range(20):
        with pytest.raises(Unavailable):
            host.guest("web1")
    assert sum(thread.name == "asks for web1" for thread in threading.enumerate()) <= 8


def test_a_connection_is_opened_once_for_all_who_ask(host, monkeypatch):
    host, connection = host
    connection.domains = [Domain(1)]
    opened, go_on = [], threading.Event()

    def slowly(_uri):
        opened.append(1)
        go_on.wait(0.1)
        return connection

    monkeypatch.setattr(libvirt, "open", slowly)
    answers = [beside(lambda: host.guest("web1")) for _ in range(4)]
    assert {answer.result(SECONDS).name for answer in answers} == {"web1"}
    assert len(opened) == 1


def test_a_connection_that_another_has_replaced_is_not_dropped(host, monkeypatch):
    """Two find the old one broken; the slower of them must not take the new one away."""
    host, old = host
    old.domains = [Domain(1)]
    host.refresh()
    new = Connection(Domain(1))
    monkeypatch.setattr(libvirt, "open", lambda _uri: new)

    def meanwhile():
        old.isAlive = lambda: 0
        host.lost(libvirt.libvirtError("broken"))
        host.refresh()
        return 0

    old.isAlive = meanwhile
    host.lost(libvirt.libvirtError("broken"))
    assert host.open() is new
    assert names(host) == ["web1"]


class Closing(Connection):
    """Tells when it is closed, by whom ever: at the latest with its last user."""

    def __init__(self, *domains):
        super().__init__(*domains)
        self.closed = threading.Event()

    def close(self):
        self.closed.set()

    def __del__(self):
        self.close()


@pytest.mark.parametrize("end", ["lost", "closed"])
def test_a_connection_is_not_closed_under_a_call(host, stuck, monkeypatch, end):
    """libvirt would free what the call works with, or wait for it."""
    host, _connection = host
    used = Closing()
    closed, used.isAlive = used.closed, lambda: 0
    used.getAllDomainStats = lambda *_wanted: stuck() and []
    opened = [used]
    monkeypatch.setattr(libvirt, "open", lambda _uri: opened.pop())
    del used
    polling = beside(host.refresh)
    assert stuck.begun.wait(SECONDS)
    ends = {"lost": lambda: host.lost(libvirt.libvirtError("broken")), "closed": host.close}
    ends[end]()
    assert not host.connection()["connected"]
    assert not closed.is_set()
    stuck.let_go.set()
    polling.result(SECONDS)
    assert closed.wait(SECONDS)


def test_a_question_that_found_no_thread_leaves_its_place_to_others(host, monkeypatch):
    host, connection = host
    connection.domains = [Domain(1)]
    with monkeypatch.context() as full:

        def start(_thread):
            raise RuntimeError("can't start new thread")

        full.setattr(threading.Thread, "start", start)
        host.answer_seconds = IMPATIENT
        for _ in range(MOST_QUESTIONS):
            with pytest.raises(RuntimeError):
                host.guest("web1")
    assert host.guest("web1").name == "web1"


def test_a_domain_that_cannot_be_read_is_not_called_missing(host):
    host, connection = host
    connection.domains = [Domain(1)]
    connection.domains[0].fails = "cannot acquire state change lock"
    with pytest.raises(Unavailable, match="cannot acquire state change lock"):
        host.guest("web1")

    def gone(_flags):
        raise Gone("Domain not found")

    connection.domains[0].XMLDesc = gone
    with pytest.raises(NotFound):
        host.guest("web1")
