# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a class moves no more than it does, on one resource: one reason, and one sentence. Pure.

A request passes the class's own limit, the VM's ceiling, the group, the gate and then the
device; so the reasons are looked for in that order. The counters say that requests waited, and
whether the class's own limit was used up meanwhile. They do not say which later stage held a
request: that follows from rates that are near a limit, and such an answer says "probably".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from .counters import GateState
from .errors import command, sluice
from .groups import Group
from .guests import Throttle
from .knobs import Model, Word
from .limits import BLK_READ, BLK_WRITE, DISK_RESOURCES, NET_RX, NET_TX, UNLIMITED, Limit
from .overload import Control
from .processors import Wait
from .rates import format_measured, format_rate, format_size
from .tuner_types import UplinkView
from .use import Use

# Shares of the time from which on something counts as the reason.
HELD_SHARE = 0.2
BUSY_SHARE = 0.7
# A rate that is so near a limit is at the limit.
NEAR = 0.9
LINK_NEAR = 0.95
# A device that takes so many times as long as usual is slow.
SLOWER = 2.0

REASONS = (
    "limit",
    "auto-shaping",
    "ceiling",
    "group",
    "gate",
    "shaper",
    "connections",
    "throttle",
    "device",
    "link",
    "processor",
    "nothing",
    "unseen",
)
_DOES = {BLK_READ: "reads", BLK_WRITE: "writes", NET_TX: "sends", NET_RX: "receives"}


@dataclass(frozen=True)
class Moved:
    """The rates of a VM, or of a group's members, on the resources of a limit together."""

    bytes_per_second: float = 0.0
    operations_per_second: float = 0.0

    def of(self, bytes_per_second: float | None, operations_per_second: float | None) -> float:
        """The share of the limit in use; 0 without one."""
        shares = [
            used / limit
            for used, limit in (
                (self.bytes_per_second, bytes_per_second),
                (self.operations_per_second, operations_per_second),
            )
            if limit
        ]
        return max(shares, default=0.0)


@dataclass(frozen=True)
class InGroup:
    """`waits`: as the group's page says, the VM waits for the group now; None: not known."""

    group: Group
    moved: Moved
    waits: bool | None = None


@dataclass(frozen=True)
class Facts:
    """All that is known of a class on a resource. Everything but the names may be missing."""

    domain: str
    class_name: str
    resource: str
    use: Use | None = None
    # Why nothing is known of its use.
    unseen: str = ""
    unmanaged: bool = False
    own: Limit = UNLIMITED
    # Bytes per second that auto-shaping lets it have.
    cap: float | None = None
    control: Control | None = None
    ceiling: Limit = UNLIMITED
    moved_by_domain: Moved = Moved()
    moved_by_disks: Moved = Moved()
    in_group: InGroup | None = None
    gate: GateState | None = None
    gate_share: float | None = None
    is_stream: bool = False
    throttles: tuple[Throttle, ...] = ()
    uplink: UplinkView | None = None
    processor: Wait | None = None


@dataclass(frozen=True)
class Why(Model):
    """The answer for one resource. `certain` is false where it follows from rates alone."""

    resource: str
    reason: Annotated[str, Word(REASONS)]
    certain: bool
    sentence: str
    bytes_per_second: float | None
    requests_per_second: float | None
    # Of the last second, the share in which requests waited in the shaper.
    held_share: float | None


@dataclass(frozen=True)
class _Found:
    reason: str
    certain: bool
    # Continues "media/batch reads 2.00 MB/s: ".
    words: str


def why(facts: Facts) -> Why:
    """The one leading reason."""
    use = facts.use
    if use is None:
        unseen = facts.unseen or "its counters page does not show the class"
        show = sluice("show", facts.domain)
        sentence = f"{_name(facts)}: nothing is known, because {unseen}; see: {show}"
        return Why(facts.resource, "unseen", True, sentence, None, None, None)
    found = _found(facts, use)
    return Why(
        facts.resource,
        found.reason,
        found.certain,
        f"{_name(facts)} {_DOES[facts.resource]} {_moves(use)}: {found.words}",
        use.bytes_per_second,
        use.requests_per_second,
        use.held_share,
    )


