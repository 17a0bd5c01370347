# SPDX-License-Identifier: GPL-2.0-or-later
"""Restarts that take long, fail or are cut off: one definition or the other, and all is said."""

import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database.tables import Base
from sluice_controller.domain.errors import Conflict, SluiceError, Unavailable
from sluice_controller.domain.guests import Off, Seen
from sluice_controller.entry.api.pools import API_THREADS
from sluice_controller.services.locks import DomainLocks
from sluice_controller.services.restarts import MOST_RESTARTS, Change
from unit.controller.libvirt_model import NAME, PLAIN, Killed, Libvirt, Sluiced, attached


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    store = SqlStore(f"sqlite:///{tmp_path_factory.mktemp('restarts') / 'sluice.db'}")
    yield store
    store.close()


@pytest.fixture
def store(database):
    """A store in which nothing is known."""
    emptied(database)
    return database


def emptied(store):
    with store.engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())


def running(takes: float | None = 1) -> Libvirt:
    return Libvirt(PLAIN, PLAIN, takes)


def is_as_before(libvirt: Libvirt, sluiced: Sluiced) -> bool:
    return (libvirt.xml, libvirt.running, sluiced.record()) == (PLAIN, PLAIN, None)


def is_attached(libvirt: Libvirt, sluiced: Sluiced) -> bool:
    return libvirt.xml == libvirt.running == attached() and (
        sluiced.record()["original"] == PLAIN and sluiced.record()["attached"] == libvirt.xml
    )


# libvirt that is away


@pytest.mark.parametrize("moment", ["before it is off", "while it goes off", "before it is asked"])
def test_libvirt_may_be_away_while_it_is_waited_for(moment, store):
    libvirt = running(takes=20)
    sluiced = Sluiced(libvirt, store)
    if moment == "before it is asked":
        ask = libvirt.ask_to_shut_down

        def away_at_first(name):
            libvirt.ask_to_shut_down = ask
            libvirt.goes_away(10)
            ask(name)

        libvirt.ask_to_shut_down = away_at_first
    else:
        libvirt.at(5 if moment == "before it is off" else 15, lambda: libvirt.goes_away(10))
    answer = sluiced.attach(restart=True)
    assert answer["active"] and is_attached(libvirt, sluiced)
    assert libvirt.calls == ["define", "shut down", "start"]


def test_libvirt_that_stays_away_leaves_the_new_definition_and_says_so(store):
    libvirt = running(100)
    sluiced = Sluiced(libvirt, store)
    libvirt.at(80, lambda: libvirt.goes_away(200))
    with pytest.raises(Unavailable) as refusal:
        sluiced.attach(restart=True)
    for words in (
        "may not be restarted: libvirt went away",
        "start it if it is off",
        "could not be put back",
        "the new one counts from its next start",
    ):
        assert words in str(refusal.value)
    libvirt.pass_time(200)
    # Nothing stands in the way of the next request.
    sluiced.detach()
    assert libvirt.xml == PLAIN


def test_a_definition_whose_answer_is_lost_is_put_back(store):
    libvirt = running()
    define = libvirt.define

    def loses_the_answer(xml):
        libvirt.define = define
        define(xml)
        raise Unavailable("domain", NAME, "does not answer", "try again")

    libvirt.define = loses_the_answer
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Unavailable):
        sluiced.attach()
    assert is_as_before(libvirt, sluiced) and sluiced.audit() == []


def test_a_start_whose_answer_is_lost_is_a_start(store):
    libvirt = running()
    start = libvirt.start

    def loses_the_answer(name):
        start(name)
        raise Unavailable("domain", NAME, "does not answer", "try again")

    libvirt.start = loses_the_answer
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(restart=True)
    assert is_attached(libvirt, sluiced)


# Guests that are slow


def test_a_guest_that_is_too_slow_is_left_as_it_was(store):
    libvirt = running(takes=100)
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict) as refusal:
        sluiced.attach(restart=True)
    assert str(refusal.value) == (
        "domain 'web1' did not shut down within 90 s: give it longer with shutdown_seconds, or"
        " repeat without restart and restart it later; it runs on, its definition is as before,"
        " and a guest that shuts down later stays off"
    )
    assert is_as_before(libvirt, sluiced) and sluiced.audit() == []
    libvirt.pass_time(3600)
    assert libvirt.running is None


