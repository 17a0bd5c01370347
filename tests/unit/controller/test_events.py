# SPDX-License-Identifier: GPL-2.0-or-later
"""Events: ids, gaps, filters and places to begin; events of changes and of what holds."""

import json
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import BadValue, Unavailable
from sluice_controller.domain.events import (
    GAP,
    LONGEST_SENTENCE,
    QUIET_S,
    Begin,
    Board,
    Event,
    Ring,
    Standing,
    Subject,
    Wanted,
    not_in_force,
    of_changes,
    of_decision,
)
from sluice_controller.domain.model import AuditEntry
from sluice_controller.domain.tuner_types import Change
from sluice_controller.entry.api.event_stream import SILENCE_SECONDS, EventStream, written
from sluice_controller.entry.cli.events import parsed
from sluice_controller.services.events import BATCH, MOST_READERS, Events

BEGAN = 1000.0
FIRST = 1_000_000_000
ALL = Wanted()


def event(at=BEGAN, kind="gate on", *domains):
    return Event(at, kind, f"{kind} at {at}", Subject(domains))


def ring(count, most=4):
    found = Ring(BEGAN, most)
    for i in range(count):
        found.add(event(BEGAN + i))
    return found


def ids(found):
    return [one.id - FIRST for one in found]


# The ring


def test_events_are_numbered_from_the_start_of_the_run():
    assert ids(ring(3).after(FIRST, 9, BEGAN)) == [1, 2, 3]


def test_a_later_run_has_higher_ids_even_within_the_same_second():
    first, second = ring(999), Ring(BEGAN + 0.001)
    assert second.first >= first.newest


def test_a_reader_that_is_too_slow_gets_the_number_of_lost_events_once():
    found = ring(7, most=4).after(FIRST + 1, 9, 5.0)
    gap = found[0]
    assert (gap.kind, gap.lost, gap.id - FIRST, gap.at) == (GAP, 2, 3, 5.0)
    assert ids(found[1:]) == [4, 5, 6, 7]
    assert "2 events are lost" in gap.sentence
    assert "1 event is lost" in ring(6, most=4).after(FIRST + 1, 9, 5.0)[0].sentence


@pytest.mark.parametrize("cursor", [FIRST - 1, FIRST + 8, 0, 2**53 - 1])
def test_a_cursor_of_another_run_gives_a_gap_of_unknown_size_and_all_that_is_kept(cursor):
    found = ring(7, most=4).after(cursor, 9, BEGAN)
    assert (found[0].kind, found[0].lost) == (GAP, None)
    assert ids(found) == [3, 4, 5, 6, 7]


def test_a_reader_from_before_a_restart_hears_of_it_before_anything_happened():
    fresh = Ring(BEGAN)
    (gap,) = fresh.after(FIRST - 5, 9, BEGAN)
    assert gap.lost is None and gap.id == fresh.newest
    assert fresh.after(gap.id, 9, BEGAN) == []


STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 9)),
    st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("resume"), st.integers(0, 2)),
)


@given(st.lists(STEP, max_size=60), st.integers(1, 6))
def test_any_readers_ids_rise_and_its_gaps_add_up(steps, most):
    """Also of readers that lose what they hold and come back with the id of what they saw."""
    found = Ring(BEGAN, most)
    cursors, seen = [FIRST] * 3, [[] for _ in range(3)]
    for kind, who, *more in steps:
        if kind == "add":
            for _ in range(who):
                found.add(event())
        elif kind == "read":
            batch = found.after(cursors[who], more[0], BEGAN)
            seen[who] += batch
            cursors[who] = batch[-1].id if batch else cursors[who]
        else:
            last = seen[who][-1].id if seen[who] else FIRST
            cursors[who] = found.cursor(Begin(after=last), ALL)
    for events in seen:
        last = FIRST
        for one in events:
            assert one.id - last == (one.lost if one.kind == GAP else 1) > 0
            last = one.id


@given(st.lists(STEP, max_size=60), st.integers(1, 6), st.sampled_from(["gate", "stream", None]))
def test_a_filtered_reader_gets_of_what_it_wants_all_that_an_unfiltered_one_gets(steps, most, kind):
    events = Events(lambda: BEGAN, Ring(BEGAN, most))
    plain, chosen = events.reader(Begin(), ALL), events.reader(Begin(), Wanted(kind=kind))
    got = [], []
    for i, (step, count, *_) in enumerate(steps):
        if step == "add":
            for _ in range(count):
                events.add(event(BEGAN, ["gate on", "stream poor"][i % 2]))
        else:
            for reader, into in zip((plain, chosen), got, strict=True):
                into += reader.next(0.0)
    wanted = [one for one in got[0] if one.kind == GAP or Wanted(kind=kind).takes(one)]
    assert got[1] == wanted and plain.cursor == chosen.cursor


