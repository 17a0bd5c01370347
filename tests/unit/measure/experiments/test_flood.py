# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.experiments.flood: full rings, pairs that say nothing, and how the judge sees them."""

import pytest

from measure.experiments import bars, flood
from measure.experiments.flood import Measured, figures, full_ratio
from measure.experiments.latencies import Latencies
from measure.experiments.rings import Ring

PAIRS = bars.PAIRS_MIN


def test_the_least_full_ring_decides():
    assert full_ratio([Ring(1024, 1024), Ring(512, 1024)]) == 0.5
    assert full_ratio([Ring(237, 256)], spare=19) == 1.0


def test_the_flood_asks_for_twice_what_two_rings_hold():
    assert flood.FULL_JOBS * flood.FULL_DEPTH >= 2 * 1024
    assert flood.SENDERS * 92 >= 2 * 1024


def test_the_control_of_another_guest_leaves_room_in_one_ring_for_as_much_again():
    assert flood.FULL_JOBS * flood.CALM_DEPTH <= bars.CALM_MAX * 1024
    # A datagram takes more room than it has bytes, and one more is begun when there is any.
    datagrams = flood.CALM_SOCKET_BYTES // flood.DATAGRAM_BYTES + 1
    assert flood.SENDERS * datagrams <= bars.CALM_MAX * 1024


def test_packets_that_wait_in_the_guest_are_counted_once():
    listed = '[{"kind":"fq_codel","root":true,"qlen":719},{"kind":"fq_codel","qlen":700}]'
    assert flood.waiting_packets(listed) == 719
    assert flood.waiting_packets("[]") == 0


@pytest.mark.parametrize(
    ("sample", "ratio"),
    [
        (None, 0.0),
        ({"requests_per_second": 0.0, "drops_per_second": {"backlog": 0.0}}, 0.0),
        ({"requests_per_second": 1450.0, "drops_per_second": None}, 0.0),
        ({"requests_per_second": 1450.0, "drops_per_second": {"backlog": 2900.0}}, 2.0),
    ],
)
def test_a_class_that_drops_as_much_as_it_sends_is_full(sample, ratio):
    assert flood.overflow_ratio(sample) == ratio


def test_the_card_by_which_a_class_floods_is_told_from_the_other():
    sample = {"requests_per_second": 1450.0, "drops_per_second": {"backlog": 2900.0}}
    assert flood.carried_ratio(4350 + 200, sample) >= bars.FULL_MIN
    assert flood.carried_ratio(200, sample) <= bars.CALM_MAX
    assert flood.carried_ratio(4350, None) == 0.0


def _row(part, mine, its):
    pairs = list(zip(mine, its, strict=True))
    return {"part": part, "subject": "ping", "runs": len(mine), **figures(pairs)}


def test_figures_of_a_calm_machine_are_met_and_those_of_a_starved_one_missed():
    calm = [Measured(Latencies([1.0] * 2000), 0.1)] * PAIRS
    full = [Measured(Latencies([1.02] * 2000), 1.0)] * PAIRS
    starved = [Measured(Latencies([1.0] * 400, 1600), 1.0)] * PAIRS
    empty = [Measured(Latencies([1.0] * 2000), 0.4)] * PAIRS
    outcomes = []
    for mine in (full, starved, empty):
        (verdict,) = bars.judge({"experiment": "FLOOD", "rows": [_row("other guest", mine, calm)]})
        outcomes.append(verdict.outcome)
    assert outcomes == [bars.Outcome.MET, bars.Outcome.MISSED, bars.Outcome.INCONCLUSIVE]


def test_a_control_whose_flood_is_not_held_elsewhere_is_no_control():
    mine = [Measured(Latencies([1.0] * 2000), 1.0)] * PAIRS
    outcomes = []
    for elsewhere in (1.0, 0.2):
        control = [Measured(Latencies([1.0] * 2000), 0.0, elsewhere)] * PAIRS
        rows = [_row("same guest", mine, control)]
        (verdict,) = bars.judge({"experiment": "FLOOD", "rows": rows})
        outcomes.append(verdict.outcome)
    assert outcomes == [bars.Outcome.MET, bars.Outcome.INCONCLUSIVE]


def _measured(which: str) -> flood.Pair:
    """A pair that is sound, or not, by the name of what is wrong."""
    calm = Latencies([1.0] * 2000)
    control = Measured(calm, 0.6 if which == "control" else 0.4, 0.9 if which == "away" else 1.0)
    return Measured(calm, 0.9 if which == "empty" else 1.0), control


@pytest.mark.parametrize("wrong", ["empty", "control", "away"])
def test_a_pair_that_says_nothing_is_measured_again(wrong):
    order = ["", wrong, "", wrong, "", ""]
    sound, aside = flood.gather(4, lambda number: _measured(order[number]))
    assert (len(sound), len(aside)) == (4, 2)
    assert all(flood.is_sound(*pair) for pair in sound)


def test_too_many_that_say_nothing_are_shown_to_the_judge():
    order = ["", "empty", "empty", "empty"]
    pairs, aside = flood.gather(4, lambda number: _measured(order[number]))
    assert (len(pairs), aside) == (4, [])
    assert min(one.fill_ratio for one, _control in pairs) == 0.9


@pytest.mark.parametrize("which", [0, 1])
def test_a_few_pings_are_no_percentile(which):
    few, many = Measured(Latencies([1.0] * 999), 1.0), Measured(Latencies([1.0] * 2000), 0.0)
    pairs = [[few] * PAIRS, [many] * PAIRS] if which == 0 else [[many] * PAIRS, [few] * PAIRS]
    (verdict,) = bars.judge({"experiment": "FLOOD", "rows": [_row("other guest", *pairs)]})
    assert verdict.outcome is bars.Outcome.INCONCLUSIVE


def test_reading_ends_with_one_that_is_enough(monkeypatch):
    monkeypatch.setattr(flood, "READING_SECONDS", 0)
    found = iter([0.4, 1.2, 1.9])
    assert flood.fullest(lambda: next(found), enough=1.0) == 1.2


def test_reading_goes_on_to_find_the_fullest(monkeypatch):
    monkeypatch.setattr(flood, "READING_SECONDS", 0)
    found = iter([0.4, 0.9, *[0.1] * (flood.READINGS - 2)])
    assert flood.fullest(lambda: next(found), enough=1.0) == 0.9
    assert next(found, None) is None
