# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters pages (`docs/specs/counters-page.md`): reading, and rates from two readings.

The page is another process's memory, written while we read: each slot is a
seqlock. QEMU writes the page, and QEMU faces a hostile guest: sizes come from
the specification, never from the page, and the page may end anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .limits import RESOURCES

MAGIC = b"SLUICEPG"
VERSION = 1
HEADER_BYTES = 128
SLOT_BYTES = 256
SLOT_COUNT = 68
PAGE_BYTES = HEADER_BYTES + SLOT_BYTES * SLOT_COUNT
CEILING_SLOT = 64
MORE_BYTES = 128
# Entries of later writers may be longer, within reason.
MORE_BYTES_LIMIT = 4096
DROP_REASONS = ("backlog", "codel", "connection", "window", "reset")
HEARTBEAT_LIMIT_NS = 2_000_000_000
SEQUENCE_BYTES = 4
READ_ATTEMPTS = 8

# (offset, length) → a copy of that much of the page; shorter where the page ends.
Copy = Callable[[int, int], bytes]

_HEADER = struct.Struct("<8sIIIIQQQII64sQ")
_SLOT = struct.Struct("<IBBBB32s15Q12Q")
_MORE = struct.Struct("<5Q5Q2qQ")
# What a bucket holds that is none, because there is no such limit.
_UNLIMITED = 2**63 - 1


class BadPage(ValueError):
    """The file is not a counters page of this version."""


@dataclass(frozen=True)
class Header:
    created_ns: int
    generation: int
    heartbeat_ns: int
    pid: int
    shaper_id: str
    # Where the second table is, and how long its entries are; 0: there is none.
    more_offset: int = 0
    more_bytes: int = 0


@dataclass(frozen=True, slots=True)
class More:
    """What becomes of frames; `drops` in the order of DROP_REASONS.

    Tokens are negative while the class is in debt, and None without such a limit.
    """

    drops: tuple[int, ...]
    marked_requests: int
    buffered_requests: int
    buffered_bytes: int
    buffer_requests_max: int
    buffer_bytes_max: int
    tokens_bytes: int | None = None
    tokens_operations: int | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    class_name: str
    tag: int
    resource: str
    priority: int
    requests: int
    bytes: int
    held_requests: int
    held_ns: int
    dropped_requests: int
    dropped_bytes: int
    backlog_requests: int
    backlog_bytes: int
    limit_bytes_per_second: int
    limit_operations_per_second: int
    burst_bytes: int
    burst_operations: int
    completed_requests: int
    service_ns: int
    in_flight: int
    histogram: tuple[int, ...]
    more: More | None = None


@dataclass(frozen=True)
class Reading:
    """One look at a page: (class, resource) → slot."""

    at_ns: int
    header: Header
    slots: dict[tuple[str, str], Slot]
    # Places, tag * 4 + resource, of slots whose writer did not rest: they are in no slot.
    unsettled: frozenset[int] = frozenset()

    def settled(self, before: Reading | None) -> Reading:
        """This reading with unsettled slots as they were in the one before of the same page.

        A QEMU that loses its processor in the middle of a write leaves the slot so for
        as long as it waits for the next: its class is there all the same.
        """
        if not self.unsettled or before is None:
            return self
        if before.header.created_ns != self.header.created_ns:
            return self
        kept = {key: slot for key, slot in before.slots.items() if _place(slot) in self.unsettled}
        return replace(self, slots=kept | self.slots)


class _Unsettled(Exception):
    """A slot's writer will not rest."""


def _place(slot: Slot) -> int:
    return slot.tag * len(RESOURCES) + RESOURCES.index(slot.resource)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")


def read_header(page: bytes, size: int | None = None) -> Header:
    """BadPage if this is no page; `size` is the file's, if `page` is only its beginning."""
    if len(page) < PAGE_BYTES:
        raise BadPage(f"the page has {len(page)} bytes, expected {PAGE_BYTES}")
    magic, version, header, slot, count, *rest = _HEADER.unpack_from(page, 0)
    created, generation, heartbeat, pid, more_bytes, name, more_offset = rest
    if magic != MAGIC:
        raise BadPage(f"the page's magic is {magic!r}, expected {MAGIC!r}")
    if (version, header, slot, count) != (VERSION, HEADER_BYTES, SLOT_BYTES, SLOT_COUNT):
        raise BadPage(
            f"the page has version {version}, header {header}, slots {count} of {slot} bytes, "
            f"expected {VERSION}, {HEADER_BYTES}, {SLOT_COUNT} of {SLOT_BYTES}"
        )
    if not _has_more(size or len(page), more_bytes, more_offset):
        more_bytes = more_offset = 0
    return Header(created, generation, heartbeat, pid, _text(name), more_offset, more_bytes)


