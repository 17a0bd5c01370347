# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that end for every copy of their cookie, and stores that others change too."""

import contextlib
import sqlite3
import stat
import threading
import time

import pytest
from sqlalchemy import event

from sluice_web.app import create_app, session_key
from sluice_web.config import Config
from sluice_web.problems import Problem
from sluice_web.store import EVENTS_KEPT, SESSION_SECONDS, Store
from unit.web.test_web_access import HASHER, PASSWORD, Recorder, csrf_of, signed_in, still_held


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path, HASHER)
    for name, role in (("root", "admin"), ("olga", "operator")):
        made.add_user(name, role, PASSWORD, now=1.0, actor="test")
    return made


@pytest.fixture
def app(tmp_path, store):
    return create_app(Config(state_dir=tmp_path), store, Recorder())


def rows(folder, question):
    with sqlite3.connect(folder / "web.sqlite") as connection:
        return connection.execute(question).fetchall()


def copy_of(app, client):
    """Another browser with the same cookie."""
    other = app.test_client()
    other.set_cookie("sluice_session", client.get_cookie("sluice_session").value)
    return other


def test_signing_out_ends_every_copy_of_the_cookie(app):
    client = signed_in(app, "olga")
    copy = copy_of(app, client)
    assert copy.get("/api/v1/auto").status_code == 200
    assert client.post("/sign-out").status_code == 303
    assert copy.get("/api/v1/auto").status_code == 401
    assert copy.get("/users").status_code == 302


def test_signing_out_leaves_the_other_sessions_of_the_user(app):
    here, there = signed_in(app, "olga"), signed_in(app, "olga")
    here.post("/sign-out")
    assert there.get("/users").status_code == 200


def test_a_stream_ends_when_its_session_is_signed_out(app):
    client = signed_in(app, "olga")
    value = client.get_cookie("sluice_session").value
    held = still_held(app, headers={"Cookie": f"sluice_session={value}"})
    assert held()
    client.post("/sign-out")
    assert not held()


def test_signing_in_again_ends_what_the_browser_had(app, tmp_path):
    client = signed_in(app, "olga")
    copy = copy_of(app, client)
    with client.session_transaction() as session:
        csrf = session["csrf"]
    form = {"user": "root", "password": PASSWORD, "csrf_token": csrf}
    assert client.post("/sign-in", data=form).status_code == 303
    assert copy.get("/users").status_code == 302
    assert rows(tmp_path, "SELECT user_name FROM sessions") == [("root",)]


def test_a_new_password_ends_all_sessions_of_the_user_alone(app, store, tmp_path):
    clients = [signed_in(app, "olga"), signed_in(app, "olga")]
    other = signed_in(app, "root")
    store.set_password("olga", PASSWORD + "2", now=2.0, actor="root")
    assert [client.get("/users").status_code for client in clients] == [302, 302]
    assert other.get("/users").status_code == 200
    assert rows(tmp_path, "SELECT user_name FROM sessions") == [("root",)]


def test_who_renews_their_own_password_goes_on_in_a_new_session(app):
    client, other = signed_in(app, "olga"), signed_in(app, "olga")
    copy = copy_of(app, client)
    assert client.post("/users/olga/password").status_code == 200
    assert client.get("/users").status_code == 200
    assert copy.get("/users").status_code == other.get("/users").status_code == 302


def test_a_removed_user_has_no_session(app, store, tmp_path):
    client = signed_in(app, "olga")
    store.remove_user("olga", now=2.0, actor="root")
    assert rows(tmp_path, "SELECT user_name FROM sessions") == []
    assert client.get("/users").status_code == 302


def test_sessions_that_are_over_are_cleaned_away(app, tmp_path, monkeypatch):
    client = signed_in(app, "olga")
    end = time.time() + SESSION_SECONDS
    # Only what the session's row says: the cookie's own age is not looked at here.
    app.config["PERMANENT_SESSION_LIFETIME"] *= 3
    with monkeypatch.context() as later:
        later.setattr("sluice_web.auth.time.time", lambda: end + 1)
        assert client.get("/users").status_code == 302
        signed_in(app, "root")
    assert rows(tmp_path, "SELECT user_name FROM sessions") == [("root",)]


