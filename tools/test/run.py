# SPDX-License-Identifier: GPL-2.0-or-later
"""Run Sluice's test suites and print how many tests of each kind ran.

Every suite is a command with its own runner. Its output goes to
build/logs/test-NAME.log; from it the tests are counted by kind. A suite that
exits with an error, or in which no test ran, fails the whole run; one that may
be skipped as a whole says so by ``may_skip``. What failed is named once more at
the end, because that is the part of a long output that is always kept.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LOGS = TOP / "build" / "logs"
KINDS = ("unit", "property", "fuzz", "qtest", "integration", "e2e")
# How pytest, TAP, cargo and our own scripts name what failed, and pytest says why.
FAILURE = re.compile(
    r"(FAILED|FAIL|ERROR|E  ) *\S|\s*not ok \d|test \S.* \.\.\. FAILED"
    r"|\S+ +\d+ passed, [1-9]\d* failed"
)
FAILURES_TOLD = 12
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)
PYTEST = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider"]


@dataclass
class Tally:
    """Tests of one suite: passed by kind, how many failed or were skipped, and
    lines that tell what failed."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Suite:
    """A command and the reader that counts its tests.

    ``budget_seconds`` ends a suite that hangs; it is several times what the
    suite takes on two cores.
    """

    name: str
    kinds: tuple[str, ...]
    command: list[str]
    count: Callable[[Iterable[str]], Tally]
    budget_seconds: int
    folder: Path = TOP
    may_skip: bool = False


def count_pytest(kind: str) -> Callable[[Iterable[str]], Tally]:
    """Read pytest's closing line, for example ``12 passed, 1 failed in 3.1s``."""

    def count(lines: Iterable[str]) -> Tally:
        tally = Tally()
        closing = [line for line in lines if re.search(r"\b(passed|failed|error)", line)]
        for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", _last(closing)):
            if word == "passed":
                tally.passed[kind] += int(number)
            elif word == "skipped":
                tally.skipped += int(number)
            else:
                tally.failed += int(number)
        return tally

    return count


def count_tap(lines: Iterable[str]) -> Tally:
    """Read TAP lines; those that name a property count as property tests."""
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
    """Read cargo test; a test named ``prop_…`` is a property test."""
    tally = Tally()
    for line in lines:
        match = re.match(r"test (\S+).* \.\.\. (ok|FAILED|ignored)", line)
        if not match:
            continue
        name, outcome = match.groups()
        if outcome == "ok":
            tally.passed["property" if "prop_" in name else "unit"] += 1
        elif outcome == "FAILED":
            tally.failed += 1
        else:
            tally.skipped += 1
    return tally


def count_closing_line(kind: str) -> Callable[[Iterable[str]], Tally]:
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


def is_sound(suite: Suite, tally: Tally, status: int) -> bool:
    """Whether the suite ended well and something ran, or had a reason not to."""
    ran = sum(tally.passed.values()) > 0 or (suite.may_skip and tally.skipped > 0)
    return status == 0 and not tally.failed and ran


def failures(name: str, lines: list[str]) -> list[str]:
    """The last lines of suite ``name`` that tell what failed, or how it ended."""
    telling = [line for line in lines if FAILURE.match(line)] or lines[-FAILURES_TOLD:]
    return [f"{name}: {line}" for line in telling[-FAILURES_TOLD:]]


def _last(lines: list[str]) -> str:
    return lines[-1] if lines else ""


def suites() -> list[Suite]:
    """All suites, cheapest first."""
    patches = TOP / "qemu-patches"
    return [
        Suite(
            "engine",
            ("unit", "property"),
            ["bash", str(patches / "tests" / "run.sh")],
            count_tap,
            600,
        ),
        Suite(
            "agent",
            ("unit", "property"),
            ["bash", str(TOP / "tools" / "setup" / "agent.sh"), "test"],
            count_cargo,
            900,
        ),
        Suite(
            "python-unit",
            ("unit",),
            [*PYTEST, "-m", "not hypothesis", "tests/unit"],
            count_pytest("unit"),
            600,
        ),
        Suite(
            "python-property",
            ("property",),
            [*PYTEST, "-m", "hypothesis", "tests/unit"],
            count_pytest("property"),
            600,
        ),
        # Seven of half a minute, two at a time; clang may lack the library for them.
        Suite(
            "fuzz",
            ("fuzz",),
            ["bash", str(patches / "scripts" / "fuzz.sh")],
            count_closing_line("fuzz"),
            900,
            may_skip=True,
        ),
        Suite(
            "qtest",
            ("qtest",),
            ["bash", str(patches / "scripts" / "qtest.sh")],
            count_closing_line("qtest"),
            1200,
        ),
        # A quarter of an hour where nothing else runs.
        Suite(
            "integration",
            ("integration",),
            [*PYTEST, "--ignore=tests/integration/packaging", "tests/integration"],
            count_pytest("integration"),
            2400,
        ),
        # It builds the packages first; with an empty cache that takes longest.
        Suite(
            "packaging",
            ("integration",),
            [*PYTEST, "tests/integration/packaging"],
            count_pytest("integration"),
            2400,
        ),
        Suite("e2e", ("e2e",), [*PYTEST, "tests/e2e"], count_pytest("e2e"), 1500),
    ]


