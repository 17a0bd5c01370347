# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of a nightly run: its shape, its limits, and its part in the trend.

The run on the host measures one stream three times (alone, unshaped beside an overload,
auto-shaped beside that) and posts its findings; a night on which it did not run is posted too,
with the reason (docs/specs/nightly-result.md). A result is taken whole or refused whole.

Invariants of a result that was taken:
* a measured run (`passed`, `failed`) has `measured`, no other has;
* `passed` means that every check holds, `failed` that a check does not;
* every night without a measurement says why;
* the columns of a series are equally long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from .errors import BadValue
from .knobs import Flag, Model, Name, Number, Text, Whole, Word, matching
from .values import inner

VERSION = 1
MEASURED = ("passed", "failed")
UNMEASURED = ("refused", "aborted", "error")
OUTCOMES = (*MEASURED, *UNMEASURED)
PHASES = ("control", "unshaped", "auto")
VERDICTS = ("perfect", "good", "poor")

# Twice the longest plan that the demo takes, in half seconds.
MOST_POINTS = 5000
MOST_PAGE_CHARACTERS = 700_000
# Later than any clock that is right: year 2100.
MOST_EPOCH_S = 4_102_444_800.0
MOST_SECONDS = 86_400.0


@dataclass(frozen=True)
class Prose(Text):
    """Text of a program: it may have ends of lines, and tabs."""

    longest: int = 1000

    def read(self, raw: Any, thing: str) -> str:
        least = 0 if self.may_be_empty else 1
        if not isinstance(raw, str) or not least <= len(raw) <= self.longest:
            remedy = f"give {least} to {self.longest} characters"
            raise BadValue(thing, raw, "is not usable text", remedy)
        if any(ord(c) < 32 and c not in "\n\t" for c in raw):
            raise BadValue(thing, raw, "has control characters", "leave them out")
        return raw


def _named(pattern: str, example: str) -> Name:
    parse = matching(pattern, "of that form", f"write it like {example}")
    return Name(pattern, parse, example=example)


Epoch = Annotated[float, Number(0, MOST_EPOCH_S, "seconds since 1970")]
Seconds = Annotated[float, Number(0, MOST_SECONDS, "seconds")]
# Bytes per second, or a number of things.
Rate = Count = Annotated[float, Number(0, 1e12)]
Limit = Annotated[float | None, Number(0, 1e12, optional=True)]
Ratio = Annotated[float, Number(0, 1e3)]
Note = Annotated[str, Prose(may_be_empty=True)]
Sentence = Annotated[str, Prose()]
Version = Annotated[str, Prose(100, may_be_empty=True)]
Verdict = Annotated[str, Word(VERDICTS)]
Outcome = Annotated[str, Word(OUTCOMES)]
RunId = Annotated[str, _named(r"[0-9a-f]{32}", "0123456789abcdef0123456789abcdef")]


@dataclass(frozen=True)
class PhaseStream(Model):
    verdict: Verdict
    continuity_errors: Count
    stalls: Count
    stall_seconds: Seconds
    lost_pictures: Count
    delivered_ratio: Annotated[float, Number(0, 1)]
    max_gap_ms: Count


@dataclass(frozen=True)
class PhaseBackground(Model):
    http_bytes_per_s: Rate
    disk_bytes_per_s: Rate

    @property
    def bytes_per_s(self) -> float:
        return self.http_bytes_per_s + self.disk_bytes_per_s


@dataclass(frozen=True)
class Phase(Model):
    start_s: Seconds
    end_s: Seconds
    stream: PhaseStream
    background: PhaseBackground
    cpu_ratio: Ratio
    disk_busy_ratio: Ratio
    disk_seeks_per_s: Count


@dataclass(frozen=True)
class Phases(Model):
    control: Phase
    unshaped: Phase
    auto: Phase


@dataclass(frozen=True)
class NightlyPlan(Model):
    link_mbit: Annotated[float, Number(1, 1e6)]
    readers: Count
    wgets: Count
    overload: Ratio
    control_s: Seconds
    unshaped_s: Seconds
    auto_s: Seconds


@dataclass(frozen=True)
class Check(Model):
    name: Sentence
    holds: Annotated[bool, Flag(example=True)]
    figures: Note


@dataclass(frozen=True)
class Logged(Model):
    at_s: Annotated[float, Number(-MOST_SECONDS, MOST_SECONDS, "seconds")]
    sentence: Sentence


class Columns(Model):
    """A table by columns, all of them equally long."""

    def check(self, thing: str) -> None:
        first, *others = vars(self)
        length = len(getattr(self, first))
        _check_length(inner(thing, first), getattr(self, first), MOST_POINTS)
        for name in others:
            found = len(getattr(self, name))
            if found != length:
                problem = f"is not as long as {first}"
                raise BadValue(inner(thing, name), f"{found} entries", problem, f"give {length}")


@dataclass(frozen=True)
class Windows(Columns):
    start_s: list[Seconds]
    end_s: list[Seconds]
    received_bytes_per_s: list[Rate]
    max_gap_ms: list[Count]
    verdict: list[Verdict]


@dataclass(frozen=True)
class EachSecond(Columns):
    at_s: list[Seconds]
    http_bytes_per_s: list[Rate]
    stream_bytes_per_s: list[Rate]
    readers_disk_bytes_per_s: list[Rate]
    web_disk_bytes_per_s: list[Rate]
    movie_disk_bytes_per_s: list[Rate]
    readers_disk_limit_bytes_per_s: list[Limit]
    web_disk_limit_bytes_per_s: list[Limit]
    web_net_limit_bytes_per_s: list[Limit]
    cpu_ratio: list[Ratio]


