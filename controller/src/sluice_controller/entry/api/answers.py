# SPDX-License-Identifier: GPL-2.0-or-later
"""The API's answers that are no objects of the domain: services work them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any

from ...domain import agent_messages, guests, model, nightly
from ...domain.cards import Card, MacAddress
from ...domain.channel import Channel
from ...domain.group_page import UNITS, GroupMember
from ...domain.groups import PARTS, Membership
from ...domain.knobs import Model, Word
from ...domain.later import Later
from ...domain.limits import Limit, Resource
from ...domain.model import AutoSettings, ClassName, StreamBody
from ...domain.models import answer_of
from ...domain.nominal import Nominal
from ...domain.quality import Report
from ...domain.render import Granted
from ...domain.stream_records import SOURCES, GuestStream
from ...domain.why import Why
from ...services.ports import Uplink

Limits = Mapping[Resource, Limit]


@dataclass
class Problem(Model):
    """RFC 9457, with the error's thing, value and remedy."""

    type: str
    title: str
    status: int
    detail: str
    thing: str
    value: Any
    remedy: str


GroupDomain = answer_of(Membership, "GroupDomain", "group")


@dataclass
class Group(Model):
    name: ClassName
    resource: Annotated[str, Word(tuple(PARTS))]
    unit: Annotated[str, Word(UNITS)]
    rate_per_second: int
    burst: int
    domains: list[GroupDomain]
    members: list[GroupMember]


@dataclass
class Libvirt(Model):
    uri: str
    connected: bool
    error: str | None


@dataclass
class Host(Model):
    name: str
    accelerator_note: str


@dataclass
class Status(Model):
    version: str
    started_at: float
    libvirt: Libvirt
    sample_hz: int
    database: str
    host: Host
    uplinks: list[str]


@dataclass
class Installed(Model):
    domain: str
    said: str


@dataclass
class Agent(Model):
    connected: bool
    agent_version: str | None
    kernel: str | None
    hostname: str | None
    max_tag: int | None
    error: str | None


@dataclass(kw_only=True, frozen=True)
class Device(answer_of(guests.Device, "OwnDevice", "overridden")):  # type: ignore[misc]
    shaped: bool
    unshaped_because: str | None


@dataclass(kw_only=True)
class Domain(Model):
    name: str
    uuid: str
    state: str
    attached: bool
    active: bool
    needs_restart: bool
    agent: Agent
    channel: Channel
    devices: list[Device]
    shaped_count: int
    shaped_sentence: str
    classes: list[Granted]
    ceiling: Limits
    cards: Mapping[MacAddress, Card]
    # Of attach: its changes.
    changes: list[str] | None = None


@dataclass(frozen=True)
class Refusal(Model):
    """A domain whose agent does not follow a rule, or has not said that it would."""

    domain: str
    why: str


@dataclass(frozen=True)
class ListedRule(model.Rule):
    """A rule, and where it is not in force."""

    refused: tuple[Refusal, ...] = ()


Assignment = answer_of(model.Assignment, "Assignment", "domain", "boot_id")


@dataclass
class Revoked(Model):
    revoked: Granted
    rules: list[model.Rule]
    assignments: list[Assignment]


@dataclass
class PreviewRow(Model):
    domain: str
    pid: int
    comm: str
    exe: str


@dataclass
class Preview(Model):
    processes: list[PreviewRow]
    refused: list[Refusal]


Process = make_dataclass(
    "Process",
    [
        *((name, int) for name in agent_messages.WHOLES),
        *((name, str) for name in agent_messages.TEXTS),
        *((name, float) for name in agent_messages.NUMBERS),
        ("inherited", bool),
        ("class_name", str | None),
        ("rule", str | None),
    ],
    bases=(Model,),
)


@dataclass
class Processes(Model):
    at: float
    age_seconds: float
    truncated: bool
    processes: list[Process]


@dataclass
class Sample(Model):
    """The present use of one resource by a class."""

    bytes_per_second: float
    requests_per_second: float
    limit_bytes_per_second: float | None
    limit_operations_per_second: float | None
    burst_bytes: int | None
    burst_operations: int | None
    backlog_requests: int
    backlog_bytes: int
    held_p99_ms: float
    held_mean_ms: float
    service_mean_ms: float
    in_flight: int
    dropped_per_second: float
    # By reason: backlog, codel, connection, window, reset.
    drops_per_second: Mapping[str, float] | None
    marked_per_second: float | None
    buffered_bytes: int | None
    buffer_bytes_max: int | None
    # Bytes or operations that the limit lets pass at once; negative: a debt.
    tokens_bytes: int | None
    tokens_operations: int | None
    # Of its requests, the share in which nothing chose the class; null without requests.
    untagged_share: float | None


@dataclass
class Whys(Model):
    """Why a class moves no more than it does, on each resource."""

    at: float
    domain: str
    class_name: ClassName
    resources: list[Why]


@dataclass
class LiveDomain(Model):
    at: float
    page_ok: bool
    error: str | None
    classes: Mapping[str, Mapping[str, Sample]]