def test_a_definition_that_was_edited_meanwhile_is_not_put_back(store):
    libvirt = running(None)
    edited = attached().replace("<name>", "<title>Films</title><name>")
    libvirt.at(5, lambda: setattr(libvirt, "xml", edited))
    with pytest.raises(Conflict, match="was changed meanwhile, and stays so"):
        Sluiced(libvirt, store).attach(restart=True)
    assert libvirt.xml == edited


def test_a_definition_that_libvirt_does_not_take_back_is_named(store):
    libvirt = running(None)
    define = libvirt.define

    def refuses_the_old(xml):
        if xml == PLAIN:
            raise Conflict("domain", NAME, "cannot be changed: refused to define", "correct it")
        define(xml)

    libvirt.define = refuses_the_old
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match=r"did not shut down.*could not be put back \(cannot be"):
        sluiced.attach(restart=True)
    # The record goes with the definition that is there.
    assert sluiced.record()["attached"] == libvirt.xml == attached()


# sluiced that ends


def test_a_sluiced_that_is_stopped_says_so(store):
    libvirt = running(50)
    sluiced = Sluiced(libvirt, store)
    sluiced.restarts.pause = lambda seconds: True
    with pytest.raises(Unavailable, match="sluiced is being stopped.*from its next start"):
        sluiced.attach(restart=True)
    assert libvirt.xml == attached()


@pytest.mark.parametrize("moment", ["as it defines", "before its record", "as it waits"])
def test_a_kill_leaves_one_definition_or_the_other(moment, store):
    libvirt = running(20)
    sluiced = Sluiced(libvirt, store)

    def killed(*_arguments):
        raise Killed

    if moment == "as it defines":
        libvirt.define = killed
    elif moment == "before its record":
        define = libvirt.define

        def define_alone(xml):
            define(xml)
            libvirt.persistent_xml = killed

        libvirt.define = define_alone
    else:
        libvirt.pauses_until_killed = 10
    with pytest.raises(Killed):
        sluiced.attach(restart=True)
    assert libvirt.xml == (PLAIN if moment == "as it defines" else attached())
    # The next sluiced knows what to do with either.
    for name in ("define", "persistent_xml"):
        vars(libvirt).pop(name, None)
    libvirt.pauses_until_killed = None
    sluiced = Sluiced(libvirt, store)
    if libvirt.xml == PLAIN:
        sluiced.attach()
    sluiced.detach()
    assert "".join(libvirt.xml.split()).replace('"', "'") == "".join(PLAIN.split())


# What libvirt refuses


def test_a_new_definition_that_does_not_start_makes_room_for_the_old_one(store):
    libvirt = running()
    libvirt.does_not_start = {"shaper,id"}
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="refused to start.*is as before, and it runs with that"):
        sluiced.attach(restart=True)
    assert is_as_before(libvirt, sluiced) and libvirt.incarnation == 2 and sluiced.audit() == []


def test_one_that_does_not_start_either_way_is_named(store):
    libvirt = running()
    libvirt.refuses = {"start"}
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="refused to start.*it is off: virsh start web1"):
        sluiced.attach(restart=True)
    assert libvirt.running is None and libvirt.xml == PLAIN
    libvirt.refuses = set()
    sluiced.attach()
    assert libvirt.xml == attached()


def test_a_guest_that_may_not_be_asked_is_left_as_it_was(store):
    libvirt = running()
    libvirt.refuses = {"shut down"}
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="refused to shut down"):
        sluiced.attach(restart=True)
    assert is_as_before(libvirt, sluiced) and sluiced.audit() == []


@pytest.mark.parametrize("off", [Off.SAVED, Off.MOVED])
def test_a_domain_that_was_saved_or_moved_is_not_started(off, store):
    libvirt = running(None)
    libvirt.at(5, lambda: libvirt.goes_off(off))
    with pytest.raises(Conflict, match="was saved, moved or undefined"):
        Sluiced(libvirt, store).attach(restart=True)
    assert libvirt.running is None and libvirt.xml == PLAIN


@pytest.mark.parametrize("off", [Off.DESTROYED, Off.CRASHED])
def test_a_restart_may_be_helped_along(off, store):
    libvirt = running(None)
    libvirt.at(5, lambda: libvirt.goes_off(off))
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(restart=True)
    assert is_attached(libvirt, sluiced)


