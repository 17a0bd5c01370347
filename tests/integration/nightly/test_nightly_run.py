# SPDX-License-Identifier: GPL-2.0-or-later
"""The real nightly run, ended early in several ways: nothing of it stays.

The whole run takes minutes and wants a quiet machine; here it gets as far as
the named line of its progress, and is then ended.
"""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from integration.controller.conftest import Daemon
from integration.testbed.test_teardown import (
    machine_state,
    processes_in,
    small_machine,  # noqa: F401
    wait_until_gone,
)
from testbed import patience

GONE_SECONDS = 60
LINE_SECONDS = 240


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """The host's sluiced, which gets the results."""
    made = Daemon(tmp_path_factory.mktemp("sluiced")).start()
    yield made
    made.stop()


class Night:
    """sluice-nightly with a state folder of its own."""

    def __init__(self, folder, daemon):
        self.state = folder / "state"
        self.config = folder / "nightly.toml"
        self.daemon = daemon
        self.write("")

    def write(self, more: str) -> None:
        self.config.write_text(
            f'[paths]\nstate = "{self.state}"\nsocket = "{self.daemon.socket}"\n'
            f'token_file = "{self.daemon.token_file}"\n'
            f'libvirt_uri = "test:///default"\n{more}'
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "sluice_nightly", f"--config={self.config}", *words]

    def call(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=patience.seconds(300)
        )

    def start(self, machine: int) -> subprocess.Popen:
        """Start a run in the mount and network namespace of that process."""
        enter = ["nsenter", f"--target={machine}", "--mount", "--net", f"--wd={os.getcwd()}"]
        return subprocess.Popen(
            [*enter, *self.command("run", "--force")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def disks(self) -> list:
        """Large files and libvirt's state of runs."""
        return [*self.state.glob("runs/*/disks"), *self.state.glob("runs/*/libvirt")]


@pytest.fixture
def night(tmp_path, daemon):
    return Night(tmp_path, daemon)


def await_line(process: subprocess.Popen, words: str) -> str:
    """Read the run's progress as far as a line with these words; return all of it."""
    # Ends the reading, by ending the run, should the line not come.
    timer = threading.Timer(patience.seconds(LINE_SECONDS), process.kill)
    timer.start()
    seen = ""
    try:
        for line in process.stdout:
            seen += line
            if words in line:
                return seen
    finally:
        timer.cancel()
    raise AssertionError(f"no line with {words!r}:\n{seen}")


def namespace_of_run(night: Night) -> int | None:
    """The PID namespace of the run that is on."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/cmdline") as file:
                words = file.read().split("\0")
            if any(w.startswith(f"{night.state}/runs/") for w in words) and any(
                w.endswith("/holder.py") for w in words
            ):
                # unshare itself is in the machine's namespace, its child in the new one.
                return os.stat(f"/proc/{entry.name}/ns/pid_for_children").st_ino
        except OSError:
            continue
    return None


# While guests boot, all that a run has is there.
POINTS = [("SIGTERM", "starting both guests"), ("SIGKILL", "starting both guests")]


@pytest.mark.parametrize(("how", "when"), POINTS)
def test_an_ended_run_leaves_nothing(night, daemon, small_machine, how, when):  # noqa: F811
    before = machine_state(small_machine)
    nights_before = len(daemon.call("GET", "/v1/nightly"))
    process = night.start(small_machine)
    try:
        await_line(process, when)
        namespace = namespace_of_run(night)
        assert any("libvirtd" in line for line in processes_in(namespace))
        process.send_signal(signal.Signals[how])
        process.communicate(timeout=patience.seconds(GONE_SECONDS))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert wait_until_gone(namespace) == []
    after = machine_state(small_machine)
    leaked = {name: now - before[name] for name, now in after.items()}
    assert not any(leaked.values()), leaked
    if how == "SIGTERM":
        assert process.returncode == 4
        assert night.disks() == []
        code = "interrupted"
    else:
        # Files are all that a killed run can leave: clean removes them …
        assert night.disks() != []
        cleaned = night.call("clean")
        assert cleaned.returncode == 0 and "removed disks" in cleaned.stdout
        assert night.disks() == []
        # … and the next run says that there was one, whatever comes of itself.
        night.write("[start]\nmemory_spare_mib = 1000000\n")
        assert night.call("run").returncode == 3
        code = "killed"
    listed = daemon.call("GET", "/v1/nightly")[: -nights_before or None]
    aborted = [row for row in listed if row["outcome"] == "aborted"]
    assert [row["reasons"][0]["code"] for row in aborted] == [code]


def test_a_host_without_room_is_refused_in_words_and_the_night_is_recorded(night, daemon):
    night.write(
        "[start]\nmemory_spare_mib = 1000000\npressure_cpu = 100\nload_per_processor = 99\n"
    )
    said = night.call("check", "--json")
    assert said.returncode == 3
    answer = json.loads(said.stdout)
    # The test driver's one domain runs; what it says of it is not known to move anything.
    assert answer["may_start"] is False and answer["facts"]["guests"] is not None
    assert "memory-low" in [reason["code"] for reason in answer["reasons"]]
    ran = night.call("run")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "of memory are available" in ran.stdout and "the night refused" in ran.stdout
    newest = daemon.call("GET", "/v1/nightly?limit=1")[0]
    assert newest["outcome"] == "refused"
    assert newest["software"]["qemu"].startswith("10.")
    assert "refused" in night.call("show").stdout
    assert not (night.state / "running.json").exists()


def test_a_night_without_sluiced_is_posted_by_the_next(night, daemon):
    night.write("[start]\nmemory_spare_mib = 1000000\n")
    daemon.stop()
    try:
        ran = night.call("run")
        assert ran.returncode == 3
        assert "the next run posts the result" in ran.stdout
        assert "not posted yet" in night.call("show").stdout
    finally:
        daemon.start()
    first = json.loads(night.call("show", "--json").stdout)["run_id"]
    assert night.call("run").returncode == 3
    assert first in [row["run_id"] for row in daemon.call("GET", "/v1/nightly")]


def test_wrong_settings_are_named_before_anything_happens(night):
    night.write("[run]\nreaders = 99\n")
    for command in ("run", "check", "clean"):
        said = night.call(command)
        assert said.returncode == 2
        assert "run.readers 99 is out of range; give 1 to 12" in said.stderr
    assert not night.state.exists()
