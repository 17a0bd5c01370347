# SPDX-License-Identifier: GPL-2.0-or-later
"""Restarts that take long, fail, or outlive sluiced: the guest is never left off by us."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.database.tables import Base
from sluice_controller.domain.errors import Conflict, NotFound, SluiceError, Unavailable
from sluice_controller.domain.restarts import LATE_SECONDS, MAY_BE_OURS, Off, Phase, Seen
from sluice_controller.entry.daemon import API_THREADS
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
    """A store in which nothing is begun or known."""
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
    libvirt, sluiced = running(takes=20), None
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


def test_libvirt_that_goes_away_as_it_starts_the_guest_is_asked_again(store):
    libvirt = running()
    start = libvirt.start

    def dies(name):
        libvirt.start = start
        libvirt.goes_away(10)
        start(name)

    libvirt.start = dies
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(restart=True)
    assert is_attached(libvirt, sluiced)


@pytest.mark.parametrize(("takes", "goes_off"), [(100, True), (None, False)])
def test_what_libvirt_kept_open_is_finished_when_it_is_back(takes, goes_off, store):
    libvirt = running(takes)
    sluiced = Sluiced(libvirt, store)
    libvirt.at(80, lambda: libvirt.goes_away(200))
    with pytest.raises(Unavailable, match="may not be restarted yet: libvirt went away"):
        sluiced.attach(restart=True)
    with pytest.raises(Unavailable):
        sluiced.detach()
    libvirt.pass_time(200)
    with pytest.raises(Conflict, match="is still being restarted, or given back"):
        sluiced.detach()
    sluiced.goes_on(10)
    assert (is_attached if goes_off else is_as_before)(libvirt, sluiced)


def test_a_definition_whose_answer_is_lost_is_put_back(store):
    libvirt = running()
    define = libvirt.define

    def loses_the_answer(xml):
        libvirt.define = define
        define(xml)
        libvirt.goes_away(60)
        libvirt.persistent_xml(NAME)

    libvirt.define = loses_the_answer
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Unavailable):
        sluiced.attach()
    assert libvirt.xml != PLAIN
    sluiced.goes_on(70)
    assert is_as_before(libvirt, sluiced) and sluiced.begun() == []


# Guests that are slow


def too_slow(store, takes=None):
    libvirt = running(takes)
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="did not shut down within 90 s.*is started again"):
        sluiced.attach(restart=True)
    assert is_as_before(libvirt, sluiced) and sluiced.begun() == [Phase.LATE]
    return libvirt, sluiced


def test_a_guest_that_follows_the_request_late_is_started_again_as_it_was(store):
    libvirt, sluiced = too_slow(store, takes=90 + LATE_SECONDS - 5)
    sluiced.goes_on(LATE_SECONDS)
    assert libvirt.incarnation == 2 and is_as_before(libvirt, sluiced)
    assert sluiced.begun() == []
    assert sluiced.audit() == [
        ("sluiced", "start", "was switched off by our request, and started again")
    ]


def test_it_is_started_once(store):
    libvirt, sluiced = too_slow(store, takes=200)
    sluiced.goes_on(150)
    libvirt.goes_off()
    sluiced.goes_on(LATE_SECONDS)
    assert libvirt.running is None and libvirt.incarnation == 2


@pytest.mark.parametrize("off", Off)
def test_one_that_somebody_switched_off_stays_off(off, store):
    libvirt, sluiced = too_slow(store)
    libvirt.goes_off(off)
    sluiced.goes_on(30)
    assert (libvirt.running is not None) == (off in MAY_BE_OURS)
    assert sluiced.begun() == []


def test_a_request_is_too_old_in_the_end(store):
    libvirt, sluiced = too_slow(store)
    sluiced.goes_on(LATE_SECONDS + 1)
    assert sluiced.begun() == []
    libvirt.goes_off()
    sluiced.goes_on(30)
    assert libvirt.running is None


def test_one_that_its_owner_has_started_already_is_left_alone(store):
    libvirt, sluiced = too_slow(store)
    libvirt.goes_off()
    libvirt.start(NAME)
    sluiced.goes_on(30)
    assert libvirt.incarnation == 2 and sluiced.begun() == []


def test_a_host_that_was_started_anew_starts_nothing(store):
    libvirt, _sluiced = too_slow(store)
    libvirt.goes_off(Off.UNKNOWN)
    sluiced = Sluiced(libvirt, store, "boot-2")
    sluiced.goes_on(30)
    assert libvirt.running is None and sluiced.begun() == []


def test_the_watch_goes_on_beside_changes_without_a_restart(store):
    libvirt, sluiced = too_slow(store)
    sluiced.attach()
    libvirt.refuses = {"define"}
    with pytest.raises(Conflict, match="refused to define"):
        sluiced.detach()
    libvirt.refuses = set()
    assert sluiced.begun() == [Phase.LATE]
    libvirt.goes_off()
    sluiced.goes_on(30)
    assert is_attached(libvirt, sluiced)


# sluiced that ends


def killed_after(pauses: int, libvirt: Libvirt, store) -> Sluiced:
    """The next sluiced, where one was killed as it waited."""
    libvirt.pauses_until_killed = pauses
    with pytest.raises(Killed):
        Sluiced(libvirt, store).attach(restart=True)
    libvirt.pauses_until_killed = None
    return Sluiced(libvirt, store)


@pytest.mark.parametrize("takes", [20, 95])
def test_the_next_sluiced_finishes_a_restart(takes, store):
    libvirt = running(takes)
    sluiced = killed_after(10, libvirt, store)
    libvirt.pass_time(30)
    sluiced.goes_on(100)
    if takes < 90:
        assert is_attached(libvirt, sluiced)
        assert [(actor, action) for actor, action, _ in sluiced.audit()] == [("sluiced", "attach")]
    else:
        assert is_as_before(libvirt, sluiced) and libvirt.incarnation == 2


def test_a_restart_whose_guest_went_off_long_ago_is_left(store):
    libvirt = running(20)
    sluiced = killed_after(10, libvirt, store)
    libvirt.pass_time(90 + LATE_SECONDS)
    sluiced.goes_on(10)
    assert libvirt.running is None and sluiced.begun() == []


def test_the_next_sluiced_puts_back_what_was_begun_before_the_request(store):
    libvirt = running()
    define = libvirt.define

    def killed(xml):
        libvirt.define = define
        define(xml)
        raise Killed

    libvirt.define = killed
    with pytest.raises(Killed):
        Sluiced(libvirt, store).attach(restart=True)
    assert libvirt.xml != PLAIN
    sluiced = Sluiced(libvirt, store)
    sluiced.goes_on(1)
    assert is_as_before(libvirt, sluiced) and libvirt.incarnation == 1


def test_a_definition_that_was_edited_since_is_not_put_back(store):
    libvirt = running(None)
    sluiced = killed_after(10, libvirt, store)
    libvirt.xml = edited = libvirt.xml.replace("<name>", "<title>Films</title><name>")
    sluiced.goes_on(100)
    assert libvirt.xml == edited


@pytest.mark.parametrize("days", [-400, 400])
@pytest.mark.parametrize("takes", [20, 95])
def test_nobody_ends_or_prolongs_a_restart_by_setting_the_clock(takes, days, store):
    libvirt = running(takes)
    sluiced = killed_after(10, libvirt, store)
    libvirt.set_to += 86400 * days
    libvirt.pass_time(30)
    sluiced.goes_on(100)
    if takes < 90:
        assert is_attached(libvirt, sluiced)
    else:
        assert is_as_before(libvirt, sluiced) and libvirt.incarnation == 2
    with store.transaction() as unit:
        (entry,) = unit.audit(9)
    assert entry.at > 1_790_000_000.0 + 86400 * days


def test_one_that_fails_as_nobody_foresaw_leaves_no_other_switched_off(store, caplog):
    libvirt = running(20)
    killed_after(10, libvirt, store)
    with store.transaction() as unit:
        ((key, raw),) = unit.value("restarts", {}).items()
        broken = {**raw, "uuid": "uuid-0", "name": "broken"}
        unit.put_value("restarts", {"restart uuid-0": broken, key: raw})
    look = libvirt.look

    def broken_look(name):
        if name == "broken":
            raise RuntimeError("nobody foresaw this")
        return look(name)

    libvirt.look = broken_look
    sluiced = Sluiced(libvirt, store)
    sluiced.goes_on(60)
    assert is_attached(libvirt, sluiced)
    assert sluiced.begun() == [Phase.ASKED]
    assert caplog.text.count("what was begun with it waits") == 1
    # It is tried again, and comes to its end like any other.
    libvirt.look = look
    sluiced.goes_on(30)
    assert sluiced.begun() == []


def test_a_restart_from_a_time_to_come_is_bounded(store):
    """An earlier sluiced stored the time of day."""
    libvirt = running(None)
    killed_after(10, libvirt, store)
    with store.transaction() as unit:
        begun = unit.value("restarts", {})
        for raw in begun.values():
            raw["asked_at"] += 1_790_000_000.0
        unit.put_value("restarts", {**begun})
    sluiced = Sluiced(libvirt, store)
    sluiced.goes_on(80)
    assert sluiced.begun() == [Phase.ASKED]
    sluiced.goes_on(20)
    assert sluiced.begun() == [Phase.LATE] and is_as_before(libvirt, sluiced)
    sluiced.goes_on(LATE_SECONDS)
    assert sluiced.begun() == []


@pytest.mark.parametrize(("up_seconds", "put_back"), [(20, True), (90 + LATE_SECONDS + 60, False)])
def test_after_the_host_was_started_anew_only_a_fresh_change_is_undone(up_seconds, put_back, store):
    libvirt = running()
    define = libvirt.define

    def killed(xml):
        define(xml)
        raise Killed

    libvirt.define = killed
    with pytest.raises(Killed):
        Sluiced(libvirt, store).attach(restart=True)
    libvirt.define, libvirt.now = define, float(up_seconds)
    libvirt.goes_off(Off.UNKNOWN)
    sluiced = Sluiced(libvirt, store, "boot-2")
    sluiced.goes_on(1)
    assert sluiced.begun() == [] and (libvirt.xml == PLAIN) == put_back


def test_what_another_version_began_does_not_stop_this_one(store):
    with store.transaction() as unit:
        unit.put_value("restarts", {"restart uuid-1": {"phase": "sideways"}, "x": {}})
    libvirt = running()
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(restart=True)
    assert is_attached(libvirt, sluiced)


def test_a_sluiced_that_is_stopped_says_so(store):
    libvirt = running(50)
    sluiced = Sluiced(libvirt, store)
    sluiced.restarts.pause = lambda seconds: True
    with pytest.raises(Unavailable, match="sluiced is being stopped"):
        sluiced.attach(restart=True)
    assert sluiced.begun() == [Phase.ASKED]


# What libvirt refuses


def test_a_new_definition_that_does_not_start_makes_room_for_the_old_one(store):
    libvirt = running()
    libvirt.does_not_start = {"shaper,id"}
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="refused to start"):
        sluiced.attach(restart=True)
    assert is_as_before(libvirt, sluiced) and libvirt.incarnation == 2 and sluiced.begun() == []


def test_one_that_does_not_start_either_way_is_tried_again(store):
    libvirt = running()
    libvirt.refuses = {"start"}
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="refused to start"):
        sluiced.attach(restart=True)
    assert libvirt.running is None and libvirt.xml == PLAIN
    with pytest.raises(Conflict, match="is still being restarted"):
        sluiced.attach()
    libvirt.refuses = set()
    sluiced.goes_on(10)
    assert is_as_before(libvirt, sluiced)


def test_a_guest_that_may_not_be_asked_is_left_as_it_was(store):
    libvirt = running()
    libvirt.refuses = {"shut down"}
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="refused to shut down"):
        sluiced.attach(restart=True)
    assert is_as_before(libvirt, sluiced) and sluiced.begun() == [] and sluiced.audit() == []


@pytest.mark.parametrize("off", [Off.SAVED, Off.MOVED])
def test_a_domain_that_was_saved_or_moved_is_not_started(off, store):
    libvirt = running(None)
    libvirt.at(5, lambda: libvirt.goes_off(off))
    sluiced = Sluiced(libvirt, store)
    with pytest.raises(Conflict, match="was saved, moved or undefined"):
        sluiced.attach(restart=True)
    assert libvirt.running is None and libvirt.xml == PLAIN and sluiced.begun() == []


@pytest.mark.parametrize("off", [Off.DESTROYED, Off.CRASHED])
def test_a_restart_may_be_helped_along(off, store):
    libvirt = running(None)
    libvirt.at(5, lambda: libvirt.goes_off(off))
    sluiced = Sluiced(libvirt, store)
    sluiced.attach(restart=True)
    assert is_attached(libvirt, sluiced)


def test_a_domain_that_vanishes_is_forgotten(store):
    libvirt = running(None)
    libvirt.at(5, lambda: setattr(libvirt, "undefined", True))
    sluiced = Sluiced(libvirt, store)
    with pytest.raises((Conflict, NotFound)):
        sluiced.attach(restart=True)
    assert sluiced.begun() == []


# A definition of before that libvirt does not take any more


def not_undone(store, takes=None):
    """A guest that did not shut down in time, while libvirt refuses what it ran with."""
    libvirt = running(takes)
    sluiced = Sluiced(libvirt, store)
    offered, define = [], libvirt.define

    def refuses_the_old(xml):
        if xml == PLAIN:
            offered.append(libvirt.now)
            raise Conflict("domain", NAME, "cannot be changed: refused to define", "correct it")
        define(xml)

    libvirt.define = refuses_the_old
    with pytest.raises(Conflict, match="refused to define"):
        sluiced.attach(restart=True)
    return libvirt, sluiced, offered


def test_a_definition_that_cannot_be_put_back_is_offered_ever_less_often(store, caplog):
    libvirt, sluiced, offered = not_undone(store)
    sluiced.goes_on(3600)
    waits = [round(after - before) for before, after in pairwise(offered[1:])]
    assert waits[:4] == [5, 10, 20, 40] and max(waits) == 300
    (said,) = sluiced.audit()
    assert said[:2] == ("sluiced", "attach not undone") and "'sluice detach web1'" in said[2]
    assert caplog.text.count("cannot be put back") == 1
    libvirt.define = lambda xml: Libvirt.define(libvirt, xml)
    sluiced.goes_on(301)
    assert is_as_before(libvirt, sluiced) and sluiced.begun() == []


def test_a_guest_that_goes_off_while_libvirt_refuses_is_started_at_once(store):
    libvirt, sluiced, _offered = not_undone(store)
    sluiced.goes_on(500)
    libvirt.goes_off(Off.DESTROYED)
    sluiced.goes_on(6)
    assert libvirt.running == libvirt.xml == attached()


@pytest.mark.parametrize("restart", [False, True])
def test_what_cannot_be_undone_is_left_behind_by_the_next_change(store, restart):
    libvirt, sluiced, _offered = not_undone(store)
    sluiced.goes_on(1)
    libvirt.takes = 5
    libvirt.emulator = "/opt/qemu-2"
    sluiced.attach(upgrade=True, restart=restart)
    newest = attached(emulator="/opt/qemu-2")
    assert libvirt.xml == newest and sluiced.record()["attached"] == newest
    assert libvirt.running == (newest if restart else PLAIN)
    sluiced.goes_on(2 * LATE_SECONDS)
    assert libvirt.xml == newest and sluiced.begun() == []


def test_what_cannot_be_undone_may_be_asked_for_again(store):
    """The very definition that was not to be: it is not taken away afterwards."""
    libvirt, sluiced, _offered = not_undone(store)
    sluiced.goes_on(1)
    libvirt.takes = 5
    sluiced.attach(restart=True)
    libvirt.define = lambda xml: Libvirt.define(libvirt, xml)
    sluiced.goes_on(2 * LATE_SECONDS)
    assert is_attached(libvirt, sluiced) and sluiced.begun() == []


def test_a_refused_change_on_top_of_one_that_cannot_be_undone_loses_no_guest(store):
    libvirt, sluiced, _offered = not_undone(store)
    sluiced.goes_on(1)
    with pytest.raises(Conflict, match="refused to define"):
        sluiced.detach()
    assert sluiced.begun() == [Phase.LATE]
    libvirt.goes_off()
    sluiced.goes_on(10)
    assert is_attached(libvirt, sluiced) and sluiced.begun() == []


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
    takes=st.one_of(st.none(), st.floats(0.5, 500)),
    seconds=st.integers(1, 120),
    outages=OUTAGES,
    pauses=st.one_of(st.none(), st.integers(0, 200)),
    down_for=st.floats(0, 60),
    does_not_start=st.booleans(),
    anew=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_guest_that_ran_runs_again_with_one_definition_or_the_other(
    database, takes, seconds, outages, pauses, down_for, does_not_start, anew
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
    sluiced = Sluiced(libvirt, database)
    try:
        sluiced.attach(restart=True, upgrade=anew, shutdown_seconds=seconds)
        succeeded = True
    except Killed:
        succeeded = None
    except SluiceError:
        succeeded = False
    libvirt.pauses_until_killed = None
    if succeeded is None:
        libvirt.pass_time(down_for)
        sluiced = Sluiced(libvirt, database)
    sluiced.goes_on(seconds + 2 * LATE_SECONDS)
    new = attached(emulator="/opt/qemu-2")
    assert libvirt.running == libvirt.xml
    assert libvirt.xml in (before, new)
    if succeeded is not None and not outages:
        assert (libvirt.xml == new) == succeeded
    assert sluiced.restarts._known == {}
