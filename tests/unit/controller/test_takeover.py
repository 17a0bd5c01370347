# SPDX-License-Identifier: GPL-2.0-or-later
"""What is taken over is what was there: no command follows, and nothing gets looser."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_controller.domain.carried import Holding
from sluice_controller.domain.errors import BadValue, Conflict
from sluice_controller.domain.limits import RESOURCES, Limit
from sluice_controller.domain.model import Grant, Rule, ShapingClass, Stream
from sluice_controller.domain.queues import Queue
from sluice_controller.domain.scheduling import Scheduling, check_all_within
from sluice_controller.domain.shaper_config import actual, commands, wanted
from sluice_controller.domain.takeover import holding_of, merged, planned
from unit.controller.test_carried import holdings, pairs
from unit.controller.test_shaper_config import Shaper

DEFAULT = ShapingClass("default", "Everything else")


def config(held, classes):
    return wanted("vm", list(held.grants), classes, held.ceiling, {})


def configured(want):
    shaper = Shaper()
    shaper.run(commands("sluice0", actual(shaper.query(), want), want))
    return shaper


def shaper_with(held):
    """A shaper that was configured by another sluiced."""
    return configured(config(held, held.classes.values()))


def taken(held, own=(DEFAULT,), streams=(), rules=(), most_rules=256):
    plan = planned("vm", held, own, streams, rules, most_rules)
    return plan, {c.name: c for c in (*plan.new_classes, *own)}


@given(holdings())
@settings(max_examples=50)
def test_what_a_shaper_holds_is_wanted_after_it_was_taken_over(held):
    shaper = shaper_with(held)
    row = shaper.query()
    _plan, classes = taken(merged(holding_of("vm", row), None), own=[held.classes["default"]])
    want = config(merged(holding_of("vm", row), None), classes.values())
    assert commands("sluice0", actual(row, want), want) == []
    assert actual(row, want) == want


@given(holdings())
@settings(max_examples=50)
def test_what_is_carried_makes_the_other_hosts_shaper_the_same(held):
    there = shaper_with(held).query()
    shaper = Shaper()
    arrived = merged(holding_of("vm", shaper.query()), held)
    _plan, classes = taken(arrived, own=[held.classes["default"]])
    want = config(arrived, classes.values())
    shaper.run(commands("sluice0", actual(shaper.query(), want), want))
    assert shaper.query()["classes"] == there["classes"]
    assert shaper.query()["ceiling"] == there["ceiling"]
    assert (arrived.rules, arrived.assignments) == (held.rules, held.assignments)


@given(holdings(), holdings())
@settings(max_examples=50)
def test_where_both_say_something_the_shapers_word_holds(there, carried):
    row = shaper_with(there).query()
    both = merged(holding_of("vm", row), carried)
    alone = merged(holding_of("vm", row), None)
    by_name = {g.class_name: g for g in both.grants}
    assert all(by_name[g.class_name] == g for g in alone.grants)
    # And what comes beside it collides with none of it.
    tags = [g.tag for g in both.grants]
    values = [value for g in both.grants for value in g.dscp]
    assert len(set(tags)) == len(tags) and len(set(values)) == len(values)
    for limit in carried.ceiling:
        assert limit in both.ceiling or alone.ceiling


@given(holdings(), st.floats(1e4, 1e9), st.data())
@settings(max_examples=50)
def test_what_auto_shaping_held_is_the_operators_again(held, rate, data):
    tuned = data.draw(pairs(held))
    caps = {("vm", *pair): rate for pair in tuned}
    want = wanted("vm", list(held.grants), held.classes.values(), held.ceiling, caps)
    row = configured(want).query()
    here = config(merged(holding_of("vm", row), held, tuned), held.classes.values())
    # A burst that the shaper would choose itself may be left to it.
    assert configured(here).query() == shaper_with(held).query()


@given(holdings(), holdings(), st.data())
@settings(max_examples=50)
def test_of_another_shaper_it_is_these_limits_alone(there, carried, data):
    tuned = data.draw(pairs(carried))
    row = holding_of("vm", shaper_with(there).query())
    before, after = merged(row, carried), merged(row, carried, tuned)
    own = {g.class_name: g.limits for g in carried.grants}
    assert [replace(g, limits={}) for g in after.grants] == [
        replace(g, limits={}) for g in before.grants
    ]
    for was, grant in zip(before.grants, after.grants, strict=True):
        check_all_within(grant.limits, grant.scheduling)
        for resource in RESOURCES:
            allowed = [was.limits.get(resource)]
            if (grant.class_name, resource) in tuned:
                allowed.append(own[grant.class_name].get(resource))
            assert grant.limits.get(resource) in allowed


def test_a_promise_that_is_newer_than_what_is_carried_keeps_its_limit():
    promise = {"blk-read": Scheduling(reservation_bytes_per_second=2e6)}
    newer = replace(LIMITED, limits={"blk-read": Limit(3e6)}, scheduling=promise)
    both = merged(held_with(grants=(newer,)), held_with(), {("a", "blk-read")})
    assert both.grants == (newer,)


def test_a_burst_that_the_shaper_chose_is_left_to_it():
    rows = [
        {"resource": "blk-read", "bytes-per-second": 4_000_000, "burst-bytes": 200_000},
        {"resource": "net-tx", "bytes-per-second": 4_000_000, "burst-bytes": 100_000},
        {"resource": "net-rx", "operations-per-second": 10, "burst-operations": 1},
    ]
    queues = [{"resource": "net-rx", "connections-per-second": 200, "burst-connections": 10}]
    row = {"class": "a", "tag": 1, "limits": rows, "queues": queues}
    (grant,) = holding_of("vm", {"classes": [row]}).grants
    assert grant.limits == {
        "blk-read": Limit(4_000_000),
        "net-tx": Limit(4_000_000, 100_000),
        "net-rx": Limit(operations_per_second=10),
    }
    assert grant.queues == {"net-rx": Queue(connections_per_second=200)}


def test_what_no_catalogue_could_say_is_refused():
    rows = [{"resource": "blk-read", "bytes-per-second": 1}]
    with pytest.raises(BadValue, match="below 1024"):
        holding_of("vm", {"classes": [{"class": "a", "tag": 1, "limits": rows}]})


def test_a_shaper_that_nobody_configured_has_nothing():
    assert merged(holding_of("vm", Shaper().query()), None).grants == ()


LIMITED = Grant("vm", "a", 3, (), {"blk-read": Limit(1e6)})


def held_with(shaping_class=None, grants=(LIMITED,), rules=()):
    shaping_class = shaping_class or ShapingClass("a", "A", 7)
    return Holding({"default": DEFAULT, "a": shaping_class}, grants, {}, rules)


def test_a_class_of_this_host_stays_as_it_is_and_the_difference_is_said():
    own = ShapingClass("a", "Ours", 2, weight=500, colour_index=4)
    plan, classes = taken(held_with(), own=[DEFAULT, own])
    assert plan.new_classes == () and classes["a"] == own
    assert plan.holding.grants == (LIMITED,)
    assert plan.notes == (
        "class a keeps this host's priority 2 instead of 7",
        "class a keeps this host's weight 500 instead of 100",
    )


def test_a_class_that_is_new_gets_a_colour_of_this_host():
    own = [DEFAULT, ShapingClass("x", "X", colour_index=1)]
    plan, _ = taken(held_with(), own=own)
    assert [c.colour_index for c in plan.new_classes] == [2]


@pytest.mark.parametrize("name", ["a", "default"])
def test_an_unmanaged_class_of_this_host_is_a_conflict(name):
    own = [replace(c, unmanaged=c.name == name) for c in (DEFAULT, ShapingClass("a", "A"))]
    with pytest.raises(Conflict, match="unmanaged on this host") as refused:
        taken(held_with(), own=own)
    assert refused.value.remedy == f"manage it here: sluice class set {name} --managed"


def test_one_that_is_managed_here_and_was_not_there_only_tightens():
    plan, _ = taken(
        held_with(ShapingClass("a", "A", unmanaged=True)), own=[DEFAULT, ShapingClass("a", "A")]
    )
    assert plan.notes == ("class a keeps this host's unmanaged False instead of True",)


def test_a_stream_whose_class_the_domain_has_no_more_is_a_conflict():
    streams = [Stream("film", "vm", "movie", 1e6), Stream("other", "vm2", "movie", 1e6)]
    with pytest.raises(Conflict, match="stream 'film'"):
        taken(held_with(), streams=streams)
    taken(held_with(), streams=streams[1:])


def test_a_rule_that_this_host_has_for_all_is_not_taken_twice():
    rules = [Rule(n, "vm", "a", {"exe": f"/{n}"}, 0.0) for n in (1, 2)]
    everywhere = [Rule(9, None, "a", {"exe": "/1"}, 0.0), Rule(8, "vm2", "a", {"exe": "/2"}, 0.0)]
    plan, _ = taken(held_with(rules=tuple(rules)), rules=everywhere)
    assert plan.holding.rules == (rules[1],)
    with pytest.raises(Conflict, match="more than 2"):
        taken(held_with(rules=tuple(rules)), rules=everywhere, most_rules=2)


@given(holdings(), st.lists(st.sampled_from("abcd"), unique=True))
@settings(max_examples=50)
def test_no_class_is_lost_on_the_way_into_the_catalogue(held, names):
    own = [DEFAULT, *(ShapingClass(name, name) for name in names)]
    own[0] = held.classes["default"]
    plan, classes = taken(held, own=own)
    assert plan.holding.grants == held.grants
    assert {g.class_name for g in held.grants} <= set(classes)
