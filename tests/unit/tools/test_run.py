# SPDX-License-Identifier: GPL-2.0-or-later
"""How the test runner counts, and when it calls a suite sound."""

import contextlib
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("test_runner", TOP / "tools" / "test" / "run.py")
runner = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = runner  # its dataclasses look themselves up there
SPEC.loader.exec_module(runner)

SUITE = runner.Suite("some", ("fuzz",), [], runner.count_closing_line("fuzz"), 1)


@pytest.mark.parametrize(
    ("line", "passed", "failed", "skipped"),
    [
        ("6 passed, 0 failed", 6, 0, 0),
        ("5 passed, 1 failed", 5, 1, 0),
        ("0 passed, 0 failed, 6 skipped", 0, 0, 6),
    ],
)
def test_closing_line(line: str, passed: int, failed: int, skipped: int):
    tally = SUITE.count(["ok   engine: Done 5 runs", line])
    assert (tally.passed["fuzz"], tally.failed, tally.skipped) == (passed, failed, skipped)


def test_without_closing_line_nothing_ran():
    tally = SUITE.count(["ok   engine: Done 5 runs"])
    assert not tally.passed["fuzz"]
    assert not runner.is_sound(SUITE, tally, 0)


def test_skipped_suite_is_sound_only_where_it_may_be():
    tally = SUITE.count(["0 passed, 0 failed, 6 skipped"])
    assert not runner.is_sound(SUITE, tally, 0)
    may_skip = dataclasses.replace(SUITE, may_skip=True)
    assert runner.is_sound(may_skip, tally, 0)
    assert not runner.is_sound(may_skip, SUITE.count([]), 0)


@pytest.mark.parametrize(("line", "status"), [("6 passed, 0 failed", 1), ("5 passed, 1 failed", 0)])
def test_failure_is_not_sound(line: str, status: int):
    assert runner.is_sound(SUITE, SUITE.count(["6 passed, 0 failed"]), 0)
    assert not runner.is_sound(SUITE, SUITE.count([line]), status)


@pytest.mark.parametrize(
    "line",
    [
        "FAILED tests/unit/test_a.py::test_b - AssertionError: 1 is not 2",
        "ERROR tests/unit/test_a.py::test_b - OSError",
        "E       AssertionError: 1 is not 2",
        "    not ok 3 /net/ring",
        "test class::names ... FAILED",
        "FAIL frame: exit status 77; the end of its output:",
        "sluice-net-ring-test          18 passed, 1 failed, 0 skipped",
    ],
)
def test_failure_is_named_at_the_end(line: str):
    log = ["ok 1 /net/other", line, "test class::rest ... ok", "a 3 passed, 0 failed, 0 skipped"]
    assert runner.failures("some", log) == [f"some: {line}"]


def test_suite_that_names_no_failure_shows_how_it_ended():
    assert runner.failures("some", ["begun", "killed"]) == ["some: begun", "some: killed"]


def test_each_suite_has_a_kind_that_can_be_asked_for():
    for suite in runner.suites():
        assert set(suite.kinds) <= set(runner.KINDS)


# One suite that never ends; its own child is deaf to the first signal. The suite itself
# ends at it, or, with two waits, has a minute to end.
ENDLESS = """\
import pathlib, sys
sys.path.insert(0, {folder!r})
import run
run.LOGS = pathlib.Path({logs!r})
command = ["bash", "-c", "trap 'echo told' TERM; (trap '' TERM; exec sleep {seconds}) & {waits}"]
run.suites = lambda: [run.Suite("endless", ("unit",), command, run.count_tap, 600)]
sys.argv = ["run.py"]
sys.exit(run.main())
"""


def sleeps(seconds: str) -> list[int]:
    """Processes ``sleep SECONDS``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(int(entry.parent.name))
    return found


def until(condition) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.2)
    return condition()


@contextlib.contextmanager
def endless(folder: Path, unique: str, waits: str):
    """A run of that suite, which is on its way, and the seconds that its child sleeps."""
    seconds = f"{80000 + os.getpid() % 5000}.{unique}"
    script = ENDLESS.format(
        folder=str(TOP / "tools" / "test"), logs=str(folder), seconds=seconds, waits=waits
    )
    # What is ignored here, as in a shell's background job, the child would ignore too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    signal.signal(signal.SIGINT, before)
    try:
        assert until(lambda: sleeps(seconds))
        yield process, seconds
    finally:
        process.kill()
        process.wait()
        for pid in sleeps(seconds):
            os.kill(pid, signal.SIGKILL)


INTERRUPTIONS = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"]
)


@INTERRUPTIONS
def test_an_interrupted_run_ends_its_suite_with_all_that_it_started(tmp_path, number):
    """Guests and builds would go on beside whatever is run next."""
    with endless(tmp_path, f"{number:d}", "wait") as (process, seconds):
        process.send_signal(number)
        assert process.wait(20) != 0
        assert until(lambda: not sleeps(seconds))


@INTERRUPTIONS
def test_a_second_interruption_takes_the_minute_away_and_leaves_nothing(tmp_path, number):
    """It is for whoever does not want to wait, not for leaving what runs behind."""
    with endless(tmp_path, f"2{number:d}", "wait; wait") as (process, seconds):
        process.send_signal(number)
        assert until(lambda: "told" in (tmp_path / "test-endless.log").read_text())
        assert process.poll() is None and sleeps(seconds)
        process.send_signal(number)
        assert process.wait(20) != 0
        assert until(lambda: not sleeps(seconds))


def test_an_interruption_while_a_suite_that_hangs_is_ended_ends_the_run():
    """Else the run would go on with the next suite."""
    command = "trap 'kill -INT $PPID' TERM; (trap '' TERM; echo; exec sleep 60) & wait; wait"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        ["bash", "-c", command], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        process.stdout.readline()
        with pytest.raises(KeyboardInterrupt):
            runner._end(process)
        assert process.poll() == -signal.SIGKILL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
