# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever ends the program that made a testbed, nothing of it stays."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import CLIENTS, paths, patience

# Opens a testbed with a running guest, a client and the page's forwarder, says
# so, and waits: the testbed is up until the test has looked at it. A line then makes the
# program fail; a signal ends it otherwise.
PROGRAM = """
import json, os, sys
from testbed import GuestSpec, Testbed

with Testbed("teardown") as tb:
    guest = tb.add_guest(GuestSpec("victim", agent=False))
    guest.start()
    tb.client_popen(["sleep", "1000"], name="client")
    pid_namespace = os.stat(tb.sandbox.path("/proc/1/ns/pid")).st_ino
    print(json.dumps({"folder": str(tb.folder), "namespace": pid_namespace}), flush=True)
    if sys.stdin.readline():
        raise RuntimeError("on purpose")
"""
GONE_SECONDS = 30


def machine_state(pid: int | str = "self") -> dict[str, set[str]]:
    """Return what a leak would add to, as a process sees it.

    Named namespaces are files of the machine: only the testbed's names count.
    """
    devices = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    mounts = Path(f"/proc/{pid}/mounts").read_text().splitlines()
    names = Path("/run/netns")
    return {
        "interfaces": {line.partition(":")[0].strip() for line in devices},
        "namespaces": {CLIENTS} & set(os.listdir(names) if names.exists() else ()),
        "mounts": {line.split()[1] for line in mounts},
    }


def processes_in(namespace: int) -> list[str]:
    """Return the command lines of all processes in a PID namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.stat(entry / "ns" / "pid").st_ino == namespace:
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it has just ended
    return found


def wait_until_gone(namespace: int) -> list[str]:
    deadline = time.monotonic() + patience.seconds(GONE_SECONDS)
    while (left := processes_in(namespace)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.fixture
def small_machine():
    """Mounts and interfaces that nobody else changes: the id of a process that sees them."""
    command = ["unshare", "--mount", "--net", "--propagation", "private"]
    process = subprocess.Popen(
        [*command, "sh", "-c", "echo ready; exec sleep 600"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def ended_by(request, small_machine):
    """Run PROGRAM, end it as asked, and return what it said about itself."""
    before = machine_state(small_machine)
    enter = ["nsenter", f"--target={small_machine}", "--mount", "--net", f"--wd={os.getcwd()}"]
    # What a shell starts in the background ignores SIGINT, and so do its children.
    enter += ["env", "--default-signal=INT"]
    process = subprocess.Popen(
        [*enter, sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(paths.TOP / "tests")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()[-2000:]
        facts = json.loads(line)
        inside = " ".join(processes_in(facts["namespace"]))
        for program in ("holder.py", "virtlogd", "libvirtd", "guest=victim"):
            assert program in inside
        if request.param.startswith("SIG"):
            # A terminal's Ctrl-C reaches the whole foreground group.
            send = os.killpg if request.param == "SIGINT" else os.kill
            send(process.pid, signal.Signals[request.param])
        else:
            print(file=process.stdin, flush=True)
        process.wait(patience.seconds(GONE_SECONDS))
        yield {**facts, "before": before, "machine": small_machine}
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("ended_by", ["SIGINT", "SIGTERM", "SIGKILL", "exception"], indirect=True)
def test_nothing_is_left(ended_by):
    assert wait_until_gone(ended_by["namespace"]) == []
    after = machine_state(ended_by["machine"])
    leaked = {name: now - ended_by["before"][name] for name, now in after.items()}
    assert not any(leaked.values()), leaked
    assert (Path(ended_by["folder"]) / "logs" / "libvirtd.log").exists()


def test_the_machine_looks_the_same_while_a_testbed_is_up(testbed):
    """Interfaces, names and mounts stay inside; so does libvirt's folder."""
    state = machine_state()
    assert "uplink0" not in state["interfaces"] and "br-sluice" not in state["interfaces"]
    assert "clients" not in state["namespaces"]
    # /run/netns itself is no sign: `ip netns` leaves that mount on any machine.
    assert "/etc/libvirt" not in state["mounts"] and "/run/libvirt" not in state["mounts"]
    inner = testbed.sandbox.path("/etc/libvirt/libvirtd.conf").read_text()
    outer = Path("/etc/libvirt/libvirtd.conf")
    assert not outer.exists() or outer.read_text() != inner
