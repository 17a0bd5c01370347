# SPDX-License-Identifier: GPL-2.0-or-later
"""Tokens: what their scope lets them do, when they end, and how they are made."""

import re
import sqlite3

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from sluice_web import auth, cli
from sluice_web.api import role_of
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.openapi import of_the_page
from sluice_web.problems import Problem
from sluice_web.store import Store
from sluice_web.tables import Base
from sluice_web.tokens import DAY_SECONDS, SCOPES, TokenTerms, expiry
from unit.web.test_web_access import HASHER, PASSWORD, Recorder, signed_in, still_held

REPORTER = TokenTerms("reporter", "film")
REPORTS = "/api/v1/streams/film/reports"


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path, HASHER)
    for name, role in (("root", "admin"), ("olga", "operator"), ("vera", "viewer")):
        made.add_user(name, role, PASSWORD, now=1.0, actor="test")
    return made


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def app(tmp_path, store, recorder):
    return create_app(Config(state_dir=tmp_path), store, recorder)


def by_token(app, store, owner, terms, now=2.0):
    """A client with a new token."""
    token = store.add_token(owner, "x", terms, now=now, actor="test")
    client = app.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return client


# Calls of every kind, and who may make them beside an operator.
CALLS = [
    ("GET", "/audit", {"viewer"}),
    ("GET", "/domains/d/processes", {"viewer"}),
    ("GET", "/streams/film/history", {"viewer"}),
    ("PUT", "/state", set()),
    ("PATCH", "/classes/c", set()),
    ("DELETE", "/rules/1", set()),
    ("POST", "/rules/preview", set()),
    ("PUT", "/streams/film", set()),
    ("POST", "/streams/film/reports", {"reporter"}),
    ("GET", "/streams/film/reports", {"viewer"}),
    ("POST", "/streams/other/reports", set()),
    ("POST", "/streams/film/reports/more", set()),
    ("POST", "/domains/film/reports", set()),
]


@pytest.mark.parametrize("owner", ["root", "olga"])
def test_a_token_may_what_its_scope_says_and_no_more(app, store, owner):
    looks = by_token(app, store, owner, TokenTerms("viewer"))
    changes = by_token(app, store, owner, TokenTerms("operator"))
    reports = by_token(app, store, owner, REPORTER)
    clients = {"viewer": looks, "operator": changes, "reporter": reports}
    for method, path, scopes in CALLS:
        for scope, client in clients.items():
            answer = client.open(f"/api/v1{path}", method=method, json={})
            wanted = 200 if scope in {*scopes, "operator"} else 403
            assert answer.status_code == wanted, (scope, method, path)


def test_a_reporter_reports_its_own_stream_only(app, store, recorder):
    client = by_token(app, store, "olga", REPORTER)
    report = {"window_ms": 1000, "stalls": 0}
    assert client.post(REPORTS, json=report).status_code == 200
    refused = client.post("/api/v1/streams/other/reports", json=report)
    assert refused.status_code == 403
    assert (
        "olga/x may do what a reporter may of the stream film" in refused.get_json(True)["detail"]
    )
    for path in ("/", "/users", "/events?topic=live", "/classes"):
        assert client.get(path).status_code == 403, path
    assert [call[1:3] for call in recorder.calls] == [("/v1/streams/film/reports", "olga/x")]


def test_an_admins_token_is_an_operator_at_most(app, store, recorder):
    client = by_token(app, store, "root", TokenTerms("operator"))
    client.put("/api/v1/settings", json={"emulator": "/sbin/reboot"})
    assert recorder.roles == ["operator"]


@pytest.mark.parametrize("terms", [TokenTerms("operator"), REPORTER])
def test_a_token_that_may_more_than_its_owner_is_not_made(store, terms):
    with pytest.raises(Problem, match="vera is a viewer, and a token may do no more"):
        store.add_token("vera", "x", terms, now=2.0, actor="vera")
    assert store.tokens() == []


@pytest.mark.parametrize("terms", [TokenTerms("operator"), REPORTER])
def test_an_owner_who_may_less_now_takes_their_tokens_along(app, store, tmp_path, terms):
    client = by_token(app, store, "olga", terms)
    assert client.post(REPORTS, json={"window_ms": 1000}).status_code == 200
    with sqlite3.connect(tmp_path / "web.sqlite") as connection:
        connection.execute("UPDATE users SET role = 'viewer' WHERE name = 'olga'")
    assert client.post(REPORTS, json={"window_ms": 1000}).status_code == 403
    # A reporter never looks at anything, whatever its owner may.
    assert client.get("/api/v1/auto").status_code == (403 if terms.stream else 200)


def test_an_expired_token_says_so(app, store, monkeypatch):
    client = by_token(app, store, "olga", TokenTerms("viewer", expires_at=86_400.0))
    refused = client.get("/api/v1/auto")
    assert refused.status_code == 401
    said = refused.get_json(force=True)
    assert said["type"] == "/problems/token-expired"
    assert "The token olga/x expired at 1970-01-02T00:00:00+00:00; make one" in said["detail"]
    monkeypatch.setattr(auth.time, "time", lambda: 86_399.0)
    assert client.get("/api/v1/auto").status_code == 200


