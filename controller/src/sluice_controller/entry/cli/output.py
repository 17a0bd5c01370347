# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...domain.rates import format_rate

# Into a file or a pipe nothing is cut to the width of a screen.
PIPE_COLUMNS = 200

console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def safe(value: Any) -> str:
    """Guests choose names and command lines: no control character reaches the terminal."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=True))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[str] = ()
) -> Table:
    right = set(right)
    result = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(
            column, justify="right" if column in right else "left", no_wrap=column != "command"
        )
    for row in rows:
        result.add_row(*(cell if isinstance(cell, Text) else Text(safe(cell)) for cell in row))
    return result


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Iterable[str] = (),
    empty: str = "nothing",
) -> None:
    rows = list(rows)
    if not rows:
        console.print(Text(empty))
        return
    console.print(table(columns, rows, right))


def say(text: str) -> None:
    console.print(Text(safe(text)), soft_wrap=True)


def rate(value: float | None) -> str:
    return format_rate(value)


def limit_text(limit: dict[str, Any] | None) -> str:
    if not limit:
        return "unlimited"
    parts = []
    if limit.get("bytes_per_second") is not None:
        parts.append(format_rate(limit["bytes_per_second"]))
    if limit.get("operations_per_second") is not None:
        parts.append(f"{limit['operations_per_second']:.0f} ops/s")
    return ", ".join(parts) or "unlimited"


def limits_text(limits: dict[str, Any]) -> str:
    return "; ".join(f"{r} {limit_text(limit)}" for r, limit in limits.items()) or "unlimited"


def when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def yes(value: bool) -> str:
    return "yes" if value else "no"
