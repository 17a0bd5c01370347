# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked before a password, a user or a token goes, on a page and in the dialog."""

import re
from pathlib import Path

import pytest

import sluice_web
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.store import Store
from unit.web.test_web_access import HASHER, OPERATOR, PASSWORD, signed_in
from unit.web.test_web_asking import Host, form_of, part
from unit.web.test_web_pages import Page

PASSWORD_OF, REMOVE, REVOKE = "/users/olga/password", "/users/olga/remove", "/tokens/1/remove"
QUESTIONS = [PASSWORD_OF, REMOVE, REVOKE]


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path, HASHER)
    for name, role in (("root", "admin"), ("olga", "operator"), ("vera", "viewer")):
        made.add_user(name, role, PASSWORD, now=1.0, actor="test")
    made.add_token("olga", "backup", OPERATOR, now=2.0, actor="test")
    return made


@pytest.fixture
def app(tmp_path, store):
    return create_app(Config(state_dir=tmp_path), store, Host())


@pytest.fixture
def client(app):
    return signed_in(app, "root")


@pytest.mark.parametrize(
    ("path", "sentences"),
    [
        (
            PASSWORD_OF,
            [
                "Give olga a new password?",
                "The password that olga has will not be good any more.",
                "The new one is made here and shown once, on the next page.",
                "olga is signed out everywhere.",
                "API tokens of olga stay good.",
            ],
        ),
        (
            "/users/root/password",
            [
                "Give yourself a new password?",
                "The password that you have will not be good any more.",
                "You are signed out everywhere but here.",
                "API tokens of yours stay good.",
            ],
        ),
        (
            REMOVE,
            [
                "Remove the user olga?",
                "olga may sign in as operator.",
                "olga is signed out everywhere, and cannot sign in again.",
                "1 API token will be gone, and programs that use it stop working: backup.",
            ],
        ),
        (
            REVOKE,
            [
                "Revoke the token backup?",
                "It speaks for olga.",
                "Programs that use it stop working.",
            ],
        ),
    ],
)
def test_the_question_says_what_will_happen(client, path, sentences):
    asks, text = part(client, path)
    assert asks
    for sentence in sentences:
        assert sentence in text


def test_a_user_without_tokens_loses_none(client):
    _, text = part(client, "/users/vera/remove")
    assert "token" not in text


def test_several_tokens_are_named(client, store):
    store.add_token("olga", "script", OPERATOR, now=3.0, actor="test")
    _, text = part(client, REMOVE)
    assert "2 API tokens will be gone, and programs that use them stop working: backup; scr" in text


def test_without_a_script_a_page_asks_and_its_form_does_it(client, store):
    del client.environ_base["HTTP_X_CSRF_TOKEN"]
    done = {}
    for path in (REVOKE, PASSWORD_OF, REMOVE):
        page = client.get(path)
        assert page.status_code == 200
        ids = Page(page.text).ids
        assert len(ids) == len(set(ids))
        # What is safe has the focus.
        assert 'href="/users"' in re.search(r"<a [^>]*autofocus[^>]*>", page.text)[0]
        where, fields = form_of(page.text)
        assert client.post(where, data={**fields, "csrf_token": "x"}).status_code == 403
        assert len(store.tokens()) == (1 if path == REVOKE else 0) and len(store.users()) == 3
        done[path] = client.post(where, data=fields)
    assert [done[path].headers.get("Location") for path in (REVOKE, REMOVE)] == ["/users"] * 2
    assert 'data-testid="secret"' in done[PASSWORD_OF].text
    assert store.check_password("olga", PASSWORD) is None
    assert [user["name"] for user in store.users()] == ["root", "vera"]


def test_the_buttons_lead_to_the_pages_that_ask(client):
    text = client.get("/users").text
    assert "js/users.js" in text
    button = r'<button [^>]*type="submit"'
    forms = re.findall(
        rf'<form class="ask" method="get" action="([^"]+)" data-posts>{button}', text
    )
    assert set(QUESTIONS) <= set(forms) and len(forms) == 6
    for form in forms:
        assert client.get(form).status_code == 200


def test_no_page_asks_with_the_browsers_own_question():
    scripts = list(Path(sluice_web.__file__).parent.glob("static/js/*.js"))
    assert scripts
    for script in scripts:
        assert not re.search(r"\b(window\.)?(confirm|alert|prompt)\(", script.read_text()), script


def test_what_is_gone_already_is_said(client):
    assert client.get("/users/nobody/password").status_code == 404
    assert client.get("/users/nobody/remove").status_code == 404
    page = client.get("/tokens/7/remove", headers={"Accept": "text/html"})
    assert page.status_code == 404 and "no such token any more" in page.text


def test_only_who_may_change_is_asked(app, store):
    """And nobody learns who exists."""
    viewer = signed_in(app, "vera")
    for path in (*QUESTIONS, "/users/nobody/password"):
        assert viewer.get(path).status_code == 403
    assert viewer.get("/users/vera/password").status_code == 200
    operator = signed_in(app, "olga")
    assert operator.get(REVOKE).status_code == 200
    assert operator.get(REMOVE).status_code == 403
    stranger = app.test_client()
    assert stranger.get(REVOKE).status_code == 302
    assert stranger.get(REVOKE, headers={"Accept": "application/json"}).status_code == 401
    token = store.add_token("root", "script", OPERATOR, now=3.0, actor="root")
    answer = app.test_client().get(REMOVE, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 403
