# SPDX-License-Identifier: GPL-2.0-or-later
"""Phases to figures, and figures to bars. Pure: windows and samples in, facts out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from demo.plan import Bars
from demo.sampler import Sample
from testbed.processors import Threads
from testbed.stream import Quality, Window, judge, total
from testbed.stream.verdict import verdict_of

# Classes whose reads are background: cats read the volume "media".
BACKGROUND_VOLUME = "media"
# Beyond these a processor's own queue makes a stream late.
BUSY_MOST = 0.88
WAITED_MOST = 0.40


@dataclass(frozen=True)
class Background:
    """The background's rates, in bytes per second.

    http: at the clients' interface, headers included, without the stream. disk: reads of the
    twelve readers from the modelled disk; the web server's reads for wget are in http already.
    """

    http_bytes_per_s: float
    disk_bytes_per_s: float

    @property
    def total(self) -> float:
        return self.http_bytes_per_s + self.disk_bytes_per_s


@dataclass(frozen=True)
class Phase:
    """One phase's measuring window and its findings."""

    name: str
    start_s: float
    end_s: float
    stream: Quality
    background: Background
    cpu_ratio: float
    disk_busy_ratio: float
    disk_seeks_per_s: float
    # The demo's own share of these processors; None where that is not known.
    cpu_ours_ratio: float | None = None
    # The share of time in which a thread of the stream's QEMU waited for a processor.
    waited_ratio: float = 0.0


@dataclass(frozen=True)
class Check:
    """One bar: whether it holds, and with which figures."""

    name: str
    holds: bool
    figures: str


def within(windows: Iterable[Window], start_s: float, end_s: float) -> list[Window]:
    """Return the windows that lie wholly in the span."""
    return [w for w in windows if w.start_s >= start_s and w.start_s + w.window_ms / 1000 <= end_s]


def _nearest(samples: Sequence[Sample], at_s: float) -> Sample:
    return min(samples, key=lambda sample: abs(sample.at_s - at_s))


def measure(
    name: str,
    start_s: float,
    end_s: float,
    windows: Iterable[Window],
    samples: Sequence[Sample],
) -> Phase:
    """Put a phase together from the collected samples; ValueError without any."""
    inside = within(windows, start_s, end_s)
    if samples:
        first, last = _nearest(samples, start_s), _nearest(samples, end_s)
        seconds = last.at_s - first.at_s
    if not samples or seconds <= 0:
        raise ValueError(f"phase {name}: no samples between {start_s:.0f} s and {end_s:.0f} s")
    stream = last.stream_bytes - first.stream_bytes
    http = last.client_bytes - first.client_bytes - stream
    disk = last.disk_bytes[BACKGROUND_VOLUME] - first.disk_bytes[BACKGROUND_VOLUME]
    there_s = max(1e-9, last.cpu_total_s - first.cpu_total_s)
    ours = None
    if first.cpu_ours_s is not None and last.cpu_ours_s is not None:
        ours = (last.cpu_ours_s - first.cpu_ours_s) / there_s
    waited_s = [
        now.since(first.threads.get(number, Threads())).waited_s
        for number, now in last.threads.items()
    ]
    return Phase(
        name=name,
        start_s=start_s,
        end_s=end_s,
        stream=judge(_complete(inside, end_s - start_s)),
        background=Background(max(0.0, http / seconds), disk / seconds),
        cpu_ratio=(last.cpu_busy_s - first.cpu_busy_s) / there_s,
        cpu_ours_ratio=ours,
        waited_ratio=max(waited_s, default=0.0) / seconds,
        disk_busy_ratio=(last.disk_busy_ns - first.disk_busy_ns) / 1e9 / seconds,
        disk_seeks_per_s=(last.disk_seeks - first.disk_seeks) / seconds,
    )


def _complete(windows: list[Window], seconds: float) -> Window:
    """Add the windows up; a phase in which the meter was silent is one long stall."""
    whole = total(windows)
    if windows:
        return whole
    return Window(window_ms=seconds * 1000, stalls=1, stall_seconds=seconds)


def perfect_since(windows: Sequence[Window], start_s: float) -> float | None:
    """Return when the uninterrupted run of perfect windows at the end began.

    None if the last window is not perfect or there is none since ``start_s``.
    """
    since = None
    for window in reversed(within(windows, start_s, float("inf"))):
        if verdict_of(window) != "perfect":
            break
        since = window.start_s
    return since


def shortage(phases: dict[str, Phase]) -> str:
    """Say in which phases processors were short, and how; empty if they were in none."""
    return ", ".join(filter(None, map(_shortage_of, phases.values())))


def _shortage_of(phase: Phase) -> str:
    # Idle time that httperf takes, where no group bounds it, is no other program's loss.
    if phase.cpu_ours_ratio is not None and phase.cpu_ours_ratio > BUSY_MOST:
        return f"{phase.cpu_ours_ratio:.0%} busy with the demo in {phase.name}"
    if phase.waited_ratio > WAITED_MOST:
        return f"the stream's guest waited {phase.waited_ratio:.0%} of {phase.name} for a processor"
    return ""


