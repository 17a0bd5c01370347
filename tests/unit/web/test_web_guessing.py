# SPDX-License-Identifier: GPL-2.0-or-later
"""What visitors without a password can do to the page and its host: little."""

import contextlib
import sqlite3
import threading
import time

import pytest
from argon2 import PasswordHasher

from sluice_web import store as store_module
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.problems import Problem
from sluice_web.store import HASHES_AT_ONCE, HASHES_WAITING, REFUSALS_KEPT, Store
from sluice_web.throttle import network_of
from unit.web.test_web_access import HASHER, PASSWORD, Recorder, csrf_of


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path, HASHER)
    made.add_user("root", "admin", PASSWORD, now=1.0, actor="test")
    return made


@pytest.fixture
def client(tmp_path, store):
    return create_app(Config(state_dir=tmp_path), store, Recorder()).test_client()


def guess(client, user, address="192.0.2.1", password="wrong"):
    form = {"user": user, "password": password, "csrf_token": csrf_of(client)}
    return client.post("/sign-in", data=form, environ_base={"REMOTE_ADDR": address})


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:7:1::1", "2001:db8:0:7::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_who_has_an_ipv6_address_has_very_many(address, network):
    assert network_of(address) == network


def test_addresses_of_one_network_share_its_tries(client):
    tries = [guess(client, f"user-{n}", f"2001:db8::{n}").status_code for n in range(1, 10)]
    assert tries == [401] * 8 + [429]
    assert guess(client, "user-10", "2001:db8:0:1::1").status_code == 401


class Watched(PasswordHasher):
    """Tells how many passwords are being checked; each waits for one more that is let in."""

    def __init__(self):
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.inside = self.most = 0
        self.too_many = threading.Event()
        self.lock = threading.Lock()

    def verify(self, stored, password):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside > HASHES_AT_ONCE:
                self.too_many.set()
        self.too_many.wait(0.1)
        with self.lock:
            self.inside -= 1
        return super().verify(stored, password)


def test_many_tries_at_once_do_not_take_the_hosts_memory(tmp_path):
    hasher = Watched()
    store = Store(tmp_path, hasher)
    threads = [
        threading.Thread(target=store.check_password, args=["nobody", PASSWORD])
        for _ in range(3 * HASHES_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < hasher.most <= HASHES_AT_ONCE


def test_who_waits_too_long_for_a_check_is_told_so(store, monkeypatch):
    monkeypatch.setattr(store_module, "HASH_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(store, "_hashing", threading.BoundedSemaphore(1))
    with store._hash_turn(), pytest.raises(Problem, match="try again in a minute") as caught:
        store.check_password("root", PASSWORD)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "60"})
    assert store.check_password("root", PASSWORD)


def test_few_wait_for_a_check_and_the_rest_are_told_at_once(store, monkeypatch):
    # The two that are checked and the four that wait, each in a thread of the page.
    monkeypatch.setattr(store, "_hashing", threading.BoundedSemaphore(1))
    with contextlib.ExitStack() as checks:
        checks.enter_context(store._hash_turn())
        waiting = [
            threading.Thread(target=store.check_password, args=["root", PASSWORD], daemon=True)
            for _ in range(HASHES_AT_ONCE + HASHES_WAITING - 1)
        ]
        for thread in waiting:
            thread.start()
        while store._hash_places._value:
            time.sleep(0.001)
        with pytest.raises(Problem, match="try again in a minute"):
            store.check_password("root", PASSWORD)
    for thread in waiting:
        thread.join()
    assert store.check_password("root", PASSWORD)


def test_a_password_in_the_wrong_field_is_not_in_the_audit(client, store):
    guess(client, PASSWORD)
    guess(client, "root")
    refused = [row for row in store.events(10) if row["action"] == "sign-in refused"]
    assert [row["thing"] for row in refused] == ["root", "an unknown user"]
    assert {row["actor"] for row in refused} == {"192.0.2.1"}


def test_refusals_push_nothing_else_out_and_do_not_pile_up(tmp_path, store):
    with sqlite3.connect(tmp_path / "web.sqlite") as connection:
        connection.executemany(
            "INSERT INTO events (at, actor, action, thing) VALUES (?, '?', 'sign-in refused', '')",
            [(float(n),) for n in range(REFUSALS_KEPT + 7)],
        )
    store.record_refusal(9e9, "192.0.2.1", "root")
    rows = store.events(10 * REFUSALS_KEPT)
    refused = [row for row in rows if row["action"] == "sign-in refused"]
    assert len(refused) == REFUSALS_KEPT
    # The newest stay, and what was done stays.
    assert (refused[0]["at"], refused[-1]["at"]) == (9e9, 8.0)
    assert [row["thing"] for row in rows if row["action"] == "add user"] == ["root (admin)"]


def test_the_cookie_stays_inside_a_proxys_tls(client):
    for address, is_said in (("127.0.0.1", True), ("::1", True), ("192.0.2.1", False)):
        answer = client.application.test_client().get(
            "/sign-in",
            headers={"X-Forwarded-Proto": "https"},
            environ_base={"REMOTE_ADDR": address},
        )
        assert ("Secure" in answer.headers["Set-Cookie"]) is is_said


def test_without_tls_the_cookie_comes_back_at_all(client):
    assert "Secure" not in client.get("/sign-in").headers["Set-Cookie"]
