# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of the pages, from the controller's answers. Pure."""

import re
from typing import Any

from . import formatting as f

RESOURCE_TITLES = {
    "blk-read": "Disk read",
    "blk-write": "Disk write",
    "net-tx": "Network out",
    "net-rx": "Network in",
}
# The resources of a group, as a sentence begins.
GROUP_WORDS = {
    "blk": "Disk reads and writes together",
    "blk-read": "Disk reads",
    "blk-write": "Disk writes",
    "net": "Network, both directions together",
    "net-tx": "Network, what VMs send",
    "net-rx": "Network, what VMs receive",
}
DEVICE_WORDS = {"disk": "disk", "net": "network card"}
VERDICT_RANK = {"poor": 0, "unknown": 1, "good": 2, "perfect": 3}
VERDICT_MARK = {"perfect": "●", "good": "◐", "poor": "▲", "unknown": "○"}
PALETTE_SIZE = 8


def colour(index: Any) -> int:
    """A class's colour number; 0 is the default class's grey."""
    return int(index) % PALETTE_SIZE if isinstance(index, (int, float)) else 0


def headline(streams: list[dict]) -> tuple[str, float | None]:
    """One line for the top of the overview, and the time it speaks of.

    The first stream that suffers is named; else since when all have been well.
    """
    if not streams:
        return "No stream is declared.", None
    worst = min(streams, key=lambda s: (VERDICT_RANK.get(s.get("verdict"), 1), s.get("name", "")))
    verdict = worst.get("verdict") or "unknown"
    since = worst.get("since")
    if verdict == "perfect":
        times = [s["since"] for s in streams if s.get("since") is not None]
        subject = "The stream is" if len(streams) == 1 else f"All {len(streams)} streams are"
        return f"{subject} perfect", max(times, default=None)
    same = [s for s in streams if (s.get("verdict") or "unknown") == verdict]
    if verdict == "unknown":
        return f"No report yet from {', '.join(s['name'] for s in same[:3])}", None
    if len(same) == 1:
        return f"{worst['name']} is {verdict}", since
    return f"{len(same)} of {len(streams)} streams are {verdict}", since


def sort_streams(streams: list[dict]) -> list[dict]:
    """Streams that suffer come first."""
    return sorted(streams, key=lambda s: (VERDICT_RANK.get(s.get("verdict"), 1), s["name"]))


def held(auto: dict) -> list[dict]:
    """The classes that auto-shaping holds back now, each with the means ``by`` which it is held."""
    gated = [
        {**one, "by": f"gate of {device['name']}"}
        for device in auto.get("devices") or []
        for one in device["held"]
    ]
    return [{**one, "by": "rate"} for one in auto.get("limits") or []] + gated


def processor_wait(stream: dict) -> str:
    """How long a stream's VM waits for processors."""
    wait_ms = stream.get("processor_wait_ms_per_second")
    if wait_ms is None:
        return "wait for processors unknown"
    too_long = ", too long" if stream["processor_pressure"] > 1 else ""
    return f"waits {f.milliseconds(wait_ms)} of each second for processors{too_long}"


def state_note(domain: dict) -> str:
    """The reason why a VM is not shaped, in one sentence; empty if it is shaped."""
    if not domain.get("attached"):
        return "Not attached: its I/O goes past Sluice."
    if domain.get("needs_restart"):
        return "Attached, but still running as before: restart the VM to shape it."
    if domain.get("state") != "running":
        return "Not running."
    if not domain.get("active"):
        return "Running without a shaper: its emulator is not Sluice's."
    agent = domain.get("agent") or {}
    if not agent.get("connected"):
        why = agent.get("error") or "it has not answered yet"
        return f"Shaped by its default class only: no agent in the guest ({why})."
    return ""


def without_arguments(table: Any) -> Any:
    """A guest's processes without the arguments of their command lines.

    Arguments may be secrets of the guest, and a viewer places no process by them.
    """
    if not isinstance(table, dict) or not isinstance(table.get("processes"), list):
        return table
    rows = [
        {**row, "cmdline": str(row.get("cmdline") or "").partition(" ")[0]}
        for row in table["processes"]
    ]
    return {**table, "processes": rows, "arguments_hidden": True}


def sort_domains(domains: list[dict], live: dict) -> list[dict]:
    """VMs that wait for a limit first, then running ones, then the rest, by name."""
    now = (live or {}).get("domains") or {}

    def rank(domain: dict) -> tuple:
        classes = (now.get(domain["name"]) or {}).get("classes") or {}
        held = any(
            (sample.get("backlog_requests") or 0) > 0
            for samples in classes.values()
            for sample in samples.values()
        )
        return (not held, domain.get("state") != "running", domain["name"])

    return sorted(domains, key=rank)


def group_rate(group: dict) -> str:
    """The rate of a group, in the unit that it counts."""
    if group["unit"] == "bytes":
        return f.rate(group["rate_per_second"])
    return f"{f.significant(group['rate_per_second'])} ops/s"


def group_burst(group: dict) -> str:
    """The burst of a group."""
    if group["unit"] == "bytes":
        return f.size(group["burst"])
    return f"{group['burst']} operations"


def describe_match(match: dict[str, str]) -> str:
    """A rule's conditions."""
    return " and ".join(f"{kind} {value}" for kind, value in match.items())


def describe_change(value: Any) -> str:
    """One side of an audit row: short words instead of raw JSON."""
    if value is None:
        return f.NO_VALUE
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        parts = [f"{label(k)} {_value(k, v)}" for k, v in value.items() if v not in (None, {}, [])]
        return ", ".join(parts) or "unlimited"
    if isinstance(value, list):
        return ", ".join(describe_change(item) for item in value) or f.NO_VALUE
    return str(value)


def label(key: str) -> str:
    """The name of a member as people read it, without its unit where a name is left."""
    if key == "bytes_per_second":
        return "rate"
    return re.sub("(_bytes)?_per_second$|_bytes$|_ns$", "", key).replace("_", " ")


def _value(key: str, value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and key.endswith("bytes_per_second"):
        return f.rate(value)
    if number and key.endswith("_bytes"):
        return f.size(value)
    if number and key.endswith("_at"):
        return f.clock(value)
    return describe_change(value)


def merge_audit(ours: list[dict], theirs: list[dict], limit: int) -> list[dict]:
    """The web's events and the controller's audit, newest first."""
    return sorted([*ours, *theirs], key=lambda row: row.get("at") or 0, reverse=True)[:limit]
