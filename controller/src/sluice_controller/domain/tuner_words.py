# SPDX-License-Identifier: GPL-2.0-or-later
"""A tuner's decision as one sentence for the log."""

from __future__ import annotations

from .rates import format_change
from .tuner_types import Change, Decision

SHOWN = 4


def _significant(changes: tuple[Change, ...]) -> list[Change]:
    def size(change: Change) -> float:
        return abs((change.after or 0.0) - (change.before or 0.0))

    return sorted(changes, key=size, reverse=True)


def leading(decision: Decision) -> Change | None:
    """The largest change."""
    ordered = _significant(decision.changes)
    return ordered[0] if ordered else None


def _listed(changes: tuple[Change, ...]) -> str:
    ordered = _significant(changes)
    several = len({change.key[0] for change in ordered}) > 1
    parts = []
    for change in ordered[:SHOWN]:
        domain, class_name, resource = change.key
        name = f"{domain}/{class_name}" if several else class_name
        parts.append(f"{name} {resource} {format_change(change.before, change.after)}")
    if len(ordered) > SHOWN:
        parts.append(f"and {len(ordered) - SHOWN} more")
    return ", ".join(parts)


def sentence(decision: Decision) -> str:
    stream = decision.stream or "the stream"
    listed = _listed(decision.changes)
    if decision.kind == "risk":
        return f"Stall risk on {stream}: {decision.words}; {listed}"
    if decision.kind == "room":
        return f"Room beside {stream}: {decision.words}; {listed}"
    if decision.kind == "drained":
        return f"The queue before {stream} has drained; {listed}"
    if decision.kind == "elsewhere":
        listed = listed or "limits stay"
        return f"{stream} waits for something else than the others: {decision.words}; {listed}"
    if decision.kind == "idle":
        return f"Limits on the {decision.arm} lifted, {decision.words}: {listed}"
    return f"Fault on {stream} without a cause here: {decision.words}; nothing was changed"
