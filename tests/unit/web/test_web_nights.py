# SPDX-License-Identifier: GPL-2.0-or-later
"""What the nightly pages say, and what of them is served to whom."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_web import nights
from sluice_web.app import create_app
from sluice_web.config import Config
from sluice_web.controller import Answer
from sluice_web.store import Store
from unit.web.nights_data import PHASES, night, shown
from unit.web.test_web_access import HASHER, PASSWORD, signed_in

PAGE = "<!doctype html><script>alert(1)</script>"


def test_words_for_every_outcome_and_phase():
    assert set(nights.OUTCOME_MARK) == set(nights.OUTCOME_WORDS)
    assert set(nights.PHASE_TITLES) == set(PHASES)


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([], "No night yet"),
        (["passed"], "passed: shaped, the stream was perfect, and everything else kept 88 %"),
        (["failed", "passed"], "a check failed: shaped"),
        (["refused"], "did not start; no night has been measured yet"),
        (["refused", "passed"], "did not start; the one of the night before passed"),
        (["error", "aborted", "failed"], "could not be run; the one of 2 nights before a check"),
    ],
)
def test_the_headline_is_about_the_newest_night(outcomes, words):
    found = [night(9 - index, outcome) for index, outcome in enumerate(outcomes)]
    assert words in nights.headline(found)[0]


def test_gaps_are_counted():
    assert nights.gaps([night(1)]) == ""
    assert nights.gaps([night(1), night(2, "refused")]).startswith("1 of 2 nights have")
    assert nights.gaps([night(2, "error")]).startswith("The only night has")


@given(st.floats(0, 1))
def test_less_than_all_is_never_shown_as_all(ratio):
    shown = nights.share(ratio)
    assert shown.endswith(" %")
    assert (shown == "100 %") == (ratio == 1)


class Nights:
    """Stands for the controller's client with two nights."""

    def get(self, path, query=None):
        return self.call("GET", path).json()

    def call(self, method, path, *, query=None, content=b"", **_more):
        words = "<b>web1</b> moves 84 MB/s"
        answers = {
            "/v1/nightly": [night(2), night(1, "refused", words)],
            "/v1/nightly/1": shown(1, "refused", words),
            "/v1/nightly/2": shown(2),
            "/v1/nightly/2/page": {"html": PAGE},
        }
        return Answer(200, "application/json", json.dumps(answers[path]).encode())


@pytest.fixture
def client(tmp_path):
    store = Store(tmp_path, HASHER)
    store.add_user("vera", "viewer", PASSWORD, now=1.0, actor="test")
    return signed_in(create_app(Config(state_dir=tmp_path), store, Nights()), "vera")


def test_the_list_shows_figures_and_reasons_as_text(client):
    page = client.get("/nightly").text
    assert "passed" in page and "20.0 s stalled" in page
    assert "&lt;b&gt;web1&lt;/b&gt; moves" in page and "<b>web1" not in page


def test_a_night_shows_its_checks_or_its_reason(client):
    assert "auto is perfect" in client.get("/nightly/2").text
    refused = client.get("/nightly/1").text
    assert "Guests busy." in refused and "<b>web1" not in refused and "night.js" not in refused


# The page was posted by a program and is shown as it came: it may have its own
# style, and nothing else. Each directive is here because leaving it out lets
# something in: default-src does not stand in for the last four.
SHUT_IN = {
    "default-src": "'none'",
    "style-src": "'unsafe-inline'",
    "sandbox": "",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
OTHER_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


def directives(policy):
    """A Content-Security-Policy as a browser splits it."""
    found = [part.strip().partition(" ") for part in policy.split(";") if part.strip()]
    return {name: value for name, _space, value in found}


def test_the_runs_own_page_is_shut_in(client):
    answer = client.get("/nightly/2/report")
    assert answer.text == PAGE
    # One policy: of several, a browser would apply all, and a proxy perhaps one.
    (policy,) = answer.headers.getlist("Content-Security-Policy")
    assert directives(policy) == SHUT_IN


@pytest.mark.parametrize("name", OTHER_HEADERS)
def test_the_runs_own_page_has_every_header_once(client, name):
    answer = client.get("/nightly/2/report")
    assert answer.headers.getlist(name) == [OTHER_HEADERS[name]]


def test_the_runs_own_page_sets_no_cookie(client):
    assert "Set-Cookie" not in client.get("/nightly/2/report").headers


def test_the_pages_around_it_have_the_policy_of_all_pages(client):
    for path in ("/nightly", "/nightly/2"):
        (policy,) = client.get(path).headers.getlist("Content-Security-Policy")
        assert directives(policy)["script-src"] == "'self'"
        assert "unsafe" not in policy


@pytest.mark.parametrize("path", ["/nightly", "/nightly/2", "/nightly/2/report"])
def test_nobody_sees_it_unless_signed_in(client, path):
    client.post("/sign-out")
    assert client.get(path).status_code == 302


def test_results_cannot_be_posted_through_the_web(client):
    assert client.post("/api/v1/nightly", json={"result": {}}).status_code == 403
