# SPDX-License-Identifier: GPL-2.0-or-later
"""Fields of forms, from the controller's OpenAPI document."""

import copy
import html
import json

import pytest

from sluice_web.forms import Document, Field
from unit.web.document import DOCUMENT, OF_A_CLASS
from unit.web.test_web_pages import Host, client_of

NEW = {
    "anyOf": [{"minimum": 1, "maximum": 9, "type": "integer"}, {"type": "null"}],
    "default": None,
    "description": "how much it hurries; null: as others",
}
# Where a member that is new to the models appears: the schema, the page, the field's name.
PLACES = [
    ("Limit", "/vm/media", "hurry"),
    ("Scheduling", "/vm/media", "hurry"),
    ("Window", "/vm/media", "window.hurry"),
    ("Queue", "/vm/media", "hurry"),
    ("ClassBody", "/classes", "hurry"),
    ("Match", "/classes", "hurry"),
    ("GroupBody", "/groups", "hurry"),
    ("StreamBody", "/streams", "hurry"),
]


def fields(path):
    return {one.name: one for one in Document(DOCUMENT).body(path)}


def test_a_field_has_the_name_range_unit_help_and_default_of_its_member():
    found = fields(f"{OF_A_CLASS}/limits/{{resource}}")["bytes_per_second"]
    assert (found.label, found.kind, found.unit) == ("rate", "amount", "bytes per second")
    assert (found.tip, found.hint) == ("1,024 to 100,000,000,000 bytes per second", "unlimited")
    assert fields("/classes/{class}") == {
        "title": Field("title", "title", hint="Batch", example="Batch", usual='""', longest=80),
        "weight": Field(
            "weight",
            "weight",
            tip="its share; 1 to 1,000",
            usual="100",
            kind="number",
            bounds=(1, 1000),
        ),
    }


def test_an_object_in_an_object_gives_fields_of_its_own():
    found = fields(f"{OF_A_CLASS}/scheduling/{{resource}}")
    assert list(found) == [
        "policy",
        "peak_bytes_per_second",
        "charge",
        "window.period_ns",
        "window.of",
    ]
    assert (found["window.period_ns"].label, found["window.period_ns"].hint) == (
        "window period",
        "none",
    )
    assert found["peak_bytes_per_second"].beside == {"policy": "token-leaky"}
    assert found["policy"].words == ("token-bucket", "token-leaky")


@pytest.mark.parametrize(
    ("resource", "kinds"),
    [
        ("blk-read", {"limits": 1, "scheduling": 5}),
        ("net-tx", {"limits": 1, "scheduling": 4}),
        ("net-rx", {"limits": 1, "scheduling": 4, "queues": 1}),
    ],
)
def test_a_resource_has_the_fields_that_go_with_it(resource, kinds):
    found = Document(DOCUMENT).of_a_class(resource)
    assert {kind: len(fields) for kind, fields in found.items()} == kinds


@pytest.mark.parametrize(("schema", "path", "name"), PLACES)
def test_a_member_that_is_new_to_the_controller_has_a_field(tmp_path, schema, path, name):
    document = copy.deepcopy(DOCUMENT)
    document["components"]["schemas"][schema]["properties"]["hurry"] = NEW
    host = Host()
    host.answers = {**host.answers, "/v1/openapi.json": document, "/v1/rules": []}
    text = html.unescape(client_of(tmp_path, host).get(path).text)
    if schema == "Match":
        assert f'<option value="{name}"' in text
    else:
        assert f'name="{name}"' in text and 'placeholder="as others"' in text
        assert 'title="how much it hurries; 1 to 9"' in text


def test_a_class_is_changed_with_all_members_of_its_body(tmp_path):
    host = Host()
    body = {"title": "Batch", "weight": 30}
    one = {"name": "batch", "colour_index": 1, "priority": 5, "is_stream": False}
    host.answers = {
        **host.answers,
        "/v1/classes": [{**one, "unmanaged": False, **body}],
        "/v1/rules": [],
    }
    text = client_of(tmp_path, host).get("/classes").text
    assert json.dumps(body) in html.unescape(text)
