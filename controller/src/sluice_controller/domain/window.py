# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates, waits and service times from the readings of a counters page. Pure.

Each question decodes its own part of the readings' bytes, so an unused figure costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from .counters import DROP_REASONS, Content, Key, More, Reading, Slot

SECOND_NS = 1_000_000_000
# The window's last part, whose rate is ahead of the mean while a load rises.
RECENT_NS = 300_000_000

Sample = dict[str, Any]


def percentile_ms(histogram: Sequence[int], fraction: float) -> float:
    """The upper edge of the bucket that holds the percentile; buckets are 4^i µs."""
    total = sum(histogram)
    if total <= 0:
        return 0.0
    seen = 0
    for i, count in enumerate(histogram):
        seen += count
        if seen >= fraction * total:
            return 4 ** (i + 1) / 1000
    return 4 ** len(histogram) / 1000


def _per(amount: int, count: int, scale: float) -> float:
    return amount / count / scale if count > 0 else 0.0


def _frames(base: More | None, new: More | None, span_s: float) -> dict[str, Any]:
    """Drops, marks and buffers of frames; null where the page does not tell."""
    if new is None:
        return dict.fromkeys(
            ("drops_per_second", "marked_per_second", "buffered_bytes", "buffer_bytes_max")
        )
    base = base or new
    return {
        "drops_per_second": {
            reason: max(0, after - before) / span_s
            for reason, before, after in zip(DROP_REASONS, base.drops, new.drops, strict=True)
        },
        "marked_per_second": max(0, new.marked_requests - base.marked_requests) / span_s,
        "buffered_bytes": new.buffered_bytes,
        "buffer_bytes_max": new.buffer_bytes_max,
    }


def _untagged_share(base: More | None, new: More | None) -> float | None:
    """Of the requests between two readings; None without any, or where no page tells."""
    if base is None or new is None:
        return None
    # A QEMU from before the share was counted tells of no requests.
    told = new.untagged_of_requests - base.untagged_of_requests
    untagged = new.untagged_requests - base.untagged_requests
    return min(1.0, max(0, untagged) / told) if told > 0 else None


def sample(old: Slot | None, new: Slot, elapsed_s: float) -> dict[str, Any]:
    """Rates between two readings of a slot, in the API's form.

    Without an older reading, or after the counters began anew (another class
    took the slot, QEMU restarted), rates are zero and gauges as they are.
    """
    fresh = old is None or new.requests < old.requests or new.bytes < old.bytes
    base = new if fresh else old
    span = elapsed_s if elapsed_s > 0 else 1.0
    held = new.held_requests - base.held_requests
    done = new.completed_requests - base.completed_requests
    admitted = new.requests - base.requests
    return {
        "bytes_per_second": (new.bytes - base.bytes) / span,
        "requests_per_second": admitted / span,
        "limit_bytes_per_second": new.limit_bytes_per_second or None,
        "limit_operations_per_second": new.limit_operations_per_second or None,
        "burst_bytes": new.burst_bytes if new.limit_bytes_per_second else None,
        "burst_operations": new.burst_operations if new.limit_operations_per_second else None,
        "backlog_requests": new.backlog_requests,
        "backlog_bytes": new.backlog_bytes,
        "held_p99_ms": _held_p99_ms(admitted, base.histogram, new.histogram),
        "held_mean_ms": _per(new.held_ns - base.held_ns, held, 1e6),
        "service_mean_ms": _per(new.service_ns - base.service_ns, done, 1e6),
        "in_flight": new.in_flight,
        "dropped_per_second": (new.dropped_requests - base.dropped_requests) / span,
        "tokens_bytes": new.more.tokens_bytes if new.more else None,
        "tokens_operations": new.more.tokens_operations if new.more else None,
        "untagged_share": _untagged_share(base.more, new.more),
        **_frames(base.more, new.more, span),
    }


def _held_p99_ms(admitted: int, old: tuple[int, ...], new: tuple[int, ...]) -> float:
    """Of all that were admitted; without waiting counts as a wait of nothing."""
    if old == new:
        return 0.0
    waits = [
        after - before if after > before else 0 for before, after in zip(old, new, strict=True)
    ]
    waited = sum(waits)
    quick = max(0, admitted - waited)
    total = quick + waited
    if quick >= 0.99 * total:
        return 0.0
    return percentile_ms(waits, max(0.0, (0.99 * total - quick) / waited))


class Rates(NamedTuple):
    """Of several classes and resources, in one order: over the last second and its last part."""

    bytes_per_second: Sequence[float]
    recent_bytes_per_second: Sequence[float]
    backlog_requests: Sequence[int]


def _moved(old: Content, new: Content, span_s: float, keys: Collection[Key]) -> Sequence[float]:
    """Bytes per second of each key between two readings, as `sample` has them."""
    if old is new:
        return [0.0] * len(keys)
    before, after = old.gauges, new.gauges
    numbers, is_alike = new.layout.numbers, old.layout is new.layout
    rates = []
    for key in keys:
        number = numbers[key]
        # Mostly both have one layout.
        earlier = number if is_alike else old.layout.numbers.get(key)
        moved = 0
        if earlier is not None:
            then, now = before[earlier], after[number]
            if now[0] >= then[0] and now[1] > then[1]:
                moved = now[1] - then[1]
        rates.append(moved / span_s)
    return rates


