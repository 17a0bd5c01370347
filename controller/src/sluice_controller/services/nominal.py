# SPDX-License-Identifier: GPL-2.0-or-later
"""The rates of streams: as declared, or learnt from their pages, a look a second.

Learnt rates outlive sluiced: once a minute, and at its end, they go to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..domain.gate import AT_EASE, MOST_D_S
from ..domain.limits import BLK_READ, NET_TX
from ..domain.model import Stream
from ..domain.nominal import Learning, Nominal, kept, looked, nominal, restored, unseen
from ..domain.window import SECOND_NS, Window
from .records import Records
from .sampler import PageState

KEY = "learnt-rates"
LOOK_NS = SECOND_NS
# Looks that are further apart leave a time of which nothing is known.
LONGEST_LOOK_NS = 3 * LOOK_NS
KEEP_NS = 60 * SECOND_NS


class _Known(NamedTuple):
    stream: Stream
    learning: Learning
    nominal: Nominal


class Nominals:
    """`saved`: the store's value of `KEY`. Questions come from any thread."""

    def __init__(self, records: Records, saved: Mapping[str, Any]) -> None:
        self.records = records
        self._saved = saved
        self._of: Mapping[str, _Known] = {}
        self._looked_ns: int | None = None
        self._kept_ns: int | None = None

    def now(self, stream: Stream) -> Nominal:
        known = self._of.get(stream.name)
        if known is not None and known.stream == stream:
            return known.nominal
        return nominal(stream, self._learning(stream))

    def _learning(self, stream: Stream) -> Learning:
        known = self._of.get(stream.name)
        if known is None:
            return restored(stream, self._saved.get(stream.name))
        before = known.stream.domain, known.stream.class_name
        return known.learning if before == (stream.domain, stream.class_name) else Learning()

    # Once a second

    def is_due(self, now_ns: int) -> bool:
        return self._looked_ns is None or now_ns - self._looked_ns >= LOOK_NS

    def look(
        self,
        streams: Iterable[Stream],
        pages: Mapping[str, PageState],
        is_disturbed: Callable[[Stream, bool], bool],
        depth: Callable[[str], int],
        now_ns: int,
    ) -> None:
        """`is_disturbed`: whether something beside its disk held a stream up since the last look,
        and it sends or not; `depth`: the reads that a stream has under way at a time."""
        passed_ns = 0 if self._looked_ns is None else now_ns - self._looked_ns
        self._looked_ns = now_ns
        found = {}
        for stream in streams:
            learning = self._learning(stream)
            page = pages.get(stream.domain)
            is_seen = page is not None and page.error is None and len(page.window.readings) > 1
            if is_seen and 0 < passed_ns <= LONGEST_LOOK_NS:
                disk_bps, net_bps, is_held = _look(page.window, stream, depth(stream.name))
                learning = looked(
                    learning,
                    disk_bps,
                    net_bps,
                    passed_ns / SECOND_NS,
                    is_held=is_held or is_disturbed(stream, net_bps > 0),
                )
            else:
                learning = unseen(learning)
            found[stream.name] = _Known(stream, learning, nominal(stream, learning))
        self._of = found
        if self._kept_ns is None or now_ns - self._kept_ns >= KEEP_NS:
            self._kept_ns = now_ns
            self.keep()

    def keep(self) -> None:
        """Hands the learnt rates over for the next start."""
        if self._looked_ns is None:
            return
        known = self._of.items()
        saved = {name: kept(k.stream, k.learning) for name, k in known if k.learning.counted}
        if saved != self._saved:
            self.records.put_value(KEY, saved)
            self._saved = saved


def _look(window: Window, stream: Stream, depth: int) -> tuple[float, float, bool]:
    """Bytes per second from disk and to network over the last second, and whether the disk, or
    a limit of its own, held the stream up. Little's law gives its reads in flight."""
    span = window.span()
    disk, net = (span.sample((stream.class_name, one)) for one in (BLK_READ, NET_TX))
    is_held = any(one["backlog_requests"] > 0 for one in (disk, net) if one is not None)
    if disk is not None:
        in_flight = disk["requests_per_second"] * disk["service_mean_ms"] / 1000
        slowest_ms = window.worst_service_ms(stream.class_name, BLK_READ)
        is_held |= in_flight >= AT_EASE * depth or slowest_ms >= 1000 * MOST_D_S
    rates = [0.0 if one is None else one["bytes_per_second"] for one in (disk, net)]
    return rates[0], rates[1], is_held
