# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands of a how-to page, as a reader copies them.

A block is what stands between two lines of three backquotes. Blocks follow
each other in one shell of the reader, so a variable that one of them sets is
there in those after it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = "```"
ASSIGNMENT = re.compile(r"^[A-Z_]+=\S*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of commands, and the heading that it stands under."""

    heading: str
    text: str


def blocks(markdown: str) -> Iterator[Block]:
    """Yield the blocks of a page that name no language. ValueError if one has no end."""
    heading, lines, language = "", None, ""
    for line in markdown.splitlines():
        if lines is None and line.startswith(FENCE):
            lines, language = [], line.removeprefix(FENCE).strip()
        elif lines is not None and line.startswith(FENCE):
            if not language:
                yield Block(heading, "\n".join(lines) + "\n")
            lines = None
        elif lines is not None:
            lines.append(line)
        elif line.startswith("## "):
            heading = line.removeprefix("## ")
    if lines is not None:
        raise ValueError(f"a block under {heading!r} has no end")


class Reader:
    """Takes the blocks of a page one after the other, each once."""

    def __init__(self, markdown: str):
        self._left = list(blocks(markdown))
        self._assigned: list[str] = []

    def headings(self) -> list[str]:
        """Return the headings with blocks that were not taken yet, in order."""
        return list(dict.fromkeys(block.heading for block in self._left))

    def take(self, heading: str) -> str:
        """Return the script of the next block under a heading; KeyError if there is none."""
        for block in self._left:
            if block.heading == heading:
                self._left.remove(block)
                script = "".join(f"{line}\n" for line in self._assigned) + block.text
                self._assigned += ASSIGNMENT.findall(block.text)
                return script
        raise KeyError(f"no block is left under {heading!r}; there are {self.headings()}")


def without(script: str, *commands: str) -> str:
    """Return the script less the lines that begin with one of the commands.

    ValueError if one of them is not there: the page has changed.
    """
    lines = script.splitlines(keepends=True)
    for command in commands:
        kept = [line for line in lines if not line.startswith(command)]
        if len(kept) == len(lines):
            raise ValueError(f"no line begins with {command!r} in:\n{script}")
        lines = kept
    return "".join(lines)
