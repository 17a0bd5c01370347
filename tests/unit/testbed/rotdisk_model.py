# SPDX-License-Identifier: GPL-2.0-or-later
"""The disk's model, driven in simulated time: the C code itself, through ctypes."""

import ctypes
import heapq
import subprocess
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "testbed" / "rotdisk" / "model.c"
SECOND = 1_000_000_000
MS = 1_000_000
MIB = 1 << 20
# Larger than struct rotdisk_model, whose layout only the C code needs to know.
MODEL_BYTES = 64 * 1024

U64 = ctypes.c_uint64


class Params(ctypes.Structure):
    _fields_ = [
        (name, U64)
        for name in (
            "revolution_ns",
            "media_bps",
            "interface_bps",
            "capacity_bytes",
            "seek_track_ns",
            "seek_average_ns",
            "buffer_bytes",
            "overhead_ns",
            "slice_ns",
            "idle_ns",
        )
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("start", U64),
        ("bytes", U64),
        ("arrived_ns", U64),
        ("started_ns", U64),
        ("done_ns", U64),
        ("positioning_ns", U64),
        ("seeked", ctypes.c_bool),
        ("next", ctypes.c_void_p),
    ]


def build(folder: Path) -> ctypes.CDLL:
    """Compile the model into a library of its own."""
    library = folder / "model.so"
    command = ["cc", "-O1", "-std=gnu11", "-Wall", "-Werror", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", library, SOURCE, "-lm"], check=True, timeout=60)
    lib = ctypes.CDLL(str(library))
    lib.rotdisk_defaults.restype = Params
    lib.rotdisk_init.argtypes = [ctypes.c_void_p, ctypes.POINTER(Params)]
    lib.rotdisk_submit.argtypes = [ctypes.c_void_p, ctypes.POINTER(Request)]
    lib.rotdisk_decide.argtypes = [ctypes.c_void_p, U64, ctypes.POINTER(U64)]
    lib.rotdisk_complete.argtypes = [ctypes.c_void_p, U64]
    lib.rotdisk_complete.restype = ctypes.POINTER(Request)
    lib.rotdisk_seek_ns.argtypes = [ctypes.POINTER(Params), U64]
    lib.rotdisk_seek_ns.restype = U64
    lib.rotdisk_set.argtypes = [ctypes.POINTER(Params), ctypes.c_char_p, U64]
    lib.rotdisk_set.restype = ctypes.c_bool
    return lib


class Disk:
    """A disk in simulated time. ``read`` calls back when the request is done."""

    def __init__(self, lib: ctypes.CDLL, **constants: int):
        self._lib = lib
        self.params = lib.rotdisk_defaults()
        for name, value in constants.items():
            assert lib.rotdisk_set(self.params, name.encode(), value)
        self._model = ctypes.create_string_buffer(MODEL_BYTES)
        lib.rotdisk_init(self._model, self.params)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._live: dict[int, tuple[Request, Callable[[Request], None]]] = {}
        self.now = 0

    @property
    def waiting(self) -> int:
        return len(self._live)

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (int(time_ns), self._order, action))

    def read(self, start: int, size: int, done: Callable[[Request], None]) -> None:
        request = Request(start=start, bytes=size, arrived_ns=self.now)
        self._live[ctypes.addressof(request)] = (request, done)
        self._lib.rotdisk_submit(self._model, ctypes.byref(request))

    def run(self, until_ns: int) -> None:
        """Let time pass, from event to event."""
        until = U64()
        while True:
            busy = self._lib.rotdisk_decide(self._model, self.now, ctypes.byref(until))
            times = [until_ns]
            if busy:
                times.append(until.value)
            if self._events:
                times.append(self._events[0][0])
            self.now = max(self.now, min(times))
            if self.now >= until_ns:
                return
            finished = self._lib.rotdisk_complete(self._model, self.now)
            if finished:
                request, done = self._live.pop(ctypes.addressof(finished.contents))
                done(request)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()


class Reader:
    """Reads a region over and over, ``ahead`` requests at a time, as read-ahead does."""

    def __init__(
        self, disk: "Disk | Shaped", base: int, size: int, request: int, think_ns: int, ahead: int
    ):
        self._disk, self._base, self._size = disk, base, size
        self._request, self._think_ns = request, think_ns
        self._at = 0
        self.bytes = 0
        for _ in range(ahead):
            self._next()

    def _next(self) -> None:
        self._disk.read(self._base + self._at, self._request, self._done)
        self._at = (self._at + self._request) % self._size

    def _done(self, request: Request) -> None:
        self.bytes += request.bytes
        self._disk.at(self._disk.now + self._think_ns, self._next)


class PacedReader:
    """Reads one request each period, as a player does; notes each latency."""

    def __init__(self, disk: "Disk | Shaped", base: int, request: int, period_ns: int):
        self._disk, self._at, self._request, self._period_ns = disk, base, request, period_ns
        self.latencies_ms: list[float] = []
        self._next()

    def _next(self) -> None:
        self._disk.read(self._at, self._request, self._done)
        self._at += self._request
        self._disk.at(self._disk.now + self._period_ns, self._next)

    def _done(self, request: Request) -> None:
        self.latencies_ms.append((request.done_ns - request.arrived_ns) / MS)


class Shaped:
    """A disk behind a limit: requests pass in order of arrival, evenly spaced."""

    def __init__(self, disk: Disk, bytes_per_second: float):
        self._disk, self._rate = disk, bytes_per_second
        self._next_ns = 0.0

    @property
    def now(self) -> int:
        return self._disk.now

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        self._disk.at(time_ns, action)

    def read(self, start: int, size: int, done: Callable[[Request], None]) -> None:
        pass_ns = max(self._next_ns, self._disk.now)
        self._next_ns = pass_ns + size / self._rate * SECOND
        self._disk.at(pass_ns, lambda: self._disk.read(start, size, done))
