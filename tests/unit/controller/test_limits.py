# SPDX-License-Identifier: GPL-2.0-or-later
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.limits import (
    MAX_PER_SECOND,
    RESOURCES,
    Limit,
    parse_by_resource,
    tighter,
)
from sluice_controller.domain.models import as_json, parse

rates = st.floats(min_value=1024, max_value=MAX_PER_SECOND)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (-1, "negative"),
        (0, "below 1024"),
        (1023.9, "below 1024"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (True, "not a number"),
        ([], "not a number"),
        (1e11 + 1e5, "above"),
    ],
)
def test_a_bad_rate_is_refused_by_name_value_and_remedy(value, word):
    with pytest.raises(BadValue) as refused:
        parse(Limit, {"bytes_per_second": value}, "limits.blk-read")
    error = refused.value
    assert error.thing == "limits.blk-read.bytes_per_second"
    assert word in error.problem
    assert "1024" in error.remedy
    assert error.status == 422


def test_operations_may_be_as_few_as_one():
    assert parse(Limit, {"operations_per_second": 1}, "x").operations_per_second == 1
    with pytest.raises(BadValue):
        parse(Limit, {"operations_per_second": 0.5}, "x")


def test_a_burst_without_its_rate_is_refused():
    with pytest.raises(BadValue, match="has no rate"):
        parse(Limit, {"burst_bytes": 4096}, "x")
    with pytest.raises(BadValue, match="has no rate"):
        parse(Limit, {"bytes_per_second": 4096, "burst_operations": 1}, "x")


def test_unknown_fields_and_resources_are_refused():
    with pytest.raises(BadValue, match="bytes_per_minute"):
        parse(Limit, {"bytes_per_minute": 4096}, "x")
    with pytest.raises(BadValue, match="disk"):
        parse_by_resource({"disk": {"bytes_per_second": 4096}}, Limit, "limits")
    with pytest.raises(BadValue, match="not an object"):
        parse_by_resource([], Limit, "limits")


def test_null_is_unlimited():
    assert parse(Limit, {"bytes_per_second": None}, "x").is_unlimited
    assert parse_by_resource({"blk-read": None, "net-tx": {}}, Limit, "limits") == {}


@given(st.dictionaries(st.sampled_from(RESOURCES), rates))
def test_limits_survive_a_round_trip_through_json(chosen):
    parsed = parse_by_resource(
        {r: {"bytes_per_second": v} for r, v in chosen.items()}, Limit, "limits"
    )
    again = parse_by_resource(as_json(parsed), Limit, "limits")
    assert again == parsed
    assert {r: limit.bytes_per_second for r, limit in parsed.items()} == chosen


@given(st.one_of(st.none(), rates), rates)
def test_a_cap_never_loosens_the_operators_limit(own, cap):
    result = tighter(Limit(bytes_per_second=own), cap, 262144)
    assert result.bytes_per_second == min(own if own is not None else math.inf, cap)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_nonsense_is_refused_and_never_crashes(value):
    try:
        limit = parse(Limit, {"bytes_per_second": value}, "x")
    except BadValue:
        return
    assert limit.bytes_per_second is None or 1024 <= limit.bytes_per_second <= MAX_PER_SECOND