def _found(facts: Facts, use: Use) -> _Found:
    if use.held_share >= HELD_SHARE:
        return _holds(facts, use)
    for look in (_connections, _throttle, _device, _link, _processor):
        found = look(facts, use)
        if found is not None:
            return found
    return _nothing(facts, use)


# Words


def _name(facts: Facts) -> str:
    return f"{facts.domain}/{facts.class_name}"


def _moves(use: Use) -> str:
    if not use.requests_per_second and not use.bytes_per_second:
        return "nothing"
    rate = format_rate(use.bytes_per_second)
    return f"{rate} in {use.requests_per_second:.0f} requests/s"


def _ms(value: float) -> str:
    return f"{value:.3g} ms"


def _probably(certain: bool) -> str:
    return "" if certain else "probably "


def _more(rate: float) -> str:
    """Twice the rate, as the command line takes it."""
    return f"{max(1, round(2 * rate / 1000))}kB/s"


def _of_limit(limit: Limit, moved: Moved) -> tuple[str, str]:
    """The part of a limit that is used most, in words, and the option that doubles it."""
    by_bytes = moved.of(limit.bytes_per_second, None)
    by_operations = moved.of(None, limit.operations_per_second)
    if limit.operations_per_second and by_operations >= by_bytes:
        operations = limit.operations_per_second
        return f"{operations:.0f} operations/s", f"--ops={2 * operations:.0f}"
    rate = limit.bytes_per_second or 0.0
    return format_rate(rate), _more(rate)


# The stages of the shaper


def _holds(facts: Facts, use: Use) -> _Found:
    """Its requests wait in the shaper."""
    spent = max(use.spent_bytes_share or 0.0, use.spent_operations_share or 0.0)
    if spent >= 0.5:
        return _own(facts, use, True)
    for stage in _later_stages(facts, use):
        if stage is not None:
            return stage
    untold = use.spent_bytes_share is None and use.spent_operations_share is None
    moved = Moved(use.bytes_per_second, use.requests_per_second)
    at_limit = moved.of(use.limit_bytes_per_second, use.limit_operations_per_second) >= NEAR
    if spent or (untold and at_limit):
        return _own(facts, use, bool(spent))
    words = (
        f"it waits in the shaper for {use.held_share:.0%} of the time, and neither its own limit"
        " nor a full ceiling or group says why; classes that go first, and bursts that are spent,"
        f" do this; see their priorities: {sluice('show', facts.domain)}"
    )
    return _Found("shaper", False, words)


def _later_stages(facts: Facts, use: Use) -> Iterable[_Found | None]:
    yield _group(facts, use) if facts.in_group and facts.in_group.waits else None
    gate = facts.gate_share or 0.0
    yield _gate(facts, use) if gate >= 0.5 * use.held_share and not facts.is_stream else None
    yield _ceiling(facts, use)
    yield _group(facts, use)
    yield _gate(facts, use) if gate and not facts.is_stream else None


def _own(facts: Facts, use: Use, certain: bool) -> _Found:
    held = f"holds it for {use.held_share:.0%} of the time"
    by_operations = (use.spent_operations_share or 0.0) > (use.spent_bytes_share or 0.0)
    rate, name = use.limit_bytes_per_second, (facts.domain, facts.class_name, facts.resource)
    operations = use.limit_operations_per_second
    own = facts.own.bytes_per_second
    if not by_operations and facts.cap is not None and (own is None or facts.cap < own):
        cap = format_rate(facts.cap if rate is None else rate)
        words = (
            f"auto-shaping holds it to {cap} for the sake of a stream, for"
            f" {use.held_share:.0%} of the time; its decisions: {sluice('auto', 'log')}"
        )
        return _Found("auto-shaping", certain, words)
    if operations and (by_operations or rate is None):
        limit, burst = f"{operations:.0f} operations/s", use.burst_operations
        raise_it = sluice("limit", *name, f"--ops={2 * operations:.0f}")
        is_near, burst_words = use.requests_per_second >= 0.75 * operations, f"{burst} operations"
        spend = sluice("limit", *name, f"--burst-ops={4 * (burst or 1)}")
    else:
        limit, burst = format_rate(rate), use.burst_bytes
        raise_it = sluice("limit", *name, _more(rate or 0.0))
        is_near = use.bytes_per_second >= 0.75 * (rate or 0.0)
        burst_words = format_size(burst or 0)
        spend = sluice("limit", *name, f"--burst={max(1, 4 * (burst or 0) // 1024)}KiB")
    said = _probably(certain)
    if is_near or not burst:
        return _Found(
            "limit", certain, f"{said}its own limit of {limit} {held}; raise it: {raise_it}"
        )
    words = (
        f"{said}its own limit of {limit} {held}, because it comes in bursts of more than"
        f" {burst_words}; allow longer ones: {spend}"
    )
    return _Found("limit", certain, words)