def test_the_store_cannot_tell_the_id_of_a_session(app, tmp_path):
    client = signed_in(app, "olga")
    with client.session_transaction() as session:
        session_id = session["id"]
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("web.sqlite*"))
    assert len(session_id) >= 43 and session_id.encode() not in kept


def test_no_session_begins_with_a_password_that_was_just_replaced(store):
    person = store.check_password("olga", PASSWORD)
    store.set_password("olga", PASSWORD + "2", now=2.0, actor="root")
    assert store.open_session(person, now=3.0) is None
    again = store.check_password("olga", PASSWORD + "2")
    store.remove_user("olga", now=4.0, actor="root")
    assert store.open_session(again, now=5.0) is None


def test_a_sign_in_that_a_new_password_overtakes_is_refused(app, store, monkeypatch):
    check = store.check_password

    def overtaken(name, password):
        person = check(name, password)
        store.set_password(name, PASSWORD + "2", now=2.0, actor="root")
        return person

    monkeypatch.setattr(store, "check_password", overtaken)
    client = app.test_client()
    form = {"user": "olga", "password": PASSWORD, "csrf_token": csrf_of(client)}
    assert client.post("/sign-in", data=form).status_code == 401
    assert client.get("/users").status_code == 302


def test_a_key_that_was_not_written_whole_is_not_there(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space"):
        disk.setattr("sluice_web.app.os.fsync", full)
        session_key(tmp_path)
    assert list(tmp_path.iterdir()) == []
    key = session_key(tmp_path)
    assert len(key) == 32 and session_key(tmp_path) == key
    assert [path.name for path in tmp_path.iterdir()] == ["session-key"]
    assert stat.S_IMODE((tmp_path / "session-key").stat().st_mode) == 0o600


def test_a_store_of_a_later_schema_is_left_alone(tmp_path):
    Store(tmp_path, HASHER)
    with sqlite3.connect(tmp_path / "web.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(RuntimeError, match="install the version of sluice-web that wrote it"):
        Store(tmp_path, HASHER)
    assert rows(tmp_path, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_two_admins_cannot_remove_each_other_at_the_same_time(tmp_path, store):
    store.add_user("rita", "admin", PASSWORD, now=1.0, actor="test")
    both_looked = threading.Barrier(2)
    refused = []

    def remove(name):
        mine = Store(tmp_path, HASHER)

        @event.listens_for(mine._engine, "after_cursor_execute")
        def looked(_connection, _cursor, statement, *_rest):
            if "users.role = ?" in statement:
                # It breaks when the other one is not let in, as it should be.
                with contextlib.suppress(threading.BrokenBarrierError):
                    both_looked.wait(0.5)

        try:
            mine.remove_user(name, now=2.0, actor="test")
        except Problem as problem:
            refused.append(problem.status)

    threads = [threading.Thread(target=remove, args=[name]) for name in ("root", "rita")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == [409]
    assert len([user for user in store.users() if user["role"] == "admin"]) == 1


def test_only_the_newest_events_are_kept(tmp_path, app):
    """Or whoever reaches the page could fill the disk with sign-ins that are refused."""
    before = rows(tmp_path, "SELECT max(id) FROM events")[0][0]
    more = [(before + n, 2.0, "192.0.2.9", "sign-in refused", "eve") for n in range(1, 10_050)]
    with sqlite3.connect(tmp_path / "web.sqlite") as connection:
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", more)
    signed_in(app, "olga")
    count, oldest = rows(tmp_path, "SELECT count(*), min(id) FROM events")[0]
    assert count == EVENTS_KEPT
    assert oldest > before
    assert rows(tmp_path, "SELECT actor, action FROM events ORDER BY id DESC LIMIT 1") == [
        ("olga", "sign in")
    ]
