# SPDX-License-Identifier: GPL-2.0-or-later
"""Results of nightly runs as a run would post them."""

from __future__ import annotations

from typing import Any

START = 1_780_000_000.0
NIGHT_S = 86_400.0
PHASES = {
    "control": ("perfect", 0, 0.0, 1.0, (0.0, 0.0)),
    "unshaped": ("poor", 9, 20.0, 0.31, (20e6, 45e6)),
    "auto": ("perfect", 0, 0.0, 1.0, (18e6, 39e6)),
}


SPANS = {"control": (2.0, 18.0), "unshaped": (20.0, 30.0), "auto": (37.5, 59.0)}


def phase(name, verdict, stalls, stall_seconds, delivered, moved) -> dict[str, Any]:
    return {
        "start_s": SPANS[name][0],
        "end_s": SPANS[name][1],
        "stream": {
            "verdict": verdict,
            "continuity_errors": 0,
            "stalls": stalls,
            "stall_seconds": stall_seconds,
            "lost_pictures": 0,
            "delivered_ratio": delivered,
            "max_gap_ms": 61.5,
        },
        "background": {"http_bytes_per_s": moved[0], "disk_bytes_per_s": moved[1]},
        "cpu_ratio": 0.83,
        "disk_busy_ratio": 0.97,
        "disk_seeks_per_s": 8.4,
    }


def measured(holds: bool = True, points: int = 120) -> dict[str, Any]:
    halves = [index / 2 for index in range(points)]
    whole = [float(index) for index in range(points // 2)]
    return {
        "plan": {
            "link_mbit": 200, "readers": 12, "wgets": 3, "overload": 1.5,
            "control_s": 20.0, "unshaped_s": 30.0, "auto_s": 30.0,
        },
        "link_bytes_per_s": 25_000_000,
        "disk_note": "a model of a rotating disk",
        "note": "",
        "phases": {name: phase(name, *values) for name, values in PHASES.items()},
        "auto_enabled_at_s": 30.0,
        "settled_after_s": 7.5,
        "checks": [{"name": "auto is perfect", "holds": holds, "figures": "perfect: 0 stalls"}],
        "auto_log": [{"at_s": 31.5, "sentence": "Stall risk on movie: batch 45 → 22 MB/s"}],
        "windows": {
            "start_s": halves,
            "end_s": [at + 0.5 for at in halves],
            "received_bytes_per_s": [830e3] * points,
            "max_gap_ms": [14.0] * points,
            "verdict": ["poor" if 20 <= at < 30 else "perfect" for at in halves],
        },
        "seconds": {
            "at_s": whole,
            "http_bytes_per_s": [20e6] * len(whole),
            "stream_bytes_per_s": [830e3] * len(whole),
            "readers_disk_bytes_per_s": [45e6 if at < 30 else 39e6 for at in whole],
            "web_disk_bytes_per_s": [5e6] * len(whole),
            "movie_disk_bytes_per_s": [830e3] * len(whole),
            "readers_disk_limit_bytes_per_s": [None if at < 31 else 40e6 for at in whole],
            "web_disk_limit_bytes_per_s": [None] * len(whole),
            "web_net_limit_bytes_per_s": [None if at < 31 else 18e6 for at in whole],
            "cpu_ratio": [0.8] * len(whole),
        },
    }  # fmt: skip


def result(number: int = 1, outcome: str = "passed", sentence: str = "") -> dict[str, Any]:
    """The result of the night with this number."""
    ran = outcome in ("passed", "failed")
    started = START + number * NIGHT_S
    code = {"refused": "guests-busy", "aborted": "terminated"}.get(outcome, "failed-to-run")
    reasons = [] if ran else [{"code": code, "sentence": sentence or "because of the test"}]
    return {
        "version": 1,
        "run_id": f"{number:032x}",
        "started_at": started,
        "ended_at": started + (240.0 if ran else 1.0),
        "outcome": outcome,
        "reasons": reasons,
        "host": {"name": "kvm1", "kernel": "6.12.48", "cpus": 8, "memory_mib": 32000},
        "software": {"sluice": "0.1.0", "qemu": "10.0.13", "libvirt": "11.3.0"},
        "accelerator": {"name": "kvm", "reason": "a guest under KVM booted"} if ran else None,
        "measured": measured(outcome == "passed") if ran else None,
    }