def _ceiling(facts: Facts, use: Use) -> _Found | None:
    limit, moved = facts.ceiling, facts.moved_by_domain
    if moved.of(limit.bytes_per_second, limit.operations_per_second) < NEAR:
        return None
    shown, doubled = _of_limit(limit, moved)
    raise_it = sluice("ceiling", facts.domain, facts.resource, doubled)
    words = (
        f"probably the ceiling of {facts.domain}, {shown} for all its classes together, holds it"
        f" for {use.held_share:.0%} of the time; raise it: {raise_it}"
    )
    return _Found("ceiling", False, words)


def _group(facts: Facts, use: Use) -> _Found | None:
    one = facts.in_group
    if one is None:
        return None
    group, unit = one.group, one.group.limit.unit
    in_bytes = unit == "bytes"
    limit = (group.limit.rate, None) if in_bytes else (None, group.limit.rate)
    certain = bool(one.waits)
    if not certain and (one.waits is False or one.moved.of(*limit) < NEAR):
        return None
    shown = format_rate(group.limit.rate) if in_bytes else f"{group.limit.rate} operations/s"
    used = one.moved.bytes_per_second if in_bytes else one.moved.operations_per_second
    others = format_rate(used) if in_bytes else f"{used:.0f}"
    twice = ("--rate", _more(group.limit.rate)) if in_bytes else ("--ops", 2 * group.limit.rate)
    raise_it = sluice("group", "add", group.name, "--resource", group.resource, *twice)
    words = (
        f"{_probably(certain)}the group {group.name}, {shown} for all its members, of which they"
        f" move {others}, holds it for {use.held_share:.0%} of the time; raise it: {raise_it}"
    )
    return _Found("group", certain, words)


def _gate(facts: Facts, use: Use) -> _Found:
    gate = facts.gate
    target = "" if gate is None else f", whose target is {_ms(gate.target_ns / 1e6)} in the device"
    window = "" if gate is None else f" and whose window is {format_measured(gate.window_bytes)}"
    words = (
        f"the gate of auto-shaping{target}{window}, holds it for {use.held_share:.0%} of the time"
        f" for the sake of a stream; see: {sluice('auto', 'status')}"
    )
    return _Found("gate", (facts.gate_share or 0.0) >= 0.5 * use.held_share, words)


# Beyond the shaper


def _connections(facts: Facts, use: Use) -> _Found | None:
    if use.refused_per_second <= 0:
        return None
    control = facts.control
    limit = "" if control is None else f" of {control.connections_per_second:g} a second"
    because = "" if control is None else f" ({control.reason})"
    change = sluice("queue", facts.domain, facts.class_name, facts.resource)
    words = (
        f"its limit{limit} of new connections refuses {use.refused_per_second:.3g} a second"
        f"{because}; see: {change}"
    )
    return _Found("connections", True, words)


def _is_busy(facts: Facts, use: Use) -> bool:
    return facts.resource in DISK_RESOURCES and use.in_flight >= BUSY_SHARE


def _throttle(facts: Facts, use: Use) -> _Found | None:
    """A limit of QEMU's own makes requests wait in the device, as the shaper sees it."""
    if facts.resource in DISK_RESOURCES and not _is_busy(facts, use):
        return None
    for one in facts.throttles:
        if one.resource == "blk" and facts.resource in DISK_RESOURCES:
            moved = facts.moved_by_disks
        elif one.resource == facts.resource:
            moved = facts.moved_by_domain
        else:
            continue
        # A VM that moves far more has another disk or card, which the throttle does not hold.
        if NEAR <= moved.of(one.bytes_per_second, one.operations_per_second) <= 1 / NEAR:
            return _throttled(facts, use, one, moved)
    return None


