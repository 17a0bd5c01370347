# SPDX-License-Identifier: GPL-2.0-or-later
"""Run Sluice's test suites, several at a time, and print how many tests of each kind ran.

Every suite is a command with its own runner (``suites.py``). Its output goes to
build/logs/test-NAME.log; from it the tests are counted by kind. A suite that exits with an
error, or in which no test ran, fails the whole run, unless ``may_skip`` permits a skip as a
whole. Failures are named once more at the end, because the end of a long output is always kept.
"""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from suites import KINDS, TOP, Suite, suites
from tally import Tally, durations, failures, last

LOGS = TOP / "build" / "logs"
PROCESSORS = 2
PROGRESS_SECONDS = 30.0
POLL_SECONDS = 0.2
ENDING_SECONDS = 60.0
SLOWEST_TOLD = 10
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)


def is_sound(suite: Suite, tally: Tally, status: int) -> bool:
    """Whether the suite ended well and something ran, or had a reason not to."""
    ran = sum(tally.passed.values()) > 0 or (suite.may_skip and tally.skipped > 0)
    return status == 0 and not tally.failed and ran


def next_suite(waiting: list[Suite], running: list[Suite], processors: int) -> Suite | None:
    """The first waiting suite with room beside the running ones."""
    room = processors - sum(suite.processors for suite in running)
    return next((suite for suite in waiting if suite.processors <= room or not running), None)


@dataclass
class Run:
    """A suite that runs: its process, when it began, and when it last told of itself."""

    suite: Suite
    process: subprocess.Popen
    log: Path
    started: float
    told: float

    @classmethod
    def begin(cls, suite: Suite, jobs: int) -> "Run":
        """Start a suite, which may run so many of its programs at a time."""
        log = LOGS / f"test-{suite.name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                suite.command,
                cwd=suite.folder,
                env={**os.environ, "SLUICE_TEST_JOBS": str(jobs), **suite.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # A session of its own, so that all that it starts can be ended with it.
                start_new_session=True,
            )
        now = time.monotonic()
        print(f"{suite.name:<18} started", flush=True)
        return cls(suite, process, log, now, now)

    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def tell_progress(self) -> None:
        """Say every half minute that the suite lives."""
        now = time.monotonic()
        if now - self.told >= PROGRESS_SECONDS:
            self.told = now
            recent = last(self.lines()[-1:])[:60]
            print(f"{self.suite.name:<18} {now - self.started:4.0f} s  {recent}", flush=True)

    def is_late(self) -> bool:
        return time.monotonic() - self.started > self.suite.budget_seconds


@dataclass
class Outcome:
    """The outcome of a suite: its tally, and the tests whose durations it told."""

    tally: Tally
    durations: list[tuple[float, str]]


def conclude(run: Run, status: int, processor_seconds: float) -> Outcome:
    """Print a suite's verdict; failures are counted and named."""
    suite, lines = run.suite, run.lines()
    tally = suite.count(lines)
    sound = is_sound(suite, tally, status)
    counts = ", ".join(f"{tally.passed[kind]} {kind}" for kind in suite.kinds)
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    verdict = "ok" if sound else f"FAILED (exit {status}, {tally.failed} failed)"
    took = f"{time.monotonic() - run.started:.0f} s (processor {processor_seconds:.0f} s)"
    print(f"{suite.name:<18} {verdict}: {counts}{skipped}, {took}")
    for line in lines:
        if line.startswith("SKIPPED"):
            print(f"  {line}")
    if not sound:
        print(f"  the end of {run.log.relative_to(TOP) if TOP in run.log.parents else run.log}:")
        print("\n".join(f"  {line}" for line in lines[-60:]))
        tally.failed = max(tally.failed, 1)
        tally.failures = failures(suite.name, lines)
    sys.stdout.flush()
    return Outcome(tally, durations(suite.name, lines))


