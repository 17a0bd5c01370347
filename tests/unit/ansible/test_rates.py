# SPDX-License-Identifier: GPL-2.0-or-later
"""The inventory's rates mean what the sluice command's mean."""

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils import rates
from hypothesis import example, given
from hypothesis import strategies as st

from sluice_controller.domain import rates as cli
from sluice_controller.domain.errors import BadValue

NUMBERS = st.one_of(
    st.integers(0, 10**9).map(str),
    st.decimals(0, 10**6, places=3).map(lambda number: f"{number:f}"),
)
WRITTEN = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", " "]),
        NUMBERS,
        st.sampled_from(["", " "]),
        st.sampled_from(["", "k", "K", "M", "G", "T", "ki", "Ki", "Mi", "Gi", "Ti", "m", "i"]),
        st.sampled_from(["", "B", "b", "bit", "byte", "bytes", "Bit", "x"]),
        st.sampled_from(["", "/s", "ps", "/h"]),
    ),
)
ANY = st.one_of(WRITTEN, st.sampled_from(["unlimited", "none", " Max "]), st.text("0123.kMiBb/s "))


def has_unit(text):
    """A number alone is for the command no rate; YAML has numbers of its own."""
    return not all(c in "0123456789./ ps" for c in text)


ANY = ANY.filter(has_unit)


def answer(parse, text, refusal):
    try:
        return parse(text)
    except refusal:
        return "refused"


@given(ANY)
@example("20MB/s")
@example("16Mbps")
def test_a_rate_means_the_same_as_on_the_command_line(text):
    assert answer(rates.parse_rate, text, ValueError) == answer(cli.parse_rate, text, BadValue)


@given(ANY)
@example("256KiB")
def test_a_size_means_the_same_as_on_the_command_line(text):
    assert answer(rates.parse_size, text, ValueError) == answer(cli.parse_size, text, BadValue)


@given(ANY | st.from_regex(r"[0-9]{1,4}(\.[0-9])? ?(ns|us|µs|ms|s|m)", fullmatch=True))
@example("20ms")
def test_a_time_means_the_same_as_on_the_command_line(text):
    assert answer(rates.parse_time_ns, text, ValueError) == answer(
        cli.parse_time_ns, text, BadValue
    )


MANY = "9" * 400


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        (rates.parse_rate, MANY),
        (rates.parse_rate, f"{MANY}Mbit/s"),
        (rates.parse_rate, 10**400),
        (rates.parse_size, f"{MANY}KiB"),
        (rates.parse_size, 10**400),
        (rates.parse_time_ns, f"{MANY}s"),
        (rates.parse_time_ns, f"{'9' * 305}s"),
        (rates.parse_count, MANY),
        (rates.parse_count, 10**400),
    ],
    ids=lambda given: given.__name__ if callable(given) else type(given).__name__,
)
def test_a_number_beyond_all_bounds_is_out_of_range(parse, value):
    with pytest.raises(ValueError, match="^is out of range: .*write for example"):
        parse(value)


def test_values_are_shown_at_a_length_that_can_be_read():
    assert rates.shown("20MB/s") == "'20MB/s'"
    assert len(rates.shown(MANY)) == len(rates.shown(10**400)) == rates.LONGEST_SHOWN
    assert rates.shown(10**400).endswith("…")
    assert rates.shown(10**5000) == "of very many digits"


def test_yaml_numbers_are_bytes_per_second():
    assert rates.parse_rate(2000000) == 2000000
    assert rates.parse_rate(1.5e6) == 1500000
    assert rates.parse_rate(None) is None


@pytest.mark.parametrize("value", [True, [], {}, float("nan"), float("inf"), "-5MB/s", "fast", ""])
def test_what_is_no_rate_is_refused_with_an_example(value):
    with pytest.raises(ValueError, match="is not a rate: write for example 20MB/s"):
        rates.parse_rate(value)


@pytest.mark.parametrize("value", [True, None, "10/s", "1e3", "many"])
def test_what_is_no_count_is_refused_with_an_example(value):
    with pytest.raises(ValueError, match="is not a number of operations"):
        rates.parse_count(value)
