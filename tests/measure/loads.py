# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs that make the load: fio in the guest, iperf3 between guest and clients."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from measure.experiments.accuracy import Sample
from testbed import CLIENT_ADDRESS, CLIENTS, UPLINK, Guest, Testbed

SAMPLE_SECONDS = 0.01
START_SECONDS = 30.0
# More than commands and address resolution move, less than any first burst of load.
BEGUN_BYTES = 16384


def fio(
    way: str, device: str, request_bytes: int, depth: int, seconds: int, *, more: str = ""
) -> str:
    """Return the command of random reads or writes of a device, past the guest's cache."""
    return (
        f"fio --name={way} --filename=/dev/{device} {'--readonly ' * (way == 'read')}"
        f"--rw=rand{way} --direct=1 --ioengine=libaio --iodepth={depth} --bs={request_bytes}"
        f" --time_based --runtime={seconds} --norandommap {more}".rstrip()
    )


def fio_logged(way: str, device: str, request_bytes: int, depth: int, seconds: int) -> str:
    """Return the same command, which writes its result and a log of all waits."""
    more = "--output-format=json --output=/run/fio.json --write_lat_log=/run/fio"
    return fio(way, device, request_bytes, depth, seconds, more=more)


def fio_result(guest: Guest, way: str) -> dict:
    """Return the part about reads, or writes, in the output of the last logged fio."""
    return fio_job(guest.ssh("cat /run/fio.json", timeout_seconds=60).stdout)[way]


def fio_job(text: str) -> dict:
    """Return the job in fio's JSON, which fio's complaints precede.

    Raises ValueError with the text's beginning if there is none.
    """
    try:
        return json.loads(text[text.index("{") :])["jobs"][0]
    except (ValueError, KeyError, IndexError):
        raise ValueError(f"fio has given no result: {text[:500]!r}") from None


def fio_waits(log: str) -> list[tuple[float, float]]:
    """Return when each request was seen to be finished, and its wait, in seconds."""
    lines = (line.split(",") for line in log.splitlines())
    return [(int(at_ms) / 1e3, int(wait_ns) / 1e9) for at_ms, wait_ns, *_ in lines]


def longest_wait_seconds(log: str, begun_before_seconds: float) -> float:
    """Return the longest wait of requests that were begun before a time.

    However late they finish, they count. At its end fio waits for all outstanding requests and
    only then looks at their times: it reports them with up to twice their wait. So it has to
    run on for longer than a request may wait, and requests begun meanwhile do not count. Raises
    ValueError if nothing is left.
    """
    waits = [wait for at, wait in fio_waits(log) if at - wait < begun_before_seconds]
    return max(waits)


def fio_log(guest: Guest) -> str:
    """Return the last fio's log of waits from submission on, of the kernel's queues too."""
    return guest.ssh("cat /run/fio_lat.1.log", timeout_seconds=60).stdout


def on_processor(number: int | None, command: list[str]) -> list[str]:
    """Return a command that runs on one of the host's processors; on any if None."""
    return command if number is None else ["taskset", "--cpu-list", str(number), *command]


@contextmanager
def iperf_server(
    testbed: Testbed,
    address: str = CLIENT_ADDRESS,
    *,
    processor: int | None = None,
) -> Iterator[None]:
    """Run iperf3's server on the clients' side, on one of the host's processors if given."""
    command = ["iperf3", "--server", "--bind", address]
    task = testbed.client_popen(on_processor(processor, command), name=f"iperf3-{address}")
    try:
        yield
    finally:
        task.stop()


def iperf(
    seconds: int,
    *,
    to_guest: bool,
    segment_bytes: int | None = None,
    more: str = "",
) -> str:
    """Return the guest's command of one TCP flow from, or to, the guest.

    ``segment_bytes`` is the largest segment, as TCP counts it: with its options.
    """
    words = f"iperf3 --client {CLIENT_ADDRESS} --time {seconds} --json"
    segment = f" --set-mss {segment_bytes}" if segment_bytes else ""
    return f"{words}{segment}{' --reverse' * to_guest} {more}".rstrip()


