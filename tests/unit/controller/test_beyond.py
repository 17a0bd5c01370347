# SPDX-License-Identifier: GPL-2.0-or-later
"""The rate of a link beyond the host: its algorithm on a link of one queue, and its edges."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.beyond import (
    ELSEWHERE,
    FRESH_NS,
    HELD,
    LEAST_SHARE,
    LIFTED,
    Look,
    RoundTrip,
    State,
    advance,
    shared,
)
from sluice_controller.domain.limits import NET_TX
from sluice_controller.domain.shares import Load
from sluice_controller.domain.tuner import decide
from sluice_controller.domain.tuner_types import (
    MS,
    NETWORK,
    SECOND,
    Observation,
    Policy,
    StreamView,
    UplinkView,
)
from sluice_controller.domain.tuner_types import State as TunerState
from sluice_controller.services.beyond import UNTOLD, Beyond

TICK_NS = 100 * MS
POLICY = Policy(floors={NET_TX: 1e6})
LEAST_S = 0.040


@dataclass
class Link:
    """A queue beyond a host whose senders send what they may, up to `wanted`; a word of the round
    trip comes each half-second."""

    rate: float = 5e6
    limit_s: float = 0.1
    wanted: float = 8e6
    # Of others, who do not slow down.
    foreign: float = 0.0
    state: State = field(default_factory=State)
    backlog: float = 0.0
    now_ns: int = 0
    tells: bool = True
    trip: RoundTrip | None = None
    news: list = field(default_factory=list)
    lost: float = 0.0

    def tick(self):
        self.now_ns += TICK_NS
        held = self.state.held
        left = self.wanted if held is None else min(held, self.wanted)
        self.backlog += (left + self.foreign - self.rate) * TICK_NS / SECOND
        self.lost = max(0.0, self.backlog - self.limit_s * self.rate)
        self.backlog = max(0.0, min(self.backlog, self.limit_s * self.rate))
        if self.tells and self.now_ns % (5 * TICK_NS) == 0:
            self.trip = RoundTrip(self.now_ns, LEAST_S + self.backlog / self.rate, LEAST_S)
        trips = {"movie": self.trip} if self.trip else {}
        look = Look(trips, left, left - 1e6, lambda: 1.5e6, 125e6, self.now_ns)
        self.state, news = advance(self.state, look, POLICY)
        self.news += news

    def run(self, seconds):
        """Whether anything was lost meanwhile."""
        losses = 0.0
        for _ in range(round(seconds * SECOND / TICK_NS)):
            self.tick()
            losses += self.lost
        return losses > 0


def test_a_short_link_is_found_and_kept_from_overflow():
    link = Link()
    link.run(6)
    assert link.news[0].kind == HELD
    assert "nobody here can see its link" in link.news[0].sentence
    assert "over 40 ms" in link.news[0].sentence
    assert not link.run(60)
    assert 0.85 * link.rate < link.state.rate < 1.1 * link.rate


def test_senders_that_never_slow_down_are_cut_until_the_queue_is_gone():
    link = Link(wanted=17e6)
    link.run(8)
    assert [one.kind for one in link.news[:1]] == [HELD]
    assert not link.run(30)
    assert 0.85 * link.rate < link.state.rate < 1.1 * link.rate


def test_after_a_flood_a_link_that_becomes_slower_is_followed():
    link = Link(wanted=17e6)
    link.run(20)
    link.rate *= 0.6
    link.run(15)
    assert not link.run(15)
    assert link.state.rate < 1.1 * link.rate


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_another_rate_is_followed(factor):
    link = Link()
    link.run(20)
    link.rate *= factor
    link.run(25)
    assert 0.85 * link.rate < link.state.rate < 1.1 * link.rate
    assert not link.run(20)


def test_congestion_of_others_is_given_back_and_tried_again_later():
    link = Link(foreign=20e6)
    link.run(15)
    first, *_, last = link.news
    assert (first.kind, last.kind) == (HELD, ELSEWHERE)
    assert "movie waits for something else than the others here" in last.sentence
    assert "tried again in 30 s" in last.sentence
    assert link.state.rate is None
    link.run(20)
    assert link.state.rate is None
    link.run(35)
    assert "tried again in 60 s" in link.news[-1].sentence


def test_without_a_word_nothing_rises_and_after_long_all_is_given_back():
    link = Link()
    link.run(15)
    link.tells = False
    link.run(FRESH_NS / SECOND + 0.1)
    rate = link.state.rate
    link.run(20)
    assert link.state.rate == rate
    link.tells = True
    link.run(1)
    # The time without words was no time to rise.
    assert link.state.rate <= 1.05 * rate
    link.tells = False
    link.run(POLICY.idle_ns / SECOND + 3)
    assert (link.state.rate, link.news[-1].kind) == (None, LIFTED)


def test_a_rate_that_is_not_used_stays():
    link = Link()
    link.run(15)
    rate, link.wanted = link.state.rate, 1e6
    link.run(30)
    assert link.state.rate == pytest.approx(rate, rel=0.05)


def test_nothing_is_held_where_streams_alone_send():
    link = Link(wanted=1.02e6, rate=1e6)
    link.run(20)
    assert (link.state.rate, link.news) == (None, [])


def test_a_queue_before_all_connections_delays_the_quickest():
    slow, quick = RoundTrip(0, 0.3, 0.05), RoundTrip(0, 0.11, 0.1)
    assert shared([slow, quick], SECOND) is quick
    assert shared([slow], FRESH_NS + 1) is None


TRIPS = st.builds(
    RoundTrip,
    st.just(0),
    st.floats(1e-6, 4294.0),
    st.floats(1e-6, 4294.0),
)


@given(
    st.lists(st.tuples(st.none() | TRIPS, st.floats(0, 1e10), st.floats(0, 1e10)), max_size=80),
    st.floats(0, 1e9),
)
def test_whatever_a_guest_says_streams_floors_and_a_sixteenth_of_all_are_left(looks, least):
    state, began = State(), 0.0
    for number, (trip, left, background) in enumerate(looks):
        now_ns = (1 + number) * 5 * TICK_NS
        trips = {} if trip is None else {"movie": replace(trip, at_ns=now_ns)}
        look = Look(trips, left, min(left, background), lambda: least, None, now_ns)
        was, (state, news) = state, advance(state, look, POLICY)
        assert all(one.sentence and "\n" not in one.sentence for one in news)
        if state.rate is None:
            assert state.held is None
            continue
        began = left if was.rate is None else began
        # Of a quarter, once it has helped, a quarter.
        assert state.rate >= max(LEAST_SHARE**2 * began, least)
        assert state.held >= min(least, state.rate) - 1e-6 * state.rate
        assert 0 <= state.drains <= state.rate
        assert was.rate is None or state.rate <= 1.05 * was.rate or state.rate == least


def told(state, waits_s, left, now_ns, top=None):
    look = Look(
        {"movie": RoundTrip(now_ns, waits_s + LEAST_S, LEAST_S)},
        left,
        left,
        lambda: 0.0,
        top,
        now_ns,
    )
    return advance(state, look, POLICY)


def test_a_guest_that_lies_ever_more_gets_no_less_than_a_sixteenth_of_what_first_left():
    """Each time that cuts are given back it tells of a longer queue at once."""
    state, left, waits_s, lowest = State(), 8e6, 0.05, 8e6
    for number in range(1, 400):
        state, news = told(state, waits_s, left, number * 5 * TICK_NS)
        if any(one.kind == ELSEWHERE for one in news):
            waits_s *= 2
        # Senders come back to speed slowly.
        left = min(1.2 * left, 8e6) if state.held is None else min(left, state.held)
        lowest = min(lowest, left)
    assert lowest >= LEAST_SHARE**2 * 8e6


def test_a_link_known_to_be_slower_than_what_left_is_held_by_others():
    state = State()
    for number in range(1, 10):
        state, news = told(state, 0.1, 8e6, number * 5 * TICK_NS, top=2e6)
        assert not news
    assert state.rate is None


# The service


class Declared:
    def __init__(self, uplink="eth0"):
        self.now = self.settings = self
        self.uplink = uplink

    def granted_to(self, _domain):
        return frozenset({(0, "default"), (2, "movie")})


FILM = StreamView("film", "media", "movie", 1e6, net_bytes_per_second=1e6)
UPLINK = UplinkView(0.0, 0, 8e6, 125e6, peak_bytes_per_second=8e6)
WAITS = RoundTrip(SECOND, 0.18, 0.02)


def looked(told=((2, WAITS),), uplink=UPLINK, greedy_ns=None, **changes):
    beyond = Beyond(Declared(), lambda _domain: told)
    seen = Observation((FILM,), (), uplink, **changes)
    beyond.tick(seen, greedy_ns or {}, POLICY, SECOND)
    return beyond


def test_a_word_counts_for_the_class_of_a_stream_alone():
    held = looked()
    assert held.rate() == pytest.approx(held.status()["bytes_per_second"])
    assert held.status()["because"] == "film's round trip was 180 ms over 20 ms"
    assert held.seen(UPLINK).learnt and held.seen(UPLINK).is_beyond
    other = looked(told=((1, WAITS),))
    assert other.rate() is None
    assert other.status()["without_signal"] == [{"stream": "film", "because": UNTOLD}]
    assert other.seen(UPLINK) is UPLINK


def test_a_stream_that_waits_beyond_the_host_is_held_up():
    assert looked().delays("film")
    assert not looked(told=((2, RoundTrip(SECOND, 0.025, 0.02)),)).delays("film")
    assert not looked(told=()).delays("film")


def test_a_queue_of_the_hosts_own_is_no_link_beyond():
    queued = replace(UPLINK, backlog_bytes=1e6)
    assert looked(uplink=queued).rate() is None
    assert looked(uplink=replace(UPLINK, dropped=1)).rate() is None
    assert looked(uplink=replace(queued, first=frozenset({"film"}))).rate() is not None


def test_a_stream_that_moves_more_than_it_declares_holds_nobody():
    assert looked(greedy_ns={"film": SECOND - POLICY.greedy_ns}).rate() is None


def test_without_an_uplink_nothing_can_be_held():
    beyond = looked(uplink=None)
    assert beyond.rate() is None
    assert beyond.status()["without_signal"] == []


def test_no_class_is_held_below_its_floor_however_little_it_sent():
    """A guest may tell of a queue while next to nothing leaves."""
    idle = replace(UPLINK, bytes_per_second=1000.0, peak_bytes_per_second=1000.0)
    beyond = Beyond(Declared(), lambda _domain: ((2, WAITS),))
    stream = replace(FILM, net_bytes_per_second=1.0)
    loads = tuple(Load(f"web{n}", "default", NET_TX, 500.0) for n in range(2))
    beyond.tick(Observation((stream,), loads, idle), {}, POLICY, SECOND)
    floor = POLICY.floors[NET_TX]
    assert beyond.rate() >= floor
    sent = 0.5 * floor
    for tick in range(1, 40):
        loads = tuple(Load(f"web{n}", "default", NET_TX, sent) for n in range(2))
        now_ns = SECOND + tick * TICK_NS
        beyond.tick(Observation((stream,), loads, idle), {}, POLICY, now_ns)
        sent = min(floor, (beyond.rate() or 0.0) / 2)
    assert sent == floor


def test_another_uplink_begins_without_a_rate():
    declared = Declared()
    beyond = Beyond(declared, lambda _domain: ((2, WAITS),))
    seen = Observation((FILM,), (), UPLINK)
    beyond.tick(seen, {}, POLICY, SECOND)
    assert beyond.rate() is not None
    declared.uplink = "eth1"
    beyond.tick(replace(seen, uplink=None, uplink_unseen=True), {}, POLICY, SECOND + TICK_NS)
    assert beyond.rate() is None


def test_a_rehearsal_holds_nothing_and_says_what_it_would_begin():
    rates = []
    beyond = Beyond(Declared(), lambda _domain: ((2, WAITS),), lambda: rates.append(beyond.rate()))
    news = beyond.rehearse(Observation((FILM,), (), UPLINK), {}, POLICY, SECOND)
    assert [one.kind for one in news] == [HELD]
    # Another thread sets what it is woken for.
    assert (beyond.rate(), rates) == (None, [])


# The tuner of rates


def followed(
    learnt="film's round trip was 180 ms over 20 ms", state=None, now_ns=SECOND, **changes
):
    loads = (
        Load("web", "default", NET_TX, 5e6, 5e6, 3),
        Load("web", "batch", NET_TX, 2e6, 2e6, 3),
    )
    uplink = replace(UPLINK, link_bytes_per_second=7.5e6, is_beyond=True, learnt=learnt, **changes)
    seen = Observation((FILM,), loads, uplink)
    return decide(seen, state or TunerState(), POLICY, now_ns)


def test_streams_that_do_not_go_first_have_the_others_held_to_what_the_link_leaves():
    state, decisions = followed()
    # Without the stream's 1 MB/s, and a tenth of it.
    assert sum(state.caps.values()) == pytest.approx(7.5e6 - 1.1e6, rel=0.05)
    assert decisions == ()
    state, decisions = followed(learnt="", state=state, now_ns=2 * SECOND)
    assert state.arms[NETWORK].level is None and not state.caps
    assert "no link beyond is short any more" in decisions[0].words


def test_streams_that_go_first_need_no_caps():
    state, _ = followed(first=frozenset({"film"}))
    assert not state.caps
