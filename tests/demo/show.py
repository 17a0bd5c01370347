# SPDX-License-Identifier: GPL-2.0-or-later
"""What the demo prints."""

import time

from rich.console import Console
from rich.table import Table

from demo.judge import Check
from demo.plan import PHASES
from demo.run import Outcome


class Progress:
    """Lines with the time since the start."""

    def __init__(self, console: Console):
        self._console = console
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        self._console.print(f"[dim]{elapsed:6.1f} s[/dim]  {text}", highlight=False)


COLOURS = {"perfect": "green", "good": "yellow", "poor": "red"}


def table(outcome: Outcome) -> Table:
    """Return the three phases side by side."""
    shown = Table(title="A VLC stream beside twelve readers and an overloaded web server")
    shown.add_column("")
    for name in PHASES:
        shown.add_column(name, justify="right")
    phases = [outcome.phases[name] for name in PHASES]

    def row(title: str, cells: list[str]) -> None:
        shown.add_row(title, *cells)

    verdicts = [phase.stream.verdict for phase in phases]
    row("stream", [f"[bold {COLOURS[v]}]{v}[/]" for v in verdicts])
    row("continuity errors", [str(p.stream.continuity_errors) for p in phases])
    row("stalls", [f"{p.stream.stalls} ({p.stream.stall_seconds:.1f} s)" for p in phases])
    row("lost pictures", [str(p.stream.lost_pictures) for p in phases])
    row("delivered", [f"{p.stream.delivered_ratio:.2%}" for p in phases])
    row("largest gap", [f"{p.stream.max_gap_ms:.0f} ms" for p in phases])
    row("http", [f"{p.background.http_bytes_per_s / 1e6:.1f} MB/s" for p in phases])
    row("disk (cats)", [f"{p.background.disk_bytes_per_s / 1e6:.1f} MB/s" for p in phases])
    row("disk seeks", [f"{p.disk_seeks_per_s:.0f}/s" for p in phases])
    row("processors busy", [f"{p.cpu_ratio:.0%}" for p in phases])
    return shown


def checks(console: Console, found: list[Check]) -> None:
    """Print the bars and what each found."""
    for check in found:
        mark = "[green]holds[/]" if check.holds else "[bold red]FAILS[/]"
        console.print(f"{mark}  {check.name}: {check.figures}", highlight=False)
