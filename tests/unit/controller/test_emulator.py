# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files sluiced takes for a QEMU with shaping: real programs are run."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluice_controller.adapters import emulator as emulator_module
from sluice_controller.adapters.emulator import (
    PROBLEM_AGE_SECONDS,
    Emulators,
    check,
    has_channel,
)
from sluice_controller.domain.errors import Conflict


@pytest.fixture
def emulator(tmp_path):
    """Makes a program at one path whose exit status is given."""
    path = tmp_path / "qemu"

    def make(status: int) -> str:
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\necho run >>{tmp_path}/runs\nexit {status}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_a_qemu_without_the_object_is_refused(emulator):
    check(emulator(0))
    with pytest.raises(Conflict, match="is a QEMU without shaping"):
        check(emulator(1))


@pytest.mark.parametrize("mode", [0o757, 0o777])
@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_others_can_change_is_not_started(emulator, tmp_path, mode, which):
    path = emulator(0)
    weak = Path(path) if which == "file" else tmp_path
    weak.chmod(mode)
    with pytest.raises(Conflict, match=f"is not started: .*is writable for others .mode {mode:o}"):
        check(path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("which", ["file", "folder"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_somebody_else_is_not_started(emulator, tmp_path, which):
    path = emulator(0)
    os.chown(path if which == "file" else tmp_path, 65534, -1)
    with pytest.raises(Conflict, match="belongs to the user 65534.*chown root:root"):
        check(path)
    assert not (tmp_path / "runs").exists()


def test_a_link_does_not_hide_whose_a_file_is(emulator, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(emulator(0))
    check(str(link))
    (tmp_path / "qemu").chmod(0o777)
    with pytest.raises(Conflict, match="is writable for others"):
        check(str(link))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_is_tried_without_privileges(monkeypatch):
    """A shell stands for it, which says by its status whether it is root's."""
    monkeypatch.setattr(emulator_module, "PROBE", ("-c", "exit $(( $(id -u) != 65534 ))"))
    check("/bin/sh")


def test_a_file_is_asked_once_until_it_changes(emulator, tmp_path):
    now = [0.0]
    emulators = Emulators(lambda: now[0])
    path = emulator(0)
    for _ in range(3):
        assert emulators.problem(path) is None
        now[0] += PROBLEM_AGE_SECONDS
    assert (tmp_path / "runs").read_text() == "run\n"
    assert "is a QEMU without shaping" in emulators.problem(emulator(1))


def test_what_went_wrong_is_asked_again_after_a_while(emulator, tmp_path):
    now = [0.0]
    emulators = Emulators(lambda: now[0])
    path = emulator(1)
    for seconds in (0.0, PROBLEM_AGE_SECONDS - 1, 1.0):
        now[0] += seconds
        assert "is a QEMU without shaping" in emulators.problem(path)
    assert (tmp_path / "runs").read_text() == "run\n" * 2


@pytest.mark.parametrize("status", [0, 1])
def test_it_is_run_once_however_many_ask_at_once(emulator, tmp_path, status):
    emulators = Emulators(lambda: 0.0)
    path = emulator(status)
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: emulators.problem(path), range(8)))
    assert len(set(said)) == 1
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_file_that_is_not_there_is_named_with_the_remedy(tmp_path):
    missing = str(tmp_path / "nothing")
    said = Emulators(lambda: 0.0).problem(missing)
    assert f"'{missing}' cannot be found (No such file or directory): install" in said


@pytest.mark.parametrize(
    ("script", "has"),
    [
        ('[ "$6" = sluice-channel,help ] && echo "sluice-channel options:"', True),
        ("echo \"Device 'sluice-channel' not found\" >&2", False),
        ("exit 1", False),
    ],
)
def test_an_emulator_is_asked_for_the_channel(script, has, emulator):
    path = Path(emulator(0))
    path.write_text(f"#!/bin/sh\n{script}\n")
    assert has_channel(str(path)) is has


def test_an_emulator_that_is_not_started_has_no_channel(emulator, tmp_path):
    path = Path(emulator(0))
    path.write_text("#!/bin/sh\necho sluice-channel options:\n")
    path.chmod(0o757)
    assert not has_channel(str(path))
    assert not has_channel(str(tmp_path / "nothing"))
