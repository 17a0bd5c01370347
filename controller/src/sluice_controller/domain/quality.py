# SPDX-License-Identifier: GPL-2.0-or-later
"""A stream's quality, from its client's measurements or, without any report, the host's.

perfect: no error, no stall, and the declared rate delivered, if there is one. good: stalls below
1 % of the time. poor: the rest. Deliveries come in lumps, so the delivered
share is judged over several windows, never over one, and with a tolerance of
one lump in ten seconds; an experiment that knows the whole stream judges the
total more strictly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from .knobs import Model, Number
from .models import parse

DELIVERY_WINDOW_S = 10.0
LUMPY_DELIVERY = 0.98
POOR_DELIVERY = 0.9
REPORT_AGE_S = 5.0
UNTOLD = "neither a client nor the guest reports"


def _counted(most: float) -> Number:
    return Number(0, most, "its unit")


@dataclass(frozen=True)
class Report(Model):
    """A client's measurements of a stream since its last report."""

    window_ms: Annotated[float, Number(1, 10**7, "milliseconds", help="the time it is about")]
    continuity_errors: Annotated[float, _counted(10**9)] = 0
    stalls: Annotated[float, _counted(10**6)] = 0
    stall_seconds: Annotated[float, _counted(10**6)] = 0
    lost_pictures: Annotated[float, _counted(10**9)] = 0
    received_bytes: Annotated[float, _counted(10**15)] = 0
    max_gap_ms: Annotated[float, _counted(10**9)] = 0


def parse_report(body: Mapping[str, Any]) -> dict[str, float]:
    return asdict(parse(Report, body))


def report_verdict(report: Mapping[str, float]) -> tuple[str, str]:
    """(verdict, reason) of one window."""
    window_s = report["window_ms"] / 1000
    faults = [
        f"{report[name]:.0f} {words}"
        for name, words in (
            ("continuity_errors", "continuity errors"),
            ("stalls", "stalls"),
            ("lost_pictures", "lost pictures"),
        )
        if report[name] > 0
    ]
    if report["stall_seconds"] > 0 and not report["stalls"]:
        faults.append(f"stalled for {report['stall_seconds']:.1f} s")
    if not faults:
        return "perfect", "no errors, no stalls"
    reason = f"{', '.join(faults)} in {window_s:.1f} s"
    mild = report["stall_seconds"] < 0.01 * window_s and not report["continuity_errors"]
    return ("good" if mild and not report["lost_pictures"] else "poor"), reason


def stream_verdict(
    reports: Iterable[Mapping[str, float]], nominal_bytes_per_second: float | None
) -> tuple[str, str]:
    """(verdict, reason) over recent reports, oldest first; the newest decides on faults.

    A rate that is learnt from the stream cannot tell how much of it is missing: None.
    """
    recent = list(reports)
    if not recent:
        return "unknown", "no report yet"
    verdict, reason = report_verdict(recent[-1])
    if verdict != "perfect":
        return verdict, reason
    if nominal_bytes_per_second is None:
        return verdict, f"{reason}; no declared rate tells whether all of it arrived"
    seconds = sum(r["window_ms"] for r in recent) / 1000
    if seconds < DELIVERY_WINDOW_S / 2:
        return verdict, reason
    ratio = sum(r["received_bytes"] for r in recent) / (nominal_bytes_per_second * seconds)
    if ratio < LUMPY_DELIVERY:
        worse = "poor" if ratio < POOR_DELIVERY else "good"
        return worse, f"only {ratio:.1%} of the nominal rate arrived in {seconds:.0f} s"
    return verdict, reason


def host_verdict(sample: Mapping[str, Any] | None, deadline_ms: float) -> tuple[str, str]:
    """The host's own judgement: whether the stream's reads come back in time."""
    if sample is None or not sample["bytes_per_second"]:
        return "unknown", f"the stream's class moves no data; {UNTOLD}"
    waited = sample["service_mean_ms"] + sample["held_mean_ms"]
    if waited > deadline_ms:
        return (
            "poor",
            f"its requests take {waited:.0f} ms, {deadline_ms:.0f} ms are in time; {UNTOLD}",
        )
    return "good", f"its requests take {waited:.0f} ms; {UNTOLD}"