def iperf_marked(
    seconds: int, dscp: int, *, to_guest: bool, segment_bytes: int | None = None
) -> str:
    """Return the same command, with a DSCP in both directions.

    Cubic at both ends, instead of a host's default: BBR all but stops for a fifth of a second
    now and then, to measure the path without a queue.
    """
    more = f"--dscp {dscp} --congestion cubic"
    return iperf(seconds, to_guest=to_guest, segment_bytes=segment_bytes, more=more)


def without_offload(testbed: Testbed, guest: Guest) -> None:
    """Make senders send frames of the wire's size, so that all counters agree."""
    single = ["ip", "link", "set", "dev", "eth0", "gso_max_segs", "1"]
    guest.ssh(" ".join(single))
    testbed.sandbox.run(single, netns=CLIENTS)


def uplink_counter(testbed: Testbed, *, to_guest: bool) -> Callable[[], float]:
    """Return a function that reads the bytes that crossed the uplink, one way.

    Bytes out of it have passed all shapers of a guest's traffic: its QEMU, a policer on its
    tap, a queueing discipline of the uplink's own. Bytes into it have not been shaped yet.
    """
    path = f"/proc/{testbed.sandbox.holder_pid}/net/dev"

    def read() -> float:
        with open(path) as lines:
            return device_bytes(lines, UPLINK, received=to_guest)

    return read


def device_bytes(lines: Iterable[str], device: str, *, received: bool) -> float:
    """Read a device's bytes out of /proc/net/dev. Raises LookupError if it is not there."""
    for line in lines:
        name, _, numbers = line.partition(":")
        if name.strip() == device:
            return float(numbers.split()[0 if received else 8])
    raise LookupError(f"{device} is not in /proc/net/dev")


def await_load(read: Callable[[], float]) -> Sample:
    """Wait until a counter has grown by more than commands move; return that reading.

    Raises TimeoutError if it does not: the load does not run.
    """
    first = read()
    deadline = time.monotonic() + START_SECONDS
    while (sample := _sample(read)).bytes - first < BEGUN_BYTES:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the load moved {sample.bytes - first:.0f} bytes in {START_SECONDS:g} s,"
                f" and not {BEGUN_BYTES}"
            )
        time.sleep(SAMPLE_SECONDS)
    return sample


def sample_load(read: Callable[[], float], seconds: float) -> list[Sample]:
    """Read a counter a hundred times a second, for so long from when a load has begun.

    Raises the errors of ``await_load``.
    """
    samples = [await_load(read)]
    end = samples[0].at_seconds + seconds
    while samples[-1].at_seconds < end:
        time.sleep(SAMPLE_SECONDS)
        samples.append(_sample(read))
    return samples


def _sample(read: Callable[[], float]) -> Sample:
    before = time.monotonic()
    count = read()
    after = time.monotonic()
    return Sample((before + after) / 2, count, (after - before) / 2)


def web_server(port: int) -> str:
    """Return a Perl program: a web server that answers each connection's request and closes it."""
    return f"""
use IO::Socket::INET;
my $server = IO::Socket::INET->new(Listen => 128, LocalPort => {port}, ReuseAddr => 1) or die;
while (my $visit = $server->accept) {{
    while (defined(my $line = <$visit>)) {{ last if $line =~ /^\\r?$/ }}
    print $visit "HTTP/1.0 200 OK\\r\\nContent-Length: 1000\\r\\n\\r\\n", "x" x 1000;
    close $visit;
}}
"""


def httperf(
    address: str, port: int, per_second: int, connections: int, timeout_seconds: int
) -> list[str]:
    """Return a command that asks a web server for a page by each of so many connections."""
    return [
        "httperf", "--hog", f"--server={address}", f"--port={port}", "--uri=/", "--num-calls=1",
        f"--rate={per_second}", f"--num-conns={connections}", f"--timeout={timeout_seconds}",
    ]  # fmt: skip
