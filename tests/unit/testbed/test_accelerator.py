# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest that shows whether an accelerator works."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from testbed import accelerator

# Says which process it is, and then nothing, as QEMU under a KVM that hangs.
HANGS = "#!/bin/sh\necho $$ >{pid}\nexec sleep 600\n"


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """The file that a stand-in for QEMU writes its pid into."""
    emulator, pid = tmp_path / "qemu", tmp_path / "pid"
    emulator.write_text(HANGS.format(pid=pid))
    emulator.chmod(0o755)
    monkeypatch.setattr(accelerator.paths, "emulator", lambda: emulator)
    monkeypatch.setattr(accelerator.paths, "image", lambda name: tmp_path / name)
    return pid


def wait_for_pid(path) -> int:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


class Ended(BaseException):
    pass


def test_a_probe_that_takes_too_long_is_ended(hanging):
    assert accelerator.boots("kvm", 5.0) == (False, "")
    assert is_gone(wait_for_pid(hanging))


def test_a_probe_ends_with_the_run_that_is_ended(hanging):
    def end(_number, _frame):
        raise Ended

    def end_when_it_is_there():
        wait_for_pid(hanging)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, end)
    try:
        with pytest.raises(Ended):
            threading.Thread(target=end_when_it_is_there).start()
            accelerator.boots("kvm", 600.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_gone(wait_for_pid(hanging))


def test_a_probe_ends_with_the_process_that_is_killed(hanging):
    code = (
        "from pathlib import Path; from testbed import accelerator, paths\n"
        f"paths.emulator = lambda: Path({str(hanging.parent / 'qemu')!r})\n"
        "paths.image = Path\n"
        "accelerator.boots('kvm', 600.0)\n"
    )
    asks = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
    )
    pid = wait_for_pid(hanging)
    asks.kill()
    asks.wait()
    assert is_gone(pid)