class Span(NamedTuple):
    """Two readings of one page, and the differences between them."""

    old: Reading
    new: Reading

    @property
    def elapsed_s(self) -> float:
        """A second if none has passed, and nothing has happened."""
        return max(0, self.new.at_ns - self.old.at_ns) / 1e9 or 1.0

    def sample(self, key: Key) -> Sample | None:
        """As the API has it; None if the page has no such class."""
        slot = self.new.content.slot(key)
        if slot is None:
            return None
        same = self.old.content is self.new.content
        return sample(slot if same else self.old.content.slot(key), slot, self.elapsed_s)

    def samples(self, keys: Iterable[Key] | None = None) -> dict[str, dict[str, Sample]]:
        """{class: {resource: sample}}, of these alone if some are given."""
        result: dict[str, dict[str, Sample]] = {}
        for key in self.new.content.layout.numbers if keys is None else keys:
            found = self.sample(key)
            if found is not None:
                result.setdefault(key[0], {})[key[1]] = found
        return result

    def history(self, keys: Collection[Key]) -> dict[str, list[float | None]]:
        """{"class/resource": values}: of each sample the `HISTORY_FIELDS`."""
        old, new = self.old.content, self.new.content
        rates = _moved(old, new, self.elapsed_s, keys)
        result: dict[str, list[float | None]] = {}
        for key, rate in zip(keys, rates, strict=True):
            number = new.layout.numbers[key]
            *_, backlog_bytes, limit = new.gauges[number]
            p99 = self._held_p99_ms(key, number)
            result["/".join(key)] = [rate, limit or None, backlog_bytes, p99]
        return result

    def _held_p99_ms(self, key: Key, number: int) -> float:
        old, new = self.old.content, self.new.content
        earlier = None if old is new else old.layout.numbers.get(key)
        if earlier is None:
            return 0.0
        before, after = old.gauges[earlier], new.gauges[number]
        if after[0] < before[0] or after[1] < before[1]:
            return 0.0
        waits = old.histogram(earlier), new.histogram(number)
        return _held_p99_ms(after[0] - before[0], *waits)


class Window:
    """The readings of the last second of one page."""

    def __init__(self, length_ns: int = SECOND_NS) -> None:
        self.length_ns = length_ns
        self.readings: list[Reading] = []

    def copy(self) -> Window:
        """For another thread than the one that adds."""
        same = Window(self.length_ns)
        same.readings = list(self.readings)
        return same

    def newest(self) -> Reading | None:
        return self.readings[-1] if self.readings else None

    def add(self, reading: Reading) -> None:
        last = self.newest()
        if last is not None and last.header.created_ns != reading.header.created_ns:
            self.readings.clear()
        elif last is not None and reading.at_ns <= last.at_ns:
            # The page has not been written since.
            return
        self.readings.append(reading)
        # Keep one reading at or beyond the window's far edge to measure against.
        while len(self.readings) > 2 and reading.at_ns - self.readings[1].at_ns >= self.length_ns:
            self.readings.pop(0)

    def span(self) -> Span:
        return Span(self.readings[0], self.readings[-1])

    def rates(self, keys: Collection[Key]) -> Rates:
        """Of these classes and resources, which the newest reading must have."""
        whole = self.span()
        newest = whole.new
        base = next(r for r in self.readings if newest.at_ns - r.at_ns <= RECENT_NS)
        # With a single reading nothing has moved.
        recent_s = (newest.at_ns - base.at_ns) / 1e9 or 1.0
        means = _moved(whole.old.content, newest.content, whole.elapsed_s, keys)
        recents = _moved(base.content, newest.content, recent_s, keys)
        gauges, numbers = newest.content.gauges, newest.content.layout.numbers
        return Rates(means, recents, [gauges[numbers[key]][2] for key in keys])

    def latest_service_ms(self, class_name: str, resource: str) -> float:
        """As `worst_service_ms`, for the last tick in which anything completed."""
        key = (class_name, resource)
        newest = self.readings[-1]
        new = newest.content.service(key)
        waiting_ms = 0.0
        for before, after in zip(self.readings[-2::-1], self.readings[:0:-1], strict=False):
            old, later = before.content.service(key), after.content.service(key)
            if old is None or later is None or new is None:
                return waiting_ms
            done = later[0] - old[0]
            if done > 0:
                return max(waiting_ms, (later[1] - old[1]) / done / 1e6)
            if new[2] > 0 and old[2] > 0:
                waiting_ms = (newest.at_ns - before.at_ns) / 1e6
        return waiting_ms

    def worst_service_ms(self, class_name: str, resource: str) -> float:
        """The mean service time of the requests that completed in the window's slowest tick.

        A request in flight since the last completion of its class counts with the least time
        that it has waited.
        """
        key = (class_name, resource)
        worst, quiet_since_ns = 0.0, None
        for before, after in zip(self.readings, self.readings[1:], strict=False):
            old, new = before.content.service(key), after.content.service(key)
            if old is None or new is None:
                continue
            done = new[0] - old[0]
            if done > 0:
                worst = max(worst, (new[1] - old[1]) / done / 1e6)
                quiet_since_ns = None
            elif old[2] > 0 and new[2] > 0:
                if quiet_since_ns is None:
                    quiet_since_ns = before.at_ns
                worst = max(worst, (after.at_ns - quiet_since_ns) / 1e6)
            else:
                quiet_since_ns = None
        return worst
