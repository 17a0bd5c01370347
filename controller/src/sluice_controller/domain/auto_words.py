# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of auto-shaping in sentences, for the terminal and the page alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .rates import format_rate, format_size

# Of the names in a sentence; one more than that is named rather than counted.
SHOWN = 4

Status = Mapping[str, Any]


def listed(names: Sequence[str]) -> str:
    """The first of them by name, and how many more there are."""
    ordered = sorted(names)
    if len(ordered) <= SHOWN + 1:
        return ", ".join(ordered)
    return f"{', '.join(ordered[:SHOWN])} and {len(ordered) - SHOWN} more"


def sentences(status: Status) -> list[str]:
    """Of the answer to `GET /v1/auto`, all but the held classes: each gate with the streams that
    it is for, open gates by their reason, domains without a gate, and shares of processors."""
    return [*_gates(status["devices"]), *_without(status["without_gate"]), *_eased(status["eased"])]


def _gates(devices: Sequence[Status]) -> Iterator[str]:
    told = [one for one in devices if one["open_because"] is None or one["streams"]]
    # Those that hold somebody are why anybody looks.
    for device in sorted(told, key=lambda one: one["open_because"] is not None):
        yield _gate(device)
        for one in device["streams"]:
            yield _waits(one, device["name"])
    quiet = [one for one in devices if one not in told]
    for why in dict.fromkeys(one["open_because"] for one in quiet):
        names = [one["name"] for one in quiet if one["open_because"] == why]
        yield f"{'Gate' if len(names) == 1 else 'Gates'} of {listed(names)} open: {why}"


def _gate(device: Status) -> str:
    head = f"Gate of {device['name']} ({listed(device['domains'])})"
    moved = f"others move {format_rate(device['background_bytes_per_second'])}"
    if device["target_ms"] is None:
        return f"{head} open: {device['open_because']}; {moved}"
    may = (
        f"{device['target_ms']:.1f} ms of work of others in flight "
        f"(adjusted × {device['adjust']:.2f})"
    )
    if device["open_because"] is not None:
        return f"{head} open: {device['open_because']}; it would leave {may}; {moved}"
    return f"{head} leaves {may}, in windows of {format_size(device['window_bytes'])}; {moved}"


def _waits(one: Status, device: str) -> str:
    elsewhere = ", for something else than the others" if one["is_elsewhere"] else ""
    waits = f"{one['waits_ms']:.0f} of the {one['bears_ms']:.0f} ms that it can bear"
    return f"{one['stream']} waits {waits} on {device}{elsewhere}"


def _without(domains: Sequence[Status]) -> Iterator[str]:
    for one in domains:
        yield f"{one['domain']} has no gate: {one['because']}"


def _eased(domains: Sequence[Status]) -> Iterator[str]:
    for one in domains:
        name = one["domain"]
        if one["refused"]:
            yield f"{name}'s share of the processors cannot be changed: it {one['refused']}"
            continue
        share = f"a weight of {one['weight']} for its own {one['own_weight']}"
        if one["processors_per_vcpu"] is not None:
            share += f" and {one['processors_per_vcpu']:.1%} of each vCPU's time"
        yield f"{name} leaves processors to streams: it has {share}"
