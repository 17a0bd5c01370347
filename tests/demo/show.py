# SPDX-License-Identifier: GPL-2.0-or-later
"""Output of the demo."""

import time

from rich.console import Console
from rich.table import Table

from demo import judge
from demo.judge import Check
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
    """Return the phases side by side."""
    shown = Table(title=judge.heading(outcome.attempt.scale.readers))
    shown.add_column("")
    for name in outcome.phases:
        shown.add_column(name, justify="right")
    for title, cells in judge.rows(outcome.phases):
        styled = [f"[bold {COLOURS[cell]}]{cell}[/]" if cell in COLOURS else cell for cell in cells]
        shown.add_row(title, *styled)
    return shown


def checks(console: Console, found: list[Check]) -> None:
    """Print the bars and their findings."""
    for check in found:
        mark = "[green]holds[/]" if check.holds else "[bold red]FAILS[/]"
        console.print(f"{mark}  {check.name}: {check.figures}", highlight=False)
