# SPDX-License-Identifier: GPL-2.0-or-later
"""The page below a path of a reverse proxy, as ``X-Forwarded-Prefix`` names it."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from werkzeug.test import Client

import sluice_web
from sluice_web import cli
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.store import Store
from unit.web.nights_data import night, shown
from unit.web.test_web_access import HASHER, OPERATOR, PASSWORD
from unit.web.test_web_pages import ANSWERS, MEDIA, Host, granted

HOST, PREFIX = "https://kvm1", "/sluice"
PROXY = {
    "X-Forwarded-For": "198.51.100.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Prefix": PREFIX,
}
SCRIPTS = Path(sluice_web.__file__).parent / "static" / "js"
VM = {**MEDIA, "classes": [granted(0, "default"), granted(1, "batch")]}
REACHED = [
    "vm/media",
    "vm/media/classes/batch/take-away",
    "rules/3/remove",
    "tokens/1/remove",
    "nightly/5",
    "api/v1/nightly/5",
    "static/js/vm.js",
]
ADDRESSES = ("href", "src", "action", "formaction", "poster", "data")


class Anywhere(Host):
    """A host with one of each thing that a page may link."""

    answers = {
        **ANSWERS,
        "/v1/classes": [{**granted(1, "batch"), "name": "batch", "title": "Batch", "weight": 1}],
        "/v1/rules": [
            {"id": 3, "domain": None, "class": "batch", "match": {"exe": "/bin/x"}, "created_at": 1}
        ],
        "/v1/audit": [],
        "/v1/nightly": [night(5)],
        "/v1/nightly/5": shown(5),
        "/v1/nightly/5/page": {"html": f'<a href="{PREFIX}/">The run</a>'},
        "/v1/domains/media/assignments": [],
        "/v1/domains/media/processes": {"processes": []},
        "/v1/rules/preview": {"processes": [], "refused": []},
        "/v1/domains": [VM],
        "/v1/domains/media": VM,
    }


class Links(HTMLParser):
    """Every address on a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ADDRESSES and value[0] != "#"]


class Proxy:
    """Has an application below a path, and tells it so, as nginx does with a slash at the end
    of ``proxy_pass``."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        assert path.startswith(f"{PREFIX}/"), f"{path} is not below {PREFIX}"
        headers = {f"HTTP_{name.upper().replace('-', '_')}": said for name, said in PROXY.items()}
        return self.app(
            {**environ, "PATH_INFO": path.removeprefix(PREFIX), **headers}, start_response
        )


@pytest.fixture
def app(tmp_path):
    store = Store(tmp_path, HASHER)
    store.add_user("root", "admin", PASSWORD, now=1.0, actor="test")
    store.add_token("root", "script", OPERATOR, now=1.0, actor="test")
    return create_app(Config(state_dir=tmp_path, proxies=1), store, Anywhere())


@pytest.fixture
def client(app):
    return Client(Proxy(app))


def signed_in(client):
    page = client.get(f"{PREFIX}/sign-in", base_url=HOST).text
    token = re.search(r'name="csrf_token" value="([^"]+)"', page)[1]
    form = {"user": "root", "password": PASSWORD, "csrf_token": token}
    return client.post(f"{PREFIX}/sign-in", data=form, base_url=HOST)


def test_every_link_of_every_page_stays_below_the_path(client):
    answer = signed_in(client)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{PREFIX}/")
    waiting, seen = [f"{PREFIX}/", f"{PREFIX}/nothing"], {}
    while waiting:
        address = urlsplit(waiting.pop()).path
        if address in seen:
            continue
        answer = client.get(address, headers={"Accept": "text/html"}, base_url=HOST)
        seen[address] = answer.status_code
        if answer.content_type.startswith("text/html"):
            links = Links(answer.text).found
            outside = [link for link in links if not link.startswith(f"{PREFIX}/")]
            assert links and outside == [], address
            waiting += links
    posts = {f"{PREFIX}/sign-out": 405, f"{PREFIX}/tokens": 405, f"{PREFIX}/nothing": 404}
    assert {address: status for address, status in seen.items() if status != 200} == posts
    assert {f"{PREFIX}/{path}" for path in REACHED} <= seen.keys()


def test_redirects_cookie_and_document_are_below_the_path(client):
    answer = client.get(f"{PREFIX}/vm/media?x=1", headers={"Accept": "text/html"})
    assert answer.headers["Location"] == f"{PREFIX}/sign-in?next=/sluice/vm/media?x%3D1"
    cookie = signed_in(client).headers["Set-Cookie"]
    assert f"Path={PREFIX}/" in cookie and "Secure" in cookie
    document = client.get(f"{PREFIX}/api/v1/openapi.json").json
    assert document["servers"] == [{"url": f"{PREFIX}/api/v1"}]
    answer = client.get(f"{PREFIX}/sign-in?next=/elsewhere", base_url=HOST)
    assert answer.headers["Location"] == f"{PREFIX}/"


def test_the_visitor_is_known_by_their_own_address(app, client):
    signed_in(client)
    events = app.extensions["sluice_store"].events(1)
    assert events[0]["thing"] == PROXY["X-Forwarded-For"]


def test_nobody_is_believed_unless_it_is_said(tmp_path):
    app = create_app(Config(state_dir=tmp_path), None, Anywhere())
    answer = Client(Proxy(app)).get(f"{PREFIX}/vm/media", headers={"Accept": "text/html"})
    assert answer.headers["Location"].startswith("/sign-in")


@pytest.mark.parametrize("prefix", ["//elsewhere.example", "https://elsewhere.example", "x"])
def test_a_prefix_that_is_no_path_is_refused(app, prefix):
    answer = app.test_client().get("/sign-in", headers={"X-Forwarded-Prefix": prefix})
    assert (answer.status_code, answer.get_json(force=True)["thing"]) == (422, "X-Forwarded-Prefix")


@pytest.mark.parametrize("number", ["-1", "10", "one"])
def test_a_number_of_proxies_that_none_can_be_is_refused(tmp_path, number, capsys):
    try:
        status = cli.main([f"--proxies={number}", f"--state-dir={tmp_path}", "--check-config"])
    except SystemExit as error:
        status = error.code
    assert status == 2
    assert "--proxies" in capsys.readouterr().err


def test_scripts_make_every_address_of_one_base():
    """An address of its own would leave the path: a text that begins with a slash."""
    for script in SCRIPTS.glob("*.js"):
        text = re.sub(r"^\s*//.*$|call\([^,]+, [\"`]/", "", script.read_text(), flags=re.M)
        own = re.findall(r"""["'`]/[a-z][^"'`]*""", text)
        assert own == [], (script.name, own)
        if script.name != "api.js":
            assert "fetch(" not in text and "sign-in" not in text, script.name