def test_a_stream_ends_when_its_token_expires(app, store, monkeypatch):
    terms = TokenTerms("viewer", expires_at=100.0)
    token = store.add_token("olga", "x", terms, now=2.0, actor="olga")
    monkeypatch.setattr(auth.time, "time", lambda: 99.0)
    held = still_held(app, headers={"Authorization": f"Bearer {token}"})
    assert held()
    monkeypatch.setattr(auth.time, "time", lambda: 100.0)
    assert not held()


@pytest.mark.parametrize(
    ("scope", "stream", "said"),
    [
        ("admin", None, "use one of viewer, reporter, operator"),
        ("", None, "use one of viewer, reporter, operator"),
        ("reporter", None, "a reporter needs the name of its stream"),
        ("reporter", "", "a reporter needs the name of its stream"),
        ("reporter", "a/b", "a reporter needs the name of its stream"),
        ("viewer", "film", "only the scope reporter takes a stream"),
    ],
)
def test_terms_that_do_not_fit_are_refused(scope, stream, said):
    with pytest.raises(Problem, match=said):
        TokenTerms(scope, stream)


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_a_term_that_is_none_is_refused(days):
    with pytest.raises(Problem, match="give 1 to 3650"):
        expiry(days, 0.0)


def test_the_page_makes_tokens_of_each_scope_with_an_end(app, store, monkeypatch):
    client = signed_in(app, "olga")
    now = auth.time.time()
    monkeypatch.setattr(auth.time, "time", lambda: now)
    for scope in SCOPES:
        form = {"label": scope, "scope": scope, "stream": "film", "days": "30"}
        assert client.post("/tokens", data=form).status_code == 201
    form = {"label": "for-ever", "scope": "viewer", "days": "never"}
    page = client.post("/tokens", data=form).text
    assert "reporter of film" in page and "never" in page
    made = {t["label"]: (t["scope"], t["stream"], t["expires_at"]) for t in store.tokens()}
    end = now + 30 * DAY_SECONDS
    assert made == {
        "viewer": ("viewer", None, end),
        "reporter": ("reporter", "film", end),
        "operator": ("operator", None, end),
        "for-ever": ("viewer", None, None),
    }


@pytest.mark.parametrize("days", ["0", "-1", "many", "1e3", "99999999"])
def test_the_page_refuses_a_term_that_is_none(app, store, days):
    client = signed_in(app, "olga")
    assert client.post("/tokens", data={"label": "x", "days": days}).status_code == 422
    assert store.tokens() == []


def run(capsys, folder, *words):
    """A command's status and what it printed."""
    status = cli.main(["token", *words, "--state-dir", str(folder)])
    return status, capsys.readouterr()


def test_the_command_makes_lists_and_revokes_tokens(tmp_path, store, capsys):
    options = ("--scope", "reporter", "--stream", "film", "--no-expiry")
    status, said = run(capsys, tmp_path, "add", "olga", "player", *options)
    assert status == 0 and "olga/player (reporter of film, no end), shown once" in said.err
    person = store.token_owner(said.out.strip(), now=9e9)
    assert (person.role, person.stream, person.actor) == ("reporter", "film", "olga/player")
    run(capsys, tmp_path, "add", "vera", "graphs")
    listed = run(capsys, tmp_path, "list")[1].out.splitlines()
    assert listed[0] == "1\tolga/player\treporter:film\tno end"
    assert re.fullmatch(r"2\tvera/graphs\tviewer\tuntil 20\S+", listed[1])
    assert run(capsys, tmp_path, "remove", "1") == (0, ("Token olga/player is revoked.\n", ""))
    assert store.token_owner(said.out.strip(), now=3.0) is None
    assert [row["action"] for row in store.events(3)] == ["remove token", "add token", "add token"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "nobody", "x"), "no user nobody"),
        (("add", "vera", "x", "--scope", "operator"), "a token may do no more than its owner"),
        (("add", "olga", "x", "--scope", "reporter"), "a reporter needs the name of its stream"),
        (("add", "olga", "x", "--days", "0"), "give 1 to 3650"),
        (("add", "olga", "a b"), "use 1 to 32 letters"),
        (("remove", "7"), "no token 7"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(tmp_path, store, capsys, words, said):
    status, printed = run(capsys, tmp_path, *words)
    assert status == cli.CANNOT_WORK and said in printed.err and printed.out == ""
    assert store.tokens() == []


def test_an_expired_token_is_listed_as_such(tmp_path, store, capsys):
    store.add_token("olga", "old", TokenTerms("viewer", expires_at=5.0), now=2.0, actor="olga")
    assert "expired, was until 1970-01-01T00:00:05" in run(capsys, tmp_path, "list")[1].out


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        cli.main(["token", "add", "--help"])
    said = capsys.readouterr().out
    assert "sluice-web token add olga player --scope reporter --stream film --no-expiry" in said
    assert all(scope in said for scope in SCOPES)


def test_the_api_describes_scopes():
    document = {
        "paths": {"/streams/{stream}/reports": {"post": {"summary": "Report"}}},
        "components": {"schemas": {}},
    }
    described = of_the_page(document, "/api/v1", role_of)
    assert "reporter: reports one stream" in str(described["components"]["securitySchemes"])
    report = described["paths"]["/streams/{stream}/reports"]["post"]["description"]
    assert "operator, or a token of scope reporter for this stream" in report


def test_the_migration_leads_to_the_tables_of_the_code(store):
    with store._engine.connect() as connection:
        # FLOAT differs from what SQLAlchemy calls so by its name only.
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, Base.metadata) == []
