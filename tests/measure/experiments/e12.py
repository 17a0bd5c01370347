# SPDX-License-Identifier: GPL-2.0-or-later
"""E12: the cost of a fast call, a deferred call and an upcall (ECalls Table 1).

A guest has the device ``sluice-channel`` and, beside it, ports of virtio-serial at whose other
end a thread here sends back all that comes. ``sluice-agent channel ping`` times both by one
clock, in the guest. No agent serves there, so nobody else calls.

Exits are counted by QEMU's trace of accesses to registers, in runs of their own: a trace costs
time. Under an emulated processor an access is no exit; yet it is what would be one.
"""

import base64
import gzip
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from measure.experiments.choice import Choice
from measure.experiments.rows import Rows
from measure.experiments.spread import spread
from measure.stress.bare import Machine
from measure.stress.scene import BOOT_SECONDS, Scene, scene
from testbed import Guest, paths

TITLE = "calls, upcalls and a virtio-serial round trip"
REPEATS = 5
PART = "channel"
FAST, DEFERRED, UPCALL, SERIAL = "fast call", "deferred call", "upcall", "virtio-serial round trip"
COUNT = 100
PING_SECONDS = 300.0
AGENT = "/run/sluice-agent-e12"
# The second port is for counting: a notification that goes to an eventfd is in no trace.
TIMED, COUNTED = "timed", "counted"
EVENTS = ("memory_region_ops_read", "memory_region_ops_write")
LINE = re.compile(r"memory_region_ops_(?:read|write) .* addr (0x[0-9a-f]+) .* name '([^']*)'")
REGISTERS = "sluice-channel-registers"
CONFIGURATION = ("pcie-mmcfg-mmio", "pci-conf-idx", "pci-conf-data")
SERIAL_NOTIFY = "virtio-pci-notify-virtio-serial"
REGISTER_DRIVER, REGISTER_CALL, REGISTER_INTERRUPT = 0x08, 0x10, 0x14
REGISTER_MASK = 0xFFF
VSOCK = Path("/dev/vhost-vsock")
Say = Callable[[str], None]
# (region, address) of each access, in order.
Accesses = list[tuple[str, int]]


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; return the wanted rows."""
    rows = Rows(say, choice)
    with scene("perf-e12") as stage:
        options = _devices(stage.folder)
        machine = stage.machine("e12", more=options, trace=("sluice_blk_pause",))
        with _echo(_socket(stage.folder, TIMED)), _echo(_socket(stage.folder, COUNTED)):
            say(f"guest ready after {stage.guest.wait_ready(BOOT_SECONDS):.0f} s")
            _install(stage.guest)
            counted = _exits(stage, machine)
            say("exits of each: " + ", ".join(f"{what} {n:.2f}" for what, n in counted.items()))
            measured = [_timed(stage.guest, number, say) for number in range(repeats)]
        machine.stop()
        for subject in (FAST, DEFERRED, UPCALL, SERIAL):
            rows.add(PART, subject, partial(_row, subject, measured, counted[subject]))
        return {
            "experiment": "E12",
            "title": TITLE,
            "accelerator": stage.accelerator,
            "repeats": repeats,
            "note": _note(stage.accelerator),
            **rows.as_dict(),
        }


def _note(accelerator: str) -> str:
    vsock = "" if VSOCK.exists() else f" This machine has no {VSOCK}"
    vsock = vsock or " The testbed's QEMU has no vhost-vsock device"
    emulated = (
        ""
        if accelerator == "kvm"
        else " The processor is emulated: an access to a register is counted as an exit, though"
        " it is none here, and times say little of a real processor's."
    )
    return (
        f"Each run times {COUNT} of each, by the guest's clock; a figure is the median, least"
        " and greatest of the runs. A deferred call's time is that of its writing, in bursts of 32."
        " An upcall's begins with the fast call that asks for it and ends when the interrupt has"
        " woken the program. Exits are accesses to registers and configuration in QEMU's trace, per"
        f" call; an interrupt's delivery is not among them.{emulated}{vsock}, so nothing is"
        " compared with vsock."
    )


def _row(subject: str, measured: list[dict[str, Any]], exits: float) -> dict[str, Any]:
    def of(run: dict[str, Any], subject: str, figure: str) -> float:
        place = {
            FAST: ("fast", "call"),
            DEFERRED: ("deferred", "put"),
            UPCALL: ("upcall", "woken"),
            SERIAL: ("port", "round_trip"),
        }[subject]
        return run[place[0]][place[1]][figure] / 1000

    row = {
        "part": PART,
        "subject": subject,
        "runs": len(measured),
        "median_us": spread([of(run, subject, "median_ns") for run in measured]),
        "p95_us": spread([of(run, subject, "p95_ns") for run in measured]),
        "exits": spread([exits]),
    }
    if subject in (FAST, UPCALL):
        ratios = [of(r, SERIAL, "median_ns") / of(r, subject, "median_ns") for r in measured]
        row["serial_ratio"] = spread(ratios)
    return row


# --- the guest


def _socket(folder: Path, name: str) -> Path:
    return folder / f"{name}.port"


def _devices(folder: Path) -> list[str]:
    options = ["-device", "sluice-channel,shaper=sluice0,calls=1000000"]
    for name, more in ((TIMED, ""), (COUNTED, ",ioeventfd=off")):
        options += [
            "-chardev", f"socket,id={name},path={_socket(folder, name)},server=on,wait=off",
            "-device", f"virtio-serial-pci,id=serial-{name}{more}",
            "-device", f"virtserialport,bus=serial-{name}.0,chardev={name},name=echo.{name}",
        ]  # fmt: skip
    return options


def _install(guest: Guest) -> None:
    packed = base64.b64encode(gzip.compress(paths.agent().read_bytes())).decode()
    guest.ssh(
        f"systemctl stop sluice-agent 2>/dev/null; modprobe -a uio_pci_generic virtio_console &&"
        f" base64 -d | gzip -d >{AGENT} && chmod 0755 {AGENT}",
        input=packed,
        timeout_seconds=180,
    )


@contextmanager
def _echo(path: Path) -> Iterator[None]:
    """Send back all that comes from a port."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))

        def serve() -> None:
            while data := line.recv(4096):
                line.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            line.shutdown(socket.SHUT_RDWR)
            thread.join()


