# SPDX-License-Identifier: GPL-2.0-or-later
"""How a stream reads its disk, from the readings of its counters page. Pure.

QEMU keeps exact sums of a stream while a gate is set. Without them the times that its reads took
stand in: their sum over a second is the mean of the reads in flight.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from .counters import Key, Reading, Stream
from .gate import Reader, depth_of
from .limits import BLK_READ
from .model import DEFAULT_CLASS
from .model import Stream as Declared
from .nominal import Nominal
from .window import SECOND_NS, Window

# N is learnt from the reads of so long, in steps of a second.
DEPTH_SECONDS = 30
# A stream that is behind asks for all that it may have at once: reads of the first seconds under a
# gate do not count, and N is 1 until there are some more.
BEHIND_NS, UNKNOWN_NS = 5 * SECOND_NS, 10 * SECOND_NS
# Streams of low rates read so seldom.
SELDOM_NS = 3 * SECOND_NS
USUAL_REQUEST_BYTES = 128.0 * 1024
GATE_KEY: Key = (DEFAULT_CLASS, BLK_READ)


@dataclass
class Memory:
    """Of one stream, between looks at its page."""

    created_ns: int = 0
    request_bytes: float = USUAL_REQUEST_BYTES
    # Since when its page is looked at.
    since_ns: int | None = None
    # When it was last seen to read.
    active_ns: int | None = None
    counted_since_ns: int | None = None
    depths: deque[tuple[int, tuple[int, ...]]] = field(
        default_factory=lambda: deque(maxlen=DEPTH_SECONDS)
    )
    # The last reading that was looked at, and what it told.
    at_ns: int = -1
    reader: Reader | None = None

    def is_new(self, now_ns: int) -> bool:
        """Whether it may read, and was looked at too shortly to be seen to."""
        is_short = self.since_ns is None or now_ns - self.since_ns < SELDOM_NS
        return self.active_ns is None and is_short

    def is_idle(self, now_ns: int, idle_ns: int) -> bool:
        return self.active_ns is None or now_ns - self.active_ns > idle_ns


def read(
    stream: Declared, nominal: Nominal, window: Window, memory: Memory, now_ns: int
) -> Reader | None:
    """The stream's reads; None while its page tells nothing of them.

    A page that was not written since the last look says what it said.
    """
    newest = window.newest()
    key = stream.class_name, BLK_READ
    if newest is None or len(window.readings) < 2 or key not in newest.content.layout.numbers:
        return None
    if newest.header.created_ns != memory.created_ns:
        _begin(memory, newest)
    elif newest.at_ns == memory.at_ns:
        return memory.reader
    memory.at_ns = newest.at_ns
    if memory.since_ns is None:
        memory.since_ns = now_ns
    span = window.span()
    sample = span.sample(key)
    if sample is None:
        return None
    if sample["requests_per_second"] > 0:
        memory.request_bytes = sample["bytes_per_second"] / sample["requests_per_second"]
    if sample["requests_per_second"] > 0 or sample["in_flight"] > 0:
        memory.active_ns = now_ns
    sums = newest.content.stream(key)
    reader = Reader(
        name=stream.name,
        nominal_bytes_per_second=nominal.bytes_per_second,
        is_rate_known=nominal.is_known,
        request_bytes=memory.request_bytes,
        depth=_depth(memory, newest, sums),
        mean_in_flight=_by_service(span.old, newest, key),
        oldest_s=0.0,
        outstanding=0.0,
        bytes_per_second=sample["bytes_per_second"],
        wait_s=sample["service_mean_ms"] / 1000,
    )
    last = window.readings[-2]
    before, first = last.content.stream(key), span.old.content.stream(key)
    if sums is not None and before is not None and first is not None and _is_counted(last):
        reader = replace(
            reader,
            mean_in_flight=_share(before.busy_ns, sums.busy_ns, last, newest),
            oldest_s=max(0, newest.at_ns - sums.oldest_ns) / 1e9 if sums.oldest_ns else 0.0,
            outstanding=_share(first.outstanding_ns, sums.outstanding_ns, span.old, newest),
        )
    reader = replace(reader, wait_s=reader.wait_s or reader.oldest_s)
    memory.reader = reader
    return reader


def _begin(memory: Memory, newest: Reading) -> None:
    """A QEMU that started anew counts anew."""
    memory.created_ns = newest.header.created_ns
    memory.counted_since_ns = None
    memory.depths.clear()


def _is_counted(reading: Reading) -> bool:
    gate = reading.content.gate(GATE_KEY)
    return gate is not None and gate.target_ns > 0


def _share(before: int, after: int, old: Reading, new: Reading) -> float:
    """The growth of a sum in the time that passed."""
    return max(0, after - before) / max(1, new.at_ns - old.at_ns)


def _by_service(old: Reading, new: Reading, key: Key) -> float:
    before, after = old.content.service(key), new.content.service(key)
    return 0.0 if before is None or after is None else _share(before[1], after[1], old, new)


def _depth(memory: Memory, newest: Reading, sums: Stream | None) -> int:
    at_ns = newest.at_ns
    if sums is None or not _is_counted(newest):
        # Depths learnt under the last gate are old at the next.
        memory.counted_since_ns = None
        memory.depths.clear()
        return 1
    if memory.counted_since_ns is None:
        memory.counted_since_ns = at_ns
    if at_ns - memory.counted_since_ns < BEHIND_NS:
        return 1
    if not memory.depths or at_ns - memory.depths[-1][0] >= SECOND_NS:
        memory.depths.append((at_ns, sums.depth))
    first = memory.depths[0][1]
    if at_ns - memory.counted_since_ns < UNKNOWN_NS:
        return 1
    return depth_of([max(0, b - a) for a, b in zip(first, sums.depth, strict=True)])
