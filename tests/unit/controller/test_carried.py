# SPDX-License-Identifier: GPL-2.0-or-later
"""What a domain carries is read as it was written, and nothing else is read at all."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_controller.domain.carried import (
    Carried,
    Holding,
    Tuned,
    as_text,
    content,
    holding,
    parse,
    tuned_text,
)
from sluice_controller.domain.errors import SluiceError
from sluice_controller.domain.limits import RESOURCES, Limit
from sluice_controller.domain.model import Assignment, Grant, Rule, ShapingClass
from unit.controller.scheduling_data import knobs, limits

NOW = 1000.0


@st.composite
def holdings(draw):
    """What a catalogue may say of the domain vm."""
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=2))
    tags = draw(st.permutations(range(1, 16)))
    values = draw(st.permutations([0, 2, 8, 10, 12, 46]))
    grants = [Grant("vm", "default", 0, (), *draw(knobs()))]
    classes = [ShapingClass("default", "Everything else")]
    rules, assignments = [], []
    for i, name in enumerate(names):
        dscp, values = tuple(sorted(values[: i % 3])), values[i % 3 :]
        grants.append(Grant("vm", name, tags[i], dscp, *draw(knobs())))
        classes.append(
            ShapingClass(
                name,
                f"Class {name}",
                draw(st.integers(0, 9)),
                draw(st.booleans()),
                0,
                draw(st.integers(1, 1000)),
                draw(st.booleans()),
            )
        )
        rules.append(Rule(i, "vm", name, {"exe": f"/usr/bin/{name}", "user": "root"}, NOW))
        boot_id = draw(st.sampled_from(("", "-", "b" * 64)))
        assignments.append(Assignment("vm", 100 + i, 5, name, 900.5, boot_id))
    return holding("vm", grants, classes, draw(limits()), rules, assignments)


def pairs(held):
    """Some of the domain's limits, set or not."""
    every = [(name, resource) for name in sorted(held.classes) for resource in RESOURCES]
    return st.frozensets(st.sampled_from(every))


@given(holdings(), st.integers(0, 2**40), st.data())
@settings(max_examples=50)
def test_what_is_written_is_read(held, revision, data):
    tuned = data.draw(st.none() | st.builds(Tuned, st.just("host-1"), pairs(held)))
    carried = Carried("u-1", "me", revision, held, tuned)
    assert parse(as_text(carried), "vm", NOW, tuned_text(tuned)) == carried


@given(holdings())
@settings(max_examples=50)
def test_content_survives_the_way(held):
    text = as_text(Carried("u-1", "me", 1, held))
    assert content(parse(text, "vm", NOW).holding) == content(held)


def test_a_domain_carries_its_own_and_what_is_for_every_domain():
    classes = [ShapingClass("default", "Everything else"), ShapingClass("a", "A")]
    rules = [
        Rule(1, None, "a", {"exe": "/everywhere"}, NOW),
        Rule(2, "vm", "a", {"exe": "/own"}, NOW),
        Rule(3, "other", "a", {"exe": "/others"}, NOW),
        Rule(4, None, "b", {"exe": "/not-granted"}, NOW),
    ]
    held = holding("vm", [Grant("vm", "a", 1)], classes, {}, rules, [])
    assert [r.match["exe"] for r in held.rules] == ["/own", "/everywhere"]
    assert [g.class_name for g in held.grants] == ["default", "a"]


def sound():
    classes = [ShapingClass("default", "Everything else"), ShapingClass("a", "A")]
    grants = [Grant("vm", "a", 1, (46,), {"blk-read": Limit(1e6)})]
    held = holding(
        "vm",
        grants,
        classes,
        {"net-tx": Limit(1e6)},
        [Rule(1, "vm", "a", {"exe": "/x"}, NOW)],
        [Assignment("vm", 100, 5, "a", 900.0, "boot")],
    )
    return json.loads(as_text(Carried("u-1", "me", 1, held)))


