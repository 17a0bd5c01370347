# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue, Conflict
from sluice_controller.domain.limits import Limit, parse_by_resource
from sluice_controller.domain.models import as_json
from sluice_controller.domain.scheduling import (
    Scheduling,
    Window,
    check_all_within,
    check_within,
)
from unit.controller.scheduling_data import knobs

WINDOW = {"period_ns": 20_000_000, "bytes": 65536}
SECOND = 10**9


def parsed(raw, resource):
    found = parse_by_resource({resource: raw}, Scheduling, "scheduling")
    return found.get(resource, Scheduling())


@pytest.mark.parametrize(
    ("body", "member", "words"),
    [
        ({"reservation_bytes_per_second": 0}, "reservation_bytes_per_second", "below 1"),
        ({"reservation_bytes_per_second": 1e11 + 1e4}, "reservation_bytes_per_second", "above"),
        ({"reservation_bytes_per_second": "5"}, "reservation_bytes_per_second", "no unit"),
        ({"policy": "leaky"}, "policy", "is not known"),
        ({"policy": 7}, "policy", "is not known"),
        ({"policy": "token-leaky"}, "policy", "has no peak"),
        ({"peak_bytes_per_second": 5e6}, "peak_bytes_per_second", "token-bucket"),
        (
            {"policy": "leaky-bucket", "peak_bytes_per_second": 5e6},
            "peak_bytes_per_second",
            "does not go with the policy leaky-bucket",
        ),
        ({"minimum_charge_bytes": -1}, "minimum_charge_bytes", "0 to 1048576"),
        ({"minimum_charge_bytes": 2**20 + 1}, "minimum_charge_bytes", "0 to 1048576"),
        ({"minimum_charge_bytes": 4096.0}, "minimum_charge_bytes", "integer"),
        ({"dynamic": True}, "dynamic", "is not known"),
        ({"charge": "disk"}, "charge", "use one of all, device"),
        ({"window": 5}, "window", "is not an object"),
        ({"window": {"period_ns": 1000}}, "window.bytes", "1 to 4294967295"),
        ({"window": {"bytes": 1}}, "window.period_ns", "1000 to 3600000000000"),
        ({"window": {**WINDOW, "period_ns": 999}}, "window.period_ns", "1000 to"),
        ({"window": {**WINDOW, "bytes": 2**32}}, "window.bytes", "1 to 4294967295"),
        ({"window": {**WINDOW, "of": 1001}}, "window.of", "1 to 1000"),
        ({"window": {**WINDOW, "may_miss": 1}}, "window.may_miss", "0 to 0"),
        ({"window": {**WINDOW, "late": 1}}, "window.late", "is not known"),
        # As much as a limit may be.
        ({"window": {"period_ns": 1000, "bytes": 10**8 + 1}}, "window", "above 100000000000"),
        (
            {"window": WINDOW, "reservation_bytes_per_second": 5e6},
            "window",
            "does not go with a reservation",
        ),
        ({"weight": 5}, "weight", "is not known"),
        ([], "", "is not an object"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_remedy(body, member, words):
    with pytest.raises(BadValue) as refused:
        parsed(body, "blk-read")
    assert refused.value.thing == f"scheduling.blk-read.{member}".rstrip(".")
    assert words in f"{refused.value.problem}: {refused.value.remedy}"
    assert refused.value.remedy


def test_frames_are_charged_for_all_they_are():
    body = {"charge": "device"}
    assert parsed(body, "blk-write").charge == "device"
    with pytest.raises(BadValue, match="does not go with net-tx"):
        parsed(body, "net-tx")


def test_null_and_absent_are_as_by_default():
    nulls = dict.fromkeys(as_json(Scheduling()))
    assert parsed(nulls, "net-tx") == Scheduling()
    some = {"blk-read": None, "net-tx": {}, "net-rx": nulls}
    assert parse_by_resource(some, Scheduling, "scheduling") == {}
    with pytest.raises(BadValue, match="scheduling.disk"):
        parse_by_resource({"disk": {}}, Scheduling, "scheduling")


def test_a_window_reserves_its_rate_rounded_up():
    assert Window(period_ns=3 * SECOND, bytes=10).bytes_per_second == 4
    scheduling = Scheduling(window=Window(20_000_000, 65536))
    assert scheduling.reserved_bytes_per_second == 65536 * 50
    assert Scheduling(7.0).reserved_bytes_per_second == 7.0
    assert Scheduling().reserved_bytes_per_second == 0


@pytest.mark.parametrize(
    ("limit", "scheduling", "member"),
    [
        (5e6, Scheduling(5e6 + 1), "reservation_bytes_per_second"),
        (65536 * 50 - 1, Scheduling(window=Window(20_000_000, 65536)), "window"),
        (5e6, Scheduling(None, "token-leaky", 5e6 - 1), "peak_bytes_per_second"),
        (None, Scheduling(None, "token-leaky", 5e6), "policy"),
    ],
)
def test_what_does_not_fit_the_limit_is_refused(limit, scheduling, member):
    with pytest.raises(BadValue) as refused:
        check_within(Limit(limit), scheduling, "scheduling.net-tx")
    assert refused.value.thing == f"scheduling.net-tx.{member}"
    with pytest.raises(Conflict):
        check_all_within({"net-tx": Limit(limit)}, {"net-tx": scheduling}, Conflict)


def test_what_just_fits_the_limit_is_taken():
    check_within(Limit(5e6), Scheduling(5e6), "x")
    check_within(Limit(5e6), Scheduling(None, "token-leaky", 5e6), "x")
    check_within(Limit(65536 * 50), Scheduling(window=Window(20_000_000, 65536)), "x")
    # An operation rate alone bounds no bytes.
    check_within(Limit(operations_per_second=5), Scheduling(5e6), "x")


@given(knobs())
def test_scheduling_survives_a_round_trip_through_json(some):
    limits, scheduling, _queues = some
    again = parse_by_resource(as_json(scheduling), Scheduling, "scheduling")
    assert again == scheduling
    check_all_within(limits, again)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*as_json(Scheduling()), "x"]), JSON), st.booleans())
def test_nonsense_is_refused_and_never_crashes(body, disk):
    resource = "blk-read" if disk else "net-rx"
    try:
        found = parsed(body, resource)
    except BadValue as error:
        assert error.remedy and error.as_problem()["thing"].startswith("scheduling")
        return
    assert parsed(as_json(found), resource) == found