def run_all(chosen: list[Suite], processors: int) -> list[Outcome]:
    """Run the suites, as many at a time as keep the processors busy; in order of ending."""
    waiting, running, outcomes = list(chosen), [], []
    try:
        while waiting or running:
            while suite := next_suite(waiting, [run.suite for run in running], processors):
                waiting.remove(suite)
                jobs = processors if suite.processors > 1 or len(chosen) == 1 else 1
                running.append(Run.begin(suite, jobs))
            time.sleep(POLL_SECONDS)
            for run in list(running):
                before = _processor_seconds()
                if run.process.poll() is None and run.is_late():
                    end([run.process])
                    run.process.returncode = 124
                if run.process.poll() is None:
                    run.tell_progress()
                    continue
                running.remove(run)
                used = _processor_seconds() - before
                outcomes.append(conclude(run, run.process.returncode, used))
    except BaseException:
        # In sessions of their own, they do not hear of Ctrl-C.
        end([run.process for run in running])
        raise
    return outcomes


def _processor_seconds() -> float:
    """Of all children that ended and were waited for, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end(processes: list[subprocess.Popen]) -> None:
    """End suites with all that they started; cleaning up has a minute.

    An interruption meanwhile ends the minute, but nothing is left behind, and the interruption
    takes effect afterwards.
    """
    heard: list[int] = []

    def at_once(number: int, _frame: object) -> None:
        heard.append(number)
        _signal(processes, signal.SIGKILL)

    before = {number: signal.signal(number, at_once) for number in INTERRUPTIONS}
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(processes, number)
            deadline = time.monotonic() + ENDING_SECONDS
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=max(0.0, deadline - time.monotonic()))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])


def _signal(processes: list[subprocess.Popen], number: int) -> None:
    """Signal suites with all that they started; each suite is a process group."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def choose(every: list[Suite], only: list[str], long: bool) -> list[Suite]:
    """The suites of one list, or those of it that hold a kind; a suite's name is enough."""
    return [
        suite
        for suite in every
        if suite.name in only or (suite.long == long and (not only or set(suite.kinds) & set(only)))
    ]


def print_sums(outcomes: list[Outcome], seconds: float) -> int:
    """Print slow tests, the counts of each kind and the failures; return the number of
    failures."""
    total = Tally()
    for outcome in outcomes:
        total.add(outcome.tally)
    slowest = sorted(one for outcome in outcomes for one in outcome.durations)[-SLOWEST_TOLD:]
    print(*(f"  {taken:6.1f} s  {test}" for taken, test in reversed(slowest)), sep="\n")
    print(f"  {seconds:6.0f} s  in all (processor {_processor_seconds():.0f} s)")
    for kind in KINDS:
        print(f"{kind:<12} {total.passed[kind]:5d}")
    if total.skipped:
        print(f"{'skipped':<12} {total.skipped:5d}")
    print(*total.failures, sep="\n", end="\n" if total.failures else "")
    print(f"{sum(total.passed.values())} passed, {total.failed} failed")
    return total.failed


def main() -> int:
    every = suites()
    names = [suite.name for suite in every]
    parser = argparse.ArgumentParser(
        description="Run the test suites and count their tests by kind.",
        epilog="examples: run.sh            what make test runs\n"
        "          run.sh --long     what make test-long runs\n"
        "          run.sh unit       the suites of make test that hold unit tests\n"
        "          run.sh qtest e2e  two of them",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--long", action="store_true", help="the suites that take long")
    parser.add_argument(
        "only", nargs="*", metavar="NAME", help=f"a kind ({', '.join(KINDS)}) or a suite"
    )
    asked = parser.parse_args()
    unknown = [name for name in asked.only if name not in KINDS and name not in names]
    if unknown:
        parser.error(f"{unknown[0]}: no such kind or suite; one of {', '.join([*KINDS, *names])}")
    here, there = ("make test-long", "make test") if asked.long else ("make test", "make test-long")
    for name in asked.only:
        if not choose(every, [name], asked.long):
            parser.error(f"{name}: in no suite of {here}; give {there} ONLY={name}")
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    processors = min(PROCESSORS, len(os.sched_getaffinity(0)))
    outcomes = run_all(choose(every, asked.only, asked.long), processors)
    return 1 if print_sums(outcomes, time.monotonic() - started) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
