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
# Two threads want what the main thread keeps; of the one that is made to, the stack is shown.
SEVERAL = """
import ctypes, faulthandler, sys, threading, time
faulthandler.enable(all_threads=False)
mutexes, libc = [ctypes.create_string_buffer(64) for _ in range(2)], ctypes.CDLL(None)
for mutex in mutexes:
    libc.pthread_mutex_lock(mutex)
def {older}():
    libc.pthread_mutex_lock(mutexes[0])
def {younger}():
    libc.pthread_mutex_lock(mutexes[{other}])
for wait in ({older}, {younger}):
    threading.Thread(target=wait).start()
    time.sleep(0.2)
time.sleep(600)
"""
INPUT = "a" * 40
ASLEEP = "import time; time.sleep(600)"
WORKING = "import sys, time\nwhile time.process_time() < 4: pass\nsys.exit(77)"


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


def test_stuck_to_the_end_it_is_done_and_has_forgotten_what_it_got_stuck_with(watch, tmp_path):
    for name in (INPUT, "b" * 40):
        (tmp_path / name).touch()
    told = f"print('#512\\tpulse\\nTest unit written to x-crash-{INPUT}', flush=True)\n"
    script = told + STUCK.format(name="prepare_mmio_access")
    output = io.BytesIO()
    mark = tmp_path / "no folder" / "mark"
    script = script.replace("mark.touch()", "pass")
    command = [sys.executable, "-c", script, str(mark), str(tmp_path), "-max_total_time=1"]
    assert watch.main(command, output) == 0
    assert output.getvalue().decode().endswith("\nDone 512 runs in 1 second(s)\n")
    assert [path.name for path in tmp_path.iterdir()] == ["b" * 40]


def test_stuck_to_the_end_without_a_run_it_has_failed(watch, tmp_path):
    script = STUCK.format(name="prepare_mmio_access").replace("mark.touch()", "pass")
    command = [sys.executable, "-c", script, str(tmp_path / "mark"), "-max_total_time=1"]
    assert watch.main(command, io.BytesIO()) == 1


@pytest.mark.parametrize("script", [STUCK.format(name="sluice_something"), ASLEEP])
def test_stuck_in_anything_else_it_has_found_something(watch, tmp_path, script):
    status, printed = run(watch, script, tmp_path / "mark")
    assert status == 1
    assert "Done" not in printed
    assert "fuzz_watch: thread " in printed


@pytest.mark.parametrize(
    ("older", "younger", "other", "own"),
    [
        ("rcu", "prepare_mmio_access", 0, True),
        ("prepare_mmio_access", "sluice_something", 0, False),
        ("rcu", "prepare_mmio_access", 1, False),
    ],
)
def test_of_several_at_one_lock_the_youngest_tells_whose_deadlock_it_is(
    watch, older, younger, other, own
):
    script = SEVERAL.format(older=older, younger=younger, other=other)
    output = io.BytesIO()
    status, printed = watch.run([sys.executable, "-c", script], output)
    assert (status, printed is not None) == (1, own)
    assert (b"prepare_mmio_access" in output.getvalue()) is own


def test_one_that_works_is_left_alone(watch, monkeypatch):
    # On a busy machine it works, too, but slowly.
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(watch, "WORK_SECONDS", 0.05)
    assert run(watch, WORKING) == (77, "")