def _has_more(size: int, more_bytes: int, more_offset: int) -> bool:
    """Whether there is a second table, and all of it within the page."""
    if not MORE_BYTES <= more_bytes <= MORE_BYTES_LIMIT:
        return False
    return PAGE_BYTES <= more_offset <= size - SLOT_COUNT * more_bytes


def _copied(copy: Copy, offset: int, length: int) -> bytes:
    found = copy(offset, length)
    if len(found) < length:
        raise BadPage(f"the page was shortened: it ends before byte {offset + length}")
    return found


def _read_more(copy: Copy, header: Header, index: int) -> bytes | None:
    if not header.more_bytes:
        return None
    return _copied(copy, header.more_offset + index * header.more_bytes, _MORE.size)


def _more(raw: bytes | None) -> More | None:
    if raw is None:
        return None
    values = _MORE.unpack(raw)
    *tokens, tokens_ns = values[10:]
    # A writer from before there were tokens has zeros there.
    told = [value if tokens_ns and value != _UNLIMITED else None for value in tokens]
    return More(values[:5], *values[5:10], *told)


def _read_slot(copy: Copy, header: Header, index: int, before: bytes) -> Slot | None:
    """A consistent copy; None if the slot is unused, _Unsettled if its writer will not rest.

    `before` is the sequence as it was copied earlier: what is copied between two
    equal, even ones was not being written.
    """
    offset = HEADER_BYTES + index * SLOT_BYTES
    for _attempt in range(READ_ATTEMPTS):
        raw = _copied(copy, offset, SLOT_BYTES)
        more = _read_more(copy, header, index)
        after = _copied(copy, offset, SEQUENCE_BYTES)
        if before == raw[:SEQUENCE_BYTES] == after and not after[0] % 2:
            break
        before = after
    else:
        raise _Unsettled
    fields = _SLOT.unpack(raw)
    used, tag, resource, priority, name = fields[1:6]
    if not used or resource >= len(RESOURCES):
        return None
    return Slot(
        _text(name),
        tag,
        RESOURCES[resource],
        priority,
        *fields[6:21],
        histogram=fields[21:33],
        more=_more(more),
    )


def read_page(copy: Copy, size: int, at_ns: int) -> Reading:
    """What a page of `size` bytes says; BadPage if it is none of this version, or cut short."""
    page = copy(0, PAGE_BYTES)
    header = read_header(page, size)
    slots, unsettled = {}, set()
    for index in range(CEILING_SLOT):
        offset = HEADER_BYTES + index * SLOT_BYTES
        if page[offset + SEQUENCE_BYTES]:
            before = page[offset : offset + SEQUENCE_BYTES]
            try:
                slot = _read_slot(copy, header, index, before)
            except _Unsettled:
                unsettled.add(index)
                continue
            if slot is not None:
                slots[slot.class_name, slot.resource] = slot
    return Reading(at_ns, header, slots, frozenset(unsettled))


def percentile_ms(histogram: tuple[int, ...], fraction: float) -> float:
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
    """What became of frames; null where the page does not tell."""
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
    waits = tuple(max(0, a - b) for a, b in zip(new.histogram, base.histogram, strict=True))
    admitted = new.requests - base.requests
    # Admitted without waiting counts as a wait of nothing.
    quick = (max(0, admitted - sum(waits)),) + waits
    p99 = 0.0 if quick[0] >= 0.99 * sum(quick) else percentile_ms(waits, _tail(quick))
    return {
        "bytes_per_second": (new.bytes - base.bytes) / span,
        "requests_per_second": admitted / span,
        "limit_bytes_per_second": new.limit_bytes_per_second or None,
        "limit_operations_per_second": new.limit_operations_per_second or None,
        "burst_bytes": new.burst_bytes if new.limit_bytes_per_second else None,
        "burst_operations": new.burst_operations if new.limit_operations_per_second else None,
        "backlog_requests": new.backlog_requests,
        "backlog_bytes": new.backlog_bytes,
        "held_p99_ms": p99,
        "held_mean_ms": _per(new.held_ns - base.held_ns, held, 1e6),
        "service_mean_ms": _per(new.service_ns - base.service_ns, done, 1e6),
        "in_flight": new.in_flight,
        "dropped_per_second": (new.dropped_requests - base.dropped_requests) / span,
        "tokens_bytes": new.more.tokens_bytes if new.more else None,
        "tokens_operations": new.more.tokens_operations if new.more else None,
        **_frames(base.more, new.more, span),
    }


