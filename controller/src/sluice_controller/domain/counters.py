# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters pages (`docs/specs/counters-page.md`): reading them.

The page is another process's, written while we read: each slot is a seqlock. QEMU
writes the page, and QEMU faces a hostile guest: sizes come from the specification,
never from the page, and the page may end anywhere.

Hundreds of pages are read ten times a second, and few of their figures are ever used. A reading
is therefore the page's own bytes, and `window.py` decodes figures when they are used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from .limits import RESOURCES

MAGIC = b"SLUICEPG"
VERSION = 1
HEADER_BYTES = 128
SLOT_BYTES = 256
SLOT_COUNT = 68
PAGE_BYTES = HEADER_BYTES + SLOT_BYTES * SLOT_COUNT
CEILING_SLOT = 64
MORE_BYTES = 128
# With the counters of streams and of the gate.
GATE_BYTES = 256
# Entries of later writers may be longer, within reason.
MORE_BYTES_LIMIT = 4096
TAIL_BYTES = 64
DROP_REASONS = ("backlog", "codel", "connection", "window", "reset")
HEARTBEAT_LIMIT_NS = 2_000_000_000
SEQUENCE_BYTES = 4
HEARTBEAT_OFFSET = 40
HEARTBEAT_BYTES = 8
SERVICE_OFFSET = 136
HISTOGRAM_OFFSET = 160
READ_ATTEMPTS = 8
# How often slots beyond the last used one are looked at, though nothing says that there are more.
WHOLE_NS = 1_000_000_000
# Guests with the same classes under the same tags have the same layout.
KNOWN_LAYOUTS = 1024

# (offset, length) → a copy of that much of the page; shorter where the page ends.
Copy = Callable[[int, int], bytes]
# (class, resource)
Key = tuple[str, str]

_HEADER = struct.Struct("<8sIIIIQQQII64sQ")
_SLOT = struct.Struct("<IBBBB32s15Q12Q")
_SERVICE = struct.Struct("<3Q")
_HISTOGRAM = struct.Struct("<12Q")
_MORE = struct.Struct("<5Q5Q2qQ2Q")
_STREAM = struct.Struct("<3Q8Q")
_GATE = struct.Struct("<5Q")
STREAM_OFFSET, GATE_OFFSET = 128, 216
# The page's tokens of a bucket without a limit.
_UNLIMITED = 2**63 - 1


class BadPage(ValueError):
    """The file is not a counters page of this version."""


class Header(NamedTuple):
    created_ns: int
    generation: int
    heartbeat_ns: int
    pid: int
    shaper_id: str
    # Where the second table is, and how long its entries are; 0: there is none.
    more_offset: int = 0
    more_bytes: int = 0


# Of a header all fields but its heartbeat, which moves on.
HEARTBEAT = Header._fields.index("heartbeat_ns")
AFTER = HEARTBEAT + 1


@dataclass(frozen=True, slots=True)
class Stream:
    """How the requests of a class that is a stream wait for the disk: exact sums.

    `busy_ns` is the integral of the requests in flight over time, `outstanding_ns` the time with
    any; `oldest_ns` is when the disk got the oldest of them (0: none). `depth[i]` of its
    requests found i others in flight, the last entry also more.
    """

    busy_ns: int
    outstanding_ns: int
    oldest_ns: int
    depth: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GateState:
    """The gate of a resource of a VM; `target_ns` is 0 without one.

    `held_times` counts how often it began to be closed while a request waited for it, and
    `held_ns` for how long it was so.
    """

    target_ns: int
    window_bytes: int
    in_flight_bytes: int
    held_times: int
    held_ns: int


@dataclass(frozen=True, slots=True)
class More:
    """Drops, marks, buffers and tokens of a slot; `drops` in the order of DROP_REASONS.

    Tokens are negative while the class is in debt, and None without such a limit. Of
    `untagged_of_requests` requests nothing chose the class of `untagged_requests`. `stream` and
    `gate` are None where the writer is from before there was a gate; the gate's figures are
    those of the class `default`.
    """

    drops: tuple[int, ...]
    marked_requests: int
    buffered_requests: int
    buffered_bytes: int
    buffer_requests_max: int
    buffer_bytes_max: int
    tokens_bytes: int | None = None
    tokens_operations: int | None = None
    untagged_requests: int = 0
    untagged_of_requests: int = 0
    stream: Stream | None = None
    gate: GateState | None = None


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


@dataclass(frozen=True, eq=False)
class Layout:
    """Which slots of a page are used, and by which classes."""

    # Of the 64 slots of classes, each one's byte `used`; then sequence and head of the used ones.
    flags: bytes
    indexes: tuple[int, ...]
    # (tag, class) of each used slot, and its number among these by (class, resource).
    classes: tuple[tuple[int, str], ...]
    numbers: Mapping[Key, int]