def test_one_that_somebody_else_has_started_anew_is_restarted(store):
    libvirt = running(None)

    def owner_restarts_it():
        libvirt.goes_off()
        libvirt.start(NAME)

    libvirt.at(5, owner_restarts_it)
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(restart=True)
    assert is_attached(libvirt, sluiced) and libvirt.incarnation == 2


def test_a_domain_that_vanishes_is_named(store):
    libvirt = running(None)
    libvirt.at(5, lambda: setattr(libvirt, "undefined", True))
    with pytest.raises(Conflict, match="was saved, moved or undefined"):
        Sluiced(libvirt, store).attach(restart=True)


# Several at a time


def test_the_second_change_of_a_domain_is_refused_at_once(store):
    libvirt = running(20)
    sluiced = Sluiced(libvirt, store)
    refusals = []

    def second():
        for change in (sluiced.attach, sluiced.detach):
            try:
                change()
            except Conflict as error:
                refusals.append(str(error))

    libvirt.at(5, second)
    sluiced.attach(restart=True)
    words = "domain 'web1' is being attached, detached or restarted: wait until that is over"
    assert len(refusals) == 2 and all(words in refusal for refusal in refusals)
    assert is_attached(libvirt, sluiced)


def test_locks_of_two_domains_are_apart():
    locks = DomainLocks(seconds=0.0)
    with locks.changing("web1"), locks.changing("web2"):
        pass
    with locks.of("web1"), pytest.raises(Conflict, match="web1"), locks.changing("web1"):
        pass
    with locks.changing("web1"):
        assert not locks.of("web1").acquire(blocking=False)


def test_restarts_that_wait_leave_threads_of_the_api(store):
    assert MOST_RESTARTS <= API_THREADS // 2
    libvirt = running(None)
    sluiced = Sluiced(libvirt, store)
    may_end, waiting = threading.Event(), threading.Barrier(MOST_RESTARTS + 1)
    guest = libvirt.guest(NAME)

    def pause(_seconds):
        waiting.wait(60)
        return may_end.wait(60)

    def restart(number):
        one = replace(guest, name=f"g{number}", uuid=f"u{number}")
        with pytest.raises(SluiceError):
            sluiced.restarts.run(one, Change("attach"), 90)

    sluiced.restarts.pause = pause
    libvirt.look = lambda name: Seen(f"u{name[1:]}", guest.incarnation)
    threads = [threading.Thread(target=restart, args=(n,)) for n in range(MOST_RESTARTS)]
    for thread in threads:
        thread.start()
    try:
        waiting.wait(60)
        with pytest.raises(Conflict, match="sluiced waits for 4 other guests already: try again"):
            sluiced.attach(restart=True)
        assert libvirt.xml == PLAIN
        # Without a restart nobody waits.
        sluiced.attach()
    finally:
        may_end.set()
        for thread in threads:
            thread.join(60)


# Whatever happens

MOMENTS = st.floats(0, 300).map(lambda seconds: round(seconds * 4) / 4)
OUTAGES = st.lists(st.tuples(MOMENTS, st.floats(1, 60)), max_size=2)


@given(
    takes=st.one_of(st.none(), st.floats(0.5, 200)),
    seconds=st.integers(1, 120),
    outages=OUTAGES,
    pauses=st.one_of(st.none(), st.integers(0, 200)),
    does_not_start=st.booleans(),
    anew=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_definition_is_the_one_or_the_other_and_a_guest_is_off_only_if_that_was_said(
    database, takes, seconds, outages, pauses, does_not_start, anew
):
    emptied(database)
    before = attached() if anew else PLAIN
    libvirt = Libvirt(before, before, takes)
    libvirt.emulator = "/opt/qemu-2"
    if does_not_start:
        libvirt.does_not_start = {"/opt/qemu-2"}
    for at, lasts in outages:
        libvirt.at(at, lambda lasts=lasts: libvirt.goes_away(lasts))
    libvirt.pauses_until_killed = pauses
    new = attached(emulator="/opt/qemu-2")
    said = None
    try:
        Sluiced(libvirt, database).attach(restart=True, upgrade=anew, shutdown_seconds=seconds)
    except Killed:
        said = "start it if it is off"
    except SluiceError as error:
        said = str(error)
    assert libvirt.xml in (before, new)
    if said is None:
        assert libvirt.running == libvirt.xml == new
    elif libvirt.running is None:
        assert "start it if it is off" in said or "it is off: virsh start" in said
    elif not outages and pauses is None:
        assert libvirt.running == libvirt.xml == before
