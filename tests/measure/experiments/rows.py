# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment gathers: rows of figures, and what could not be measured, with its reason.

One measurement that fails does not take the others with it; it is missing in the
end, which is a problem of its own.
"""

import traceback
from collections.abc import Callable
from typing import Any

from measure.experiments.bars import ALL, Row
from measure.experiments.choice import Choice
from measure.qmp import QmpError
from testbed import FAILURES

# What a measurement on a busy or broken machine ends with: a command that failed or
# took too long, a load that did not begin, a log or samples that are too short, and
# what a guest, its QEMU, libvirt or the controller refused.
KNOWN = (*FAILURES, QmpError, TimeoutError, ValueError)


def reason_of(failure: Exception) -> str:
    """Say why a measurement failed; of a mistake in the experiment also where it is."""
    if isinstance(failure, KNOWN):
        return str(failure)
    place = traceback.extract_tb(failure.__traceback__)[-1]
    return f"a mistake in {place.filename}, line {place.lineno}: {failure!r}"


class Rows:
    """Rows in the order of measuring: those that are wanted. ``say`` tells what is left out."""

    def __init__(self, say: Callable[[str], None], choice: Choice = ALL):
        self.choice = choice
        self.rows: list[Row] = []
        self.missing: list[dict[str, Any]] = []
        self._say = say

    def add(self, part: str, subject: str, measure: Callable[[], Row]) -> None:
        """Measure a row if it is wanted, or note why that could not be, be it a mistake of ours."""
        self.attempt(part, subject, lambda: self.rows.append(measure()))

    def attempt(self, part: str, subject: str, measure: Callable[[], None]) -> None:
        """Measure a part of a row if it is wanted, or note why that could not be, likewise."""
        if self.choice.has(part, subject):
            self.guard(part, subject, measure)

    def guard(self, part: str, subject: str, measure: Callable[[], None]) -> None:
        """Do what rows need, or note why it failed: it does not take others with it."""
        try:
            measure()
        except Exception as failure:
            self.leave_out(part, subject, reason_of(failure))

    def leave_out(self, part: str, subject: str, reason: str) -> None:
        """Note why something was not measured, once."""
        gone = {"part": part, "subject": subject, "reason": " ".join(reason.split())}
        if gone not in self.missing:
            self.missing.append(gone)
            self._say(f"{part}: {subject} is left out: {gone['reason']}")

    def as_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "missing": self.missing}
