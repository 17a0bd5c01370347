# SPDX-License-Identifier: GPL-2.0-or-later
"""The set-up's steps: a failed one ends the others and shows why; what remains is said."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("set_up", TOP / "tools" / "setup" / "all.py")
set_up = importlib.util.module_from_spec(SPEC)
sys.modules["set_up"] = set_up  # dataclasses look it up
SPEC.loader.exec_module(set_up)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run lanes of shell commands as a set-up; returns its exit status."""
    monkeypatch.setattr(set_up, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path))

    def lanes(*lanes: list[str]) -> int:
        steps = [
            [set_up.Step(f"step {i}-{j}", ("sh", "-c", c), 1) for j, c in enumerate(lane)]
            for i, lane in enumerate(lanes)
        ]
        monkeypatch.setattr(set_up, "LANES", {"demo": steps})
        return set_up.main(["demo"])

    return lanes


def test_all_steps_run_in_the_order_of_their_lane(run, tmp_path):
    file = tmp_path / "done"
    assert run([f"echo a >>{file}", f"echo b >>{file}"], ["true"]) == 0
    assert file.read_text() == "a\nb\n"


def test_a_step_that_fails_shows_why_and_ends_the_others(run, tmp_path, capsys):
    later = tmp_path / "later"
    # The other lane would take ten minutes.
    assert run(["echo no space left; exit 3", f"touch {later}"], ["sleep 600"]) == 1
    assert "step 0-0 failed after" in (error := capsys.readouterr().err)
    assert "no space left" in error
    assert not later.exists()


def test_what_remains_is_said_with_its_time():
    said = set_up.remaining([("qemu", 230.0), ("agent", 12.0)], [("web pages", 20.0)], 3)
    assert said == (
        "set-up: 3 of 6 done; now qemu (about 4 min), beside it agent (about 10 s); "
        "then web pages (20 s at most)"
    )
    assert "; now agent (longer than usual)" in set_up.remaining([("agent", 0)], [], 3)
    assert set_up.left_seconds(40, 60, None) == 0
    assert set_up.left_seconds(240, 60, None) == 180
    assert set_up.left_seconds(240, 60, (1, 1400)) == 180
    assert set_up.left_seconds(240, 60, (700, 1400)) == 60


def test_a_duration_is_kept_and_a_damaged_file_is_none(tmp_path):
    file, step = tmp_path / "durations.json", set_up.QEMU
    for damaged in ("", "[]", '{"qemu": "x"}'):
        file.write_text(damaged)
        assert set_up.Durations(file).of(step) == step.seconds
    set_up.Durations(file).keep(step, 123.4)
    # It had found all there.
    set_up.Durations(file).keep(step, 0.1)
    assert set_up.Durations(file).of(step) == 123.4


def test_the_demo_needs_no_package_of_the_tests():
    command = ["bash", TOP / "tools" / "setup" / "packages.sh", "--list", "demo"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    # The agent is built for it, too.
    assert {"ninja-build", "vlc-bin", "clang"} <= set(found)
    assert not {"postgresql", "chromium", "valgrind", "shellcheck"} & set(found)