def run(suite: Suite) -> tuple[Tally, bool]:
    """Run one suite; show its progress; return its tally and whether it is sound."""
    log = LOGS / f"test-{suite.name}.log"
    started = time.monotonic()
    print(f"{suite.name:<18} started", flush=True)
    with log.open("w") as output:
        process = subprocess.Popen(
            suite.command,
            cwd=suite.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = _wait(process, suite, started, log)
        except BaseException:
            # In a session of its own, it does not hear of Ctrl-C.
            _end(process)
            raise
    lines = log.read_text(errors="replace").splitlines()
    tally = suite.count(lines)
    sound = is_sound(suite, tally, status)
    counts = ", ".join(f"{tally.passed[kind]} {kind}" for kind in suite.kinds)
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    verdict = "ok" if sound else f"FAILED (exit {status}, {tally.failed} failed)"
    print(f"{suite.name:<18} {verdict}: {counts}{skipped}, {time.monotonic() - started:.0f} s")
    for line in lines:
        if line.startswith("SKIPPED"):
            print(f"  {line}")
    if not sound:
        print(f"  the end of {log.relative_to(TOP)}:")
        print("\n".join(f"  {line}" for line in lines[-60:]), flush=True)
        tally.failed = max(tally.failed, 1)
        tally.failures = failures(suite.name, lines)
    return tally, sound


def _wait(process: subprocess.Popen, suite: Suite, started: float, log: Path) -> int:
    """Wait for the suite, saying every half minute that it lives; end one that hangs."""
    while True:
        try:
            return process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - started
            recent = _last(log.read_text(errors="replace").splitlines()[-1:])[:60]
            print(f"{suite.name:<18} {elapsed:4.0f} s  {recent}", flush=True)
            if elapsed > suite.budget_seconds:
                _end(process)
                return 124


def _end(process: subprocess.Popen) -> None:
    """End a suite with all that it started; what cleans up has a minute for it.

    Whoever interrupts that does not want to wait: the minute is over then, but nothing
    is left behind, and the interruption is heard afterwards.
    """
    heard: list[int] = []

    def at_once(number: int, _frame: object) -> None:
        heard.append(number)
        _signal(process, signal.SIGKILL)

    before = {number: signal.signal(number, at_once) for number in INTERRUPTIONS}
    try:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        _signal(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])


def _signal(process: subprocess.Popen, number: int) -> None:
    """To a suite and what it started, which are one process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def main() -> int:
    every = suites()
    names = [suite.name for suite in every]
    parser = argparse.ArgumentParser(
        description="Run the test suites and count their tests by kind.",
        epilog="examples: run.sh            everything\n"
        "          run.sh unit       the suites that hold unit tests\n"
        "          run.sh qtest e2e  two of them",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "only", nargs="*", metavar="NAME", help=f"a kind ({', '.join(KINDS)}) or a suite"
    )
    only = parser.parse_args().only
    unknown = [name for name in only if name not in KINDS and name not in names]
    if unknown:
        parser.error(f"{unknown[0]}: no such kind or suite; one of {', '.join([*KINDS, *names])}")
    chosen = [s for s in every if not only or s.name in only or set(s.kinds) & set(only)]
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    total = Tally()
    for suite in chosen:
        tally, _ = run(suite)
        total.passed += tally.passed
        total.failed += tally.failed
        total.skipped += tally.skipped
        total.failures += tally.failures
    print()
    for kind in KINDS:
        print(f"{kind:<12} {total.passed[kind]:5d}")
    if total.skipped:
        print(f"{'skipped':<12} {total.skipped:5d}")
    print(*total.failures, sep="\n", end="\n" if total.failures else "")
    print(f"{sum(total.passed.values())} passed, {total.failed} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