@dataclass(frozen=True)
class Measured(Model):
    plan: NightlyPlan
    link_bytes_per_s: Rate
    disk_note: Note
    note: Note
    phases: Phases
    auto_enabled_at_s: Seconds
    settled_after_s: Annotated[
        float | None, Number(0, MOST_SECONDS, "seconds", optional=True, help="null: never")
    ]
    checks: list[Check]
    auto_log: list[Logged]
    windows: Windows
    seconds: EachSecond

    def check(self, thing: str) -> None:
        _check_length(inner(thing, "checks"), self.checks, 50)
        _check_length(inner(thing, "auto_log"), self.auto_log, 500)


@dataclass(frozen=True)
class Reason(Model):
    code: Annotated[str, _named(r"[a-z][a-z0-9-]{0,39}", "guests-busy")]
    sentence: Sentence


@dataclass(frozen=True)
class NightlyHost(Model):
    name: Annotated[str, Prose(255)]
    kernel: Annotated[str, Prose(255, may_be_empty=True)]
    cpus: Annotated[float, Number(1, 1e5)]
    memory_mib: Annotated[float, Number(1, 1e9)]


@dataclass(frozen=True)
class Software(Model):
    sluice: Version
    qemu: Version
    libvirt: Version


@dataclass(frozen=True)
class Accelerator(Model):
    name: Annotated[str, Word(("kvm", "tcg"))]
    reason: Note


@dataclass(frozen=True)
class NightlyResult(Model):
    """A night's measurements, or the reason for none: docs/specs/nightly-result.md."""

    version: Annotated[int, Whole(VERSION, VERSION)]
    run_id: RunId
    started_at: Epoch
    ended_at: Epoch
    outcome: Outcome
    reasons: list[Reason]
    host: NightlyHost
    software: Software
    accelerator: Accelerator | None
    measured: Measured | None

    def check(self, thing: str) -> None:
        _check_length(inner(thing, "reasons"), self.reasons, 20)
        for member, shown, problem, remedy in self._contradictions():
            raise BadValue(inner(thing, member), shown, problem, remedy)

    def _contradictions(self) -> Iterator[tuple[str, Any, str, str]]:
        outcome, measured = self.outcome, self.measured
        if self.ended_at < self.started_at:
            yield "ended_at", self.ended_at, "is before started_at", "give the times of one run"
        if (outcome in MEASURED) != (measured is not None):
            wanted = "give what was measured" if outcome in MEASURED else "give null"
            shown = "absent" if measured is None else "present"
            yield "measured", shown, f"does not fit the outcome {outcome}", wanted
        if outcome in UNMEASURED and not self.reasons:
            yield "reasons", "none", f"do not explain the outcome {outcome}", "give one"
        if measured is not None:
            holds = bool(measured.checks) and all(check.holds for check in measured.checks)
            if holds != (outcome == "passed"):
                wanted = "passed" if holds else "failed"
                yield "outcome", outcome, "does not fit the checks", f"give {wanted}"


def _check_length(thing: str, found: Sequence[Any], most: int) -> None:
    if len(found) > most:
        raise BadValue(thing, f"{len(found)} entries", "is too long", f"give at most {most}")


@dataclass(frozen=True)
class NightlyBody(Model):
    """A nightly run's result."""

    null_is_default: ClassVar[bool] = True

    result: NightlyResult
    # The run's own page, HTML.
    page: Annotated[str | None, Prose(MOST_PAGE_CHARACTERS, optional=True)] = None
    keep: Annotated[int, Whole(1, 1000, help="results that stay, this one included")] = 90


# A night in the list and in the trend


@dataclass(frozen=True)
class PhaseFigures(Model):
    verdict: Verdict
    stalls: Count
    stall_seconds: Seconds
    delivered_ratio: float
    max_gap_ms: Count
    background_bytes_per_s: Rate


@dataclass(frozen=True)
class Figures(Model):
    control: PhaseFigures
    unshaped: PhaseFigures
    auto: PhaseFigures
    background_ratio: float | None
    settled_after_s: float | None


@dataclass(frozen=True, kw_only=True)
class Summary(Model):
    """A result without its series."""

    run_id: RunId
    started_at: Epoch
    ended_at: Epoch
    outcome: Outcome
    reasons: list[Reason]
    software: Software
    host: str
    accelerator: str | None
    figures: Figures | None


def _phase_figures(phase: Phase) -> PhaseFigures:
    stream = phase.stream
    return PhaseFigures(
        stream.verdict,
        stream.stalls,
        stream.stall_seconds,
        stream.delivered_ratio,
        stream.max_gap_ms,
        phase.background.bytes_per_s,
    )


def figures(measured: Measured) -> Figures:
    """The figures of one night in the trend."""
    phases = measured.phases
    before = phases.unshaped.background.bytes_per_s
    return Figures(
        *(_phase_figures(getattr(phases, name)) for name in PHASES),
        phases.auto.background.bytes_per_s / before if before else None,
        measured.settled_after_s,
    )


def summary(result: NightlyResult) -> Summary:
    """A result without its series, for the list and the trend."""
    kept = ("run_id", "started_at", "ended_at", "outcome", "reasons", "software")
    return Summary(
        **{name: getattr(result, name) for name in kept},
        host=result.host.name,
        accelerator=result.accelerator.name if result.accelerator else None,
        figures=figures(result.measured) if result.measured else None,
    )