@dataclass
class Live(Model):
    at: float
    domains: Mapping[str, LiveDomain]
    uplink: Uplink | None


@dataclass
class History(Model):
    step: float
    at: list[float]
    # "class/resource/field", or "disk/pressure" and "sda/target_ms" → values
    series: Mapping[str, list[float | None]]


@dataclass(kw_only=True, frozen=True)
class Stream(StreamBody):  # type: ignore[misc,valid-type]
    name: str
    # The rate that is in force; `nominal_bytes_per_second` is the declared one.
    nominal: Nominal
    verdict: Annotated[str, Word(("perfect", "good", "poor", "unknown"))]
    since: float
    reason: str
    source: Annotated[str, Word(("client", *SOURCES, "host"), help="whom the verdict is of")]
    source_at: float | None
    guest: list[GuestStream]
    # Of the domain; null where they are not known.
    processor_pressure: float | None
    processor_wait_ms_per_second: float | None
    last_report: Mapping[str, float] | None


@dataclass(kw_only=True, frozen=True)
class StreamReport(Report):
    """A report as it was taken."""

    at: float
    verdict: str


@dataclass
class Verdict(Model):
    verdict: str


@dataclass
class AutoLimit(Model):
    domain: str
    class_name: ClassName
    resource: str
    bytes_per_second: float


@dataclass
class Waiting(Model):
    stream: str
    waits_ms: float
    bears_ms: float
    is_elsewhere: bool


@dataclass
class GatedDevice(Model):
    """A device of the host. Its gate is set where nothing says why it is open."""

    name: str
    domains: list[str]
    # The settings `device_names` by which the operator named it, if he did.
    named_by: list[str]
    target_ms: float | None
    open_because: str | None
    adjust: float
    window_bytes: int
    background_bytes_per_second: float
    streams: list[Waiting]
    held: list[AutoLimit]


@dataclass
class AssumedPlace(Model):
    """A disk whose device the host does not see, and the device that it is taken to lie on."""

    domain: str
    image: str | None
    device: str
    because: str


@dataclass
class WithoutGate(Model):
    domain: str
    because: str


@dataclass
class RoundTrip(Model):
    """A stream's, as its guest says."""

    stream: str
    round_trip_ms: float
    least_ms: float
    is_elsewhere: bool


@dataclass
class WithoutSignal(Model):
    stream: str
    because: str


@dataclass
class LinkBeyond(Model):
    """A link beyond the host that is short; without a rate none is known to be."""

    bytes_per_second: float | None
    because: str | None
    streams: list[RoundTrip]
    without_signal: list[WithoutSignal]


@dataclass
class Eased(Model):
    """A VM that leaves processors to a stream, or whose share cannot be changed."""

    domain: str
    weight: int | None
    own_weight: int | None
    processors_per_vcpu: float | None
    refused: str | None


@dataclass(kw_only=True, frozen=True)
class Auto(AutoSettings):
    state: str
    settled_after_seconds: float | None
    limits: list[AutoLimit]
    devices: list[GatedDevice]
    assumed: list[AssumedPlace]
    names_without_disk: list[str]
    without_gate: list[WithoutGate]
    beyond: LinkBeyond
    eased: list[Eased]
    decided_at: float | None
    sentences: list[str]


@dataclass
class AutoAction(Model):
    domain: str
    class_name: ClassName
    resource: str
    from_bytes_per_second: float | None
    to_bytes_per_second: float | None


@dataclass
class Decision(Model):
    at: float
    sentence: str
    stream: str | None
    reason: str
    action: AutoAction | None
    dry_run: bool


@dataclass(kw_only=True, frozen=True)
class NightlySummary(nightly.Summary):
    """A night in the list and the trend: docs/specs/nightly-result.md."""

    id: int


@dataclass(kw_only=True, frozen=True)
class Night(NightlySummary):
    has_page: bool
    result: nightly.NightlyResult


@dataclass
class NightPage(Model):
    html: str


@dataclass
class Change(Model):
    """A part of the declared state that differs; null where there is nothing."""

    thing: str
    before: Any
    after: Any


@dataclass
class Applied(Model):
    changed: bool
    dry_run: bool
    changes: list[Change]
    etag: str


class Changed:
    """The answer of a change that is about domains."""

    @staticmethod
    def of_domains(path: Mapping[str, Any], value: dict[str, Any]) -> list[str]:
        named = [path.get("domain"), value.get("domain"), *value.pop("of_domains", ())]
        named += [one["domain"] for one in value.get("domains", ())]
        return list(dict.fromkeys(name for name in named if name is not None))


def changed(shape: type) -> type:
    """`shape` with the domains for which the change does not hold yet."""
    return make_dataclass(
        f"Changed{shape.__name__}",
        [("later", list[Later])],
        bases=(shape, Changed),
        frozen=shape.__dataclass_params__.frozen,  # type: ignore[attr-defined]
        kw_only=True,
    )


CHANGED = {one: changed(one) for one in (Applied, Domain, Granted, Group, Stream, ListedRule)}
