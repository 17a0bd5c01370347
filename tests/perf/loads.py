# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs that make the load: fio in the guest, iperf3 between guest and clients."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perf.accuracy import Sample
from testbed import CLIENT_ADDRESS, CLIENTS, UPLINK, Guest, Testbed

SAMPLE_SECONDS = 0.01
START_SECONDS = 30.0
IPERF_PORT = 5201


def fio_read(
    device: str, request_bytes: int, depth: int, seconds: int, *, name: str = "fio"
) -> str:
    """Return the command of a random read of a device, past the guest's cache."""
    return (
        f"fio --name=read --filename=/dev/{device} --readonly --rw=randread --direct=1"
        f" --ioengine=libaio --iodepth={depth} --bs={request_bytes} --time_based"
        f" --runtime={seconds} --norandommap --output-format=json --output=/tmp/{name}.json"
        f" --write_lat_log=/tmp/{name}"
    )


def fio_result(guest: Guest) -> dict:
    """Return the ``read`` part of what the last fio wrote."""
    text = guest.ssh("cat /tmp/fio.json", timeout_seconds=60).stdout
    return json.loads(text)["jobs"][0]["read"]


def longest_wait_seconds(log: str, run_seconds: float) -> float:
    """Return the longest wait in fio's log of completion latencies.

    At its end fio waits for all that is outstanding and only then looks which
    requests have finished when: of these it reports up to twice the wait that
    they had. They are left out. Raises ValueError if nothing is left.
    """
    lines = [line.split(",") for line in log.splitlines()]
    waits_ns = [int(wait) for at_ms, wait, *_ in lines if int(at_ms) < 1000 * run_seconds]
    return max(waits_ns) / 1e9


def fio_log(guest: Guest) -> str:
    """Return what the last fio logged: lines of milliseconds, nanoseconds, and more."""
    return guest.ssh("cat /tmp/fio_clat.1.log", timeout_seconds=60).stdout


@contextmanager
def iperf_server(testbed: Testbed, address: str = CLIENT_ADDRESS) -> Iterator[None]:
    """Run iperf3's server on the clients' side."""
    command = ["iperf3", "--server", "--bind", address, "--port", str(IPERF_PORT)]
    task = testbed.client_popen(command, name=f"iperf3-{address}")
    try:
        yield
    finally:
        task.stop()


def iperf(seconds: int, *, to_guest: bool) -> str:
    """Return the guest's command of one TCP flow from, or to, the guest."""
    words = f"iperf3 --client {CLIENT_ADDRESS} --port {IPERF_PORT} --time {seconds} --json"
    return words + (" --reverse" if to_guest else "")


def iperf_bps(guest: Guest, seconds: int, *, to_guest: bool) -> float:
    """Run one TCP flow to its end; return the bytes per second that were received."""
    answer = guest.ssh(iperf(seconds, to_guest=to_guest), timeout_seconds=seconds + 60)
    return json.loads(answer.stdout)["end"]["sum_received"]["bits_per_second"] / 8


def without_offload(testbed: Testbed, guest: Guest) -> None:
    """Make senders send frames of the wire's size, so that all who count see the same."""
    single = ["ip", "link", "set", "dev", "eth0", "gso_max_segs", "1"]
    guest.ssh(" ".join(single))
    testbed.sandbox.run(single, netns=CLIENTS)


def net_counter(testbed: Testbed, tap: str, *, to_guest: bool, shaped_on_tap: bool) -> Callable:
    """Return a function that reads the bytes that left the shaper.

    What a guest sends is counted where it comes out of its QEMU, or, for a
    peer that shapes further on, out of the uplink; what it receives, at its tap.
    """
    path = f"/proc/{testbed.sandbox.holder_pid}/net/dev"
    device = tap if to_guest or shaped_on_tap else UPLINK
    # The columns of received bytes and sent bytes: what the tap receives, the guest sent.
    column = 0 if device == tap and not to_guest else 8

    def read() -> float:
        with open(path) as lines:
            for line in lines:
                name, _, numbers = line.partition(":")
                if name.strip() == device:
                    return float(numbers.split()[column])
        raise LookupError(f"{device} is not in {path}")

    return read


def sample_load(read: Callable[[], float], seconds: float) -> list[Sample]:
    """Read a counter a hundred times a second, for so long from its first movement on.

    Raises TimeoutError if it does not move: the load does not run.
    """
    first = read()
    deadline = time.monotonic() + START_SECONDS
    while (count := read()) == first:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the load moved nothing in {START_SECONDS:g} s")
        time.sleep(SAMPLE_SECONDS)
    samples = [(time.monotonic(), count)]
    end = samples[0][0] + seconds
    while samples[-1][0] < end:
        time.sleep(SAMPLE_SECONDS)
        count = read()
        samples.append((time.monotonic(), count))
    return samples
