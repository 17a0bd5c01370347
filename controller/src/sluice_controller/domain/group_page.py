# SPDX-License-Identifier: GPL-2.0-or-later
"""The group page: how it is written and read (docs/specs/group-page.md).

Pure: bytes in, bytes out. The page is shared with running QEMU processes, which never wait for
us: a limit is six words and a check over them, under a sequence that is odd while they change.
An interrupted writer leaves the old limit in force; the next write, which starts from the page,
makes it whole.

A QEMU that its guest has taken over can write anything: each value is checked before it is used
or shown.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from .errors import BadValue
from .knobs import Model

MAGIC = b"SLUICEGP"
VERSION = 1
HEADER_BYTES = 512
SLOT_BYTES = 128
SLOT_COUNT = 128
PAGE_BYTES = HEADER_BYTES + SLOT_COUNT * SLOT_BYTES
NAME_BYTES = 64
RATE_MAX = 10**12
BURST_MAX = 1 << 40
UNITS = ("bytes", "operations")
REAP_NS = 5_000_000_000
# A clock that starts so far ahead of the reader's own is damage.
AHEAD_NS = 100_000_000
WEIGHT_MAX = 10_000
# Beyond any counter: a century at the greatest rate, and it fits any reader's integer.
COUNTER_MAX = (1 << 63) - 1

_WORD = 1 << 64
_IDENTITY = struct.Struct("=8sIIIIQ64s")
_LIMIT = struct.Struct("=7Q")
_SLOT = struct.Struct("=8Q64s")
_LIMIT_OFFSET = 128
_TAT_OFFSET = 256
_NS = 10**9


@dataclass(frozen=True)
class GroupLimit:
    """`rate` in units per second, `burst` in units."""

    unit: str
    rate: int
    burst: int


@dataclass(frozen=True)
class GroupMember(Model):
    """A QEMU process that uses the group, as its slot shows it."""

    pid: int
    label: str
    weight: int
    waiting: bool
    requests: int
    units: int


@dataclass(frozen=True)
class _Limit:
    sequence: int
    limit: GroupLimit
    base_ns: int
    base_units: int


def checked(limit: GroupLimit) -> GroupLimit:
    """The limit, or BadValue."""
    if limit.unit not in UNITS:
        raise BadValue("unit", limit.unit, "is not a unit", f"use {' or '.join(UNITS)}")
    for name, value, most in (("rate", limit.rate, RATE_MAX), ("burst", limit.burst, BURST_MAX)):
        if not 1 <= value <= most:
            raise BadValue(name, value, "is out of range", f"give an integer from 1 to {most}")
    return limit


def _check_word(words: tuple[int, ...]) -> int:
    check = 0
    for word in words:
        check = (check ^ word) * 0x9E3779B97F4A7C15 % _WORD
        check ^= check >> 32
    return check


def seal(words: tuple[int, ...]) -> tuple[int, ...]:
    """The six words of a limit with their check."""
    return (*words, _check_word(words))


def _words(limit: GroupLimit, sequence: int, base_ns: int, base_units: int) -> tuple[int, ...]:
    unit = UNITS.index(limit.unit)
    return seal((sequence, unit, limit.rate, limit.burst, base_ns, base_units))


def blank_page(magic: bytes, name: str, now_ns: int) -> bytearray:
    """A page with an identity and no more; those of groups and gates have one form."""
    encoded = name.encode()
    if not 0 < len(encoded) < NAME_BYTES:
        raise BadValue("name of a page", name, "is too long", f"use up to {NAME_BYTES - 1} bytes")
    page = bytearray(PAGE_BYTES)
    _IDENTITY.pack_into(
        page, 0, magic, VERSION, HEADER_BYTES, SLOT_BYTES, SLOT_COUNT, now_ns, encoded
    )
    return page


def new_page(name: str, limit: GroupLimit, now_ns: int, *, empty: bool = False) -> bytes:
    """A page for a new file, with a full bucket or an empty one."""
    page = blank_page(MAGIC, name, now_ns)
    _LIMIT.pack_into(page, _LIMIT_OFFSET, *_words(checked(limit), 2, now_ns, 0))
    if empty:
        struct.pack_into("=Q", page, _TAT_OFFSET, limit.burst)
    return bytes(page)


def check_identity(page: bytes, expected: bytes = MAGIC) -> str:
    """The name of the page; BadValue if this is no page of this version with that magic."""
    if len(page) != PAGE_BYTES:
        raise BadValue("group page", len(page), "bytes are not a page", f"expected {PAGE_BYTES}")
    magic, version, header, slot, count, _created, name = _IDENTITY.unpack_from(page)
    if magic != expected:
        raise BadValue("group page", magic.hex(), "is not the magic", "remove the file")
    if (version, header, slot, count) != (VERSION, HEADER_BYTES, SLOT_BYTES, SLOT_COUNT):
        raise BadValue(
            "group page", version, "is another version", "stop its members and remove the file"
        )
    return name.rstrip(b"\0").decode("utf-8", "replace")


def created_ns(page: bytes) -> int:
    """CLOCK_MONOTONIC when the page was made."""
    return int(_IDENTITY.unpack_from(page)[5])


def _read_limit(page: bytes, now_ns: int) -> _Limit | None:
    *words, check = _LIMIT.unpack_from(page, _LIMIT_OFFSET)
    sequence, unit, rate, burst, base_ns, base_units = words
    if sequence % 2 or check != _check_word(tuple(words)) or unit >= len(UNITS):
        return None
    if not (1 <= rate <= RATE_MAX and 1 <= burst <= BURST_MAX and base_ns <= now_ns + AHEAD_NS):
        return None
    return _Limit(sequence, GroupLimit(UNITS[unit], rate, burst), base_ns, base_units)


def read_limit(page: bytes, now_ns: int) -> GroupLimit | None:
    """The limit, or None if it is half written or damaged: members keep the one before."""
    found = _read_limit(page, now_ns)
    return found.limit if found else None


def _clock(found: _Limit, now_ns: int) -> tuple[int, int]:
    """The group's clock: whole units, and 2^-64 of one."""
    step = -(-(found.limit.rate << 64) // _NS)
    shown = (found.base_units << 64) + max(0, now_ns - found.base_ns) * step
    return (shown >> 64) % _WORD, shown % _WORD


def write_limit(
    page: bytes, limit: GroupLimit, now_ns: int, put_word: Callable[[int, int], None]
) -> None:
    """Changes the limit of a page in use; tokens and debt carry over in units.

    `page` is a copy of the file; `put_word(offset, value)` writes one word of it, in one store.
    BadValue if the unit would change.
    """
    checked(limit)
    found = _read_limit(page, now_ns)
    if found is None:
        # The bucket starts empty rather than full, so that nothing is won by damage.
        (tat,) = struct.unpack_from("=Q", page, _TAT_OFFSET)
        base_ns, base_units = now_ns, (tat - limit.burst) % _WORD
    elif found.limit.unit != limit.unit:
        raise BadValue(
            "unit",
            limit.unit,
            f"differs from that of the group, which counts {found.limit.unit}",
            "make another group",
        )
    else:
        base_units, fraction = _clock(found, now_ns)
        base_ns = max(0, now_ns - (fraction * _NS // limit.rate >> 64))
    (present,) = struct.unpack_from("=Q", page, _LIMIT_OFFSET)
    odd = present | 1
    words = _words(limit, (odd + 1) % _WORD, base_ns, base_units)
    put_word(_LIMIT_OFFSET, odd)
    for i, word in enumerate(words[1:], start=1):
        put_word(_LIMIT_OFFSET + 8 * i, word)
    put_word(_LIMIT_OFFSET, words[0])


def _shown_label(label: bytes) -> str:
    """The label without unprintable characters: another process wrote it."""
    text = label.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def members(page: bytes, now_ns: int) -> list[GroupMember]:
    """The members that have shown a sign of life of late.

    A weight out of range counts for nothing, and is shown as 0.
    """
    result = []
    for i in range(SLOT_COUNT):
        owner, heartbeat, weight, _virtual, until, _head, requests, units, label = (
            _SLOT.unpack_from(page, HEADER_BYTES + i * SLOT_BYTES)
        )
        if owner and abs(now_ns - heartbeat) < REAP_NS:
            result.append(
                GroupMember(
                    pid=owner % (1 << 32),
                    label=_shown_label(label),
                    weight=weight if weight <= WEIGHT_MAX else 0,
                    waiting=until > now_ns,
                    requests=min(requests, COUNTER_MAX),
                    units=min(units, COUNTER_MAX),
                )
            )
    return result
