# SPDX-License-Identifier: GPL-2.0-or-later
"""The things an operator names: classes, grants, rules, streams, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import BadValue, Conflict
from .limits import Limit, finite_number
from .queues import Queue
from .scheduling import Scheduling
from .values import parse_bool, parse_integer, parse_text

DEFAULT_CLASS = "default"
DEFAULT_PRIORITY = 5
DEFAULT_WEIGHT = 100
MAX_WEIGHT = 1000
MAX_TAG = 15
MAX_RULES = 256
# Of one domain; an agent takes 1024 rules, of which each is one.
MAX_ASSIGNMENTS = 768
LONGEST_BOOT_ID_CHARS = 64
COLOURS = 8

_CLASS_NAME = re.compile(r"[a-z0-9-]{1,31}")
_STREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_INTERFACE_NAME = re.compile(r"[^\s/:]{1,15}")


def is_boot_id(text: str) -> bool:
    """Whether a guest may have said this of its boot; empty: it did not say."""
    return len(text) <= LONGEST_BOOT_ID_CHARS and (not text or text.isprintable())


@dataclass(frozen=True)
class ShapingClass:
    name: str
    title: str
    priority: int = DEFAULT_PRIORITY
    is_stream: bool = False
    colour_index: int = 0
    # Its share of what is scarce, among classes of its priority.
    weight: int = DEFAULT_WEIGHT
    # Never held, and charged to nothing.
    unmanaged: bool = False


@dataclass(frozen=True)
class Grant:
    """A class as one domain has it. The tag travels with each request.

    Resources that are limited, scheduled or queued as by default are left out.
    """

    domain: str
    class_name: str
    tag: int
    dscp: tuple[int, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    scheduling: Mapping[str, Scheduling] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    id: int
    domain: str | None
    class_name: str
    match: Mapping[str, str]
    created_at: float


@dataclass(frozen=True)
class Assignment:
    domain: str
    pid: int
    start_time_ticks: int
    class_name: str
    created_at: float
    boot_id: str = ""


@dataclass(frozen=True)
class Stream:
    name: str
    domain: str
    class_name: str
    nominal_bytes_per_second: float


@dataclass(frozen=True)
class Settings:
    history_seconds: int = 3600
    uplink: str | None = None
    emulator: str = "/usr/lib/sluice/qemu/bin/qemu-system-x86_64"


@dataclass(frozen=True)
class AuditEntry:
    at: float
    actor: str
    action: str
    thing: str
    before: Any
    after: Any


def parse_class_name(raw: Any, thing: str = "class") -> str:
    if not isinstance(raw, str) or not _CLASS_NAME.fullmatch(raw):
        raise BadValue(
            thing, raw, "is not a class name", "use 1 to 31 of the characters a-z, 0-9 and -"
        )
    return raw


def parse_stream_name(raw: Any) -> str:
    if not isinstance(raw, str) or not _STREAM_NAME.fullmatch(raw):
        raise BadValue(
            "stream",
            raw,
            "is not a stream name",
            "use 1 to 63 letters, digits, '-', '_' and '.', and begin with a letter or digit",
        )
    return raw


def parse_class(name: Any, body: Mapping[str, Any], colour_index: int) -> ShapingClass:
    name = parse_class_name(name)
    shaping_class = ShapingClass(
        name=name,
        priority=parse_integer(body.get("priority", DEFAULT_PRIORITY), "priority", 0, 9),
        title=parse_text(body.get("title", name), "title", 80),
        is_stream=parse_bool(body.get("is_stream", False), "is_stream"),
        colour_index=colour_index,
        weight=parse_integer(body.get("weight", DEFAULT_WEIGHT), "weight", 1, MAX_WEIGHT),
        unmanaged=parse_bool(body.get("unmanaged", False), "unmanaged"),
    )
    if name == DEFAULT_CLASS and shaping_class.is_stream:
        raise BadValue(
            "is_stream",
            True,
            "cannot hold for the class default",
            "create a class of its own for the stream and assign its processes to it",
        )
    return shaping_class


def parse_dscp(raw: Any, others: Iterable[Grant]) -> tuple[int, ...]:
    """DSCP values that select a class; none may mean another class as well."""
    if not isinstance(raw, list | tuple):
        raise BadValue("dscp", raw, "is not a list", "give a list of integers from 0 to 63")
    values = tuple(parse_integer(value, f"dscp[{i}]", 0, 63) for i, value in enumerate(raw))
    taken = {value: grant.class_name for grant in others for value in grant.dscp}
    for i, value in enumerate(values):
        if value & 3 == 3:
            raise BadValue(
                f"dscp[{i}]", value, "belongs to the tags", "use a value whose last bits are not 11"
            )
        if values.count(value) > 1:
            raise BadValue(f"dscp[{i}]", value, "is given twice", "give each value once")
        if value in taken:
            raise Conflict(
                f"dscp[{i}]",
                value,
                f"already selects the class {taken[value]}",
                f"remove it from {taken[value]} first, or choose another value",
            )
    return values


def choose_tag(class_name: str, taken: Iterable[int], max_tag: int = MAX_TAG) -> int:
    """The smallest free tag. Older guest kernels carry only tags 1 to 7."""
    if class_name == DEFAULT_CLASS:
        return 0
    used = set(taken)
    for tag in range(1, max_tag + 1):
        if tag not in used:
            return tag
    raise Conflict(
        "class",
        class_name,
        f"does not fit: all {max_tag} tags of the domain are in use",
        "revoke a class that this domain no longer needs",
    )


def choose_colour(existing: Iterable[ShapingClass]) -> int:
    """The least used of the colours that charts have; 0 is the default class's."""
    counts = dict.fromkeys(range(1, COLOURS), 0)
    for shaping_class in existing:
        if shaping_class.colour_index in counts:
            counts[shaping_class.colour_index] += 1
    return min(counts, key=lambda index: (counts[index], index))


def parse_interface(raw: Any, thing: str) -> str | None:
    if raw is None:
        return None
    if not isinstance(raw, str) or not _INTERFACE_NAME.fullmatch(raw) or not raw.isprintable():
        raise BadValue(
            thing, raw, "is not an interface name", "give a name that 'ip link' shows, or null"
        )
    return raw


def parse_settings(body: Mapping[str, Any], present: Settings) -> Settings:
    """A partial update of the settings."""
    emulator = parse_text(body.get("emulator", present.emulator), "emulator", 4096)
    if not emulator.startswith("/"):
        raise BadValue("emulator", emulator, "is not an absolute path", "give an absolute path")
    return Settings(
        history_seconds=parse_integer(
            body.get("history_seconds", present.history_seconds), "history_seconds", 60, 30 * 86400
        ),
        uplink=parse_interface(body.get("uplink", present.uplink), "uplink"),
        emulator=emulator,
    )


def parse_nominal_rate(raw: Any) -> float:
    return finite_number("nominal_bytes_per_second", raw, 1024, 10**11, "bytes per second")
