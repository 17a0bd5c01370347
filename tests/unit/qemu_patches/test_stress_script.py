# SPDX-License-Identifier: GPL-2.0-or-later
"""What counts as passed in stress.sh: a test that ran, of a program that has some."""

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SCRIPT = TOP / "qemu-patches" / "scripts" / "stress.sh"
PROGRAMS = (
    "sluice-blk-lifecycle-test",
    "sluice-blk-range-test",
    "sluice-net-lifecycle-test",
    "sluice-packed-test",
)


def lifecycle(build: Path, listing: str, running: str) -> tuple[int, str]:
    """Exit status and last line, where all test programs do the same."""
    (build / "tests" / "qtest").mkdir(parents=True)
    for name in PROGRAMS:
        program = build / "tests" / "qtest" / name
        program.write_text(f'#!/bin/sh\nif [ "$1" = -l ]; then {listing}; else {running}; fi\n')
        program.chmod(0o755)
    ran = subprocess.run(
        ["bash", SCRIPT, "lifecycle", build, "1"], capture_output=True, text=True, timeout=60
    )
    return ran.returncode, ran.stdout.splitlines()[-1]


def test_tests_that_pass_are_counted(tmp_path: Path):
    assert lifecycle(tmp_path, "echo /a/b", "echo ok 1 /a/b") == (
        0,
        f"{len(PROGRAMS)} passed, 0 failed",
    )


@pytest.mark.parametrize(
    ("listing", "running"),
    [
        pytest.param("true", "echo ok 1 /a/b", id="no test is listed"),
        pytest.param("echo /a/b; exit 1", "echo ok 1 /a/b", id="listing fails"),
        pytest.param("echo /a/b", "echo 'ok 1 /a/b # SKIP no'", id="the test skips itself"),
        pytest.param("echo /a/b", "true", id="the test prints nothing"),
        pytest.param("echo /a/b", "echo ok 1 /a/b; exit 1", id="the test fails"),
    ],
)
def test_what_did_not_run_has_failed(tmp_path: Path, listing: str, running: str):
    assert lifecycle(tmp_path, listing, running) == (1, f"0 passed, {len(PROGRAMS)} failed")
