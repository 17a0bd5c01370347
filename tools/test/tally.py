# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the output of test programs: passed, failed and slow tests."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# How pytest, TAP, cargo and our own scripts name failures, pytest with the reason.
FAILURE = re.compile(
    r"(FAILED|FAIL|ERROR|E  ) *\S|\s*not ok \d|test \S.* \.\.\. FAILED"
    r"|\S+ +\d+ passed, [1-9]\d* failed"
)
FAILURES_TOLD = 12
# pytest's --durations, and our scripts' lines of a program.
DURATION = re.compile(
    r"(?P<pytest>\d+\.\d+)s (?P<phase>call|setup|teardown) +(?P<test>\S.*)"
    r"|(?P<program>\S+) +\d+ passed, \d+ failed.*, (?P<seconds>\d+) s$"
)


@dataclass
class Tally:
    """Tests of one suite: passed by kind, the numbers of failed and skipped, and lines about
    failures."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures


Reader = Callable[[Iterable[str]], Tally]


def count_pytest(kind: str) -> Reader:
    """Read pytest's closing line, for example ``12 passed, 1 failed in 3.1s``."""

    def count(lines: Iterable[str]) -> Tally:
        tally = Tally()
        closing = [line for line in lines if re.search(r"\b(passed|failed|error)", line)]
        for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last(closing)):
            if word == "passed":
                tally.passed[kind] += int(number)
            elif word == "skipped":
                tally.skipped += int(number)
            else:
                tally.failed += int(number)
        return tally

    return count


def count_tap(lines: Iterable[str]) -> Tally:
    """Read TAP lines; a line that names a property counts as a property test."""
    tally = Tally()
    for line in lines:
        if re.match(r"\s*ok \d+.*# SKIP", line):
            tally.skipped += 1
        elif re.match(r"\s*ok \d+", line):
            tally.passed["property" if "propert" in line.lower() else "unit"] += 1
        elif re.match(r"\s*not ok \d+", line):
            tally.failed += 1
    return tally


def count_cargo(lines: Iterable[str]) -> Tally:
    """Read cargo test; a test named ``prop_…`` is a property test.

    Where tests run one at a time, words of the tested program stand between name and outcome.
    """
    tally, name = Tally(), None
    for line in lines:
        begun = re.match(r"test (\S+).* \.\.\. ?(.*)", line)
        if begun:
            name = begun[1]
        outcome = begun[2] if begun else line
        if name is None or not re.match(r"(ok|FAILED|ignored)\b", outcome):
            continue
        if outcome.startswith("ok"):
            tally.passed["property" if "prop_" in name else "unit"] += 1
        elif outcome.startswith("FAILED"):
            tally.failed += 1
        else:
            tally.skipped += 1
        name = None
    return tally


def count_closing_line(kind: str) -> Reader:
    """Read a last line of the form ``N passed, N failed``, or with ``, N skipped``."""

    def count(lines: Iterable[str]) -> Tally:
        match = None
        for line in lines:
            found = re.match(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", line)
            match = found or match
        if not match:
            return Tally()
        return Tally(Counter({kind: int(match[1])}), int(match[2]), int(match[3] or 0))

    return count


def failures(name: str, lines: list[str]) -> list[str]:
    """The last lines of suite ``name`` about its failures, or its end."""
    telling = [line for line in lines if FAILURE.match(line)] or lines[-FAILURES_TOLD:]
    return [f"{name}: {line}" for line in telling[-FAILURES_TOLD:]]


def durations(name: str, lines: Iterable[str]) -> list[tuple[float, str]]:
    """Seconds and name of each test of suite ``name`` whose duration its output tells."""
    found = []
    for match in filter(None, map(DURATION.match, lines)):
        if match["program"]:
            found.append((float(match["seconds"]), f"{name}: {match['program']}"))
        else:
            phase = "" if match["phase"] == "call" else f" ({match['phase']})"
            found.append((float(match["pytest"]), match["test"] + phase))
    return found


def last(lines: list[str]) -> str:
    return lines[-1] if lines else ""
