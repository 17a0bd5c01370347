# SPDX-License-Identifier: GPL-2.0-or-later
"""A night's result (docs/specs/nightly-result.md) from the demo's report. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.report import READERS_KEY, WEB_DISK_KEY, WEB_NET_KEY
from sluice_nightly.decide import Reason

VERSION = 1
MOST_REASONS = 20
MOST_LOG = 500
MOST_TEXT = 1000
MOST_PAGE_CHARACTERS = 700_000
PLAN = ("link_mbit", "readers", "wgets", "overload", "control_s", "unshaped_s", "auto_s")
STREAM = (
    "verdict",
    "continuity_errors",
    "stalls",
    "stall_seconds",
    "lost_pictures",
    "delivered_ratio",
    "max_gap_ms",
)
LIMITS = {
    "readers_disk_limit_bytes_per_s": READERS_KEY,
    "web_disk_limit_bytes_per_s": WEB_DISK_KEY,
    "web_net_limit_bytes_per_s": WEB_NET_KEY,
}
DISKS = {
    "readers_disk_bytes_per_s": "media",
    "web_disk_bytes_per_s": "web",
    "movie_disk_bytes_per_s": "movie",
}


@dataclass(frozen=True)
class About:
    """Members of a result that do not depend on its outcome."""

    run_id: str
    started_at: float
    host: Mapping[str, Any]
    software: Mapping[str, str]


def plain(text: str) -> str:
    """Text that a program printed, as sluiced takes it: short, no control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)[:MOST_TEXT]


def _phase(facts: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("start_s", "end_s", "background", "cpu_ratio", "disk_busy_ratio", "disk_seeks_per_s")
    found = {name: facts[name] for name in kept}
    # The first sample is the origin; a phase cannot begin before it but by rounding.
    found["start_s"], found["end_s"] = max(0.0, facts["start_s"]), max(0.0, facts["end_s"])
    return {**found, "stream": {name: facts["stream"][name] for name in STREAM}}


def _windows(windows: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    rows = [w for w in windows if w["start_s"] >= 0]
    return {
        "start_s": [w["start_s"] for w in rows],
        "end_s": [round(w["start_s"] + w["window_ms"] / 1000, 3) for w in rows],
        "received_bytes_per_s": [
            round(w["received_bytes"] * 1000 / w["window_ms"]) if w["window_ms"] > 0 else 0
            for w in rows
        ],
        "max_gap_ms": [round(w["max_gap_ms"], 1) for w in rows],
        "verdict": [w["verdict"] for w in rows],
    }


def _limit(row: Mapping[str, Any], key: str) -> float | None:
    limit = (row["classes"].get(key) or {}).get("limit")
    return None if limit is None else round(limit)


def _seconds(rows: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    kept = ("at_s", "http_bytes_per_s", "stream_bytes_per_s", "cpu_ratio")
    table = {name: [row[name] for row in rows] for name in kept}
    for name, volume in DISKS.items():
        table[name] = [row["disk_bytes_per_s"][volume] for row in rows]
    for name, key in LIMITS.items():
        table[name] = [_limit(row, key) for row in rows]
    return table


def measured(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measurements, from the demo's report.json."""
    return {
        "plan": {name: report["plan"][name] for name in PLAN},
        "link_bytes_per_s": report["link"]["bytes_per_s"],
        "disk_note": report["disk"]["note"],
        "note": plain(report["note"]),
        "phases": {name: _phase(facts) for name, facts in report["phases"].items()},
        "auto_enabled_at_s": report["auto"]["enabled_at_s"],
        "settled_after_s": report["auto"]["settled_after_s"],
        "checks": [{**c, "figures": plain(c["figures"])} for c in report["checks"]],
        "auto_log": [
            {"at_s": row["at_s"], "sentence": plain(row["sentence"])}
            for row in report["auto_log"][-MOST_LOG:]
        ],
        "windows": _windows(report["windows"]),
        "seconds": _seconds(report["seconds"]),
    }


def result(
    about: About,
    ended_at: float,
    outcome: str,
    reasons: Sequence[Reason] = (),
    accelerator: Mapping[str, str] | None = None,
    report: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the whole result."""
    return {
        "version": VERSION,
        "run_id": about.run_id,
        "started_at": round(about.started_at, 3),
        # A clock that was set back in between makes no night of negative length.
        "ended_at": round(max(about.started_at, ended_at), 3),
        "outcome": outcome,
        "reasons": [
            {"code": r.code, "sentence": plain(r.sentence)} for r in reasons[:MOST_REASONS]
        ],
        "host": dict(about.host),
        "software": dict(about.software),
        "accelerator": dict(accelerator) if accelerator else None,
        "measured": None if report is None else measured(report),
    }
