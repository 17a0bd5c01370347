# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files sluiced takes for a QEMU with shaping: real programs are run."""

import pytest

from sluice_controller.adapters.emulator import PROBLEM_AGE_SECONDS, Emulators, check
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


def test_a_file_that_is_not_there_is_named_with_the_remedy(tmp_path):
    missing = str(tmp_path / "nothing")
    said = Emulators(lambda: 0.0).problem(missing)
    assert f"'{missing}' cannot be found (No such file or directory): install" in said
