# SPDX-License-Identifier: GPL-2.0-or-later
"""What /proc says of processors, and control groups in both their versions."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from testbed import processors
from testbed.processors import Group, Threads

STAT = """cpu  300 0 100 1600 0 0 0 0 0 0
cpu0 100 0 50 800 50 0 0 0 0 0
cpu1 200 0 50 750 0 0 0 0 7 0
intr 12345
"""


def test_only_the_processors_that_may_be_used_count():
    one = processors.times(STAT, {1})
    assert (one.busy_s, one.total_s) == (pytest.approx(2.5), pytest.approx(10.0))
    both = processors.times(STAT, {0, 1})
    assert (both.busy_s, both.total_s) == (pytest.approx(4.0), pytest.approx(20.0))


def test_threads_are_read_each_and_one_that_is_gone_is_left_out(tmp_path):
    for number, text in ((7, "1500000000 500000000 3\n"), (8, ""), (9, "oops\n")):
        folder = tmp_path / "task" / str(number)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    assert processors.threads_of(tmp_path) == {7: Threads(1.5, 0.5)}
    assert processors.threads_of(tmp_path / "gone") == {}


def test_where_there_is_no_controller_the_reason_is_said_and_nothing_is_bounded(tmp_path):
    with Group("sluice-test", tmp_path) as group:
        assert "no controller named cpu" in group.reason
        assert group.bounded("polling", 0.1) == ()
        assert group.used_s() is None


def version_2(mount):
    (mount / "cgroup.controllers").write_text("cpu memory")
    return mount


def version_1(mount):
    (mount / "cpu").mkdir()
    (mount / "cpu" / "cpu.shares").write_text("1024")
    (mount / "cpuacct").mkdir()
    return mount / "cpu"


def version_1_both_in_one(mount):
    (mount / "cpu").mkdir()
    (mount / "cpu" / "cpu.shares").write_text("1024")
    (mount / "cpuacct").symlink_to("cpu")
    return mount / "cpu"


@pytest.fixture
def as_the_kernel(monkeypatch):
    """A group goes with its files, unless it has groups of its own."""

    def rmdir(path):
        if any(one.is_dir() for one in path.iterdir()):
            raise OSError(errno.EBUSY, "busy")
        shutil.rmtree(path)

    monkeypatch.setattr(Path, "rmdir", rmdir)
    monkeypatch.setattr(processors, "EMPTY_SECONDS", 1.0)


@pytest.mark.parametrize(
    ("prepare", "weight", "quota"),
    [
        (version_2, ("cpu.weight", "1000"), ("cpu.max", "2000 20000")),
        (version_1, ("cpu.shares", "10240"), ("cpu.cfs_quota_us", "2000")),
    ],
)
def test_a_group_has_its_weight_and_a_bounded_one_its_quota(
    tmp_path, monkeypatch, prepare, weight, quota
):
    base = prepare(tmp_path)
    monkeypatch.setattr(processors, "_own_path", lambda _controller: "")
    monkeypatch.setattr(processors, "EMPTY_SECONDS", 0.0)
    with Group("sluice-test", tmp_path) as group:
        top = base / f"sluice-test-{os.getpid()}"
        assert group.reason == ""
        assert (top / weight[0]).read_text() == weight[1]
        assert (top / "main" / "cgroup.procs").read_text() == str(os.getpid())
        words = group.bounded("polling", 0.1)
        assert words[-1] == str(top / "polling" / "cgroup.procs")
        assert (top / "polling" / quota[0]).read_text() == quota[1]
    assert (base / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize("prepare", [version_2, version_1, version_1_both_in_one])
def test_no_group_stays_however_often_one_was_bounded(
    tmp_path, monkeypatch, as_the_kernel, prepare
):
    base = prepare(tmp_path)
    monkeypatch.setattr(processors, "_own_path", lambda _controller: "")
    with Group("sluice-test", tmp_path) as group:
        for share in (0.1, 0.2, 0.3):
            group.bounded("polling", share)
        top = base / f"sluice-test-{os.getpid()}"
        assert not (top / "cgroup.procs").exists(), "beside the bounded group, not above it"
    assert not list(tmp_path.glob("*/sluice-test-*")) + list(tmp_path.glob("sluice-test-*"))


def test_the_program_goes_back_to_the_session_that_it_came_from(
    tmp_path, monkeypatch, as_the_kernel
):
    session = version_2(tmp_path) / "user.slice"
    session.mkdir()
    monkeypatch.setattr(processors, "_own_path", lambda _controller: "user.slice")
    with Group("sluice-test", tmp_path):
        pass
    assert (session / "cgroup.procs").read_text() == str(os.getpid())


def test_what_a_killed_run_left_is_taken_away(tmp_path, monkeypatch):
    version_2(tmp_path)
    monkeypatch.setattr(processors, "EMPTY_SECONDS", 0.0)
    (tmp_path / "sluice-test-1" / "main").mkdir(parents=True)
    with Group("sluice-test", tmp_path):
        assert not (tmp_path / "sluice-test-1").exists()
