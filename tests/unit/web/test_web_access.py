# SPDX-License-Identifier: GPL-2.0-or-later
"""Users, sessions, tokens, CSRF, throttling, and what the API refuses itself."""

import io
import json
import re
import socket
import stat
import threading
import time

import httpx
import pytest
from argon2 import PasswordHasher

from sluice_web import auth, cli
from sluice_web import controller as web_controller
from sluice_web.app import create_app
from sluice_web.config import Config, ConfigError, split_bind
from sluice_web.controller import Answer, Controller
from sluice_web.problems import Problem
from sluice_web.store import SESSION_SECONDS, Store
from sluice_web.throttle import SignInThrottle
from sluice_web.tokens import TokenTerms

PASSWORD = "correct-horse-battery"
OPERATOR = TokenTerms("operator")
# The cheapest parameters that argon2 takes: the tests hash often.
HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class Recorder:
    """Stands for the controller's client: what the web would have sent."""

    def __init__(self):
        self.calls = []
        self.roles = []

    def call(
        self, method, path, *, actor="web", role="viewer", query=None, content=b"", headers=None
    ):
        self.calls.append((method, path, actor, query, json.loads(content) if content else None))
        self.roles.append(role)
        self.headers = headers or {}
        return Answer(200, "application/json", b"[]")

    def get(self, path, query=None):
        return self.call("GET", path, query=query).json()


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


def csrf_of(client):
    client.get("/sign-in")
    with client.session_transaction() as session:
        return session["csrf"]


def signed_in(app, user):
    client = app.test_client()
    form = {"user": user, "password": PASSWORD, "csrf_token": csrf_of(client)}
    assert client.post("/sign-in", data=form).status_code == 303
    with client.session_transaction() as session:
        client.environ_base["HTTP_X_CSRF_TOKEN"] = session["csrf"]
    return client


def test_passwords_are_kept_as_argon2_hashes_only(tmp_path, store):
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"$argon2id$" in kept
    assert PASSWORD.encode() not in kept


