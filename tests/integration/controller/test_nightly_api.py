# SPDX-License-Identifier: GPL-2.0-or-later
"""Nightly results over a real daemon, a real socket and the command line."""

import json

import pytest

from unit.controller.nightly_facts import result

PAGE = "<!doctype html><title>night</title>"


@pytest.fixture(scope="module")
def nights(daemon):
    """Three nights: one that ran, one refused, one that ran and failed its checks."""
    kept = []
    for number, outcome in ((1, "passed"), (2, "refused"), (3, "failed")):
        body = {"result": result(number, outcome), "page": PAGE if number == 1 else None}
        kept.append(daemon.call("POST", "/v1/nightly", body))
    return kept


def test_nights_are_listed_newest_first_without_their_series(daemon, nights):
    listed = daemon.call("GET", "/v1/nightly")
    assert [n["outcome"] for n in listed] == ["failed", "refused", "passed"]
    assert listed == nights[::-1]
    assert "result" not in listed[0]
    assert listed[2]["figures"]["auto"]["verdict"] == "perfect"
    assert listed[1]["figures"] is None and listed[1]["reasons"][0]["code"] == "guests-busy"
    assert daemon.call("GET", "/v1/nightly?limit=1") == listed[:1]


def test_one_night_is_shown_whole_with_its_page(daemon, nights):
    whole = daemon.call("GET", f"/v1/nightly/{nights[0]['id']}")
    assert whole["result"] == result(1) and whole["has_page"] is True
    page = daemon.call("GET", f"/v1/nightly/{nights[0]['id']}/page")
    assert page == {"html": PAGE}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "thing"),
    [
        ("POST", "/v1/nightly", {}, 422, "result"),
        ("POST", "/v1/nightly", {"result": {"version": 9}}, 422, "result.version"),
        ("POST", "/v1/nightly", {"result": result(9), "keep": 0}, 422, "keep"),
        ("POST", "/v1/nightly", {"result": result(9), "more": 1}, 422, "more"),
        ("POST", "/v1/nightly", {"result": {**result(1), "ended_at": 2e9}}, 409, "run_id"),
        ("POST", "/v1/nightly", {"result": result(9), "page": "x" * 1_100_000}, 422, "page"),
        ("POST", "/v1/nightly", {"result": result(9), "page": "x" * (16 << 20)}, 413, "request"),
        ("GET", "/v1/nightly/99", None, 404, "nightly result"),
        ("GET", f"/v1/nightly/{2**31}", None, 422, "night"),
        ("GET", f"/v1/nightly/{10**30}/page", None, 422, "night"),
        ("GET", "/v1/nightly/2/page", None, 404, "page of nightly result"),
        ("GET", "/v1/nightly?limit=0", None, 422, "limit"),
        ("DELETE", "/v1/nightly/1", None, 405, "request"),
    ],
)
def test_refusals_change_nothing(daemon, nights, method, path, body, status, thing):
    before = daemon.call("GET", "/v1/nightly")
    answer = daemon.request(method, path, body)
    assert (answer.status_code, answer.json()["thing"]) == (status, thing)
    assert daemon.call("GET", "/v1/nightly") == before


def test_without_the_token_nothing_is_taken(daemon, nights):
    answer = daemon.request("POST", "/v1/nightly", {"result": result(9)}, headers={})
    assert answer.status_code == 401
    assert len(daemon.call("GET", "/v1/nightly")) == 3


def test_the_command_lists_and_shows(daemon, nights, tmp_path):
    listed = daemon.cli("nightly", "list")
    assert listed.returncode == 0, listed.stderr
    assert "because of the test" in listed.stdout and "88%" in listed.stdout
    assert json.loads(daemon.cli("nightly", "list", "--json").stdout) == nights[::-1]
    page = tmp_path / "night.html"
    shown = daemon.cli("nightly", "show", str(nights[0]["id"]), f"--page={page}")
    assert shown.returncode == 0, shown.stderr
    assert "holds  auto is perfect" in shown.stdout and page.read_text() == PAGE
    newest = daemon.cli("nightly", "show")
    assert "FAILS  auto is perfect" in newest.stdout
    missing = daemon.cli("nightly", "show", "99")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "99" in missing.stderr


def test_a_night_survives_a_restart(make_daemon):
    daemon = make_daemon()
    kept = daemon.call("POST", "/v1/nightly", {"result": result(1)})
    daemon.stop()
    daemon.start()
    assert daemon.call("GET", "/v1/nightly") == [kept]
