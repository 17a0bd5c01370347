# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands' output: tables for people, JSON for programs.

rich is imported when something is printed: help and completion do not wait for it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from ...domain.rates import format_rate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Into a file or a pipe nothing is cut to the width of a screen.
PIPE_COLUMNS = 200

# Columns of command lines, of any length.
WIDE = ("command", "NAME")

# A column's cells: a member of each row, or a function of the row.
Columns = Mapping[str, str | Callable[[Any], Any]]


@cache
def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def safe(value: Any) -> str:
    """Guests choose names and command lines: no control character reaches the terminal."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def uplink_line(uplink: Mapping[str, Any]) -> str:
    """The uplink's rate and queue, with the ports in whose queues its frames wait."""
    name, ports = uplink["name"], uplink["ports"]
    beneath = "" if ports == [name] else f" ({', '.join(ports)})"
    link = uplink["link_bytes_per_second"]
    full = format_rate(link) if link else "unknown"
    beyond = " beyond the host" if uplink["is_beyond"] else ""
    first = f"; first: {', '.join(uplink['first'])}" if uplink["first"] else ""
    if uplink["first_reason"]:
        first += f"; not first: {uplink['first_reason']}"
    return (
        f"uplink {name}{beneath}: {format_rate(uplink['bytes_per_second'])} of "
        f"{full}{beyond}, {uplink['backlog_bytes']} B wait, "
        f"{uplink['dropped_per_second']:.0f} drops/s{first}"
    )


def take_any_encoding(*streams: TextIO) -> None:
    """A character that the terminal has not is written as its number.

    The last line tells of a change that is done: printing it must not fail.
    """
    for stream in streams:
        # In a test it may be another thing than a file.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(value: Any) -> None:
    print(as_line(value, indent=2))


def as_line(value: Any, indent: int | None = None) -> str:
    # JSON leaves DEL as it is; every other control character is ASCII or escaped already.
    return json.dumps(value, indent=indent, ensure_ascii=True).replace("\x7f", "\\u007f")


def table(rows: Iterable[Any], columns: Columns, right: Iterable[str] = ()) -> Table:
    from rich.table import Table
    from rich.text import Text

    # A column of commands gives way where the line is too short for all; the others keep their
    # width.
    result = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        justify = "right" if column in right else "left"
        result.add_column(column, justify=justify, no_wrap=column not in WIDE)
    for row in rows:
        cells = (row[cell] if isinstance(cell, str) else cell(row) for cell in columns.values())
        result.add_row(*(cell if isinstance(cell, Text) else Text(safe(cell)) for cell in cells))
    return result


def show(
    rows: Iterable[Any], columns: Columns, right: Iterable[str] = (), empty: str = "nothing"
) -> None:
    found = list(rows)
    if found:
        console().print(table(found, columns, right))
    else:
        say(empty)


def shown(columns: Columns, **more: Any) -> Callable[[Any], None]:
    """Prints a list of rows as `show` does."""
    return lambda rows: show(rows, columns, **more)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Shows the text and the time of the wait so far; on a terminal alone."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        # An empty line would come of it.
        yield
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
    ) as progress:
        progress.add_task(escape(safe(text)), total=None)
        yield


def say(text: str) -> None:
    from rich.text import Text

    console().print(Text(safe(text)), soft_wrap=True)


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
