# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders of runs: what a new run clears away, and what it leaves alone."""

import dataclasses
import json
import os

import pytest

from testbed import paths, runs


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "_layout", dataclasses.replace(paths.checkout(), runs=tmp_path))


def ended_run(folder, name: str, mtime: int):
    run = folder / name
    (run / "disks").mkdir(parents=True)
    (run / "disks" / "root.qcow2").write_text("x")
    (run / "logs").mkdir()
    # Process 1 exists, and started at another time than this says.
    (run / runs.OWNER).write_text(json.dumps({"pid": 1, "start_ticks": 2**62}))
    os.utime(run, (mtime, mtime))
    return run


def test_a_crashed_run_loses_its_disks_and_keeps_its_logs(tmp_path):
    crashed = ended_run(tmp_path, "test-1", 1000)
    runs.make("test")
    assert not (crashed / "disks").exists()
    assert (crashed / "logs").is_dir()


def test_only_the_newest_ended_runs_are_kept(tmp_path):
    old = [ended_run(tmp_path, f"test-{n}", 1000 + n) for n in range(runs.KEPT_RUNS + 3)]
    runs.prune(tmp_path)
    assert [run.name for run in old if run.exists()] == [run.name for run in old[3:]]


def test_what_no_run_made_is_not_touched(tmp_path):
    """A runs/ of somebody else's: names like a run's or not, with disks or without."""
    for name in ("experiment", "test-99", "2024-05-01", ".git"):
        (tmp_path / name / "disks").mkdir(parents=True)
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "test-98").symlink_to(tmp_path / "experiment")
    for number in range(runs.KEPT_RUNS + 1):
        ended_run(tmp_path, f"test-{number}", 1000 + number)
    runs.prune(tmp_path)
    assert all((tmp_path / n / "disks").exists() for n in ("experiment", "test-99", "2024-05-01"))
    assert (tmp_path / "test-98").is_symlink() and (tmp_path / ".git").exists()
    assert not (tmp_path / "test-0").exists()


def test_a_run_that_was_interrupted_at_its_beginning_is_one(tmp_path):
    (tmp_path / "test-1" / "logs").mkdir(parents=True)
    (tmp_path / "test-2").mkdir()
    assert runs.is_run(tmp_path / "test-1") and runs.is_run(tmp_path / "test-2")


def test_a_living_run_is_not_touched(tmp_path):
    living = runs.make("demo")
    (living / "disks").mkdir()
    another = runs.make("demo")
    assert living != another
    assert (living / "disks").is_dir()


@pytest.mark.parametrize("owner", ["", "{}", "[]", '{"pid": "x", "start_ticks": 1}', '{"pid": 1}'])
def test_an_unreadable_owner_counts_as_ended(tmp_path, owner):
    run = tmp_path / "test-1"
    run.mkdir()
    (run / runs.OWNER).write_text(owner)
    assert not runs.alive(run)


@pytest.mark.parametrize("label", ["", "-a", "a/b", "A", "a" * 33, "a b"])
def test_bad_labels_are_refused(label):
    with pytest.raises(ValueError, match="label"):
        runs.make(label)
