# SPDX-License-Identifier: GPL-2.0-or-later
"""The loads of a guest while it moves: two programs that verify a disk, and iperf3 both ways."""

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from measure.loads import fio_job
from measure.stress import rewriter
from measure.stress.scene import StressError
from testbed import patience
from testbed.guest import Guest
from testbed.sandbox import CommandFailed, Task

UNIT = "verify"
VERIFY = f"/run/{UNIT}.out"
# In the order of Progress. fio is two processes, of which one does it: writing half of each
# pass, reading in the other.
PROGRESS = (
    "for name in fio rewrite; do for pid in $(pgrep -x $name); do cat /proc/$pid/io; done "
    "2>/dev/null | awk '/^(read|write)_bytes/ {sum += $2} END {print sum + 0}'; done; "
    "cat /sys/class/net/eth0/statistics/[rt]x_bytes"
)
# An ssh command itself moves some kilobytes.
MOVED_BYTES = 100_000


@dataclass(frozen=True)
class Progress:
    """The bytes that each load has moved so far, as the guest counts them."""

    fio: int
    rewrite: int
    received: int
    sent: int

    def idle_since(self, before: "Progress") -> list[str]:
        """Name the loads that have not gone on since ``before``."""
        least = {"fio": 1, "rewrite": 1, "received": MOVED_BYTES, "sent": MOVED_BYTES}
        now, then = asdict(self), asdict(before)
        return [name for name, bytes_ in least.items() if now[name] < then[name] + bytes_]


def seen(gone_on: dict[str, float], idle: list[str], seconds: float) -> dict[str, float]:
    """Return when each load was first seen to go on: at ``seconds`` if it is not idle now."""
    names = (each.name for each in fields(Progress))
    return gone_on | {name: seconds for name in names if name not in idle and name not in gone_on}


def gone_on_in_words(gone_on: dict[str, float]) -> str:
    """Say when all had gone on, and which was the last.

    >>> gone_on_in_words({"fio": 3.04, "sent": 12.0})
    'all loads gone on after 12.0 s, the last of them: sent'
    """
    last, seconds = max(gone_on.items(), key=lambda each: each[1])
    return f"all loads gone on after {seconds:.1f} s, the last of them: {last}"


@dataclass
class Found:
    """The outcome of the loads; the errors are empty if all is well."""

    verified_bytes: int = 0
    verify_errors: str = ""
    rewrites: int = 0
    rewrite_errors: str = ""
    network_errors: str = ""

    def read_writers(self, guest: Guest) -> tuple[dict, rewriter.Rewritten]:
        """Read the ended writers' findings; return fio's job and the rewriter's result."""
        job, self.verify_errors = read_verify(guest)
        self.verified_bytes = job["read"]["io_bytes"]
        rewritten = rewriter.read(guest)
        self.rewrites, self.rewrite_errors = rewritten.writes, rewritten.errors
        return job, rewritten

    def wrong(self) -> list[str]:
        """Return the faults of the loads, one sentence each; empty if all is well."""
        errors = {
            "fio": self.verify_errors,
            "rewrite": self.rewrite_errors,
            "iperf3": self.network_errors,
        }
        found = [f"{name}: {error}" for name, error in errors.items() if error]
        if not self.verified_bytes:
            found.append("fio has verified nothing")
        if not self.rewrites and not self.rewrite_errors:
            found.append("rewrite has written nothing")
        return found


def start_verify(guest: Guest, command: str) -> None:
    """Start fio in the unit verify.service."""
    guest.spawn(f"{command} >{VERIFY} 2>&1", unit=UNIT)


def read_verify(guest: Guest) -> tuple[dict, str]:
    """Return an ended fio's report of its job, and its errors."""
    text = guest.ssh(f"cat {VERIFY}").stdout
    job = fio_job(text)
    wrong = job["error"] or "verify:" in text or "bad magic" in text
    return job, text[:500] if wrong else ""


def start_network(
    guest: Guest, address: str, client: Callable[[list[str]], Task], *options: str
) -> Task:
    """Start iperf3 in both directions to the guest, over a TCP connection each."""
    guest.spawn("iperf3 --server --one-off", unit="stream")
    guest.ssh("until ss -lnt | grep -q :5201; do sleep 0.1; done")
    command = ["iperf3", "--client", address, "--time", "86400", "--bidir", "--forceflush"]
    return client([*command, *options])


def end_network(net: Task) -> str:
    """Interrupt iperf3's client; return its fault, empty if it still ran."""
    lost = "" if net.running() else "its client has ended"
    net.signal(signal.SIGINT)
    net.wait(patience.seconds(20))
    return lost


def end_units(guest: Guest, *units: str) -> None:
    """Interrupt fio and the rewriter and await these units; StressError if one hangs."""
    guest.ssh("pkill -INT -x fio; pkill -INT -x rewrite; true")
    for unit in units:
        try:
            guest.wait_unit(unit, 60)
        except CommandFailed as problem:
            raise StressError(
                f"{unit} does not end, so a request was never answered: {problem}"
            ) from None


def require_active(guest: Guest, *units: str) -> None:
    """StressError with its last words if a unit has ended; one word a unit is the answer."""
    states = guest.ssh(f"systemctl is-active {' '.join(units)}", check=False).stdout.split()
    for unit, state in zip(units, states, strict=True):
        if state != "active":
            said = guest.ssh(f"tail -n 5 /run/{unit}.out", check=False).stdout
            raise StressError(f"{unit} has ended ({state}): {said}")


@dataclass
class Loads:
    """The loads of one guest. ``client`` starts a program at the network's other end."""

    guest: Guest
    address: str
    client: Callable[[list[str]], Task]
    stall_seconds: float
    _net: Task | None = None

    def start(self, verify_command: str, rewrite_command: str) -> None:
        """Start both writers in the guest, and iperf3 in both directions to it."""
        start_verify(self.guest, verify_command)
        rewriter.start(self.guest, rewrite_command)
        self._net = start_network(self.guest, self.address, self.client)

    def progress(self) -> Progress:
        numbers = map(int, self.guest.ssh(PROGRESS).stdout.split())
        return Progress(**dict(zip((each.name for each in fields(Progress)), numbers, strict=True)))

    def wait_gone_on(self) -> dict[str, float]:
        """Wait until every load has gone on from where it is now; StressError.

        To be called when the guest runs on its new host. Returns after how many seconds each
        was seen to go on, the last one at the end, the time of the questions included.
        """
        started = time.monotonic()
        before = now = self.progress()
        gone_on: dict[str, float] = {}
        while idle := now.idle_since(before):
            gone_on = seen(gone_on, idle, time.monotonic() - started)
            if time.monotonic() > started + self.stall_seconds:
                raise StressError(
                    f"{', '.join(idle)} did not go on in {self.stall_seconds:g} s after a "
                    f"migration: {before}, then {now}"
                )
            time.sleep(0.1)
            now = self.progress()
        gone_on = seen(gone_on, [], time.monotonic() - started)
        if not self._net.running():
            raise StressError("iperf3 has lost its connection; see logs/iperf3.log")
        require_active(self.guest, UNIT, rewriter.UNIT)
        return gone_on

    def finish(self, found: Found) -> int:
        """End all loads and read their findings; return the bytes that the network has moved."""
        require_active(self.guest, UNIT, rewriter.UNIT)
        end_units(self.guest, UNIT, rewriter.UNIT)
        found.read_writers(self.guest)
        found.network_errors = end_network(self._net)
        now = self.progress()
        return now.received + now.sent
