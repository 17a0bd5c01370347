# SPDX-License-Identifier: GPL-2.0-or-later
"""What is written down beside the tick, while the database does what databases do."""

import json
import sqlite3
import threading

import pytest
from sqlalchemy import event, text

from sluice_controller.adapters.database import SqlStore, sqlite
from sluice_controller.domain.errors import StoreUnavailable
from sluice_controller.domain.model import Settings
from sluice_controller.services import records as records_module
from unit.controller.test_sampler import Scene, Uptime, history

YEAR = 365 * 86400.0


@pytest.fixture
def store(tmp_path, monkeypatch):
    # Longer than any test waits for the other program.
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 60)
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}", Uptime())
    yield store
    store.close()


@pytest.fixture
def scene(store, tmp_path):
    return Scene(store, tmp_path / "media.page")


@pytest.fixture
def lock(store):
    """Another program that has the database, until it is closed."""
    database = sqlite3.connect(store.engine.url.database, isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    yield database
    database.close()


def test_a_locked_database_delays_no_tick_and_loses_nothing(scene, store, lock):
    scene.writes = False
    scene.ticks(11)
    writer = threading.Thread(target=scene.records.round)
    writer.start()
    # For longer than a tick may take; each of these would wait for the database, if it asked it.
    scene.ticks(80)
    assert scene.rate() == 1_000_000 and writer.is_alive()
    lock.close()
    writer.join()
    scene.records.round()
    assert len(history(store)) == 11


def test_what_waits_is_bounded_and_what_is_lost_is_said(scene, store, lock, monkeypatch, caplog):
    monkeypatch.setattr(records_module, "MOST_SECONDS", 3)
    bounded = scene.records._seconds = records_module._Queue(3)
    scene.writes = False
    scene.ticks(51)
    assert len(bounded) == 3
    lock.close()
    scene.records.round()
    assert len(history(store)) == 3
    said = [r.getMessage() for r in caplog.records if r.name == records_module.__name__]
    assert len(said) == 2
    assert "lost from now on" in said[0] and "4 s of history and 0 decisions are lost" in said[1]


def test_what_is_lost_while_the_writer_waits_in_vain_is_said_when_it_begins(
    scene, store, monkeypatch, caplog
):
    """Everything waits in the writer's hands, and as much comes until it gives up."""
    scene.records._seconds = records_module._Queue(3)
    # An old row is removed now, and not again for a while.
    scene.records.round()
    scene.writes = False
    scene.ticks(11)
    transaction = store.transaction

    def gives_up():
        scene.ticks(30)
        raise StoreUnavailable("database", "sqlite", "is locked", "try again")

    monkeypatch.setattr(store, "transaction", gives_up)
    scene.records.round()
    said = [r.getMessage() for r in caplog.records if r.name == records_module.__name__]
    assert len([line for line in said if "lost from now on" in line]) == 1
    monkeypatch.setattr(store, "transaction", transaction)
    scene.records.round()
    assert "3 s of history and 0 decisions are lost" in caplog.records[-1].getMessage()


def rename(store, old, new):
    with store.engine.begin() as connection:
        connection.execute(text(f'ALTER TABLE "{old}" RENAME TO "{new}"'))


@pytest.mark.parametrize("table", ["decisions", "values", "history"])
def test_what_cannot_be_written_waits_is_said_once_and_arrives(scene, store, caplog, table):
    caplog.set_level("INFO")
    scene.ticks(1)
    rename(store, table, "away")
    scene.records.add_decision(scene.now, {"sentence": "first"})
    scene.records.put_value("auto-state", {"disk": 1})
    scene.ticks(30)
    scene.records.put_value("auto-state", {"disk": 2})
    assert scene.rate() == 1_000_000
    rename(store, "away", table)
    scene.records.round()
    said = [r.getMessage() for r in caplog.records if r.name == records_module.__name__]
    assert len(said) == 2 and "nothing is lost" in said[1], said
    with store.transaction() as unit:
        assert [d["sentence"] for d in unit.decisions(0.0, 1e12, 9)] == ["first"]
        assert unit.value("auto-state", {}) == {"disk": 2}
    assert len(history(store)) == 5


def test_what_nobody_foresaw_is_lost_alone_and_said_once(scene, store, caplog):
    for _ in range(2):
        scene.records.add_decision(scene.now, {"sentence": object()})
        scene.records.put_value("auto-state", {"disk": 1})
        scene.records.round()
    scene.records.add_decision(scene.now, {"sentence": "good"})
    scene.records.round()
    assert len([r for r in caplog.records if r.exc_info]) == 1
    assert "2 decisions are lost" in caplog.records[-1].getMessage()
    with store.transaction() as unit:
        assert [d["sentence"] for d in unit.decisions(0.0, 1e12, 9)] == ["good"]
        assert unit.value("auto-state", None) == {"disk": 1}


def test_a_value_that_cannot_be_written_keeps_nothing_else_from_it(scene, store, caplog):
    scene.records.put_value("auto-state", {"disk": object()})
    scene.records.round()
    assert caplog.records[-1].exc_info
    scene.records.add_decision(scene.now, {"sentence": "good"})
    scene.records.put_value("auto-state", {"disk": object()})
    scene.records.round()
    assert "not kept for the next start: auto-state" in caplog.records[-1].getMessage()
    scene.records.add_decision(scene.now, {"sentence": "better"})
    scene.records.round()
    with store.transaction() as unit:
        assert [d["sentence"] for d in unit.decisions(0.0, 1e12, 9)] == ["better"]


def test_on_a_full_disk_sampling_goes_on_and_history_waits(scene, store):
    scene.ticks(1)

    @event.listens_for(store.engine, "before_cursor_execute")
    def full(connection, cursor, statement, *_):
        if statement.startswith("BEGIN"):
            cursor.execute("PRAGMA max_page_count = 1")

    before = len(history(store))
    scene.records.add_decision(scene.now, {"sentence": "more than there is room for" * 4000})
    scene.ticks(300)
    assert scene.rate() == 1_000_000
    assert len(history(store)) == before
    event.remove(store.engine, "before_cursor_execute", full)
    # Connections that know of the limit.
    store.engine.dispose()
    scene.records.round()
    assert len(history(store)) >= before + 30


# The host's clock


def test_a_clock_that_is_wrong_for_a_while_costs_nothing_that_was_right(scene, store):
    """A year ahead for 40 minutes, then right; a look at all of it now and then."""
    for _ in range(15):
        scene.pass_time(60)
    right = {row.at for row in history(store)}
    scene.now += YEAR
    for _ in range(40):
        scene.pass_time(60)
    scene.now -= YEAR
    scene.pass_time(60)
    assert right <= {row.at for row in history(store)}
    shown = scene.records.history("media", 0.0, 1.0)["at"]
    # Rows that were right before, and those of now: none of next year.
    assert shown[0] == pytest.approx(min(right), abs=1.0)
    assert shown[-1] == pytest.approx(scene.now, abs=1.0)
    assert len(shown) == len(right) + 1
    for _ in range(61):
        scene.pass_time(60)
    assert max(row.at for row in history(store)) <= scene.now


def test_history_is_cleared_of_what_is_old_after_the_clock_was_set_back(scene, store):
    scene.ticks(1)
    scene.now -= 7 * 86400
    for _ in range(62):
        scene.pass_time(60)
    assert all(row.at <= scene.now for row in history(store))


# Long histories

ROWS_AT_ONCE, POINTS = 1000, 2000


@pytest.fixture
def rows_read(store):
    """The rows of history that each unit of work has read."""
    found = []

    def deserialize(raw):
        found[-1] += 1
        return json.loads(raw)

    store.engine.dialect._json_deserializer = deserialize
    event.listen(store.engine, "begin", lambda connection: found.append(0))
    return found


def keep(scene, store, seconds):
    with store.transaction() as unit:
        unit.put_settings(Settings(history_seconds=seconds))
    scene.declared.fresh()


@pytest.mark.parametrize(("step", "most"), [(1.0, POINTS + ROWS_AT_ONCE), (60.0, 5000)])
def test_a_question_reads_no_more_than_it_answers_and_a_slice_at_a_time(
    scene, store, rows_read, step, most
):
    scene.now = 4999.0
    keep(scene, store, 4000)
    with store.transaction() as unit:
        unit.add_history([(at, "media", {"batch/blk-read": [at, 5, 0, 1]}) for at in range(5000)])
    rows_read.clear()
    answer = scene.records.history("media", 0.0, step)
    assert sum(rows_read) <= most and max(rows_read) <= ROWS_AT_ONCE
    assert answer["at"][-1] == 4999 // step * step
    assert answer["at"][0] == (3000.0 if step == 1.0 else 999 // step * step)


def test_a_question_about_a_month_reads_as_many_rows_as_one_about_an_hour(
    scene, store, rows_read, monkeypatch
):
    monkeypatch.setattr("sluice_controller.domain.history.MOST_ROWS", 40)
    scene.now = 4000.0
    keep(scene, store, 4000)
    with store.transaction() as unit:
        unit.add_history([(at, "media", {"batch/blk-read": [7, 5, 0, 1]}) for at in range(4000)])
    rows_read.clear()
    answer = scene.records.history("media", 0.0, 500.0)
    assert sum(rows_read) == 40
    assert answer["at"] == [500.0 * n for n in range(8)]
    assert set(answer["series"]["batch/blk-read/bytes_per_second"]) == {7}
