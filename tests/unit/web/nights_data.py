# SPDX-License-Identifier: GPL-2.0-or-later
"""Nights as the controller lists and shows them (docs/specs/nightly-result.md)."""

from typing import Any

PHASES = {
    "control": ("perfect", 0.0, 1.0, 0.0),
    "unshaped": ("poor", 20.0, 0.31, 65e6),
    "auto": ("perfect", 0.0, 1.0, 57e6),
}


def _figures() -> dict[str, Any]:
    found: dict[str, Any] = {
        name: {
            "verdict": verdict,
            "stalls": 9 if stalled else 0,
            "stall_seconds": stalled,
            "delivered_ratio": delivered,
            "max_gap_ms": 61.5,
            "background_bytes_per_s": moved,
        }
        for name, (verdict, stalled, delivered, moved) in PHASES.items()
    }
    return {**found, "background_ratio": 57 / 65, "settled_after_s": 7.5}


def night(number: int, outcome: str = "passed", sentence: str = "because") -> dict[str, Any]:
    """One row of the list."""
    ran = outcome in ("passed", "failed")
    return {
        "id": number,
        "run_id": f"{number:032x}",
        "started_at": 1_780_000_000.0 + 86_400 * number,
        "ended_at": 1_780_000_240.0 + 86_400 * number,
        "outcome": outcome,
        "reasons": [] if ran else [{"code": "guests-busy", "sentence": sentence}],
        "host": "kvm1",
        "software": {"sluice": "0.1.0", "qemu": "10.0.13", "libvirt": "11.3.0"},
        "accelerator": "kvm" if ran else None,
        "figures": _figures() if ran else None,
    }


def _phase(verdict: str, stalled: float, delivered: float, moved: float) -> dict[str, Any]:
    stream = {"verdict": verdict, "stall_seconds": stalled, "delivered_ratio": delivered}
    stream |= dict.fromkeys(("stalls", "continuity_errors", "lost_pictures", "max_gap_ms"), 1)
    background = {"http_bytes_per_s": moved / 2, "disk_bytes_per_s": moved / 2}
    return {"stream": stream, "background": background, "cpu_ratio": 0.8}


def shown(number: int, outcome: str = "passed", sentence: str = "because") -> dict[str, Any]:
    """One night whole, as far as the template reads it."""
    row = night(number, outcome, sentence)
    measured = None
    if row["figures"]:
        measured = {
            "phases": {name: _phase(*values) for name, values in PHASES.items()},
            "checks": [{"name": "auto is perfect", "holds": outcome == "passed", "figures": ""}],
            "auto_log": [{"at_s": 31.5, "sentence": "batch 45 → 22 MB/s"}],
            "link_bytes_per_s": 25e6,
            "disk_note": "a model",
            "note": "",
        }
    accelerator = {"name": "kvm", "reason": "it boots"} if measured else None
    result = {"host": {"cpus": 8, "memory_mib": 32000}, "accelerator": accelerator}
    return {**row, "has_page": bool(measured), "result": {**result, "measured": measured}}
