# SPDX-License-Identifier: GPL-2.0-or-later
"""May a night's run start, and must a running one end? Pure.

The run overloads a disk and a link on purpose. Both are its own (a modelled disk, a link inside
namespaces), but processors, memory and the disk below its images are the host's. So it starts
only on a quiet host, and ends when the host's guests begin to need its share.

Before the start all load is the host's, so the kernel's pressures and the load of the whole
host count. During the run most load is its own: then only separate figures count, namely
libvirt's of the host's guests, the pressure of their cgroup, and the memory left.

A decision is a list of reasons: none means go on. Each has a code for programs
and a sentence with value and limit for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_nightly.activity import GuestActivity
from sluice_nightly.config import Abort, Config, Start

MB = 1e6
NAMED = 3
WORDS = {"cpu": "the processors", "io": "disks", "memory": "memory"}


@dataclass(frozen=True)
class Reason:
    """Why not."""

    code: str
    sentence: str


@dataclass(frozen=True)
class HostFacts:
    """Figures of the host. Pressures in per cent; the kernel does not tell absent ones.

    ``guests`` is None if libvirt does not tell; ``guests_problem`` has its words. ``streams``
    are sluiced's streams that play now. ``guests_pressure`` is that of the guests' own cgroup.
    ``disk_needed_mib`` is the space that a run still needs.
    """

    guests: tuple[GuestActivity, ...] | None
    guests_problem: str = ""
    streams: tuple[str, ...] = ()
    pressure: Mapping[str, float] = field(default_factory=dict)
    guests_pressure: Mapping[str, float] = field(default_factory=dict)
    load: float = 0.0
    processors: int = 1
    memory_available_mib: float = 0.0
    disk_free_mib: float = 0.0
    disk_needed_mib: float = 0.0


def _names(guests: list[GuestActivity]) -> str:
    shown = [guest.name for guest in guests[:NAMED]]
    more = len(guests) - len(shown)
    if more:
        return f"guests {', '.join(shown)} and {more} more"
    if len(shown) == 1:
        return f"guest {shown[0]}"
    return f"guests {', '.join(shown[:-1])} and {shown[-1]}"


def _busy(guests: tuple[GuestActivity, ...], limits: Start | Abort) -> list[Reason]:
    """Guests whose sum is above a limit, with the busiest named first."""
    measures = (
        ("disk_bytes_per_s", MB, limits.guest_disk_mb_per_s, "MB/s on their disks"),
        ("net_bytes_per_s", MB, limits.guest_net_mb_per_s, "MB/s over the network"),
        ("processors", 1, limits.guest_processors, "processors"),
    )
    reasons = []
    for name, unit, most, words in measures:
        total = sum(getattr(guest, name) for guest in guests) / unit
        if total <= most:
            continue
        ranked = sorted(guests, key=lambda guest: (-getattr(guest, name), guest.name))
        active = [guest for guest in ranked if getattr(guest, name) > 0]
        verb = "keep" if len(active) > 1 else "keeps"
        verb = verb if unit == 1 else "move" if len(active) > 1 else "moves"
        if len(active) == 1:
            words = words.replace("their disks", "its disks")
        busy = " busy" if unit == 1 else ""
        reasons.append(
            Reason(
                "guests-busy",
                f"{_names(active).capitalize()} {verb} {total:.1f} {words}{busy}; "
                f"at most {most:g} is allowed",
            )
        )
    return reasons


def _start_pressures(facts: HostFacts, start: Start) -> list[Reason]:
    reasons = []
    for kind, words in WORDS.items():
        value, most = facts.pressure.get(kind), getattr(start, f"pressure_{kind}")
        if value is not None and value > most:
            reasons.append(
                Reason(
                    f"pressure-{kind}",
                    f"Programs of the host waited for {words} {value:.1f} % of the last minute; "
                    f"at most {most:g} % is allowed",
                )
            )
    return reasons


def others_need_it(facts: HostFacts, start: Start) -> list[Reason]:
    """Return which guests and streams a run would disturb."""
    reasons = []
    if facts.guests is None:
        if not start.without_libvirt:
            reasons.append(
                Reason(
                    "guests-unknown",
                    f"libvirt does not say what the host's guests do ({facts.guests_problem}); "
                    "start it, or set start.without_libvirt",
                )
            )
    else:
        reasons += _busy(facts.guests, start)
    for name in facts.streams:
        reasons.append(Reason("stream-plays", f"The stream {name} plays"))
    return reasons


def may_start(facts: HostFacts, config: Config) -> list[Reason]:
    """Return why a run must not start now; empty if it may."""
    start = config.start
    reasons = others_need_it(facts, start) + _start_pressures(facts, start)
    most_load = start.load_per_processor * facts.processors
    if facts.load > most_load:
        reasons.append(
            Reason(
                "load",
                f"The load is {facts.load:.1f}; at most {most_load:.1f} is allowed on "
                f"{facts.processors} processors",
            )
        )
    return reasons + _room(facts, config)


def _room(facts: HostFacts, config: Config) -> list[Reason]:
    """Memory and disk: the run must leave the spare."""
    reasons = []
    needed = config.guests_memory_mib() + config.start.memory_spare_mib
    if facts.memory_available_mib < needed:
        reasons.append(
            Reason(
                "memory-low",
                f"{facts.memory_available_mib:.0f} MiB of memory are available; {needed} are "
                f"needed, {config.start.memory_spare_mib} of them to spare",
            )
        )
    needed = facts.disk_needed_mib + config.start.disk_spare_mib
    if facts.disk_free_mib < needed:
        reasons.append(
            Reason(
                "disk-low",
                f"{facts.disk_free_mib:.0f} MiB are free below {config.paths.state}; "
                f"{needed:.0f} are needed, {config.start.disk_spare_mib} of them to spare",
            )
        )
    return reasons


def excess(facts: HostFacts, abort: Abort) -> list[Reason]:
    """Return the excesses of a running host, at one look."""
    reasons = [] if facts.guests is None else _busy(facts.guests, abort)
    for kind, words in WORDS.items():
        value = facts.guests_pressure.get(kind)
        if value is not None and value > abort.pressure:
            reasons.append(
                Reason(
                    f"pressure-{kind}",
                    f"The host's guests waited for {words} {value:.1f} % of the last ten "
                    f"seconds; at most {abort.pressure:g} % is allowed",
                )
            )
    if facts.memory_available_mib < abort.memory_spare_mib:
        reasons.append(
            Reason(
                "memory-low",
                f"Only {facts.memory_available_mib:.0f} MiB of memory are available; "
                f"{abort.memory_spare_mib} must stay",
            )
        )
    return reasons


@dataclass(frozen=True)
class Watch:
    """How often in a row a running host was at its limit."""

    strikes: int = 0


def must_end(watch: Watch, facts: HostFacts, abort: Abort) -> tuple[Watch, list[Reason]]:
    """Return the next state, and why the run must end; a single look does not end it."""
    reasons = excess(facts, abort)
    after = Watch(watch.strikes + 1 if reasons else 0)
    return after, reasons if after.strikes >= abort.samples else []