# Where a reader begins


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (Begin(), []),
        (Begin(newest=2), [6, 7]),
        # Fewer are there, and no more were asked for: nothing is lost.
        (Begin(newest=99), [4, 5, 6, 7]),
        (Begin(after=FIRST + 5), [6, 7]),
        (Begin(after=FIRST + 5, newest=1), [7]),
        (Begin(after=FIRST + 1), [GAP, 4, 5, 6, 7]),
        (Begin(after=FIRST + 1, newest=1), [7]),
        (Begin(after=1, newest=9), [GAP, 4, 5, 6, 7]),
        (Begin(since=BEGAN + 5), [6, 7]),
        (Begin(since=BEGAN + 99), []),
        (Begin(since=BEGAN + 1), [GAP, 4, 5, 6, 7]),
        (Begin(since=0), [GAP, 4, 5, 6, 7]),
    ],
)
def test_where_a_reader_begins(begin, expected):
    found = ring(7, most=4)
    read = found.after(found.cursor(begin, ALL), 9, BEGAN)
    assert [GAP if one.kind == GAP else one.id - FIRST for one in read] == expected


def test_since_a_time_within_the_run_nothing_is_lost_while_all_is_kept():
    found = ring(3)
    assert ids(found.after(found.cursor(Begin(since=BEGAN), ALL), 9, BEGAN)) == [1, 2, 3]


def test_the_newest_are_those_of_the_filter():
    events = Events(lambda: BEGAN, Ring(BEGAN))
    for i in range(10):
        events.add(event(BEGAN, "gate on", "media" if i % 5 == 0 else "web1"))
    assert ids(events.read(Begin(newest=2), Wanted("media"))) == [1, 6]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("gate", True), ("gate on", True), ("gate o", False), ("ga", False), ("gate on x", False)],
)
def test_a_kind_is_wanted_by_its_first_words(kind, expected):
    assert Wanted(kind=kind).takes(event(BEGAN, "gate on")) is expected


# Readers


def test_a_reader_waits_for_the_next_event_and_ends_with_sluiced():
    events = Events(lambda: BEGAN)
    reader = events.reader(Begin(), ALL)
    got = []
    thread = threading.Thread(target=lambda: got.append(reader.next(60.0)))
    thread.start()
    events.add(event())
    thread.join(60)
    assert [len(one) for one in got] == [1]
    thread = threading.Thread(target=lambda: got.append(reader.next(60.0)))
    thread.start()
    events.close()
    thread.join(60)
    assert reader.is_over and got[1] == []


def test_a_reader_that_never_reads_costs_the_teller_nothing():
    events = Events(lambda: BEGAN, Ring(BEGAN, 10))
    reader = events.reader(Begin(), ALL)
    for _ in range(10_000):
        events.add(event())
    assert len(events._ring._events) == 10
    assert reader.next(0.0)[0].lost == 9990


def test_a_reader_far_behind_gets_its_events_in_parts():
    events = Events(lambda: BEGAN)
    reader = events.reader(Begin(), ALL)
    for _ in range(BATCH + 1):
        events.add(event())
    assert [len(reader.next(0.0)) for _ in range(3)] == [BATCH, 1, 0]


def test_one_reader_too_many_is_told_so_and_a_closed_one_makes_room_once():
    events = Events(lambda: BEGAN)
    readers = [events.reader(Begin(), ALL) for _ in range(MOST_READERS)]
    with pytest.raises(Unavailable, match=f"{MOST_READERS} are open"):
        events.reader(Begin(), ALL)
    for _ in range(2):
        readers[0].close()
    events.reader(Begin(), ALL)
    with pytest.raises(Unavailable):
        events.reader(Begin(), ALL)


# The text of a stream


def test_the_text_of_an_event_and_of_a_gap():
    one = replace(event(BEGAN, "gate on", "media"), id=7)
    name, data = written(one).splitlines()[:2]
    assert name == "id: 7"
    assert json.loads(data.removeprefix("data: "))["subject"]["domains"] == ["media"]
    assert written(replace(one, kind=GAP)).startswith("event: gap\nid: 7\n")
    # A sentence with a line of its own cannot end the event.
    assert "\n" not in written(replace(one, sentence="a\n\nb")).splitlines()[1]


def test_a_quiet_stream_shows_that_it_is_there_and_how_far_it_is():
    now = [0.0]
    events = Events(lambda: BEGAN)
    stream = EventStream(events.reader(Begin(), Wanted(kind="gate")), lambda: now[0])
    stream._reader.next = lambda _seconds: now.__setitem__(0, now[0] + SILENCE_SECONDS) or []
    text = stream.text(lambda: now[0] > 2 * SILENCE_SECONDS)
    assert next(text) == f"retry: 1000\nid: {FIRST}\n\n"
    assert [*text] == [f": still here\nid: {FIRST}\n\n"] * 3
    stream.close()
    assert events._readers == 0


