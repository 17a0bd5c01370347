# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.rates import (
    format_change,
    format_measured,
    format_rate,
    parse_rate,
    parse_size,
    parse_time_ns,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2MB/s", 2e6),
        ("2 MB/s", 2e6),
        ("16Mbit/s", 2e6),
        ("16Mbit", 2e6),
        ("16Mbps", 2e6),
        ("1.5MiB/s", 1.5 * 2**20),
        ("400k", 400e3),
        ("1GB/s", 1e9),
        ("2000000B/s", 2e6),
        ("-5000000 B", -5e6),
        ("0kB/s", 0),
        ("0", 0),
        ("unlimited", None),
        ("None", None),
    ],
)
def test_rates_that_people_write(text, expected):
    assert parse_rate(text) == expected


@pytest.mark.parametrize("text", ["20", "2000000", " 1.5 /s", "-5", "20ps"])
@pytest.mark.parametrize("parse", [parse_rate, parse_size])
def test_a_number_without_a_unit_is_refused_and_the_remedy_has_units(parse, text):
    with pytest.raises(BadValue, match="has no unit: write for example .*B"):
        parse(text, "limit")


@pytest.mark.parametrize(
    "text", ["", "1,5MB/s", "fast", "--2MB/s", "2XB/s", "2MB/h", "1e6", "nan", "2 2", "MB"]
)
def test_what_is_not_a_rate(text):
    with pytest.raises(BadValue) as refused:
        parse_rate(text, "limit")
    assert refused.value.thing == "limit"
    assert refused.value.value == text


MANY = "9" * 400


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_rate, f"{MANY}B/s"),
        (parse_rate, f"{MANY}Mbit/s"),
        (parse_rate, f" -{MANY} MB/s "),
        (parse_rate, f"{'9' * 305}TB/s"),
        (parse_size, f"{MANY}B"),
        (parse_size, f"{MANY}KiB"),
        (parse_time_ns, f"{MANY}ms"),
        (parse_time_ns, f"{'9' * 305}.5s"),
    ],
)
def test_a_number_beyond_all_bounds_is_refused_in_one_line(parse, text):
    with pytest.raises(BadValue, match="is out of range: no .* is above .*, write for") as refused:
        parse(text, "limit")
    assert refused.value.thing == "limit"
    assert refused.value.value.lstrip("-").startswith("9999") and "…" in refused.value.value
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), 10**5000, int(1e300)],
    ids=["many", "negative", "more than Python writes", "of a float"],
)
def test_a_refusal_shows_a_number_of_many_digits_shortened(value):
    refused = BadValue("limit", value, "is above 10", "give less")
    assert len(str(refused)) < 120
    assert refused.as_problem()["value"] == refused.value
    assert isinstance(refused.value, str)


@pytest.mark.parametrize("value", [10**15, -(10**11), 2**64, 0.5, True, None, "short"])
def test_a_refusal_shows_other_values_as_they_are(value):
    assert BadValue("limit", value, "is above 10", "give less").value is value


def test_a_refusal_shows_where_a_long_text_was_cut():
    assert BadValue("title", "x" * 300, "is too long", "cut it").value == "x" * 199 + "…"


def test_a_measured_size_has_about_three_digits():
    assert [format_measured(v) for v in (2_721_420, 3 << 20, 999, 0)] == [
        "2.72 MB",
        "3.15 MB",
        "999 B",
        "0 B",
    ]


def test_sizes():
    assert parse_size("256KiB") == 262144
    for bad in ("256Kbit", "256KiB/s", "big"):
        with pytest.raises(BadValue):
            parse_size(bad)


def test_how_changes_read():
    assert format_change(45e6, 22e6) == "45.0 → 22.0 MB/s"
    assert format_change(None, 22e6) == "unlimited → 22.0 MB/s"
    assert format_change(900e3, 1.2e6) == "0.90 → 1.20 MB/s"


@given(st.floats(min_value=1, max_value=1e11))
def test_what_is_shown_can_be_typed_in_again(value):
    again = parse_rate(format_rate(value))
    assert again == pytest.approx(value, rel=0.006)