def inconclusive(phases: dict[str, Phase], settled_after_s: float | None, bars: Bars) -> bool:
    """Whether bars fail, and each in a phase in which processors were short.

    That says nothing of disk and link. A bar that fails in another phase does.
    """
    judged = _judged(phases, settled_after_s, bars)
    failed = {name for name, bar in judged if not bar.holds}
    return bool(failed) and all(_shortage_of(phases[name]) for name in failed)


def check(phases: dict[str, Phase], settled_after_s: float | None, bars: Bars) -> list[Check]:
    """Compare the phases that were played with the bars."""
    return [bar for _name, bar in _judged(phases, settled_after_s, bars)]


def _judged(
    phases: dict[str, Phase], settled_after_s: float | None, bars: Bars
) -> list[tuple[str, Check]]:
    """Return each bar with the name of the phase in which it holds or does not."""
    checks = []
    for name, wanted in (
        ("control", bars.control),
        ("unshaped", bars.unshaped),
        ("auto", bars.auto),
    ):
        if name not in phases:
            continue
        stream = phases[name].stream
        figures = (
            f"{stream.verdict}: {stream.continuity_errors} continuity errors, "
            f"{stream.stalls} stalls ({stream.stall_seconds:.1f} s), "
            f"{stream.lost_pictures} pictures lost, {stream.delivered_ratio:.2%} delivered"
        )
        bar = Check(f"{name} is {wanted}", stream.verdict == wanted, figures)
        checks.append((name, bar))
    if "auto" not in phases:
        return checks
    # A shortage in unshaped has made less of a background there: no excuse for auto.
    checks.append(("auto", _background_check(phases, bars)))
    took = "never" if settled_after_s is None else f"{settled_after_s:.1f} s"
    bar = Check(
        f"settled within {bars.settled_s:.0f} s",
        settled_after_s is not None and settled_after_s <= bars.settled_s,
        took,
    )
    return [*checks, ("auto", bar)]


def _background_check(phases: dict[str, Phase], bars: Bars) -> Check:
    unshaped, auto = phases["unshaped"].background, phases["auto"].background
    parts = (
        ("all", auto.total, unshaped.total),
        ("http", auto.http_bytes_per_s, unshaped.http_bytes_per_s),
        ("disk", auto.disk_bytes_per_s, unshaped.disk_bytes_per_s),
    )
    ratios = {name: after / before if before else 0.0 for name, after, before in parts}
    figures = ", ".join(
        f"{name} {after / 1e6:.1f} of {before / 1e6:.1f} MB/s ({ratios[name]:.0%})"
        for name, after, before in parts
    )
    return Check(
        f"background at auto at least {bars.background_ratio:.0%} of unshaped",
        ratios["all"] >= bars.background_ratio,
        figures,
    )


def heading(readers: int) -> str:
    return f"A VLC stream beside {readers} readers and an overloaded web server"


def shown(phase: Phase) -> str:
    """Return the phase's verdict; a missed bar proves nothing without processors."""
    verdict = phase.stream.verdict
    failed = verdict != getattr(Bars(), phase.name)
    return "not judged" if failed and _shortage_of(phase) else verdict


def rows(phases: dict[str, Phase]) -> list[tuple[str, list[str]]]:
    """Return the phases side by side: titles, and a cell for each phase."""
    found = list(phases.values())
    streams = [phase.stream for phase in found]
    moved = [phase.background for phase in found]
    table = [
        ("stream", [shown(phase) for phase in found]),
        ("continuity errors", [str(s.continuity_errors) for s in streams]),
        ("stalls", [f"{s.stalls} ({s.stall_seconds:.1f} s)" for s in streams]),
        ("lost pictures", [str(s.lost_pictures) for s in streams]),
        ("delivered", [f"{s.delivered_ratio:.2%}" for s in streams]),
        ("largest gap", [f"{s.max_gap_ms:.0f} ms" for s in streams]),
        ("http", [f"{b.http_bytes_per_s / 1e6:.1f} MB/s" for b in moved]),
        ("disk (cats)", [f"{b.disk_bytes_per_s / 1e6:.1f} MB/s" for b in moved]),
        ("disk seeks", [f"{phase.disk_seeks_per_s:.0f}/s" for phase in found]),
        ("disk busy", [f"{phase.disk_busy_ratio:.0%}" for phase in found]),
        ("processors busy", [f"{phase.cpu_ratio:.0%}" for phase in found]),
    ]
    if all(phase.cpu_ours_ratio is not None for phase in found):
        table.append(("with the demo", [f"{phase.cpu_ours_ratio:.0%}" for phase in found]))
    table.append(("guest waited", [f"{phase.waited_ratio:.0%}" for phase in found]))
    return table