def _tail(quick: tuple[int, ...]) -> float:
    """The 99th percentile of all requests, as a fraction of those that waited."""
    total, waited = sum(quick), sum(quick[1:])
    return max(0.0, (0.99 * total - quick[0]) / waited) if waited else 0.0


class Window:
    """The readings of the last second of one page."""

    def __init__(self, length_ns: int = 1_000_000_000) -> None:
        self.length_ns = length_ns
        self.readings: list[Reading] = []

    def add(self, reading: Reading) -> None:
        last = self.readings[-1] if self.readings else None
        if last is not None and last.header.created_ns != reading.header.created_ns:
            self.readings.clear()
        reading = reading.settled(last)
        self.readings.append(reading)
        # Keep one reading at or beyond the window's far edge to measure against.
        while len(self.readings) > 2 and reading.at_ns - self.readings[1].at_ns >= self.length_ns:
            self.readings.pop(0)

    def samples(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """{class: {resource: sample}} over the window."""
        newest, oldest = self.readings[-1], self.readings[0]
        elapsed_s = (newest.at_ns - oldest.at_ns) / 1e9
        result: dict[str, dict[str, Any]] = {}
        for (class_name, resource), slot in newest.slots.items():
            old = oldest.slots.get((class_name, resource))
            result.setdefault(class_name, {})[resource] = sample(old, slot, elapsed_s)
        return result

    def recent_bytes_per_second(
        self, class_name: str, resource: str, span_ns: int = 300_000_000
    ) -> float:
        """The rate over the window's last part: ahead of the mean while a load rises."""
        newest = self.readings[-1]
        base = next((r for r in self.readings if newest.at_ns - r.at_ns <= span_ns), newest)
        key = (class_name, resource)
        old, new = base.slots.get(key), newest.slots.get(key)
        if old is None or new is None or newest.at_ns == base.at_ns:
            return 0.0
        return max(0, new.bytes - old.bytes) / ((newest.at_ns - base.at_ns) / 1e9)

    def latest_service_ms(self, class_name: str, resource: str) -> float:
        """As `worst_service_ms`, for the last tick in which anything completed."""
        key = (class_name, resource)
        newest = self.readings[-1]
        new = newest.slots.get(key)
        waiting_ms = 0.0
        for before, after in zip(self.readings[-2::-1], self.readings[:0:-1], strict=False):
            old, later = before.slots.get(key), after.slots.get(key)
            if old is None or later is None or new is None:
                return waiting_ms
            done = later.completed_requests - old.completed_requests
            if done > 0:
                return max(waiting_ms, (later.service_ns - old.service_ns) / done / 1e6)
            if new.in_flight > 0 and old.in_flight > 0:
                waiting_ms = (newest.at_ns - before.at_ns) / 1e6
        return waiting_ms

    def worst_service_ms(self, class_name: str, resource: str) -> float:
        """The slowest tick of the window: the mean service time of what completed in it.

        A request still in flight since its class last completed anything counts
        with the time it has waited at least.
        """
        key = (class_name, resource)
        worst, quiet_since_ns = 0.0, None
        for before, after in zip(self.readings, self.readings[1:], strict=False):
            old, new = before.slots.get(key), after.slots.get(key)
            if old is None or new is None:
                continue
            done = new.completed_requests - old.completed_requests
            if done > 0:
                worst = max(worst, (new.service_ns - old.service_ns) / done / 1e6)
                quiet_since_ns = None
            elif old.in_flight > 0 and new.in_flight > 0:
                if quiet_since_ns is None:
                    quiet_since_ns = before.at_ns
                worst = max(worst, (after.at_ns - quiet_since_ns) / 1e6)
            else:
                quiet_since_ns = None
        return worst


ReadPage = Callable[[str], Reading]