def _throttled(facts: Facts, use: Use, one: Throttle, moved: Moved) -> _Found:
    limit = Limit(
        bytes_per_second=one.bytes_per_second, operations_per_second=one.operations_per_second
    )
    shown, _ = _of_limit(limit, moved)
    waits = f", and each request takes {_ms(use.service_ms)} there" if use.service_ms else ""
    tool = "blkdeviotune" if one.kind == "iotune" else "domiftune"
    change = command("virsh", tool, facts.domain, one.device)
    words = (
        f"probably libvirt's own <{one.kind}> of {one.device}, {shown}, holds it below the"
        f" shaper{waits}; see and change it: {change}"
    )
    return _Found("throttle", False, words)


def _device(facts: Facts, use: Use) -> _Found | None:
    if not _is_busy(facts, use):
        return None
    usual = use.usual_service_ms
    is_slow = usual is not None and use.service_ms >= SLOWER * usual
    if not is_slow and _starves(facts):
        # Threads that wait for a processor make requests take longer, too.
        return None
    beside = "" if usual is None else f" (usually {_ms(usual)})"
    words = (
        f"the device holds it: {use.in_flight:.1f} requests are there in the mean, and each takes"
        f" {_ms(use.service_ms)}{beside}; "
    )
    if is_slow:
        words += f"see who else uses the disk: {sluice('live')}"
    elif use.in_flight < 2:
        words += "the guest waits for one request before it sends the next, so more at a time help"
    else:
        words += "a faster disk helps, or less of the others' I/O"
    return _Found("device", True, words)


def _link(facts: Facts, use: Use) -> _Found | None:
    uplink = facts.uplink
    if uplink is None or facts.resource != NET_TX or not use.bytes_per_second:
        return None
    rate = uplink.link_bytes_per_second
    if uplink.learnt and not facts.is_stream:
        words = (
            f"probably the link beyond this host holds it, which nobody here can see:"
            f" {uplink.learnt}, so all that leaves is held to {format_rate(rate or 0.0)}; see:"
            f" {sluice('auto', 'status')}"
        )
        return _Found("link", False, words)
    is_full = rate is not None and uplink.bytes_per_second >= LINK_NEAR * rate
    if not is_full and not uplink.dropped:
        return None
    of = "" if rate is None else f" of {format_rate(rate)}"
    beyond = " beyond this host" if uplink.is_beyond else ""
    words = (
        f"probably the link{beyond} holds it: {format_rate(uplink.bytes_per_second)}{of} are in"
        f" use and {uplink.dropped} packets were dropped in the last second; limit others:"
        f" {sluice('live')} shows them"
    )
    return _Found("link", False, words)


def _starves(facts: Facts) -> bool:
    return facts.processor is not None and facts.processor.pressure >= 1


def _processor(facts: Facts, use: Use) -> _Found | None:
    if not _starves(facts) or _asks_for_nothing(use):
        return None
    words = f"probably the host's processors hold it: {_waits_for_processors(facts)}"
    return _Found("processor", False, words)


def _waits_for_processors(facts: Facts) -> str:
    ms = facts.processor.ms_per_second
    give = command("virsh", "schedinfo", facts.domain)
    return (
        f"a thread of {facts.domain} waits {ms:.0f} ms of each second for a processor; see and"
        f" change its share: {give}"
    )


def _asks_for_nothing(use: Use) -> bool:
    return not use.requests_per_second and not use.in_flight


def _nothing(facts: Facts, use: Use) -> _Found:
    held = f" (the shaper held it for {use.held_share:.0%} of the time)" if use.held_share else ""
    unmanaged = " and it is unmanaged" if facts.unmanaged else ""
    if _asks_for_nothing(use):
        words = f"nothing holds it{unmanaged}, it asks for nothing{held}"
        # A program that gets no processor asks for nothing either.
        perhaps = f"; perhaps because {_waits_for_processors(facts)}" if _starves(facts) else ""
        return _Found("nothing", True, words + perhaps)
    words = f"nothing here holds it{unmanaged}, it asks for no more{held}"
    if facts.resource in DISK_RESOURCES:
        words += (
            f"; the disk has a request of it for {min(1.0, use.in_flight):.0%} of the time and"
            f" takes {_ms(use.service_ms)} for each"
        )
    else:
        words += "; if it should move more, look in the guest and at the other end"
    return _Found("nothing", True, words)
