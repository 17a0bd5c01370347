# SPDX-License-Identifier: GPL-2.0-or-later
"""The things an operator names: classes, grants, rules, streams, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from .errors import BadValue, Conflict
from .knobs import Flag, Model, Name, Number, Text, Whole, Word, matching
from .limits import (
    MAX_PER_SECOND,
    MIN_BYTES_PER_SECOND,
    RESOURCES,
    Limit,
    Resource,
    unusual,
)
from .models import body_of, parse
from .places import DeviceName, Images
from .queues import Queue, QueueResource
from .scheduling import Scheduling, check_all_within
from .values import parse_text

DEFAULT_CLASS = "default"
# How auto-shaping holds disks: by the work that is in flight, or by rates.
METHODS = GATE, RATES = "gate", "rates"
DEFAULT_PRIORITY = 5
DEFAULT_WEIGHT = 100
MAX_WEIGHT = 1000
MAX_TAG = 15
MAX_RULES = 256
# Of one domain; an agent takes 1024 rules, of which each is one.
MAX_ASSIGNMENTS = 768
LONGEST_BOOT_ID_CHARS = 64
MAX_DEVICE_NAMES = 256
COLOURS = 8
DEFAULT_FLOORS = dict.fromkeys(RESOURCES, 1024.0 * 1024)

_CLASS_NAME = r"[a-z0-9-]{1,31}"
_STREAM_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_INTERFACE_NAME = r"[^\s/:]{1,15}"


parse_class_name = matching(
    _CLASS_NAME, "a class name", "use 1 to 31 of the characters a-z, 0-9 and -"
)
parse_stream_name = matching(
    _STREAM_NAME,
    "a stream name",
    "use 1 to 63 letters, digits, '-', '_' and '.', and begin with a letter or digit",
)
parse_interface = matching(
    _INTERFACE_NAME, "an interface name", "give a name that 'ip link' shows, or null"
)


def _parse_path(raw: Any, thing: str) -> str:
    path = parse_text(raw, thing, 4096)
    if not path.startswith("/"):
        raise BadValue(thing, path, "is not an absolute path", "give an absolute path")
    return path


def is_boot_id(text: str) -> bool:
    """Whether a guest may have said this of its boot; empty: it did not say."""
    return len(text) <= LONGEST_BOOT_ID_CHARS and (not text or text.isprintable())


ClassName = Annotated[str, Name(_CLASS_NAME, parse_class_name, example="batch")]


@dataclass(frozen=True)
class ShapingClass(Model):
    """A kind of I/O, on any domain."""

    name: Annotated[str, Name(_CLASS_NAME, parse_class_name, read_only=True, example="batch")]
    title: Annotated[
        str,
        Text(
            80, help="a name for people; empty: its name", example="Batch jobs", may_be_empty=True
        ),
    ] = ""
    priority: Annotated[int, Whole(0, 9, help="0 goes first")] = DEFAULT_PRIORITY
    is_stream: Annotated[
        bool, Flag(help="its quality is watched over", option="--stream/--no-stream")
    ] = False
    colour_index: Annotated[int, Whole(0, COLOURS - 1, read_only=True, help="in charts")] = 0
    weight: Annotated[
        int, Whole(1, MAX_WEIGHT, help="its share of a scarce resource, among its priority")
    ] = DEFAULT_WEIGHT
    unmanaged: Annotated[
        bool, Flag(help="never held, and charged to nothing", option="--unmanaged/--managed")
    ] = False


@dataclass(frozen=True)
class Grant(Model):
    """A class as one domain has it. The tag travels with each request.

    Resources that are limited, scheduled or queued as by default are left out.
    """

    domain: str
    class_name: ClassName
    tag: int
    dscp: tuple[int, ...] = ()
    limits: Mapping[Resource, Limit] = field(default_factory=dict)
    scheduling: Mapping[Resource, Scheduling] = field(default_factory=dict)
    queues: Mapping[QueueResource, Queue] = field(default_factory=dict)


ClassBody = body_of(ShapingClass)


@dataclass(frozen=True)
class GrantBody(Model):
    """The settings of a class in a domain. Absent resources: unlimited, and as by default."""

    dscp: tuple[Annotated[int, Whole(0, 63, help="selects the class")], ...] = ()
    limits: Mapping[Resource, Limit | None] = field(default_factory=dict)
    scheduling: Mapping[Resource, Scheduling | None] = field(default_factory=dict)
    queues: Mapping[QueueResource, Queue | None] = field(default_factory=dict)

    def grant(self, domain: str, class_name: str, tag: int, dscp: tuple[int, ...]) -> Grant:
        """As it is kept; BadValue where its parts do not go together."""
        limits, scheduling = unusual(self.limits), unusual(self.scheduling)
        check_all_within(limits, scheduling)
        return Grant(domain, class_name, tag, dscp, limits, scheduling, unusual(self.queues))


@dataclass(frozen=True)
class Rule(Model):
    """A rule as it is kept: `match` has the conditions that were given."""

    id: int
    domain: str | None
    class_name: ClassName
    match: Mapping[str, str]
    created_at: float


@dataclass(frozen=True)
class Assignment(Model):
    """A process that was put into a class by hand."""

    domain: str
    pid: int
    start_time_ticks: int
    class_name: ClassName
    created_at: float
    boot_id: str = ""


@dataclass(frozen=True)
class AssignBody(Model):
    """Puts one process into a class."""

    class_name: ClassName
    start_time_ticks: Annotated[
        int | None, Whole(0, 2**63, optional=True, help="refused unless it is the process's")
    ] = None


@dataclass(frozen=True)
class Stream(Model):
    """Whose quality matters."""

    name: Annotated[str, Name(_STREAM_NAME, parse_stream_name, read_only=True, example="film")]
    domain: Annotated[str, Text(255, example="media")]
    class_name: ClassName
    nominal_bytes_per_second: Annotated[
        float | None,
        Number(
            1024,
            10**11,
            "bytes per second",
            optional=True,
            help="the rate that it needs; null: learnt",
        ),
    ] = None


StreamName = Annotated[str, Name(_STREAM_NAME, parse_stream_name, example="film")]
StreamBody = body_of(Stream)


@dataclass(frozen=True)
class Settings(Model):
    """Of the host."""

    history_seconds: Annotated[int, Whole(60, 30 * 86400, help="for how long history is kept")] = (
        3600
    )
    uplink: Annotated[
        str | None,
        Name(
            _INTERFACE_NAME,
            parse_interface,
            optional=True,
            help="interface whose queue auto-shaping watches, or one above it; 'none': none",
            example="eno1",
        ),
    ] = None
    link_bytes_per_second: Annotated[
        float | None,
        Number(
            MIN_BYTES_PER_SECOND,
            MAX_PER_SECOND,
            "bytes per second",
            optional=True,
            help="rate of a slower link beyond the uplink; 'none': none",
            option="--link",
        ),
    ] = None
    uplink_first: Annotated[
        bool,
        Flag(help="streams go first on the uplink, in a queue discipline of sluiced's"),
    ] = False
    emulator: Annotated[
        str, Name("/.*", _parse_path, help="path of the patched QEMU", example="/usr/bin/qemu")
    ] = "/usr/lib/sluice/qemu/bin/qemu-system-x86_64"


@dataclass(frozen=True)
class AutoSettings(Model):
    """The settings of auto-shaping."""

    enabled: Annotated[bool, Flag()] = False
    dry_run: Annotated[bool, Flag(help="decisions are logged, and nothing is changed")] = False
    method: Annotated[
        str,
        Word(
            METHODS,
            help="how disks are held; cards, and guests of an earlier QEMU, are held by rates",
        ),
    ] = GATE
    floors_bytes_per_second: Mapping[
        Resource, Annotated[float, Number(MIN_BYTES_PER_SECOND, MAX_PER_SECOND, "bytes per second")]
    ] = field(default_factory=lambda: dict(DEFAULT_FLOORS))
    round_trips: Annotated[
        bool,
        Flag(
            help="all that leaves may be held to the rate of a link beyond the host, which round"
            " trips told by guests show",
            option="--round-trips/--no-round-trips",
        ),
    ] = True
    # The devices that disks lie on where the host does not see it; null: as it sees it.
    device_names: Mapping[Images, DeviceName] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditEntry(Model):
    at: float
    actor: str
    action: str
    thing: str
    before: Any
    after: Any


def parse_class(name: Any, body: Mapping[str, Any], colour_index: int) -> ShapingClass:
    name = parse_class_name(name, "class")
    given = parse(body_of(ShapingClass), body)
    shaping_class = ShapingClass(name=name, colour_index=colour_index, **vars(given))
    if not shaping_class.title:
        shaping_class = replace(shaping_class, title=name)
    if name == DEFAULT_CLASS and shaping_class.is_stream:
        raise BadValue(
            "is_stream",
            True,
            "cannot hold for the class default",
            "create a class of its own for the stream and assign its processes to it, or declare"
            " a stream on the class default of one domain, which needs no mark",
        )
    return shaping_class


def may_stream(shaping_class: ShapingClass) -> bool:
    """Whether a stream may be declared on it. A VM without an agent has the class default only,
    so a stream there is all that the VM does by itself."""
    return shaping_class.is_stream or shaping_class.name == DEFAULT_CLASS


def parse_dscp(values: tuple[int, ...], others: Iterable[Grant]) -> tuple[int, ...]:
    """The values, if they may select a class: none may mean another class as well."""
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


def _updated(present: Any, body: Mapping[str, Any]) -> Any:
    """With the members that are given."""
    return parse(type(present), {**asdict(present), **body})


def parse_settings(body: Mapping[str, Any], present: Settings) -> Settings:
    """A partial update of the settings."""
    return _updated(present, body)


def parse_auto(body: Mapping[str, Any], present: AutoSettings) -> AutoSettings:
    """A partial update, of the floors and names as well."""
    after = _updated(present, body)
    floors = {**present.floors_bytes_per_second, **after.floors_bytes_per_second}
    names = {**present.device_names, **after.device_names}
    names = {images: device for images, device in names.items() if device is not None}
    if len(names) > MAX_DEVICE_NAMES:
        raise BadValue(
            "device_names",
            len(names),
            f"are more than {MAX_DEVICE_NAMES}",
            "name folders, not images, and set names that no disk needs to null",
        )
    return replace(after, floors_bytes_per_second=floors, device_names=names)
