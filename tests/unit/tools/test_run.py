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

FOLDER = Path(__file__).resolve().parents[3] / "tools" / "test"
sys.path.append(str(FOLDER))
SPEC = importlib.util.spec_from_file_location("test_runner", FOLDER / "run.py")
runner = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = runner  # its dataclasses look themselves up there
SPEC.loader.exec_module(runner)
tally = importlib.import_module("tally")

SUITE = runner.Suite("some", ("fuzz",), [], tally.count_closing_line("fuzz"), 1)


def test_outcomes_of_cargo_are_counted_also_behind_words_of_the_tested_program():
    lines = [
        "test quick ... ok",
        "test prop_sums_are_exact ... info: no channel",
        "ok",
        "test should_panic - should panic ... FAILED",
        "test slow ... ignored, takes an hour",
        "test loud ... ",
        "okay is no outcome",
        "FAILED",
        "ok",
        "test result: FAILED. 2 passed; 2 failed; 1 ignored",
    ]
    found = tally.count_cargo(lines)
    assert found.passed == {"unit": 1, "property": 1}
    assert (found.failed, found.skipped) == (2, 1)


@pytest.mark.parametrize(
    ("line", "passed", "failed", "skipped"),
    [
        ("6 passed, 0 failed", 6, 0, 0),
        ("5 passed, 1 failed", 5, 1, 0),
        ("0 passed, 0 failed, 6 skipped", 0, 0, 6),
    ],
)
def test_closing_line(line: str, passed: int, failed: int, skipped: int):
    read = SUITE.count(["ok   engine: Done 5 runs", line])
    assert (read.passed["fuzz"], read.failed, read.skipped) == (passed, failed, skipped)


def test_without_closing_line_nothing_ran():
    read = SUITE.count(["ok   engine: Done 5 runs"])
    assert not read.passed["fuzz"]
    assert not runner.is_sound(SUITE, read, 0)


def test_skipped_suite_is_sound_only_where_it_may_be():
    read = SUITE.count(["0 passed, 0 failed, 6 skipped"])
    assert not runner.is_sound(SUITE, read, 0)
    may_skip = dataclasses.replace(SUITE, may_skip=True)
    assert runner.is_sound(may_skip, read, 0)
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
    assert tally.failures("some", log) == [f"some: {line}"]


def test_suite_that_names_no_failure_shows_how_it_ended():
    assert tally.failures("some", ["begun", "killed"]) == ["some: begun", "some: killed"]


def test_each_suite_has_a_kind_that_can_be_asked_for():
    for suite in runner.suites():
        assert set(suite.kinds) <= set(runner.KINDS)


def suite(name: str, **options):
    return dataclasses.replace(SUITE, name=name, **options)


def test_suites_run_beside_each_other_as_long_as_processors_are_left():
    first, second, alone = suite("first"), suite("second"), suite("alone", processors=2)
    waits = suite("waits", processors=0.5)
    begin = runner.next_suite
    assert begin([first, second], [], 2) is first
    assert begin([second], [first], 2) is second
    assert begin([second], [first], 1) is None
    assert begin([alone, second], [first], 2) is second
    assert begin([second, waits], [first, waits], 2) is waits
    assert begin([waits], [first, second], 2) is None
    assert begin([second], [alone], 2) is None
    assert begin([alone], [], 1) is alone
    assert begin([alone], [], 2) is alone


def test_what_is_run_is_one_list_or_what_was_named():
    short, long = suite("short"), suite("long", long=True)
    both = [short, long]
    assert runner.choose(both, [], False) == [short]
    assert runner.choose(both, [], True) == [long]
    assert runner.choose(both, ["fuzz"], False) == [short]
    assert runner.choose(both, ["unit"], False) == []
    assert runner.choose(both, ["long"], False) == [long]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stress"], "stress: in no suite of make test; give make test-long"),
        (["unit", "stress"], "stress: in no suite of make test; give make test-long"),
        (["--long", "unit"], "unit: in no suite of make test-long; give make test"),
    ],
)
def test_a_kind_that_the_list_has_not_is_an_error_and_no_success(
    arguments, words, monkeypatch, capsys
):
    monkeypatch.setattr(runner, "run_all", lambda *_: pytest.fail("something is run"))
    monkeypatch.setattr(runner.sys, "argv", ["run.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "duration"),
    [
        ("12.50s setup    tests/e2e/test_a.py::test_b[1-x y]", (12.5, "setup")),
        ("0.61s call     tests/e2e/test_a.py::test_b", (0.61, "test_b")),
        ("sluice-blk-test    12 passed, 0 failed, 0 skipped, 13 s", (13.0, "sluice-blk-test")),
        ("12 passed in 3.1s", None),
    ],
)
def test_durations_are_read(line: str, duration: tuple | None):
    found = tally.durations("some", [line])
    assert len(found) == (duration is not None)
    for seconds, name in found:
        assert seconds == duration[0] and duration[1] in name


def test_a_failure_beside_a_suite_that_passes_fails_the_run(tmp_path, monkeypatch, capsys):
    """Both run; the tally has both, and what failed is told last but for the sums."""
    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.01)
    good = suite("good", command=["echo", "6 passed, 0 failed"], budget_seconds=60)
    bad = suite("bad", command=["echo", "FAIL x\n2 passed, 1 failed"], budget_seconds=60)
    assert runner.print_sums(runner.run_all([good, bad], 2), 1.0) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["bad: FAIL x", "8 passed, 1 failed"]


def test_a_suite_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "LOGS", tmp_path)
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.01)
    hangs = suite("hangs", command=["sleep", "600"], budget_seconds=0)
    assert runner.print_sums(runner.run_all([hangs], 2), 1.0) == 1


# One suite that never ends; its own child is deaf to the first signal. The suite itself
# ends at it, or, with two waits, has a minute to end.
ENDLESS = """\
import pathlib, sys
sys.path.insert(0, {folder!r})
import run, tally
run.LOGS = pathlib.Path({logs!r})
command = ["bash", "-c", "trap 'echo told' TERM; (trap '' TERM; exec sleep {seconds}) & {waits}"]
run.suites = lambda: [run.Suite("endless", ("unit",), command, tally.count_tap, 600)]
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
        time.sleep(0.02)
    return condition()


@contextlib.contextmanager
def endless(folder: Path, unique: str, waits: str):
    """A run of that suite, which is on its way, and the seconds that its child sleeps."""
    seconds = f"{80000 + os.getpid() % 5000}.{unique}"
    script = ENDLESS.format(folder=str(FOLDER), logs=str(folder), seconds=seconds, waits=waits)
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
        assert process.wait(60) != 0
        assert until(lambda: not sleeps(seconds))


@INTERRUPTIONS
def test_a_second_interruption_takes_the_minute_away_and_leaves_nothing(tmp_path, number):
    """It is for whoever does not want to wait, not for leaving what runs behind."""
    with endless(tmp_path, f"2{number:d}", "wait; wait") as (process, seconds):
        process.send_signal(number)
        assert until(lambda: "told" in (tmp_path / "test-endless.log").read_text())
        assert process.poll() is None and sleeps(seconds)
        process.send_signal(number)
        assert process.wait(60) != 0
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
            runner.end([process])
        assert process.poll() == -signal.SIGKILL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