def test_secrets_are_readable_by_their_owner_only(tmp_path, app):
    for name in ("web.sqlite", "session-key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_only_the_right_password_signs_in(store):
    assert store.check_password("root", PASSWORD).role == "admin"
    assert store.check_password("root", PASSWORD + "x") is None
    assert store.check_password("nobody", PASSWORD) is None


def test_the_last_admin_stays(store):
    with pytest.raises(Problem, match="only admin"):
        store.remove_user("root", now=2.0, actor="root")
    assert store.person("root")


@pytest.mark.parametrize("name", ["", "a b", "x" * 33, "naïve", "../etc"])
def test_a_bad_user_name_is_refused(store, name):
    with pytest.raises(Problem):
        store.add_user(name, "viewer", PASSWORD, now=2.0, actor="root")


def test_a_short_password_is_refused_without_repeating_it(store):
    with pytest.raises(Problem) as caught:
        store.set_password("root", "sesame", now=2.0, actor="root")
    assert "sesame" not in str(caught.value.body)


def test_a_new_password_ends_sessions(app, store):
    client = signed_in(app, "olga")
    assert client.get("/users").status_code == 200
    store.set_password("olga", PASSWORD + "2", now=2.0, actor="root")
    assert client.get("/users").status_code == 302


def test_a_removed_user_loses_session_and_tokens(app, store):
    client = signed_in(app, "olga")
    token = store.add_token("olga", "script", OPERATOR, now=2.0, actor="olga")
    store.remove_user("olga", now=3.0, actor="root")
    assert client.get("/users").status_code == 302
    assert store.token_owner(token, now=4.0) is None


def test_a_name_that_is_given_again_does_not_revive_old_sessions(app, store):
    client = signed_in(app, "olga")
    store.remove_user("olga", now=2.0, actor="root")
    store.add_user("olga", "admin", PASSWORD + "2", now=3.0, actor="root")
    assert client.get("/users").status_code == 302


def test_the_session_cookie_is_closed_to_scripts_and_other_sites(app):
    cookie = app.test_client().get("/sign-in").headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie


def test_with_tls_the_cookie_is_secure(tmp_path, store, recorder):
    pem = tmp_path / "x.pem"
    pem.write_text("")
    config = Config(state_dir=tmp_path, tls_cert=pem, tls_key=pem)
    answer = create_app(config, store, recorder).test_client().get("/sign-in")
    cookie = answer.headers["Set-Cookie"]
    # This name only a host itself may give, for all of its paths.
    assert cookie.startswith("__Host-sluice_session=")
    assert "Secure" in cookie and "Path=/" in cookie and "Domain" not in cookie
    assert "Strict-Transport-Security" in answer.headers


def test_every_answer_forbids_inline_scripts_and_framing(app):
    for path in ("/sign-in", "/api/v1/status", "/nowhere", "/static/css/sluice.css"):
        policy = app.test_client().get(path).headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


def test_sign_in_without_the_forms_token_is_refused(app):
    answer = app.test_client().post("/sign-in", data={"user": "root", "password": PASSWORD})
    assert answer.status_code == 403


@pytest.mark.parametrize("given", ["", "\0", "None"])
def test_a_visitor_without_a_session_has_no_token_that_fits(app, given):
    # As another site's form would send it: the session's cookie stays at home.
    form = {"user": "root", "password": PASSWORD, "csrf_token": given}
    assert app.test_client().post("/sign-in", data=form).status_code == 403
    assert app.test_client().post("/sign-out", data=form).status_code == 403


@pytest.mark.parametrize(
    "target",
    ["https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere.example", "javascript:1"],
)
def test_sign_in_never_leads_elsewhere(app, target):
    with app.test_request_context():
        assert auth.local_target(target) == "/"
        assert auth.local_target("/vm/media?x=1") == "/vm/media?x=1"


@pytest.mark.parametrize("target", ["//[", "/\n/elsewhere.example", "/\t\\elsewhere.example"])
def test_a_target_that_is_no_path_leads_to_the_overview(app, target):
    with app.test_request_context():
        assert auth.local_target(target) == "/"
    assert app.test_client().get("/sign-in", query_string={"next": target}).status_code == 200
    answer = signed_in(app, "vera").get("/sign-in", query_string={"next": target})
    assert answer.headers["Location"] == "/"


def test_guessing_is_slowed_per_address_and_user(app):
    client = app.test_client()
    form = {"user": "root", "password": "wrong", "csrf_token": csrf_of(client)}
    statuses = [client.post("/sign-in", data=form).status_code for _ in range(9)]
    assert statuses == [401] * 8 + [429]
    # Even the right password waits now, so the answer tells nothing.
    assert client.post("/sign-in", data={**form, "password": PASSWORD}).status_code == 429


class Slow(Store):
    """Each try is still being checked when the next one comes."""

    def __init__(self, folder):
        super().__init__(folder, HASHER)
        self.during = lambda: None
        self.checked = 0

    def check_password(self, name, password):
        self.checked += 1
        self.during()
        return super().check_password(name, password)


def test_tries_at_the_same_time_are_counted_too(tmp_path, recorder):
    store = Slow(tmp_path)
    client = create_app(Config(state_dir=tmp_path), store, recorder).test_client()
    form = {"user": "root", "password": "wrong", "csrf_token": csrf_of(client)}
    statuses = []

    def try_again():
        if store.checked <= 10:
            statuses.append(client.post("/sign-in", data=form).status_code)

    store.during = try_again
    client.post("/sign-in", data=form)
    assert store.checked == 8
    assert statuses.count(429) == 1


def tried(app, user, password, address="192.0.2.1"):
    client = app.test_client()
    form = {"user": user, "password": password, "csrf_token": csrf_of(client)}
    from_there = {"REMOTE_ADDR": address}
    return client.post("/sign-in", data=form, environ_base=from_there).status_code


def test_a_sign_in_in_time_leaves_no_failure_of_the_user(app):
    for n in range(3):
        address = f"192.0.2.{n}"
        assert [tried(app, "root", "wrong", address) for _ in range(5)] == [401] * 5
        assert tried(app, "root", PASSWORD, address) == 303


def test_who_has_a_password_tries_others_no_faster_for_it(app):
    answers = []
    for n in range(9):
        answers.append(tried(app, f"name-{n}", "wrong"))
        answers.append(tried(app, "vera", PASSWORD))
    # Their own sign-ins count for nothing, in either direction.
    assert answers == [401, 303] * 7 + [401, 429, 429, 429]


COMMAND = "/usr/bin/backup --password geheim"


class Guest(Recorder):
    """A controller with one guest, whose one process was started with a secret."""

    def call(self, method, path, **more):
        answer = super().call(method, path, **more)
        if not path.endswith("/processes"):
            return answer
        table = {"age_seconds": 1, "processes": [{"pid": 7, "cmdline": COMMAND}]}
        return Answer(200, "application/json", json.dumps(table).encode())


@pytest.mark.parametrize(("user", "sees"), [("vera", False), ("olga", True), ("root", True)])
def test_arguments_of_guests_processes_are_an_operators_to_read(tmp_path, store, user, sees):
    app = create_app(Config(state_dir=tmp_path), store, Guest())
    client = signed_in(app, user)
    told = client.get("/api/v1/domains/media/processes").get_json(force=True)
    with client.get("/events?topic=processes&domain=media") as stream:
        text = "".join(
            next(line for line in stream.response if line.decode().startswith("event: processes"))
            .decode()
            .splitlines()[1:]
        )
    streamed = json.loads(text.removeprefix("data: "))
    for table in (told, streamed):
        cmdline = COMMAND if sees else "/usr/bin/backup"
        assert table["processes"] == [{"pid": 7, "cmdline": cmdline}]
        # Nothing is left out silently.
        assert ("arguments_hidden" in table) is not sees


@pytest.mark.parametrize("name", ["Content-Type", "If-Match"])
@pytest.mark.parametrize("value", ["application/json; \xe9", "text/x\x01"])
def test_a_header_that_cannot_go_on_is_refused_by_its_name(tmp_path, store, name, value):
    (tmp_path / "token").write_text("secret")
    controller = Controller(tmp_path / "nobody-listens", tmp_path / "token")
    client = signed_in(create_app(Config(state_dir=tmp_path), store, controller), "olga")
    answer = client.put("/api/v1/classes/a", data="{}", headers={name: value})
    assert (answer.status_code, answer.get_json(force=True)["thing"]) == (422, name)


def test_the_throttle_opens_again_after_its_window():
    throttle = SignInThrottle(failures=2, window_seconds=60)
    assert throttle.begin(["a"], now=0) == 0
    assert throttle.begin(["a", "b"], now=10) == 0
    assert throttle.begin(["a", "b"], now=20) == 40
    # Who is turned away has tried nothing.
    assert throttle.begin(["b"], now=20) == 0
    assert throttle.begin(["b"], now=21) == 49
    assert throttle.begin(["a"], now=60) == 0


def test_no_session_and_no_token_get_401_as_problem_json(app, recorder):
    answer = app.test_client().get("/api/v1/status")
    assert answer.status_code == 401
    assert answer.content_type == "application/problem+json"
    assert recorder.calls == []


def test_a_session_without_the_header_changes_nothing(app, recorder):
    client = signed_in(app, "olga")
    del client.environ_base["HTTP_X_CSRF_TOKEN"]
    assert client.put("/api/v1/auto", json={"enabled": True}).status_code == 403
    assert recorder.calls == []


def test_a_viewer_may_look_and_not_change(app, recorder):
    client = signed_in(app, "vera")
    assert client.get("/api/v1/auto").status_code == 200
    assert client.put("/api/v1/auto", json={"enabled": True}).status_code == 403
    assert client.post("/users", data={"name": "x", "role": "admin"}).status_code == 403
    assert [call[0] for call in recorder.calls] == ["GET"]


def test_a_preview_costs_the_host_and_is_an_operators(app, recorder):
    rule = {"class": "batch", "match": {"cmdline": "a.{900}z"}}
    refused = signed_in(app, "vera").post("/api/v1/rules/preview", json=rule)
    assert refused.status_code == 403 and recorder.calls == []
    assert signed_in(app, "olga").post("/api/v1/rules/preview", json=rule).status_code == 200


def test_the_controller_is_told_the_role_and_gets_the_body_unread(app, recorder):
    """It alone knows which members are an admin's."""
    emulator = {"emulator": "/sbin/reboot"}
    for user in ("olga", "root"):
        client = signed_in(app, user)
        forged = {"X-Sluice-Role": "admin", "X-Sluice-Actor": "x", "If-Match": '"1"'}
        assert client.put("/api/v1/settings", json=emulator, headers=forged).status_code == 200
    assert recorder.roles == ["operator", "admin"]
    assert [call[2:] for call in recorder.calls] == [(u, {}, emulator) for u in ("olga", "root")]
    assert recorder.headers == {"Content-Type": "application/json", "If-Match": '"1"'}


def test_an_operator_manages_only_their_own_tokens(app, store):
    client = signed_in(app, "olga")
    assert client.post("/tokens", data={"user": "root", "label": "x"}).status_code == 403
    assert client.post("/users/root/password").status_code == 403
    token = store.add_token("root", "theirs", OPERATOR, now=2.0, actor="root")
    assert client.post("/tokens/1/remove").status_code == 403
    assert store.token_owner(token, now=4.0)


def test_a_token_acts_in_its_owners_name(app, store, recorder):
    token = store.add_token("olga", "script", OPERATOR, now=2.0, actor="olga")
    headers = {"Authorization": f"Bearer {token}"}
    client = app.test_client()
    assert client.put("/api/v1/auto", json={"enabled": True}, headers=headers).status_code == 200
    assert recorder.calls == [("PUT", "/v1/auto", "olga/script", {}, {"enabled": True})]
    wrong = client.get("/api/v1/auto", headers={"Authorization": "Bearer slc_guess"})
    assert wrong.status_code == 401


def test_who_took_a_token_cannot_outlive_it(app, store):
    token = store.add_token("root", "script", OPERATOR, now=2.0, actor="root")
    headers = {"Authorization": f"Bearer {token}"}
    client = app.test_client()
    forms = {
        "/tokens": {"label": "another"},
        "/tokens/1/remove": {},
        "/users": {"name": "mallory", "role": "admin"},
        "/users/root/password": {},
        "/users/olga/remove": {},
    }
    for path, form in forms.items():
        answer = client.post(path, data=form, headers=headers)
        assert answer.status_code == 403 and "Set-Cookie" not in answer.headers
        assert "not changed with a token" in answer.text
    assert store.check_password("root", PASSWORD) and store.person("olga")
    assert len(store.tokens()) == 1 and store.person("mallory") is None
    # What the page shows, it may look at.
    assert client.get("/users", headers=headers).status_code == 200


def still_held(app, **request):
    """As for an event stream: asked when it begins, answered while it runs."""
    with app.test_request_context("/events", **request):
        auth.identify()
        return auth.still_held()


def test_a_stream_ends_with_its_token(app, store):
    token = store.add_token("olga", "script", OPERATOR, now=2.0, actor="olga")
    held = still_held(app, headers={"Authorization": f"Bearer {token}"})
    assert held()
    store.remove_token(1, now=3.0, actor="olga")
    assert not held()


def test_a_stream_ends_with_its_session(app, store, monkeypatch):
    client = signed_in(app, "olga")
    cookie = client.get_cookie("sluice_session")
    held = still_held(app, headers={"Cookie": f"sluice_session={cookie.value}"})
    assert held()
    end = time.time() + SESSION_SECONDS
    with monkeypatch.context() as later:
        later.setattr("sluice_web.auth.time.time", lambda: end + 1)
        assert not held()
    store.set_password("olga", PASSWORD + "2", now=2.0, actor="root")
    assert not held()


def test_names_in_paths_stay_names(app, recorder):
    client = signed_in(app, "olga")
    client.get("/api/v1/domains/a%20b%3Fc%23d")
    assert recorder.calls[-1][1] == "/v1/domains/a%20b%3Fc%23d"
    for bad in ("..%2Faudit", "%0d%0aX", "a%2F%2Fb", "x" * 256, "a/"):
        assert client.get(f"/api/v1/domains/{bad}").status_code in (404, 422), bad
    assert len(recorder.calls) == 1


def test_a_controller_that_is_not_there_is_said_with_a_remedy(tmp_path, store):
    token_file = tmp_path / "token"
    token_file.write_text("t")
    config = Config(
        state_dir=tmp_path, controller_socket=tmp_path / "no.sock", token_file=token_file
    )
    client = signed_in(create_app(config, store), "olga")
    answer = client.get("/api/v1/status")
    assert answer.status_code == 503
    assert "start sluiced" in answer.get_json(force=True)["remedy"]
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 503 and b"does not answer" in page.data


def test_a_change_without_an_answer_is_not_said_to_have_failed(tmp_path):
    (tmp_path / "token").write_text("t")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        listener.listen()

        def hang_up():
            for _ in range(2):
                connection, _ = listener.accept()
                connection.recv(65536)
                connection.close()

        sluiced = threading.Thread(target=hang_up)
        sluiced.start()
        client = Controller(tmp_path / "s.sock", tmp_path / "token")
        with pytest.raises(Problem) as change:
            client.call("PUT", "/v1/auto", content=b"{}")
        with pytest.raises(Problem) as look:
            client.get("/v1/auto")
        sluiced.join()
    assert "may have been made" in change.value.body["detail"]
    assert "may have been made" not in look.value.body["detail"]
    with pytest.raises(Problem) as unreachable:
        client.call("PUT", "/v1/auto", content=b"{}")
    assert "may have been made" not in unreachable.value.body["detail"]


def test_a_read_that_takes_too_long_is_named_with_what_may_be_short(tmp_path, monkeypatch):
    monkeypatch.setattr(web_controller, "READ_TIMEOUT_SECONDS", 0.05)
    (tmp_path / "token").write_text("t")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        listener.listen()
        with pytest.raises(Problem) as late:
            Controller(tmp_path / "s.sock", tmp_path / "token").get("/v1/classes")
    assert "has not answered GET /v1/classes within 0.05 s" in late.value.body["detail"]
    assert "short of processor" in late.value.body["remedy"]
    assert "start sluiced" not in late.value.body["remedy"]


def test_a_change_that_takes_too_long_is_not_to_be_repeated_blindly(tmp_path):
    late = httpx.ReadTimeout("late")
    problem = Controller(tmp_path / "s.sock", tmp_path / "t")._unreachable("PUT", "/v1/a", late)
    assert "look before you repeat it" in problem.body["detail"]
    assert "try again" not in problem.body["detail"].lower()


def test_first_start_shows_a_password_once_that_works(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    store = Store(tmp_path, HASHER)
    cli.introduce_admin(store)
    shown = capsys.readouterr().out
    password = next(line.split()[1] for line in shown.splitlines() if "Password:" in line)
    assert store.check_password("admin", password).role == "admin"


def test_a_journal_never_gets_the_password(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    store = Store(tmp_path, HASHER)
    cli.introduce_admin(store)
    assert "Password:" not in capsys.readouterr().out
    assert not store.has_users()


def test_reset_password_of_an_unknown_user_is_an_error(tmp_path, capsys):
    assert cli.main(["--state-dir", str(tmp_path), "reset-password", "nobody"]) == 2
    assert "no user nobody" in capsys.readouterr().err


def test_the_first_admin_is_made_once_and_the_given_password_is_not_shown(
    tmp_path, capsys, monkeypatch
):
    command = ["first-admin", "--user", "ada", "--password-stdin", "--state-dir", str(tmp_path)]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\nmore\n"))
    assert cli.main(command) == 0
    assert capsys.readouterr().out == "made\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("another-password\n"))
    assert cli.main(command) == 0
    assert capsys.readouterr().out == "unchanged\n"
    assert Store(tmp_path).check_password("ada", PASSWORD).role == "admin"
    assert cli.main(["users", "--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "ada\tadmin\n"


def test_a_first_admin_without_a_given_password_gets_one_shown(tmp_path, capsys):
    assert cli.main(["--state-dir", str(tmp_path), "first-admin"]) == 0
    shown = re.search(r"User: admin\n  Password: (\S+)\n", capsys.readouterr().out)
    assert Store(tmp_path).check_password("admin", shown[1]).role == "admin"


def test_a_user_is_made_once_with_a_role(tmp_path, capsys, monkeypatch):
    command = ["add-user", "ada", "--role", "operator", "--password-stdin"]
    for said in ("made\n", "unchanged\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
        assert cli.main([*command, "--state-dir", str(tmp_path)]) == 0
        assert capsys.readouterr().out == said
    assert Store(tmp_path).check_password("ada", PASSWORD).role == "operator"
    # A user who is there keeps role and password.
    assert cli.main(["--state-dir", str(tmp_path), "add-user", "ada", "--role", "admin"]) == 0
    assert Store(tmp_path).check_password("ada", PASSWORD).role == "operator"


def test_a_short_first_password_is_refused_and_not_repeated(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    options = ["first-admin", "--password-stdin", "--state-dir", str(tmp_path)]
    assert cli.main(options) == 2
    error = capsys.readouterr().err
    assert "use 10 to 1024 characters" in error and "geheim" not in error
    assert not Store(tmp_path).has_users()


@pytest.mark.parametrize("bind", ["8480", "host:", ":80", "host:0", "host:65536", "host:x"])
def test_a_bad_address_is_refused(bind):
    with pytest.raises(ConfigError, match="--bind"):
        split_bind(bind)


def test_half_a_tls_pair_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--tls-key"):
        Config(tls_cert=tmp_path / "cert.pem")
