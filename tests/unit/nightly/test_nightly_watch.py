# SPDX-License-Identifier: GPL-2.0-or-later
"""Orders to end a run: the first one counts, and none disturbs the cleaning up."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import fields

import pytest

from sluice_nightly.config import Abort, Config, Paths, Run
from sluice_nightly.decide import Reason
from sluice_nightly.night import PREPARE_SECONDS
from sluice_nightly.watch import END_SIGNAL, Ended, Ending, Watcher
from testbed import paths, runs

BUSY = Reason("guests-busy", "Guest db2 moves 80 MB/s")


@pytest.fixture
def ending():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_SIGNAL)
    before = {number: signal.getsignal(number) for number in numbers}
    made = Ending()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_ends_the_run_and_says_which(ending):
    with pytest.raises(Ended):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ending.reasons == [Reason("interrupted", "The run was ended by SIGTERM")]


def test_the_watcher_ends_the_run_from_its_thread(ending):
    thread = threading.Thread(target=ending.order, args=([BUSY],))
    with pytest.raises(Ended):
        thread.start()
        signal.sigtimedwait([signal.SIGRTMIN], 20)
    thread.join()
    assert ending.reasons == [BUSY]


def test_a_second_order_does_not_disturb_the_first(ending):
    with pytest.raises(Ended):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    ending.order([BUSY])
    assert [reason.code for reason in ending.reasons] == ["interrupted"]


def test_a_run_that_is_over_is_not_ended(ending):
    ending.over()
    os.kill(os.getpid(), signal.SIGTERM)
    ending.order([BUSY])
    assert ending.reasons == []


class GoneHost:
    """A host whose looks fail, as while the package is being replaced."""

    def look(self):
        raise FileNotFoundError("guest.sh")


def test_a_watcher_that_fails_ends_the_run(ending, monkeypatch):
    """Nobody else would look after the host's guests."""
    monkeypatch.setattr("sluice_nightly.watch.traceback.print_exc", lambda: None)
    config = Config(abort=Abort(every_s=0.01))
    watcher = Watcher(config, GoneHost(), ending, force=False, limit_s=60)
    with pytest.raises(Ended), watcher:
        signal.sigtimedwait([signal.SIGRTMIN], 5)
    (reason,) = ending.reasons
    assert reason.code == "watch-failed" and "FileNotFoundError: guest.sh" in reason.sentence


HOLDER = "import time\ntime.sleep(600)\n"


@contextlib.contextmanager
def no_signal_is_heard():
    """As inside libvirt, whose answer ends the wait, and a signal does not."""
    numbers = {END_SIGNAL}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def test_a_run_that_hears_nothing_loses_its_processes_and_no_other(ending, monkeypatch, tmp_path):
    monkeypatch.setattr("sluice_nightly.watch.UNHEARD_SECONDS", 0.1)
    program = tmp_path / "holder.py"
    program.write_text(HOLDER)
    mine, others = tmp_path / "runs" / "night-1", tmp_path / "runs" / "night-2"
    pids = {mine: os.getpid(), others: os.getppid()}
    started = {}
    for run, pid in pids.items():
        run.mkdir(parents=True)
        owner = {"pid": pid, "start_ticks": runs.start_ticks(pid)}
        (run / runs.OWNER).write_text(json.dumps(owner))
        plan = str(run / "namespaces.json")
        started[run] = subprocess.Popen([sys.executable, str(program), plan])
    config = Config(abort=Abort(every_s=0.01), paths=Paths(state=tmp_path))
    watcher = Watcher(config, None, ending, force=True, limit_s=0)
    try:
        with pytest.raises(Ended), no_signal_is_heard(), watcher:
            started[mine].wait(60)
        assert started[mine].returncode == -signal.SIGKILL
        assert started[others].poll() is None
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    assert [reason.code for reason in ending.reasons] == ["took-too-long"]


def test_systemd_gives_a_run_the_time_that_its_settings_allow():
    unit = (paths.TOP / "controller/nightly/debian/sluice-nightly.service").read_text()
    hours = int(re.search(r"^TimeoutStartSec=(\d+)h$", unit, re.MULTILINE)[1])
    (longest,) = (f.metadata["range"][1] for f in fields(Run) if f.name == "limit_s")
    assert hours * 3600 > PREPARE_SECONDS + longest
