# SPDX-License-Identifier: GPL-2.0-or-later
"""A fuzzer that is stuck is ended, and begun anew if it was stuck in QEMU itself."""

import importlib.util
import io
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]

# Takes a mutex of the C library twice, in a function of that name, and shows its stack when
# it is made to end. It does so only once: from then on it has a mark.
STUCK = """
import ctypes, faulthandler, pathlib, sys
faulthandler.enable()
mark = pathlib.Path(sys.argv[1])
def {name}():
    mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
if not mark.exists():
    mark.touch()
    {name}()
print("Done 5 runs", sys.argv[2])
"""
ASLEEP = "import time; time.sleep(600)"


@pytest.fixture
def watch(monkeypatch):
    path = TOP / "qemu-patches" / "tests" / "fuzz_watch.py"
    spec = importlib.util.spec_from_file_location("fuzz_watch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(module, "WORK_SECONDS", 0.1)
    return module


def run(watch, script, *arguments):
    output = io.BytesIO()
    command = [sys.executable, "-c", script, *map(str, arguments), "-max_total_time=9"]
    return watch.main(command, output), output.getvalue().decode()


def test_stuck_in_qemu_itself_it_begins_anew_for_the_rest_of_its_time(watch, tmp_path, capsys):
    status, printed = run(watch, STUCK.format(name="prepare_mmio_access"), tmp_path / "mark")
    assert status == 0
    assert "in prepare_mmio_access" in printed
    assert printed.endswith("\n") and "Done 5 runs -max_total_time=" in printed
    assert "-max_total_time=9" not in printed
    assert capsys.readouterr().out.startswith("fuzz_watch: stuck")


@pytest.mark.parametrize("script", [STUCK.format(name="sluice_something"), ASLEEP])
def test_stuck_in_anything_else_it_has_found_something(watch, tmp_path, script):
    status, printed = run(watch, script, tmp_path / "mark")
    assert status == 1
    assert "Done" not in printed
    assert "fuzz_watch: thread " in printed