def _ping(guest: Guest, *options: str) -> dict[str, Any]:
    command = f"{AGENT} channel ping --json --count {COUNT} {' '.join(options)}"
    return json.loads(guest.ssh(command, timeout_seconds=PING_SECONDS).stdout)


def _port(name: str) -> str:
    # By its name, since not every guest has udev's links.
    named = f"grep -lx echo.{name} /sys/class/virtio-ports/*/name"
    return f"--port-echo /dev/$(basename $(dirname $({named})))"


def _timed(guest: Guest, number: int, say: Say) -> dict[str, Any]:
    found = _ping(guest, "--upcall", _port(TIMED))
    say(
        f"run {number + 1}: medians in ns: fast {found['fast']['call']['median_ns']}, deferred"
        f" {found['deferred']['put']['median_ns']}, upcall"
        f" {found['upcall']['woken']['median_ns']}, virtio-serial"
        f" {found['port']['round_trip']['median_ns']}"
    )
    return found


# --- exits


def _exits(stage: Scene, machine: Machine) -> dict[str, float]:
    calls = _accesses(machine, lambda: _ping(stage.guest))
    upcalls = _accesses(machine, lambda: _ping(stage.guest, "--upcall"))
    messages = _accesses(machine, lambda: _ping(stage.guest, _port(COUNTED)))
    fast, deferred = of_calls(calls)
    serial = sum(region == SERIAL_NOTIFY for region, _ in messages)
    return {
        FAST: fast / COUNT,
        DEFERRED: deferred / COUNT,
        UPCALL: of_upcall(upcalls),
        SERIAL: serial / COUNT,
    }


def _accesses(machine: Machine, do: Callable[[], object]) -> Accesses:
    begin = machine.trace_log.stat().st_size
    _set_trace(machine, True)
    try:
        do()
    finally:
        _set_trace(machine, False)
    with machine.trace_log.open(errors="replace") as log:
        log.seek(begin)
        return accesses_of(log.read())


def _set_trace(machine: Machine, enable: bool) -> None:
    for event in EVENTS:
        machine.qmp.execute("trace-event-set-state", name=event, enable=enable)


def accesses_of(text: str) -> Accesses:
    """Return the accesses in a trace."""
    return [(name, int(address, 16)) for address, name in LINE.findall(text)]


def of_calls(accesses: Accesses) -> tuple[int, int]:
    """Return how many accesses fast calls were, and how many there were during deferred ones.

    Deferred calls come after the last fast one; then the program takes its driver back.
    """
    registers = [address & REGISTER_MASK for region, address in accesses if region == REGISTERS]
    fast = registers.count(REGISTER_CALL)
    if not fast:
        raise ValueError(f"no call is in the trace, only accesses to {dict(Counter(registers))}")
    last = len(registers) - 1 - registers[::-1].index(REGISTER_CALL)
    return fast, sum(register != REGISTER_DRIVER for register in registers[last + 1 :])


def of_upcall(accesses: Accesses) -> float:
    """Return how many accesses an upcall is, from its call to the clearing of its interrupt.

    The kernel's accesses to the configuration are among them. What lets the next event interrupt
    comes later.
    """
    found: list[int] = []
    since_call = 0
    for region, address in accesses:
        since_call += bool(since_call) and (region == REGISTERS or region in CONFIGURATION)
        if region != REGISTERS:
            continue
        register = address & REGISTER_MASK
        if since_call and register == REGISTER_INTERRUPT:
            found.append(since_call)
        since_call = int(register == REGISTER_CALL)
    if not found:
        raise ValueError("no upcall is in the trace")
    return sum(found) / len(found)
