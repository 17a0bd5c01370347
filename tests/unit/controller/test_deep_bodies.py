# SPDX-License-Identifier: GPL-2.0-or-later
"""Bodies that nest deeper than Python's stack are refused, and so are those just below. Bodies
whose objects would hold up the ticks are refused before they are made.
"""

import json

import pytest

from sluice_controller.entry.api.app import MAX_NESTING, MAX_PARTS, create_app, nests_beyond
from sluice_controller.services.catalogue import NOBODY_ASKS, current_actor

HEADERS = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
SHAPES = {
    "objects": lambda deep: '{"a":' * deep + "1" + "}" * deep,
    "lists": lambda deep: '{"a":' + "[" * deep + "]" * deep + "}",
    "endless": lambda deep: '{"a":' * deep,
}
# Around a thousand the parser still takes what the code behind it no longer does.
DEPTHS = [MAX_NESTING + 1, *range(600, 1050, 10), 100_000]


@pytest.fixture(scope="module")
def client():
    return create_app(None, "secret").test_client()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_deep_body_is_refused_in_words(client, shape):
    for deep in DEPTHS:
        body = SHAPES[shape](deep)
        answer = client.put("/v1/settings", data=body, headers=HEADERS)
        assert answer.status_code == 422, deep
        said = answer.get_json()
        assert said["thing"] == "body" and body.startswith(said["value"].rstrip("…"))


PARTS = {"numbers": "1,", "lists": "[],", "texts": '"[,",', "objects": "{},"}


@pytest.mark.parametrize("kind", PARTS)
def test_a_body_of_too_many_parts_is_refused_before_they_are_made(client, monkeypatch, kind):
    made = []
    monkeypatch.setattr("json.loads", lambda *_args, **_more: made.append(1))
    body = '{"history_seconds": [' + PARTS[kind] * (MAX_PARTS + 1) + "1]}"
    answer = client.put("/v1/settings", data=body, headers=HEADERS)
    monkeypatch.undo()
    assert (answer.status_code, made) == (422, [])
    assert f"more than {MAX_PARTS} commas and brackets" in answer.get_json()["detail"]


def test_commas_in_a_text_are_no_parts_and_a_large_value_is_said_in_short(client):
    text, wrong = "[," * MAX_PARTS, [[1] * 9] * 9999
    for value in (text, wrong):
        body = json.dumps({"history_seconds": value})
        answer = client.put("/v1/settings", data=body, headers=HEADERS)
        said = answer.get_json()
        assert (answer.status_code, said["thing"]) == (422, "history_seconds")
        assert len(answer.get_data()) < 5000 and said["value"].endswith("…")


def test_who_asked_is_nobody_once_the_request_is_over(client):
    client.put("/v1/settings", data=b"[", headers={**HEADERS, "X-Sluice-Actor": "admin"})
    assert current_actor.get() == NOBODY_ASKS


def test_what_nests_no_deeper_than_may_be_is_not_beyond():
    value = [1]
    for _ in range(MAX_NESTING - 1):
        value = {"a": value, "b": []}
    assert not nests_beyond(value, MAX_NESTING)
    assert nests_beyond({"a": value}, MAX_NESTING)
    assert not nests_beyond(1, 0)