# Events of changes


def test_a_change_is_an_event_once_it_is_stored(tmp_path):
    store, heard = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}"), []
    store.heard = heard.append
    entry = AuditEntry(5.0, "cli", "limit", "media/batch/blk-read", None, {})
    with pytest.raises(BadValue), store.transaction() as unit:
        unit.add_audit(entry)
        raise BadValue("x", 1, "is wrong", "do not")
    assert heard == []
    with store.transaction() as unit:
        unit.add_audit(entry, Subject(("media",), "batch", "blk-read"))
        assert heard == []
    (one,) = heard
    assert (one.at, one.kind, one.sentence) == (5.0, "limit", "cli: limit media/batch/blk-read")
    assert one.subject.domains == ("media",)
    store.close()


def test_a_decision_is_an_event_of_its_reason_and_stream():
    entry = {"sentence": "Room", "stream": "film", "reason": "disk room", "dry_run": True}
    one = of_decision(5.0, entry, Subject(("media",)))
    assert (one.kind, one.sentence, one.subject.stream) == ("disk room", "(dry run) Room", "film")


def test_a_decision_is_about_the_domains_whose_limits_change_and_the_streams():
    one, other = ("web1", "batch", "net-tx"), ("web2", "default", "net-tx")
    assert of_changes([Change(one, None, 1.0)], "media") == Subject(
        ("media", "web1"), "batch", "net-tx"
    )
    both = of_changes([Change(one, None, 1.0), Change(other, None, 1.0)], None)
    assert both == Subject(("web1", "web2"))


# Events of what holds


def running(state="running"):
    return Standing(f"domain {state}", f"web1 is {state}", end=("domain gone", "web1 is gone"))


def kinds(board, found, now_s):
    return [one.kind for one in board.news(found, BEGAN, now_s)]


def test_what_holds_is_told_when_it_begins_changes_and_ends():
    board, key = Board(), ("domain", "web1")
    assert kinds(board, {key: running()}, 0) == ["domain running"]
    assert kinds(board, {key: running()}, 1) == []
    assert kinds(board, {key: running("paused")}, 2) == ["domain paused"]
    assert kinds(board, {}, 3) == ["domain gone"]
    assert kinds(board, {}, 4) == []


def test_another_figure_in_a_reason_is_no_news_and_another_reason_is():
    board, key = Board(), ("gate", "web1")
    assert kinds(board, {key: not_in_force("silent for 3.5 s")}, 0) == ["not in force"]
    assert kinds(board, {key: not_in_force("silent for 12 s")}, 100) == []
    assert kinds(board, {key: not_in_force("it refuses")}, 200) == ["not in force"]
    (over,) = board.news({}, BEGAN, 300)
    assert (over.kind, over.sentence) == ("in force", "no longer so: it refuses")


def test_reasons_that_change_all_the_time_are_told_now_and_then():
    board, key, told = Board(), ("gate", "web1"), 0
    words = [not_in_force(f"refusal {chr(65 + i % 26)}") for i in range(100)]
    for second, one in enumerate(words):
        told += len(board.news({key: one} if second % 2 else {}, BEGAN, float(second)))
    assert 0 < told <= 100 / QUIET_S + 1
    # A state that lasts is told in the end.
    assert kinds(board, {key: not_in_force("it is away")}, 200) == ["not in force"]


def test_a_verdicts_reason_alone_is_no_news():
    board, key = Board(), ("stream", "film")
    assert kinds(board, {key: Standing("stream perfect", "film: perfect, a")}, 0)
    assert not kinds(board, {key: Standing("stream perfect", "film: perfect, b")}, 1)
    assert kinds(board, {key: Standing("stream poor", "film: poor, c")}, 2) == ["stream poor"]
    # That a stream is not declared any more is told as the change that it is.
    assert not kinds(board, {}, 3)


def test_a_reason_of_any_length_is_kept_at_a_length_that_can_be_read():
    """A QEMU that its guest has taken over chooses the text of its refusals."""
    long = "x" * 10_000_000
    assert len(not_in_force(long).sentence) == LONGEST_SENTENCE
    found = ring(0)
    found.add(Event(BEGAN, "not in force", long))
    (kept,) = found.after(FIRST, 9, BEGAN)
    assert len(kept.sentence) == LONGEST_SENTENCE and kept.sentence.endswith("…")


# The command's reading


def test_the_command_reads_events_gaps_and_places():
    lines = ["retry: 1000", "id: 3", "", ": still here", "id: 5", "", "event: gap", "id: 7"]
    lines += ['data: {"lost": 2}', "", "id: 8", 'data: {"a": 1}', "", "id: 9"]
    assert [*parsed(lines)] == [("3", None), ("5", None), ("7", {"lost": 2}), ("8", {"a": 1})]
    assert [*parsed(["retry: 1000", ""])] == []