@dataclass(frozen=True, eq=False)
class Content:
    """The used slots of a page; readings without a change between them share it.

    `slots` and `more` are the page's own bytes, from slot 0 to the last used slot; figures are
    decoded when they are used.
    """

    layout: Layout
    slots: bytes
    more: bytes = b""
    more_bytes: int = 0
    # Of each used slot its sequence and its first fields, as they were when it was read.
    marks: tuple[Any, ...] = ()
    # Numbers of slots whose writer did not rest: they are as they were at the reading before.
    unsettled: frozenset[int] = frozenset()

    def slot(self, key: Key) -> Slot | None:
        number = self.layout.numbers.get(key)
        if number is None:
            return None
        index = self.layout.indexes[number]
        _seq, _used, tag, resource, priority, name, *fields = _SLOT.unpack_from(
            self.slots, index * SLOT_BYTES
        )
        length = self.more_bytes
        more = _more(self.more, index * length, length) if length else None
        return Slot(
            _text(name),
            tag,
            RESOURCES[resource],
            priority,
            *fields[:15],
            histogram=tuple(fields[15:]),
            more=more,
        )

    @cached_property
    def gauges(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """Of each used slot: requests, bytes, requests and bytes that wait, byte limit."""
        found = _shape(self.layout.flags).gauges.unpack_from(self.slots)
        return tuple(zip(*[iter(found)] * 5, strict=True))

    def service(self, key: Key) -> tuple[int, int, int] | None:
        """(completed requests, their service time in ns, requests in flight)"""
        number = self.layout.numbers.get(key)
        if number is None:
            return None
        at = self.layout.indexes[number] * SLOT_BYTES + SERVICE_OFFSET
        return _SERVICE.unpack_from(self.slots, at)

    @property
    def tells_of_gates(self) -> bool:
        """Whether the writer has one to set."""
        return self.more_bytes >= GATE_BYTES

    def stream(self, key: Key) -> Stream | None:
        """How the class waits for the disk; None where the page does not tell."""
        sums = self._beside(key, _STREAM, STREAM_OFFSET)
        return None if sums is None else Stream(*sums[:3], sums[3:])

    def gate(self, key: Key) -> GateState | None:
        """The gate of a resource, if the class is `default`; None where the page does not tell."""
        state = self._beside(key, _GATE, GATE_OFFSET)
        return None if state is None else GateState(*state)

    def _beside(self, key: Key, fields: struct.Struct, offset: int) -> tuple[int, ...] | None:
        number = self.layout.numbers.get(key)
        if number is None or not self.tells_of_gates:
            return None
        return fields.unpack_from(self.more, self.layout.indexes[number] * self.more_bytes + offset)

    def histogram(self, number: int) -> tuple[int, ...]:
        """Of the used slot of this number."""
        at = self.layout.indexes[number] * SLOT_BYTES + HISTOGRAM_OFFSET
        return _HISTOGRAM.unpack_from(self.slots, at)


class Reading(NamedTuple):
    """One look at a page."""

    # When its counters were so: some time ago, if QEMU has not written them since.
    at_ns: int
    header: Header
    content: Content
    # When all slots were looked at.
    whole_ns: int = 0

    @property
    def slots(self) -> dict[Key, Slot]:
        """(class, resource) → slot, decoded anew at each question."""
        return {key: self.content.slot(key) for key in self.content.layout.numbers}

    @property
    def unsettled(self) -> frozenset[int]:
        return self.content.unsettled


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")


def read_header(page: bytes, size: int | None = None) -> Header:
    """BadPage if this is no page; `size` is the file's, if `page` is only its beginning."""
    size = len(page) if size is None else size
    if size < PAGE_BYTES or len(page) < HEADER_BYTES:
        raise BadPage(f"the page has {min(size, len(page))} bytes, expected {PAGE_BYTES}")
    magic, version, header, slot, count, *rest = _HEADER.unpack_from(page, 0)
    created, generation, heartbeat, pid, more_bytes, name, more_offset = rest
    if magic != MAGIC:
        raise BadPage(f"the page's magic is {magic!r}, expected {MAGIC!r}")
    if (version, header, slot, count) != (VERSION, HEADER_BYTES, SLOT_BYTES, SLOT_COUNT):
        raise BadPage(
            f"the page has version {version}, header {header}, slots {count} of {slot} bytes, "
            f"expected {VERSION}, {HEADER_BYTES}, {SLOT_COUNT} of {SLOT_BYTES}"
        )
    if not _has_more(size, more_bytes, more_offset):
        more_bytes = more_offset = 0
    return Header(created, generation, heartbeat, pid, _text(name), more_offset, more_bytes)


def _has_more(size: int, more_bytes: int, more_offset: int) -> bool:
    """Whether there is a second table, and all of it within the page."""
    if not MORE_BYTES <= more_bytes <= MORE_BYTES_LIMIT:
        return False
    return PAGE_BYTES <= more_offset <= size - SLOT_COUNT * more_bytes


def _more(table: bytes, offset: int, length: int) -> More:
    values = _MORE.unpack_from(table, offset)
    *tokens, tokens_ns = values[10:13]
    # A writer from before there were tokens has zeros there.
    told = [value if tokens_ns and value != _UNLIMITED else None for value in tokens]
    more = More(values[:5], *values[5:10], *told, *values[13:])
    if length < GATE_BYTES:
        return more
    sums = _STREAM.unpack_from(table, offset + STREAM_OFFSET)
    gate = GateState(*_GATE.unpack_from(table, offset + GATE_OFFSET))
    return replace(more, stream=Stream(*sums[:3], sums[3:]), gate=gate)


def _counted_ns(header: Header, size: int, at_ns: int) -> int:
    """When the counters of a page of `size` bytes, read at `at_ns`, were so.

    A writer with a tail writes all of them at its heartbeat, which may be a while ago;
    one before it wrote each as it changed.
    """
    tail = header.more_offset + SLOT_COUNT * header.more_bytes
    if not header.more_bytes or size < tail + TAIL_BYTES:
        return at_ns
    return min(at_ns, header.heartbeat_ns)


# Looking at a page


@dataclass(frozen=True)
class _Shape:
    """How the used slots lie in a page: formats that take a field of all of them at once."""

    indexes: tuple[int, ...]
    # Slots from the first to the last used one.
    span: int
    marks: struct.Struct
    gauges: struct.Struct


@lru_cache(maxsize=KNOWN_LAYOUTS)
def _shape(flags: bytes) -> _Shape:
    indexes = tuple(index for index, used in enumerate(flags) if used)
    span = indexes[-1] + 1 if indexes else 0

    def of_each(fields: str) -> struct.Struct:
        """The format of one slot, for each used slot; others are passed over."""
        empty = f"{SLOT_BYTES}x"
        return struct.Struct("<" + "".join(fields if flags[i] else empty for i in range(span)))

    return _Shape(indexes, span, of_each("I36s216x"), of_each("40xQQ32xQQQ144x"))


@lru_cache(maxsize=KNOWN_LAYOUTS)
def _layout(flags: bytes, heads: tuple[bytes, ...], without: frozenset[int]) -> Layout:
    """`heads`: of each used slot the bytes from `used` to the name."""
    indexes, classes, numbers = [], [], {}
    for index, head in zip(_shape(flags).indexes, heads, strict=True):
        tag, resource = divmod(index, len(RESOURCES))
        # A slot that names another place is damaged.
        if index not in without and head[0] and head[1:3] == bytes((tag, resource)):
            name = _text(head[4:])
            numbers[name, RESOURCES[resource]] = len(indexes)
        indexes.append(index)
        classes.append((tag, _text(head[4:])))
    return Layout(flags, tuple(indexes), tuple(classes), numbers)


def _copied(copy: Copy, offset: int, length: int) -> bytes:
    found = copy(offset, length)
    if len(found) < length:
        raise BadPage(f"the page was shortened: it ends before byte {offset + length}")
    return found


def read_page(copy: Copy, size: int, at_ns: int, before: Reading | None = None) -> Reading:
    """Reads a page of `size` bytes; BadPage for another version or a shortened page.

    `before` is the last reading of this path, if there is one. A slot with the sequence of then
    has the contents of then: if no slot has moved, one copy of the used slots is enough.
    """
    if before is not None and at_ns - before.whole_ns < WHOLE_NS:
        last = before.content
        page = copy(0, HEADER_BYTES + _shape(last.layout.flags).span * SLOT_BYTES)
        header = read_header(page, size)
        if _as_before(before.header, header):
            content, header = _content(copy, page, last.layout.flags, header, last)
            return Reading(_counted_ns(header, size, at_ns), header, content, before.whole_ns)
    page = copy(0, PAGE_BYTES)
    # The file may have been shortened since its size was read.
    header = read_header(page, size if len(page) == PAGE_BYTES else len(page))
    is_same = before is not None and before.header.created_ns == header.created_ns
    last = before.content if is_same else None
    flags = page[HEADER_BYTES + SEQUENCE_BYTES :: SLOT_BYTES][:CEILING_SLOT]
    content, header = _content(copy, page, flags, header, last)
    return Reading(_counted_ns(header, size, at_ns), header, content, at_ns)


def _as_before(before: Header, header: Header) -> bool:
    """Whether it is the same page, and its classes are the same by its own word."""
    return header[:HEARTBEAT] == before[:HEARTBEAT] and header[AFTER:] == before[AFTER:]


def _content(
    copy: Copy, page: bytes, flags: bytes, header: Header, last: Content | None
) -> tuple[Content, Header]:
    """Whole slots, not half-written, with their header.

    They are `last` if nothing has moved. Otherwise the slots are copied a second time, after
    the second table: a slot that is equal in both copies was not written in between, nor was
    its entry of that table.
    """
    shape = _shape(flags)
    end = HEADER_BYTES + shape.span * SLOT_BYTES
    if len(page) < end:
        raise BadPage(f"the page was shortened: it ends before byte {end}")
    marks = shape.marks.unpack_from(page, HEADER_BYTES)
    alike = last is not None and (flags, header.more_bytes) == (last.layout.flags, last.more_bytes)
    if alike and marks == last.marks:
        return last, header

    def slots_again() -> bytes:
        return _copied(copy, HEADER_BYTES, end - HEADER_BYTES)

    def more() -> bytes:
        return _copied(copy, header.more_offset, shape.span * header.more_bytes)

    def tables() -> tuple[bytes, bytes]:
        return slots_again(), more()

    first = page[HEADER_BYTES:end], more()
    if first[0] == slots_again() and not any(sequence & 1 for sequence in marks[::2]):
        known = alike and not last.unsettled and marks[1::2] == last.marks[1::2]
        layout = last.layout if known else _layout(flags, marks[1::2], frozenset())
        return Content(layout, *first, header.more_bytes, marks), header
    content = _settled(tables, flags, header.more_bytes, last)
    return content, _written_meanwhile(copy, header)


def _written_meanwhile(copy: Copy, header: Header) -> Header:
    """As of the writing that was met, if it is over: QEMU writes the header last."""
    latest = _copied(copy, HEARTBEAT_OFFSET, HEARTBEAT_BYTES)
    return header._replace(heartbeat_ns=max(header.heartbeat_ns, int.from_bytes(latest, "little")))


def _settled(
    tables: Callable[[], tuple[bytes, bytes]], flags: bytes, more_bytes: int, last: Content | None
) -> Content:
    """Slots that somebody writes just now.

    A QEMU that loses its processor in the middle of a write leaves the slot so for as
    long as it waits for the next: its class is there all the same, as it was `last`.
    """
    shape = _shape(flags)
    moving = set(shape.indexes)
    found = tables()
    for _attempt in range(READ_ATTEMPTS):
        again = tables()
        moving = _apart(moving, found, again, more_bytes)
        if not moving:
            break
        found = _joined(found, again, moving, more_bytes)
    marks = list(shape.marks.unpack_from(found[0]))
    for number, index in enumerate(shape.indexes):
        if index in moving and not marks[2 * number] % 2:
            # It moved on each time, so the next reading must not trust its sequence.
            marks[2 * number] = None
    lost = frozenset(moving)
    if last is not None and last.more_bytes == more_bytes:
        had = {last.layout.indexes[number] for number in last.layout.numbers.values()}
        lost = lost - had
        found = _joined(found, (last.slots, last.more), moving & had, more_bytes)
    layout = _layout(flags, shape.marks.unpack_from(found[0])[1::2], lost)
    return Content(layout, *found, more_bytes, tuple(marks), frozenset(moving))


def _apart(
    moving: set[int], one: tuple[bytes, bytes], other: tuple[bytes, bytes], more_bytes: int
) -> set[int]:
    """The slots that differ between two copies, or were being written."""
    slots = one[0]
    resting = {index for index in moving if not slots[index * SLOT_BYTES] % 2}
    if one == other:
        return moving - resting
    return moving - {
        index
        for index in resting
        if all(
            a[index * length : (index + 1) * length] == b[index * length : (index + 1) * length]
            for a, b, length in zip(one, other, (SLOT_BYTES, more_bytes), strict=True)
        )
    }


def _joined(
    tables: tuple[bytes, bytes], newer: tuple[bytes, bytes], indexes: Iterable[int], more_bytes: int
) -> tuple[bytes, bytes]:
    """The tables, with these slots from others."""
    joined = []
    for table, from_table, length in zip(tables, newer, (SLOT_BYTES, more_bytes), strict=True):
        mixed = bytearray(table)
        for index in indexes:
            mixed[index * length : (index + 1) * length] = from_table[
                index * length : (index + 1) * length
            ]
        joined.append(bytes(mixed))
    return joined[0], joined[1]
