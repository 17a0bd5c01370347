# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of a run of ``make test-deploy``: JSON, and a table to read."""

import json
import time
from pathlib import Path
from typing import Any


class Report:
    """Collects figures by name and writes them after each one.

    With ``go_on`` the figures of the run before stay, for tests on held machines.
    """

    def __init__(self, folder: Path, *, go_on: bool = False):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._figures: dict[str, dict[str, Any]] = {}
        self._started = time.time()
        if go_on and (folder / "report.json").exists():
            earlier = json.loads((folder / "report.json").read_text())
            self._figures, self._started = earlier["figures"], earlier["started_at"]

    def add(self, name: str, value: Any, unit: str = "", wanted: str = "") -> None:
        """Keep one figure. ``wanted`` says what it is held against, in words."""
        self._figures[name] = {"value": value, "unit": unit, "wanted": wanted}
        self.write()

    def write(self) -> None:
        content = {"started_at": self._started, "figures": self._figures}
        (self._folder / "report.json").write_text(json.dumps(content, indent=2) + "\n")
        (self._folder / "report.txt").write_text(self.table())

    def table(self) -> str:
        """Return one line for each figure."""
        lines = []
        for name, figure in self._figures.items():
            shown = shown_value(figure["value"])
            wanted = f"   ({figure['wanted']})" if figure["wanted"] else ""
            line = f"{name:<44} {shown:>14} {figure['unit']}".rstrip()
            lines.append(line + wanted)
        return "\n".join(lines) + "\n"


def shown_value(value: Any) -> str:
    """Return a value as a person reads it."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"
