# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.limits import parse_by_resource
from sluice_controller.domain.models import as_json
from sluice_controller.domain.queues import AUTO, Queue
from unit.controller.scheduling_data import knobs


def parsed(raw, resource):
    return parse_by_resource({resource: raw}, Queue, "queues").get(resource, Queue())


@pytest.mark.parametrize(
    ("resource", "body", "member", "words"),
    [
        ("blk-read", {}, "", "disk requests are never dropped"),
        ("net-tx", {"limit_bytes": 0}, "limit_bytes", "1 to 67108864"),
        ("net-tx", {"limit_bytes": 2**26 + 1}, "limit_bytes", "1 to 67108864"),
        ("net-tx", {"limit_packets": 2**18 + 1}, "limit_packets", "1 to 262144"),
        ("net-tx", {"limit_packets": True}, "limit_packets", "integer"),
        ("net-tx", {"aqm": "red"}, "aqm", "use one of none, codel"),
        ("net-tx", {"ecn": 1}, "ecn", "neither true nor false"),
        ("net-tx", {"ecn": True}, "ecn", "give aqm codel too"),
        ("net-tx", {"connections_per_second": 5}, "connections_per_second", "use net-rx"),
        ("net-rx", {"connections_per_second": 0}, "connections_per_second", "below 1"),
        ("net-rx", {"burst_connections": 5}, "burst_connections", "has no rate"),
        ("net-rx", {"overload": "auto"}, "overload", "the most in a second"),
        ("net-rx", {"overload": "on"}, "overload", "use one of off, auto"),
        ("net-rx", {"rate": 5}, "rate", "is not known"),
        ("net-rx", [], "", "is not an object"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_remedy(resource, body, member, words):
    with pytest.raises(BadValue) as refused:
        parsed(body, resource)
    assert refused.value.thing == f"queues.{resource}.{member}".rstrip(".")
    assert words in f"{refused.value.problem}: {refused.value.remedy}"


def test_null_and_absent_are_as_by_default():
    nulls = dict.fromkeys(as_json(Queue()))
    assert parsed(nulls, "net-rx") == Queue()
    assert parse_by_resource({"net-tx": None, "net-rx": nulls}, Queue, "queues") == {}
    with pytest.raises(BadValue, match="queues.disk"):
        parse_by_resource({"disk": {}}, Queue, "queues")
    with pytest.raises(BadValue, match="queues"):
        parse_by_resource([], Queue, "queues")


@given(knobs())
def test_queues_survive_a_round_trip_through_json(some):
    _limits, _scheduling, queues = some
    assert parse_by_resource(as_json(queues), Queue, "queues") == queues


def test_overload_control_survives_a_round_trip_through_json():
    queue = Queue(connections_per_second=200.0, overload=AUTO)
    assert parsed(as_json(queue), "net-rx") == queue


@given(
    st.dictionaries(
        st.sampled_from([*as_json(Queue()), "x"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    )
)
def test_nonsense_is_refused_and_never_crashes(body):
    try:
        found = parsed(body, "net-rx")
    except BadValue as error:
        assert error.remedy
        return
    assert parsed(as_json(found), "net-rx") == found
