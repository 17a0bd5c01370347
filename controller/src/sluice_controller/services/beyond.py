# SPDX-License-Identifier: GPL-2.0-or-later
"""Links beyond the host that nobody here can see: streams' round trips in, a rate out.

Ten times a second, `domain/beyond.py`. Two actuators take the rate for that of a slower link: the
queue discipline of streams first (`uplink_first.py`), and the tuner of rates for streams that
do not go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..domain.beyond import Look, News, RoundTrip, State, advance, shared
from ..domain.limits import NET_TX
from ..domain.shares import floor_of
from ..domain.tuner_types import Observation, Policy, StreamView, UplinkView
from .declared import Declared

# A rise below that is not worth commands to the kernel.
SMALLEST_RISE = 0.005
# A queue of the host's own that is longer says why a stream waits.
OWN_QUEUE_S = 0.005
# A stream needs more than its nominal rate: for its headers, and its peaks.
STREAM_ROOM = 1.1
# Of a class below its floor, as it is held: up to there it may grow.
FLOOR_ROOM = 1.25
UNTOLD = "its guest tells of no round trips: have sluice-agent report --sockets run there"


@dataclass(eq=False)
class Beyond:
    """`trips_of`: what a domain's agent last said of its streams, by the tags of their classes."""

    declared: Declared
    trips_of: Callable[[str], Iterable[tuple[int, RoundTrip]]] = lambda _domain: ()
    changed: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._state = State()
        # In force. Another thread reads it.
        self._rate: float | None = None
        self._trips: dict[str, RoundTrip] = {}
        self._streams: tuple[str, ...] = ()
        self._has_uplink = False
        # Of which `_state` is.
        self._uplink: str | None = None

    def rate(self) -> float | None:
        """Bytes per second of the link beyond; None while none is known to be short."""
        return self._rate

    def tick(
        self, seen: Observation, greedy_ns: Mapping[str, int], policy: Policy, now_ns: int
    ) -> list[News]:
        """`greedy_ns`: since when streams move more than they declare."""
        news = self._tick(seen, greedy_ns, policy, now_ns)
        self._publish(self._state.held)
        return news

    def _tick(
        self, seen: Observation, greedy_ns: Mapping[str, int], policy: Policy, now_ns: int
    ) -> list[News]:
        uplink = seen.uplink
        self._streams = tuple(stream.name for stream in seen.streams)
        self._has_uplink = uplink is not None or seen.uplink_unseen
        self._trips = {
            stream.name: trip
            for stream in seen.streams
            if (trip := shared(self._of(stream), now_ns))
        }
        name = self.declared.now.settings.uplink
        if not self._has_uplink or name != self._uplink:
            # The rate learnt for another port's link says nothing of this one's.
            self._state, self._uplink = State(), name
        if uplink is None:
            return []
        self._state, news = advance(
            self._state, self._look(seen, uplink, greedy_ns, policy, now_ns), policy
        )
        return list(news)

    def _of(self, stream: StreamView) -> list[RoundTrip]:
        """Of granted classes alone."""
        granted = self.declared.now.granted_to(stream.domain)
        tags = {tag for tag, name in granted if name == stream.class_name}
        return [trip for tag, trip in self.trips_of(stream.domain) if tag in tags]

    def delays(self, stream: str) -> bool:
        """Whether the stream waits in a queue on its way, as its guest says."""
        trip = self._trips.get(stream)
        return trip is not None and trip.waits_s > trip.edge_s

    def rehearse(
        self, seen: Observation, greedy_ns: Mapping[str, int], policy: Policy, now_ns: int
    ) -> list[News]:
        """What would be begun now; nothing is held."""
        # Not for a moment, either: another thread sets what is published.
        news = self._tick(seen, greedy_ns, policy, now_ns)
        self.reset()
        return news

    def reset(self) -> None:
        """Nothing is held, and what was learnt is forgotten."""
        self._state = State()
        self._publish(None)

    def end(self) -> None:
        """Auto-shaping is off, or heeds no round trips."""
        self._streams, self._trips = (), {}
        self.reset()

    def _publish(self, rate: float | None) -> None:
        before = self._rate
        if rate is not None and before is not None and 0 <= rate - before < SMALLEST_RISE * before:
            return
        self._rate = rate
        if rate != before:
            self.changed()

    def _look(
        self,
        seen: Observation,
        uplink: UplinkView,
        greedy_ns: Mapping[str, int],
        policy: Policy,
        now_ns: int,
    ) -> Look:
        left = uplink.peak_bytes_per_second
        has_own_queue = uplink.dropped > 0 or uplink.backlog_bytes > OWN_QUEUE_S * left
        passes = sum(stream.net_bytes_per_second for stream in seen.streams)
        return Look(
            {
                name: trip
                for name, trip in self._trips.items()
                # A queue of its own making is no reason to hold others.
                if now_ns - greedy_ns.get(name, now_ns) < policy.greedy_ns
                and (name in uplink.first or not has_own_queue)
            },
            left,
            max(0.0, left - passes - seen.unmanaged_net_bytes_per_second),
            lambda: _least(seen, policy),
            uplink.link_bytes_per_second,
            now_ns,
        )

    def seen(self, uplink: UplinkView | None) -> UplinkView | None:
        """The uplink with the link beyond, if one is known to be short."""
        rate, because = self._rate, self._state.because
        if uplink is None or rate is None:
            return uplink
        return replace(uplink, link_bytes_per_second=rate, is_beyond=True, learnt=because)

    # Showing

    def status(self) -> dict[str, Any]:
        trips = self._trips
        return {
            "bytes_per_second": self._rate,
            "because": self._state.because if self._rate is not None else None,
            "streams": [
                {
                    "stream": name,
                    "round_trip_ms": 1000 * trip.smoothed_s,
                    "least_ms": 1000 * trip.least_s,
                    "is_elsewhere": name in self._state.elsewhere,
                }
                for name, trip in trips.items()
            ],
            "without_signal": [
                {"stream": name, "because": UNTOLD}
                for name in self._streams
                if name not in trips and self._has_uplink
            ],
        }


def _least(seen: Observation, policy: Policy) -> float:
    """What streams and floors need on the uplink: a class that begins is not held below its own."""
    sent = [
        (floor_of(load, policy.floors), load.bytes_per_second)
        for load in seen.background
        if load.resource == NET_TX
    ]
    used = sum(min(floor, FLOOR_ROOM * rate) for floor, rate in sent)
    floors = max(used, max((floor for floor, _ in sent), default=0.0))
    nominal = sum(stream.nominal_bytes_per_second for stream in seen.streams if _sends(stream))
    return STREAM_ROOM * nominal + floors + seen.unmanaged_net_bytes_per_second


def _sends(stream: StreamView) -> bool:
    return stream.net_bytes_per_second > 0
