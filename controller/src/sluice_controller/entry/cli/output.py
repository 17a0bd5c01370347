# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ...domain.rates import format_rate, format_size, format_time_ns

# Into a file or a pipe nothing is cut to the width of a screen.
PIPE_COLUMNS = 200

console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def safe(value: Any) -> str:
    """Guests choose names and command lines: no control character reaches the terminal."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def take_any_encoding(*streams: TextIO) -> None:
    """A character that the terminal has not is written as its number.

    The last line tells of a change that is done: printing it must not fail.
    """
    for stream in streams:
        # In a test it may be another thing than a file.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(value: Any) -> None:
    # JSON leaves DEL as it is; every other control character is ASCII or escaped already.
    print(json.dumps(value, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f"))


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


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Says what is waited for and for how long already; on a terminal alone."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        progress.add_task(escape(safe(text)), total=None)
        yield


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


def _late(window: dict[str, Any]) -> str:
    return f", {window['may_miss']} of {window['of']} may be late" if window["may_miss"] else ""


def scheduling_text(one: dict[str, Any]) -> str:
    """Only what is not as by default."""
    parts = []
    if one["reservation_bytes_per_second"] is not None:
        parts.append(f"at least {format_rate(one['reservation_bytes_per_second'])}")
    if one["window"] is not None:
        window = one["window"]
        period = format_time_ns(window["period_ns"])
        parts.append(f"{format_size(window['bytes'])} in each {period}{_late(window)}")
    if one["policy"] != "token-bucket":
        peak = one["peak_bytes_per_second"]
        parts.append(one["policy"] + ("" if peak is None else f", peak {format_rate(peak)}"))
    if one["dynamic"] != "none":
        parts.append(f"dynamic {one['dynamic']}")
    if one["charge"] != "all":
        parts.append(f"charge {one['charge']}")
    if one["minimum_charge_bytes"] is not None:
        parts.append(f"minimum charge {format_size(one['minimum_charge_bytes'])}")
    return ", ".join(parts) or "by default"


def queue_text(queue: dict[str, Any]) -> str:
    """Only what is not as by default."""
    parts = []
    if queue["limit_bytes"] is not None:
        parts.append(f"at most {format_size(queue['limit_bytes'])}")
    if queue["limit_packets"] is not None:
        parts.append(f"at most {queue['limit_packets']} frames")
    if queue["aqm"] != "none":
        parts.append(queue["aqm"] + (" with ECN" if queue["ecn"] else ""))
    if queue["connections_per_second"] is not None:
        burst = queue["burst_connections"]
        parts.append(
            f"{queue['connections_per_second']:g} new connections/s"
            + ("" if burst is None else f", {burst:g} at once")
        )
    return ", ".join(parts) or "by default"


def when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def yes(value: bool) -> str:
    return "yes" if value else "no"
