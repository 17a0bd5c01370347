# SPDX-License-Identifier: GPL-2.0-or-later
"""Which rows of an experiment are wanted. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """The rows whose name, ``part, subject``, has a text in it; all rows if that is empty."""

    only: str = ""

    def has(self, part: str, subject: str) -> bool:
        """Whether a row is wanted."""
        return self.only.lower() in f"{part}, {subject}".lower()

    def of(self, names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return which of the rows with these names are wanted."""
        return [name for name in names if self.has(*name)]

    def suffix(self) -> str:
        """Return the suffix of the files of a part of an experiment: the files of the whole
        stay."""
        words = re.findall(r"[a-z0-9]+", self.only.lower())
        return "".join(f"-{word}" for word in words)
