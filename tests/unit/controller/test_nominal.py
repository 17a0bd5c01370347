# SPDX-License-Identifier: GPL-2.0-or-later
"""A stream's rate, learnt from what it moves."""

from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.model import Stream
from sluice_controller.domain.nominal import (
    LEAST,
    LEAST_WINDOWS,
    MOST,
    MOST_WINDOWS,
    SUPPOSED,
    WINDOW_S,
    Learning,
    allowed_bps,
    kept,
    looked,
    nominal,
    restored,
    unseen,
)

TV = Stream("tv", "settop", "default")
FILM = Stream("film", "media", "movie", 875e3)
FILM_BPS = 390e3


def after(windows, learning=None):
    """Each window is (bytes per second from the disk, whether it was held up)."""
    learning = learning or Learning()
    for rate, is_held in windows:
        learning = looked(learning, rate, 0.0, WINDOW_S, is_held=is_held)
    return learning


def played(rate, windows=MOST_WINDOWS + 1):
    return after([(rate, False)] * windows)


def sentence(learning, stream=TV):
    return nominal(stream, learning).sentence


RATES = st.floats(0, 1e12)
WINDOWS = st.lists(st.tuples(RATES, st.booleans()), max_size=80)


@given(WINDOWS)
def test_whatever_a_guest_moves_its_rate_is_within_bounds(windows):
    found = nominal(TV, after(windows))
    assert LEAST <= found.bytes_per_second <= MOST
    assert allowed_bps(TV) == MOST


@given(WINDOWS)
def test_a_declared_rate_stays_as_it_is(windows):
    assert nominal(FILM, after(windows)).bytes_per_second == 875e3
    assert allowed_bps(FILM) == 875e3


@given(st.floats(LEAST, MOST), WINDOWS)
def test_windows_in_which_it_is_held_up_and_those_after_them_teach_nothing(rate, windows):
    learning = played(rate)
    for moved, _is_held in windows:
        learning = after([(moved, True), (moved, False)], learning)
        # The next window would count again.
        learning = unseen(learning)
    assert nominal(TV, learning).bytes_per_second == pytest.approx(rate)


@given(st.floats(LEAST, MOST), st.lists(RATES, max_size=5))
def test_up_to_a_tenth_of_the_windows_tells_nothing(rate, peaks):
    learning = after([(peak, False) for peak in peaks], played(rate, MOST_WINDOWS))
    learning = after([(rate, False)] * 10, learning)
    assert nominal(TV, learning).bytes_per_second == pytest.approx(rate)


@given(st.lists(st.floats(LEAST, MOST), min_size=LEAST_WINDOWS + 1, max_size=80))
def test_the_rate_is_that_of_some_window_and_no_more_than_a_tenth_are_above(rates):
    learning = after([(rate, False) for rate in rates])
    counted = rates[1:][-MOST_WINDOWS:]
    found = nominal(TV, learning).bytes_per_second
    assert any(found == pytest.approx(rate) for rate in counted)
    assert sum(rate > found * 1.000001 for rate in counted) <= 0.1 * len(counted)


@given(st.lists(st.floats(0.5, 3.0), min_size=1, max_size=20), st.floats(2e3, MOST))
def test_the_rate_does_not_depend_on_when_it_is_looked_at(gaps, rate):
    learning = Learning()
    for gap, _look in zip(cycle(gaps), range(120), strict=False):
        learning = looked(learning, rate, 0.0, gap, is_held=False)
    assert nominal(TV, learning).bytes_per_second == pytest.approx(rate)


def test_a_stream_whose_film_is_in_its_cache_is_known_by_what_it_sends():
    learning = Learning()
    for _ in range(60):
        learning = looked(learning, 0.0, FILM_BPS, 1.0, is_held=False)
    assert nominal(TV, learning).bytes_per_second == pytest.approx(FILM_BPS)


def test_reads_in_lumps_are_summed():
    learning = Learning()
    for second in range(60):
        moved = 5 * FILM_BPS if second % 5 == 0 else 0.0
        learning = looked(learning, moved, FILM_BPS, 1.0, is_held=False)
    assert nominal(TV, learning).bytes_per_second == pytest.approx(FILM_BPS)


def test_a_player_that_fills_its_buffer_first_teaches_nothing_of_that():
    learning = after([(8e6, False)] + [(FILM_BPS, False)] * 3)
    assert nominal(TV, learning).bytes_per_second == pytest.approx(FILM_BPS)


def test_a_larger_film_is_learnt_within_a_minute_or_two():
    learning = after([(2 * FILM_BPS, False)] * 7, played(FILM_BPS))
    assert nominal(TV, learning).bytes_per_second == pytest.approx(2 * FILM_BPS)


def test_pauses_leave_the_rate_as_it_was():
    learning = after([(0.0, False)] * 100, played(FILM_BPS))
    assert nominal(TV, learning).bytes_per_second == pytest.approx(FILM_BPS)


def test_until_it_is_known_a_usual_film_is_supposed_or_more_if_more_has_moved():
    assert nominal(TV, Learning()).bytes_per_second == SUPPOSED
    assert not nominal(TV, Learning()).is_known
    held = after([(FILM_BPS, True)] * 10)
    assert nominal(TV, held).bytes_per_second == SUPPOSED
    assert nominal(TV, after([(4e6, True)] * 10)).bytes_per_second == 4e6
    assert nominal(TV, after([(150e6, True)] * 10)).bytes_per_second == MOST


def test_the_sentence_says_how_sure_the_rate_is():
    assert sentence(Learning()) == (
        "not known yet: it has moved nothing yet; 1.00 MB/s is supposed until then"
    )
    assert sentence(played(FILM_BPS, 3)) == (
        "not known yet: 20 of 30 s are seen in which nothing held it up;"
        " 1.00 MB/s is supposed until then"
    )
    assert sentence(played(FILM_BPS, 5)) == "390 kB/s, learnt over 40 s, and not sure yet"
    assert sentence(played(FILM_BPS, 25)) == "390 kB/s, learnt over 4 min"
    assert sentence(played(150e6)) == (
        "12.5 MB/s, the most that is learnt, and it has moved 150 MB/s for 10 min:"
        " declare its rate if it needs more"
    )


@pytest.mark.parametrize(
    ("moved", "effect"),
    [(87.5e3, "waits that it bears count as too long"), (8.75e6, "it counts as greedy")],
)
def test_a_declared_rate_that_is_wrong_by_ten_is_doubted_after_some_minutes(moved, effect):
    assert sentence(played(moved, 30), FILM) == "875 kB/s, declared"
    doubt = sentence(played(moved), FILM)
    assert doubt.startswith("875 kB/s, declared; it has moved ")
    assert effect in doubt


def test_a_declared_rate_that_is_about_right_is_not_doubted():
    for moved in (400e3, 875e3, 2e6):
        assert sentence(played(moved), FILM) == "875 kB/s, declared"


def test_a_learnt_rate_outlives_sluiced_and_is_that_of_its_class():
    learning = played(FILM_BPS)
    record = kept(TV, learning)
    assert nominal(TV, restored(TV, record)) == nominal(TV, learning)
    other = Stream("tv", "settop", "movie")
    assert restored(other, record) == restored(TV, None) == Learning()
