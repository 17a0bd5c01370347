# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs on the clients' side of the link: a viewer, and visitors of a web server.

The viewer is a native VLC behind the meter (``testbed.stream``). Visitors are
httperf, which asks for one page at a rate beyond what the link carries, and
several wget that fetch large files without a limit. All end by themselves.
"""

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields

from testbed import paths
from testbed.clients_priority import LAST_IN_LINE, first_in_line
from testbed.host import Testbed
from testbed.sandbox import CommandFailed, Task
from testbed.stream.decoder import vlc_command
from testbed.stream.meter import Window

STREAM_PORT = 5004
PLAYER_PORT = 5006
PLAYER_FOLDER = "/run/player"
PLAYER_CACHING_MS = 1000
PAGE_BYTES = 94 * 1024
# A page on the wire: headers of HTTP, TCP, IP and Ethernet.
PAGE_WIRE_BYTES = int(PAGE_BYTES * 1.045) + 300
Polling = Callable[[float], tuple[str, ...]]
WINDOW_FIELDS = {field.name for field in fields(Window)}


class Viewer:
    """Receives, measures and plays a stream; hands each window to ``on_window``.

    ``on_window`` is called in a thread of the viewer's own.
    """

    def __init__(self, testbed: Testbed, on_window: Callable[[Window], None]):
        self._testbed = testbed
        self._on_window = on_window
        self._tasks: list[Task] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        sandbox = self._testbed.sandbox
        sandbox.run(["install", "-d", "-o", "nobody", PLAYER_FOLDER])
        control = f"{PLAYER_FOLDER}/control"
        sandbox.run(["rm", "-f", control])
        # VLC refuses to run as root.
        player = [*first_in_line(), "setpriv", "--reuid=nobody", "--regid=nogroup"]
        player += ["--clear-groups", *vlc_command(PLAYER_PORT, control, PLAYER_CACHING_MS)]
        self._tasks.append(
            self._testbed.client_popen(player, name="player", env={"HOME": PLAYER_FOLDER})
        )
        module, environment = paths.python_module("testbed.stream.receiver")
        receiver = [*first_in_line(), *module, f"--port={STREAM_PORT}"]
        receiver += [f"--forward={PLAYER_PORT}", f"--control={control}"]
        receiver += [f"--buffer-ms={PLAYER_CACHING_MS}"]
        reading, writing = os.pipe()
        try:
            task = self._testbed.client_popen(
                receiver, name="receiver", stdout=writing, env=environment
            )
        finally:
            os.close(writing)
        self._tasks.append(task)
        self._thread = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._thread.start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading) as lines:
            for line in lines:
                self._on_window(Window(**json.loads(line)))

    def running(self) -> bool:
        return bool(self._tasks) and all(task.running() for task in self._tasks)

    def stop(self) -> None:
        for task in reversed(self._tasks):
            task.stop()
        self._tasks.clear()
        if self._thread:
            self._thread.join(10)


@dataclass(frozen=True)
class HttperfResult:
    """The figures that httperf printed at its end."""

    connections: int
    replies: int
    seconds: float
    timeouts: int

    @property
    def replies_per_second(self) -> float:
        return self.replies / self.seconds if self.seconds else 0.0


def parse_httperf(text: str) -> HttperfResult | None:
    """Read httperf's summary; None if it was ended before it printed one."""
    totals = re.search(
        r"Total: connections (\d+) requests \d+ replies (\d+) test-duration ([\d.]+)", text
    )
    timeouts = re.search(r"client-timo (\d+)", text)
    if not totals or not timeouts:
        return None
    return HttperfResult(int(totals[1]), int(totals[2]), float(totals[3]), int(timeouts[1]))


class Visitors:
    """httperf and several wget against one web server."""

    def __init__(self, testbed: Testbed, address: str, polling: Polling):
        """``polling`` turns a share of a processor into the words that bound a command to it."""
        self._testbed = testbed
        self._address = address
        self._polling = polling
        self._log = testbed.logs / "httperf.log"
        # The log goes on where an earlier start has ended.
        self._said_before = 0
        self._tasks: list[Task] = []

    def start(
        self, link_bps: int, overload: float, wgets: int, polling_share: float, seconds: int
    ) -> float:
        """Start all; return the rate of connections per second that httperf offers."""
        rate = overload * link_bps / PAGE_WIRE_BYTES
        # httperf polls without sleeping; it must not take the guests' time.
        command = [*LAST_IN_LINE, "httperf", "--hog", f"--server={self._address}"]
        command += ["--uri=/page.bin", f"--rate={rate:.1f}", "--timeout=10"]
        command += [f"--num-conns={int(rate * seconds)}", "--num-calls=1"]
        outside = self._polling(polling_share)
        self._said_before = self._log.stat().st_size if self._log.exists() else 0
        self._tasks.append(self._testbed.client_popen(command, name="httperf", outside=outside))
        for index in range(wgets):
            first = 1 + index * (150 // wgets)
            # Not timeout(1), which would leave the group that is ended.
            loop = (
                f"n={first}; end=$(($(date +%s) + {seconds})); "
                "while [ $(date +%s) -lt $end ]; do wget -q -t 1 -T 30 -O /dev/null "
                f"http://{self._address}/files/$(printf %03d $n); n=$((n % 150 + 1)); done"
            )
            command = ["sh", "-c", loop]
            self._tasks.append(self._testbed.client_popen(command, name=f"wget-{index}"))
        return rate

    def stop(self) -> HttperfResult | None:
        """End all; SIGINT makes httperf print its summary."""
        if self._tasks:
            self._tasks[0].signal(signal.SIGINT)
            with contextlib.suppress(CommandFailed):
                self._tasks[0].wait(5)
        for task in self._tasks:
            task.stop(grace_seconds=5)
        self._tasks.clear()
        if not self._log.exists():
            return None
        said = self._log.read_bytes()[self._said_before :]
        return parse_httperf(said.decode(errors="replace"))


def received_bytes(testbed: Testbed) -> int:
    """Return the bytes that arrived at the clients' interface, headers included."""
    counters = testbed.client_run(["cat", "/proc/net/dev"]).stdout
    found = re.search(r"^\s*eth0:\s*(\d+)", counters, re.MULTILINE)
    return int(found[1])
