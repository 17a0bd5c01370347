# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of nightly runs: taken whole or refused whole."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain import nightly
from sluice_controller.domain.errors import BadValue, Conflict, NotFound, SluiceError
from sluice_controller.domain.models import as_json, parse
from sluice_controller.services.nightly import Nightly
from unit.controller.nightly_facts import measured, result


def parse_result(raw):
    return parse(nightly.NightlyResult, raw)


def figures_of(raw):
    return as_json(nightly.figures(parse(nightly.Measured, raw)))


def paths_of(value, path=()):
    """Every member and every first entry of a result, as paths."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths_of(inner, (*path, name))
    elif isinstance(value, list) and value:
        yield from paths_of(value[0], (*path, 0))


PATHS = [path for path in paths_of(result()) if path]


def changed(path, change):
    whole = result()
    inner = whole
    for part in path[:-1]:
        inner = inner[part]
    change(inner, path[-1])
    return whole


@pytest.mark.parametrize("outcome", nightly.OUTCOMES)
def test_every_outcome_is_taken_as_it_is(outcome):
    given_result = result(outcome=outcome)
    assert as_json(parse_result(copy.deepcopy(given_result))) == given_result


@pytest.mark.parametrize(
    "path", [p for p in PATHS if p[-1] != 0], ids=lambda p: ".".join(map(str, p))
)
def test_a_missing_member_is_named(path):
    def remove(inner, name):
        del inner[name]

    with pytest.raises(BadValue) as caught:
        parse_result(changed(path, remove))
    assert caught.value.thing.endswith(str(path[-1]))


@pytest.mark.parametrize(
    "wrong", [float("nan"), float("inf"), 10**400, {}, [[]], True, "\x00", -1e15]
)
def test_a_wrong_value_anywhere_is_refused(wrong):
    def put(inner, name):
        inner[name] = wrong

    for path in PATHS:
        if wrong is True and path[-1] == "holds":
            continue
        with pytest.raises(BadValue):
            parse_result(changed(path, put))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from(PATHS), json_values)
def test_whatever_is_put_anywhere_is_refused_in_words_or_can_be_stored(path, value):
    def put(inner, name):
        inner[name] = value

    try:
        taken = parse_result(changed(path, put))
    except BadValue as refusal:
        assert refusal.thing and refusal.remedy
        json.dumps(refusal.as_problem(), allow_nan=False)
    else:
        json.dumps(as_json(nightly.summary(taken)), allow_nan=False)
        assert parse_result(as_json(taken)) == taken


@pytest.mark.parametrize(
    ("change", "thing"),
    [
        ({"version": 2}, "version"),
        ({"outcome": "fine"}, "outcome"),
        ({"outcome": "failed"}, "outcome"),
        ({"measured": None}, "measured"),
        ({"outcome": "refused"}, "measured"),
        ({"outcome": "refused", "measured": None}, "reasons"),
        ({"ended_at": 5.0}, "ended_at"),
        ({"run_id": "../../etc/passwd"}, "run_id"),
        ({"colour": "red"}, "colour"),
        ({"measured": {**measured(), "checks": []}}, "outcome"),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(change, thing):
    with pytest.raises(BadValue) as caught:
        parse_result({**result(), **change})
    assert caught.value.thing == thing


def test_columns_are_equally_long_and_not_endless():
    uneven = result()
    uneven["measured"]["windows"]["verdict"].append("perfect")
    with pytest.raises(BadValue, match="windows.verdict"):
        parse_result(uneven)
    endless = result()
    endless["measured"] = measured(points=2 * nightly.MOST_POINTS + 2)
    with pytest.raises(BadValue, match="too long"):
        parse_result(endless)


def test_the_figures_of_the_trend():
    found = figures_of(measured())
    assert found["background_ratio"] == pytest.approx(57 / 65)
    assert found["unshaped"]["stall_seconds"] == 20.0
    assert found["auto"]["verdict"] == "perfect"
    assert found["settled_after_s"] == 7.5
    still = measured()
    still["phases"]["unshaped"]["background"] = {"http_bytes_per_s": 0, "disk_bytes_per_s": 0}
    assert figures_of(still)["background_ratio"] is None


@pytest.mark.parametrize("keep", [0, 1001, 1.5, True, "90"])
def test_how_many_stay_is_checked(keep):
    with pytest.raises(BadValue, match="keep"):
        parse(nightly.NightlyBody, {"result": result(), "keep": keep})


# The service over a real database


@pytest.fixture
def service(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield Nightly(store, lambda: 42.0)
    store.close()


def test_a_night_comes_back_with_its_page(service):
    kept = service.add({"result": result(1), "page": "<!doctype html>ü", "keep": 5})
    assert service.list(10) == [kept]
    whole = service.show(kept["id"])
    assert whole["result"] == result(1) and whole["has_page"]
    assert service.page(kept["id"]) == {"html": "<!doctype html>ü"}
    with service.store.transaction() as unit:
        (entry,) = unit.audit(5)
    assert (entry.action, entry.after) == ("nightly result", {"outcome": "passed"})


def test_a_retry_is_kept_once_and_another_result_is_a_conflict(service):
    first = service.add({"result": result(1)})
    assert service.add({"result": result(1)}) == first
    with pytest.raises(Conflict):
        service.add({"result": {**result(1), "ended_at": result(1)["ended_at"] + 1}})
    assert len(service.list(10)) == 1


def test_the_newest_nights_stay(service):
    for number in (3, 1, 2, 5, 4):
        service.add({"result": result(number, "refused"), "keep": 3})
    kept = [night["run_id"] for night in service.list(10)]
    assert kept == [f"{number:032x}" for number in (5, 4, 3)]


def test_a_night_of_a_host_whose_clock_went_back_is_kept_when_it_comes(service):
    for number in (3, 4, 5, 1):
        service.add({"result": result(number, "refused"), "keep": 3})
    kept = [night["run_id"] for night in service.list(10)]
    assert kept == [f"{number:032x}" for number in (5, 4, 1)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"result": []},
        {"result": result(), "page": 5},
        {"result": result(), "page": "x" * (nightly.MOST_PAGE_CHARACTERS + 1)},
        {"result": result(), "keep": 0},
    ],
)
def test_a_refused_result_leaves_nothing(service, body):
    with pytest.raises(SluiceError):
        service.add(body)
    assert service.list(10) == []
    with service.store.transaction() as unit:
        assert unit.audit(5) == []


def test_a_night_that_is_not_there_is_named(service):
    with pytest.raises(NotFound, match="7"):
        service.show(7)
    kept = service.add({"result": result(1, "refused")})
    with pytest.raises(NotFound, match="page"):
        service.page(kept["id"])
