# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest does while it moves: fio that verifies, and iperf3 both ways."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from stress.scene import StressError
from testbed.guest import Guest
from testbed.sandbox import Task

VERIFY = "/run/verify.out"
SECTORS_AND_BYTES = (
    "awk '{print $7}' /sys/block/vdb/stat; cat /sys/class/net/eth0/statistics/[rt]x_bytes"
)
# An ssh command itself moves some kilobytes.
MOVED_BYTES = 100_000


def start_verify(guest: Guest, command: str) -> None:
    """Start fio in the unit verify.service."""
    guest.spawn(f"{command} >{VERIFY} 2>&1", unit="verify")


def read_verify(guest: Guest) -> tuple[dict, str]:
    """Return what an ended fio says of its job, and its errors."""
    text = guest.ssh(f"cat {VERIFY}").stdout
    job = json.loads(text[text.index("{") :])["jobs"][0]
    wrong = job["error"] or "verify:" in text or "bad magic" in text
    return job, text[:500] if wrong else ""


@dataclass
class Loads:
    """The loads of one guest. ``client`` starts a program at the network's other end."""

    guest: Guest
    address: str
    client: Callable[[list[str]], Task]
    stall_seconds: float
    _net: Task | None = None

    def start(self, verify_command: str) -> None:
        """Start fio in the guest, and iperf3 in both directions to it."""
        start_verify(self.guest, verify_command)
        self.guest.spawn("iperf3 --server --one-off", unit="stream")
        self.guest.ssh("until ss -lnt | grep -q :5201; do sleep 0.1; done")
        command = ["iperf3", "--client", self.address, "--time", "86400"]
        self._net = self.client([*command, "--bidir", "--forceflush"])

    def progress(self) -> tuple[int, int]:
        """Return sectors written to the data disk and bytes sent and received, in the guest."""
        sectors, *frames = map(int, self.guest.ssh(SECTORS_AND_BYTES).stdout.split())
        return sectors, sum(frames)

    def check_alive(self, before: tuple[int, int]) -> None:
        """Both loads go on after a move; StressError if one does not."""
        deadline = time.monotonic() + self.stall_seconds
        while True:
            disk_sectors, net_bytes = self.progress()
            if disk_sectors > before[0] and net_bytes > before[1] + MOVED_BYTES:
                break
            if time.monotonic() > deadline:
                raise StressError(
                    f"{self.stall_seconds:g} s after a migration: sectors written {before[0]} then "
                    f"{disk_sectors}, bytes on the network {before[1]} then {net_bytes}"
                )
            time.sleep(0.2)
        if not self._net.running():
            raise StressError("iperf3 has lost its connection; see logs/iperf3.log")
        if self.guest.ssh("pgrep -x fio", check=False).returncode:
            raise StressError(f"fio has ended: {self.guest.ssh(f'tail -n 5 {VERIFY}').stdout}")

    def finish(self) -> "Found":
        """End both loads and read what they found."""
        self.guest.ssh("pkill -INT -x fio; true")
        self.guest.wait_unit("verify", 60)
        job, wrong = read_verify(self.guest)
        lost = "" if self._net.running() else "its client has ended"
        self._net.signal(signal.SIGINT)
        self._net.wait(20)
        return Found(job["read"]["io_bytes"], wrong, self.progress()[1], lost)


@dataclass(frozen=True)
class Found:
    """What came of the loads; the errors are empty if all is well."""

    verified_bytes: int
    verify_errors: str
    network_bytes: int
    network_errors: str
