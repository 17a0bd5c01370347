# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping's log as the page shows it: a line a decision, repetitions folded. Pure."""

import re
from itertools import groupby
from typing import Any

from . import formatting as f
from .views import RESOURCE_TITLES


def _rate(bytes_per_second: float | None) -> str:
    return "unlimited" if bytes_per_second is None else f.rate(bytes_per_second)


def line(row: dict[str, Any]) -> str:
    """A decision in one line: its subject and its largest change, or without one its reason.

    The whole sentence of the controller says why and names all changes.
    """
    change = row.get("action")
    subject = re.split("[:;]" if change else ";", row["sentence"], maxsplit=1)[0]
    if not change:
        return subject
    resource = RESOURCE_TITLES.get(change["resource"], change["resource"]).lower()
    before, after = _rate(change["from_bytes_per_second"]), _rate(change["to_bytes_per_second"])
    return f"{subject}; {change['class']} on {change['domain']} {before} → {after} {resource}"


def _kind(row: dict[str, Any]) -> tuple[Any, ...]:
    change = row.get("action") or {}
    of_change = (change.get("domain"), change.get("class"), change.get("resource"))
    return row.get("reason"), row.get("stream"), row.get("dry_run"), *of_change


def folded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``[{line, rows, more}]`` of the log, newest first as it came.

    Decisions that follow each other and are of one kind, stream and change are one
    entry: the line of the newest, and how many more are like it.
    """
    runs = [list(run) for _, run in groupby(rows, key=_kind)]
    return [{"line": line(run[0]), "rows": run, "more": len(run) - 1} for run in runs]
