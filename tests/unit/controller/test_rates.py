# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.rates import format_change, format_rate, parse_rate, parse_size


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
        ("2000000", 2e6),
        ("-5000000", -5e6),
        ("0", 0),
        ("unlimited", None),
        ("None", None),
    ],
)
def test_rates_that_people_write(text, expected):
    assert parse_rate(text) == expected


@pytest.mark.parametrize(
    "text", ["", "fast", "--2MB/s", "2XB/s", "2MB/h", "1e6", "nan", "2 2", "MB"]
)
def test_what_is_not_a_rate(text):
    with pytest.raises(BadValue) as refused:
        parse_rate(text, "limit")
    assert refused.value.thing == "limit"
    assert refused.value.value == text


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
