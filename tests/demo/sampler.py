# SPDX-License-Identifier: GPL-2.0-or-later
"""Once a second: bytes on disk and network, limits in force, processor use.

The sampler also takes the viewer's windows and passes them on to the
controller, as a player that supports Sluice would do itself.
"""

import contextlib
import threading
import time
from dataclasses import dataclass, field

import httpx

from demo import plan as names
from demo.api import ApiError, ProbeApi
from demo.scene import Scene
from testbed import clients, processors
from testbed.sandbox import CommandFailed
from testbed.stream import Window

# Per datagram on the wire: Ethernet, IPv4, UDP and RTP headers.
DATAGRAM_HEADER_BYTES = 14 + 20 + 8 + 12
REPORTED = (
    "continuity_errors",
    "stalls",
    "stall_seconds",
    "lost_pictures",
    "received_bytes",
    "max_gap_ms",
    "window_ms",
)


@dataclass(frozen=True)
class Sample:
    """Running totals at a time (CLOCK_MONOTONIC seconds), and limits in force.

    Processor time is that of the processors we may use; ``cpu_ours_s`` is None where ours
    cannot be told from others'. ``threads`` are those of the QEMU that has the stream.
    ``classes`` maps "domain/class/resource" to {rate, limit} in bytes per second.
    """

    at_s: float
    client_bytes: int
    stream_bytes: int
    disk_bytes: dict[str, int]
    disk_seeks: int
    disk_busy_ns: int
    cpu_busy_s: float
    cpu_total_s: float
    link_backlog_bytes: int
    cpu_ours_s: float | None = None
    threads: dict[int, processors.Threads] = field(default_factory=dict)
    classes: dict[str, dict[str, float | None]] = field(default_factory=dict)


def class_rates(live: dict) -> dict[str, dict[str, float | None]]:
    """Flatten the live view: rate and limit of each class."""
    found = {}
    for domain, view in live.get("domains", {}).items():
        for name, resources in (view.get("classes") or {}).items():
            for resource, sample in resources.items():
                found[f"{domain}/{name}/{resource}"] = {
                    "rate": sample["bytes_per_second"],
                    "limit": sample["limit_bytes_per_second"],
                }
    return found


class Sampler:
    """Collects samples and windows until it is stopped."""

    def __init__(self, scene: Scene):
        self._scene = scene
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._lock = threading.Lock()
        self._reporting = threading.Lock()
        self._samples: list[Sample] = []
        self._windows: list[Window] = []
        self._stream_wire_bytes = 0
        self.problem = ""
        controller = scene.testbed.controller
        socket = scene.testbed.sandbox.path(controller.socket)
        self._probe = ProbeApi(socket, controller.token_file, names.STREAM)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        # Where the viewer did not start, this did not, either.
        if self._thread.is_alive():
            self._thread.join(10)
        # The viewer's thread may be slow, and have windows left.
        with self._reporting:
            self._probe.close()

    def samples(self) -> list[Sample]:
        with self._lock:
            return list(self._samples)

    def windows(self) -> list[Window]:
        with self._lock:
            return list(self._windows)

    def on_window(self, window: Window) -> None:
        """Take a window of the viewer's and report it."""
        with self._lock:
            self._windows.append(window)
            header = DATAGRAM_HEADER_BYTES * window.received_datagrams
            self._stream_wire_bytes += window.received_bytes + header
        with self._reporting:
            if self._stop.is_set():
                return
            try:
                self._probe.report({name: getattr(window, name) for name in REPORTED})
            except (ApiError, httpx.HTTPError) as problem:
                self.problem = f"a report on the stream was refused: {problem}"

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += 1.0
            try:
                sample = self._take()
            except (OSError, CommandFailed, ApiError, httpx.HTTPError) as problem:
                self.problem = f"a sample is missing: {problem}"
                continue
            with self._lock:
                self._samples.append(sample)

    def _take(self) -> Sample:
        testbed = self._scene.testbed
        classes = {}
        with contextlib.suppress(ApiError):
            classes = class_rates(self._scene.api.call("GET", "/live"))
        received = clients.received_bytes(testbed)
        backlog = testbed.link_counters().backlog_bytes
        volumes = self._scene.disk.counters()
        used = processors.now()
        with self._lock:
            stream = self._stream_wire_bytes
        return Sample(
            at_s=time.monotonic(),
            client_bytes=received,
            stream_bytes=stream,
            disk_bytes={name: volume.bytes for name, volume in volumes.items()},
            disk_seeks=sum(volume.seeks for volume in volumes.values()),
            disk_busy_ns=sum(volume.busy_ns for volume in volumes.values()),
            cpu_busy_s=used.busy_s,
            cpu_total_s=used.total_s,
            link_backlog_bytes=backlog,
            cpu_ours_s=self._scene.processors.used_s(),
            threads=self._scene.media.threads(),
            classes=classes,
        )
