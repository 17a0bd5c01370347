# SPDX-License-Identifier: GPL-2.0-or-later
"""How the results of QEMU's own tests are read and compared."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

TOP = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location(
    "stock_tests", TOP / "qemu-patches" / "scripts" / "stock_tests.py"
)
stock_tests = importlib.util.module_from_spec(SPEC)
sys.modules["stock_tests"] = stock_tests
SPEC.loader.exec_module(stock_tests)

PASSED, SKIPPED, FAILED = stock_tests.PASSED, stock_tests.SKIPPED, stock_tests.FAILED
ABSENT, END = stock_tests.ABSENT, stock_tests.END
STATES = st.sampled_from([PASSED, SKIPPED, FAILED])
CASES = st.dictionaries(st.sampled_from(["a", "b", "c", END]), STATES)


def test_qtests_and_iotests_print_cases():
    qtest = "# random seed\n1..3\nok 1 /x/one\nok 2 /x/two # SKIP no KVM\nnot ok 3 /x/three\n"
    assert stock_tests.cases_of(qtest, 0) == {
        "/x/one": PASSED,
        "/x/two": SKIPPED,
        "/x/three": FAILED,
        END: PASSED,
    }
    iotests = "# running raw 051\nok raw 051\nok raw 172 # SKIP not suitable for raw\n"
    assert stock_tests.cases_of(iotests, 0) == {
        "raw 051": PASSED,
        "raw 172": SKIPPED,
        END: PASSED,
    }


@pytest.mark.parametrize(("tap", "status"), [("ok 1 x\n", 1), ("ok 1 x\n", None), ("", 0)])
def test_a_bad_end_and_no_case_at_all_are_failures(tap: str, status: int | None):
    assert stock_tests.cases_of(tap, status)[END] == FAILED


def test_a_program_that_says_it_has_no_cases_is_skipped():
    assert stock_tests.cases_of("# random seed\n1..0\n", 0) == {END: SKIPPED}
    assert stock_tests.cases_of("1..0\n", 1) == {END: FAILED}


def test_of_two_cases_with_one_name_the_worse_counts():
    assert stock_tests.cases_of("not ok 1 x\nok 2 x\n", 0)["x"] == FAILED
    assert stock_tests.cases_of("ok 1 x\nnot ok 2 x\n", 0)["x"] == FAILED


@given(CASES, CASES)
def test_worse_is_what_passed_without_the_series_and_did_not_with_it(stock, patched):
    found = stock_tests.differences("t", stock, patched)
    worse = {one.case for one in found if one.is_worse}
    assert worse == {c for c, s in stock.items() if s == PASSED and patched.get(c) != PASSED}
    passed, failed = stock_tests.counts({"t": stock}, [one for one in found if one.is_worse])
    assert failed == len(worse)
    assert passed == sum(patched.get(c) == s == PASSED for c, s in stock.items())


def listed(name: str, suite: str = "qemu:block") -> dict:
    return {
        "name": name,
        "suite": [suite],
        "cmd": ["run", name],
        "env": {},
        "depends": [],
        "timeout": 10,
    }


def program(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def build(folder: Path, text: str) -> Path:
    """A build tree with one qtest, a shell script, and nothing that must be built."""
    (folder / "build" / "meson-info").mkdir(parents=True)
    (folder / "tests" / "qemu-iotests" / "tests").mkdir(parents=True)
    made = folder / "build" / "made"
    (folder / "build" / "build.ninja").write_text(
        f"rule touch\n command = touch $out\nbuild made: touch\nbuild {made}: phony made\n"
    )
    one = listed("qtest-x86_64/x-test", "qemu:qtest-x86_64")
    one |= {"cmd": [str(program(folder, text))], "depends": ["made@exe"]}
    targets = [{"id": "made@exe", "filename": [str(made)]}]
    for name, content in (("tests", [one]), ("targets", targets)):
        path = folder / "build" / "meson-info" / f"intro-{name}.json"
        path.write_text(json.dumps(content))
    return folder / "build"


@pytest.mark.parametrize(
    ("patched", "last", "status"),
    [
        ("echo ok 1 a; echo ok 2 b", "3 passed, 0 failed", 0),
        ("echo ok 1 a; echo not ok 2 b; exit 1", "1 passed, 2 failed", 1),
        ("echo ok 1 a; kill -9 $$", "1 passed, 2 failed", 1),
    ],
)
def test_two_builds_are_compared(tmp_path: Path, capfd, patched: str, last: str, status: int):
    stock = build(tmp_path / "stock", "echo ok 1 a; echo ok 2 b")
    other = build(tmp_path / "patched", patched)
    output = ["--output", str(tmp_path / "out")]
    assert stock_tests.main([str(stock), str(other), *output]) == status
    assert capfd.readouterr().out.splitlines()[-1] == last
    assert (tmp_path / "out" / "stock" / "qtest-x86_64-x-test.log").read_text() == (
        "ok 1 a\nok 2 b\n"
    )


def test_nothing_compared_is_no_success(tmp_path: Path, capfd):
    stock = build(tmp_path / "stock", "echo ok 1 a")
    arguments = [str(stock), str(stock), "--only", "nothing", "--output", str(tmp_path / "out")]
    assert stock_tests.main(arguments) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 0 failed"


def test_short_leaves_out_what_takes_long_or_touches_no_device(tmp_path: Path):
    folder = build(tmp_path, "echo ok 1 a")
    for name, text in (("040", "add_drive(x)\ndevice_del"), ("041", "add_drive(x)")):
        (tmp_path / "tests" / "qemu-iotests" / name).write_text(text)
    every = [
        listed("qtest-x86_64/quick-test", "qemu:qtest-x86_64"),
        listed("qtest-x86_64/slow-test", "qemu:qtest-x86_64") | {"timeout": 900},
        listed("io-raw-040") | {"timeout": 180},
        listed("io-raw-041") | {"timeout": 180},
    ]
    (folder / "meson-info" / "intro-tests.json").write_text(json.dumps(every))
    wanted = re.compile(".*")

    def names(short: bool) -> list[str]:
        found = stock_tests.Build(folder, tmp_path / "out", ()).tests(wanted, short)
        return [test.name for test in found]

    assert names(short=True) == ["qtest-x86_64/quick-test", "io-raw-040", "io-qcow2-040"]
    assert names(short=False) == [
        *(one["name"] for one in every),
        "io-qcow2-040",
        "io-qcow2-041",
    ]
