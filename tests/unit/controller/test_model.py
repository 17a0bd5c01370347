# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue, Conflict
from sluice_controller.domain.model import (
    Grant,
    GrantBody,
    Settings,
    ShapingClass,
    choose_colour,
    choose_tag,
    parse_class,
    parse_class_name,
    parse_dscp,
    parse_settings,
)
from sluice_controller.domain.models import parse


@pytest.mark.parametrize("name", ["", "UPPER", "a b", "x" * 32, "ä", "a_b", None, 7])
def test_bad_class_names(name):
    with pytest.raises(BadValue) as refused:
        parse_class_name(name, "class")
    assert refused.value.thing == "class"


@pytest.mark.parametrize("priority", [-1, 10, 1.5, "3", True, None])
def test_bad_priorities(priority):
    with pytest.raises(BadValue, match="priority"):
        parse_class("batch", {"priority": priority}, 1)


def test_defaults_of_a_class():
    assert parse_class("batch", {}, 3) == ShapingClass("batch", "batch", 5, False, 3)


def test_the_default_class_cannot_stream():
    with pytest.raises(BadValue, match="default"):
        parse_class("default", {"is_stream": True}, 0)


@given(st.sets(st.integers(1, 15)), st.sampled_from([7, 15]))
def test_the_smallest_free_tag_is_chosen(taken, most):
    free = [tag for tag in range(1, most + 1) if tag not in taken]
    if free:
        assert choose_tag("batch", taken, most) == free[0]
    else:
        with pytest.raises(Conflict, match="tags"):
            choose_tag("batch", taken, most)


def test_default_has_tag_zero():
    assert choose_tag("default", range(16)) == 0


def test_dscp_values():
    others = [Grant("d", "voice", 1, (46,))]
    assert parse_dscp((10, 0), others) == (10, 0)
    for bad in ([64], [-1], ["46"], [True], 46):
        with pytest.raises(BadValue):
            parse(GrantBody, {"dscp": bad})
    with pytest.raises(Conflict, match="voice"):
        parse_dscp((46,), others)
    with pytest.raises(BadValue, match="tags"):
        parse_dscp((7,), others)
    with pytest.raises(BadValue, match="twice"):
        parse_dscp((10, 10), others)


def test_colours_are_spread():
    classes = []
    for i in range(14):
        classes.append(ShapingClass(f"c{i}", "c", colour_index=choose_colour(classes)))
    counts = [sum(c.colour_index == index for c in classes) for index in range(1, 8)]
    assert counts == [2] * 7


def test_settings_are_updated_in_part():
    present = Settings(history_seconds=100, uplink="eno1", emulator="/q")
    assert parse_settings({}, present) == present
    assert parse_settings({"uplink": None}, present).uplink is None
    for bad in (
        {"history_seconds": 0},
        {"history_seconds": 1e9},
        {"uplink": "a/b"},
        {"uplink": "x" * 16},
        {"uplink": "\ud800"},
        {"emulator": "qemu"},
        {"emulator": ""},
    ):
        with pytest.raises(BadValue, match=next(iter(bad))):
            parse_settings(bad, present)