def changed(path, value):
    raw = sound()
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        changed(["more"], 1),
        changed(["uuid"], None),
        changed(["owner"], 7),
        changed(["revision"], "1"),
        changed(["revision"], 2**60),
        changed(["classes"], {}),
        changed(["classes"], [{"class": "a", "tag": 1}] * 17),
        changed(["classes", 1, "class"], "../a"),
        changed(["classes", 1, "tag"], 0),
        changed(["classes", 1, "tag"], 16),
        changed(["classes", 0, "tag"], 3),
        changed(["classes", 1, "class"], "default"),
        changed(["classes", 1, "priority"], 10),
        changed(["classes", 1, "unmanaged"], 1),
        changed(["classes", 1, "dscp"], [46, 46]),
        changed(["classes", 1, "limits"], {"blk-read": {"bytes_per_second": -1}}),
        changed(["classes", 1, "limits"], {"tape": {"bytes_per_second": 5000}}),
        changed(["classes", 1, "scheduling"], {"blk-read": {"reservation_bytes_per_second": 2e6}}),
        changed(["classes", 1, "queues"], {"blk-read": {"aqm": "codel"}}),
        changed(["ceiling"], {"net-tx": {"burst_bytes": 5}}),
        changed(["rules", 0, "class"], "b"),
        changed(["rules", 0, "class"], "default"),
        changed(["rules"], [{"class": "a", "match": {"exe": "/x"}}] * 257),
        changed(["assignments", 0, "pid"], 1),
        changed(["assignments", 0, "class"], ["a"]),
        changed(["assignments", 0, "created_at"], "now"),
    ],
)
def test_what_no_sluiced_wrote_is_refused(text):
    with pytest.raises(SluiceError):
        parse(text, "vm", NOW)


@pytest.mark.parametrize("match", [{"exe": "rsync"}, {"cmdline": "x" * 5000}, {"later": "x"}, {}])
def test_a_rule_that_this_sluiced_refuses_is_left_out_alone(match):
    """Another version may have taken it; the domain's classes and limits go before it."""
    found = parse(changed(["rules", 0, "match"], match), "vm", NOW)
    whole = parse(json.dumps(sound()), "vm", NOW)
    assert found.holding == replace(whole.holding, rules=whole.holding.rules[1:])
    (said,) = found.left_out
    assert said.startswith("a rule for a is left out: match") and whole.left_out == ()


def tuned_json(**changes):
    limits = [{"class": "a", "resource": "blk-read"}, {"class": "default", "resource": "net-tx"}]
    return json.dumps({"host": "host-1", "limits": limits, **changes})


def test_limits_of_auto_shaping_are_told_beside_the_text_and_not_in_it():
    """An earlier sluiced refuses a text with a member that it does not know."""
    text = json.dumps(sound())
    found = parse(text, "vm", NOW, tuned_json())
    limits = frozenset({("a", "blk-read"), ("default", "net-tx")})
    assert found.tuned == Tuned("host-1", limits) and found.left_out == ()
    assert json.loads(as_text(found)) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[" * 100_000,
        tuned_json(more=1),
        tuned_json(host=None),
        tuned_json(host=""),
        tuned_json(host="h" * 65),
        tuned_json(limits=None),
        tuned_json(limits={}),
        tuned_json(limits=["a"]),
        tuned_json(limits=[{"class": "a"}]),
        tuned_json(limits=[{"class": "b", "resource": "blk-read"}]),
        tuned_json(limits=[{"class": ["a"], "resource": "blk-read"}]),
        tuned_json(limits=[{"class": "a", "resource": "tape"}]),
        tuned_json(limits=[{"class": "a", "resource": ["blk-read"]}]),
        tuned_json(limits=[{"class": "a", "resource": "blk-read", "cap": 1}]),
        tuned_json(limits=[{"class": "a", "resource": "blk-read"}] * 65),
    ],
)
def test_what_no_sluiced_wrote_beside_it_is_left_out_alone(text):
    """The shaper's limits hold then, and the domain has the rest."""
    found = parse(json.dumps(sound()), "vm", NOW, text)
    assert replace(found, left_out=()) == parse(json.dumps(sound()), "vm", NOW)
    (said,) = found.left_out
    assert said.startswith("which limits are auto-shaping's is left out: ")


def test_the_sound_one_is_read():
    assert parse(json.dumps(sound()), "vm", NOW).holding != Holding()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["uuid", "owner", "revision", "classes", "class", "tag", "limits", "rules"]
                ),
                inner,
                max_size=6,
            )
        ),
    )
)
def test_whatever_is_carried_is_read_or_refused(raw):
    try:
        parse(json.dumps(raw), "vm", NOW)
    except SluiceError as error:
        assert error.remedy
