# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated host's C code, compiled on first use and called through ctypes.

The library lies in ``build/sim`` under a hash of its sources. Records have the fields of
``plant/api.h``, in that order.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from testbed import paths

PLANT = Path(__file__).parent / "plant"
ENGINE = paths.TOP / "qemu-patches" / "src"
# The engine's parts; groups and queues of frames are left out.
ENGINE_PARTS = (
    "bucket",
    "engine",
    "engine-config",
    "engine-correct",
    "engine-gate",
    "engine-runs",
    "eevdf",
    "flows",
    "gate",
    "gate-page",
    "group",
    "group-member",
    "group-page",
    "leaky",
    "lock",
    "pool",
    "reserve",
    "window",
)
COMMAND = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
# The least time step is a nanosecond, so no result may hang on excess precision.
COMMAND += ["-ffp-contract=off"]

READ, WRITE, SEND = range(3)
SLICED, QUEUED, SSD, CLOUD, NETWORK = range(5)
SEQUENTIAL_READ, RANDOM_READ, SEQUENTIAL_WRITE, PACED_READ, TCP, UDP = range(6)
PAGE_BYTES = 128 + 68 * 256 + 68 * 256 + 64

U32, U64, I32, F64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_double


class Disk(ctypes.Structure):
    _fields_ = [
        *((name, F64) for name in ("bytes_per_second", "latency_ns", "noise")),
        *((name, F64) for name in ("requests_per_second", "base_bytes_per_second")),
        ("credit_bytes", F64),
        ("revolution_ns", U64),
        ("kind", I32),
        ("channels", I32),
    ]


class Link(ctypes.Structure):
    _fields_ = [
        ("bytes_per_second", F64),
        ("beyond_bytes_per_second", F64),
        ("limit_bytes", U64),
        ("beyond_limit_bytes", U64),
        ("delay_ns", U64),
        ("streams_first", I32),
    ]


class Stream(ctypes.Structure):
    _fields_ = [
        ("bytes_per_second", F64),
        *((name, U64) for name in ("buffer_ns", "start_ns", "base", "size")),
        *((name, U32) for name in ("request_bytes", "depth", "frame_bytes")),
        *((name, I32) for name in ("vm", "tag", "reads", "sends")),
    ]


class Load(ctypes.Structure):
    _fields_ = [
        ("bytes_per_second", F64),
        *((name, U64) for name in ("start_ns", "think_ns", "on_ns", "off_ns", "base", "size")),
        *((name, U32) for name in ("request_bytes", "depth", "window_bytes")),
        *((name, I32) for name in ("kind", "vm", "tag")),
    ]


class Uplink(ctypes.Structure):
    _fields_ = [
        (name, U64)
        for name in ("backlog_bytes", "dropped", "bytes", "beyond_bytes", "beyond_dropped")
    ]


class Quality(ctypes.Structure):
    _fields_ = [(name, U64) for name in ("received_bytes", "lost", "stalls", "stall_ns", "slip_ns")]


class Reads(ctypes.Structure):
    _fields_ = [
        *((name, U64) for name in ("busy_ns", "outstanding_ns", "bytes", "oldest_ns")),
        ("asked", U64 * 16),
    ]


class RoundTrip(ctypes.Structure):
    _fields_ = [(name, U64) for name in ("smoothed_ns", "least_ns")]


class Gate(ctypes.Structure):
    _fields_ = [(name, U64) for name in ("window_bytes", "in_flight_bytes", "held")]


class Sums(ctypes.Structure):
    _fields_ = [(name, U64) for name in ("events", "made", "disk_bytes", "disk_in_flight")]


def _sources() -> tuple[list[Path], list[Path]]:
    """(files to compile, files that they include)"""
    rotdisk = paths.TOP / "tests" / "testbed" / "rotdisk"
    compiled = [*sorted(PLANT.glob("*.c")), rotdisk / "model.c"]
    compiled += [ENGINE / "sluice" / f"{name}.c" for name in ENGINE_PARTS]
    included = [*PLANT.glob("*.h"), rotdisk / "model.h"]
    included += [*(ENGINE / "sluice").glob("*.h"), *(ENGINE / "include" / "sluice").glob("*.h")]
    return compiled, sorted(included)


def build() -> Path:
    """Return the library; compile it if its sources have changed."""
    compiled, included = _sources()
    digest = hashlib.sha256(" ".join(COMMAND).encode())
    for path in (*compiled, *included):
        digest.update(path.read_bytes())
    library = paths.BUILD / "sim" / f"plant-{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    folders = [f"-I{PLANT.parents[1] / 'testbed'}", f"-I{ENGINE / 'include'}", f"-I{ENGINE}"]
    # Several processes may come at once: the name appears with the whole file.
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        subprocess.run([*COMMAND, *folders, "-o", made, *compiled, "-lm"], check=True, timeout=300)
        os.replace(made, library)
    return library


@cache
def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build()))
    plant = ctypes.c_void_p
    calls = {
        "sim_new": (plant, U64),
        "sim_free": (None, plant),
        "sim_set_disk": (None, plant, ctypes.POINTER(Disk)),
        "sim_set_link": (None, plant, ctypes.POINTER(Link)),
        "sim_add_vm": (ctypes.c_int, plant),
        "sim_add_stream": (ctypes.c_int, plant, ctypes.POINTER(Stream)),
        "sim_add_load": (ctypes.c_int, plant, ctypes.POINTER(Load)),
        "sim_name_class": (None, plant, *[ctypes.c_int] * 2, ctypes.c_char_p),
        "sim_limit": (ctypes.c_bool, plant, *[ctypes.c_int] * 3, F64, F64),
        "sim_step_disk": (None, plant, F64),
        "sim_step_link": (None, plant, F64, F64),
        "sim_step_load": (None, plant, ctypes.c_int, ctypes.c_bool),
        "sim_run": (None, plant, U64),
        "sim_write_page": (None, plant, ctypes.c_int),
        "sim_page": (plant, plant, ctypes.c_int),
        "sim_uplink": (None, plant, ctypes.POINTER(Uplink)),
        "sim_load_bytes": (U64, plant, ctypes.c_int),
        "sim_quality": (None, plant, ctypes.c_int, ctypes.POINTER(Quality)),
        "sim_halves": (ctypes.c_int, plant, ctypes.c_int, ctypes.c_char_p, ctypes.c_int),
        "sim_reads": (None, plant, ctypes.c_int, ctypes.POINTER(Reads)),
        "sim_round_trip": (None, plant, ctypes.c_int, ctypes.POINTER(RoundTrip)),
        "sim_hold_uplink": (None, plant, F64),
        "sim_set_gate": (None, plant, ctypes.c_int, U64, U32),
        "sim_gate": (None, plant, ctypes.c_int, ctypes.POINTER(Gate)),
        "sim_sums": (None, plant, ctypes.POINTER(Sums)),
    }
    for name, (result, *arguments) in calls.items():
        call = getattr(lib, name)
        call.restype, call.argtypes = result, arguments
    return lib


class Plant:
    """One simulated host; times are nanoseconds since its start, which is 0."""

    def __init__(self, seed: int) -> None:
        self._lib = library()
        self._plant = self._lib.sim_new(seed)
        self.vms = 0
        self.now_ns = 0

    def __enter__(self) -> "Plant":
        return self

    def __exit__(self, *_error: object) -> None:
        self._lib.sim_free(self._plant)

    def set_disk(self, disk: Disk) -> None:
        self._lib.sim_set_disk(self._plant, disk)

    def set_link(self, link: Link) -> None:
        self._lib.sim_set_link(self._plant, link)

    def add_vm(self, classes: dict[int, str]) -> int:
        """A VM with these classes by tag; returns its number."""
        vm = self._added(self._lib.sim_add_vm(self._plant), "VM")
        for tag, name in classes.items():
            self._lib.sim_name_class(self._plant, vm, tag, name.encode())
        self.vms += 1
        return vm

    def add_stream(self, stream: Stream) -> int:
        return self._added(self._lib.sim_add_stream(self._plant, stream), "stream")

    def add_load(self, load: Load) -> int:
        return self._added(self._lib.sim_add_load(self._plant, load), "load")

    @staticmethod
    def _added(index: int, what: str) -> int:
        if index < 0:
            raise ValueError(f"the plant has no room for another {what}; see plant/plant.h")
        return index

    def limit(self, vm: int, tag: int, resource: int, rate: float | None, burst: float) -> None:
        """Hold a class to bytes per second; None lifts the limit. ValueError if out of range."""
        held = (rate, burst) if rate is not None else (0.0, 0.0)
        if not self._lib.sim_limit(self._plant, vm, tag, resource, *held):
            raise ValueError(f"the engine refuses {rate} bytes/s with a burst of {burst} bytes")

    def step_disk(self, speed: float) -> None:
        """From now on the disk has this part of its first speed."""
        self._lib.sim_step_disk(self._plant, speed)

    def step_link(self, rate: float, beyond: float) -> None:
        self._lib.sim_step_link(self._plant, rate, beyond)

    def step_load(self, load: int, active: bool) -> None:
        self._lib.sim_step_load(self._plant, load, active)

    def run(self, until_ns: int) -> None:
        self._lib.sim_run(self._plant, until_ns)
        self.now_ns = until_ns

    def write_pages(self) -> None:
        for vm in range(self.vms):
            self._lib.sim_write_page(self._plant, vm)

    def page(self, vm: int) -> ctypes.Array:
        """The counters page of a VM: the plant's own memory."""
        address = self._lib.sim_page(self._plant, vm)
        return (ctypes.c_char * PAGE_BYTES).from_address(address)

    def uplink(self) -> Uplink:
        found = Uplink()
        self._lib.sim_uplink(self._plant, found)
        return found

    def load_bytes(self, load: int) -> int:
        return self._lib.sim_load_bytes(self._plant, load)

    def quality(self, stream: int) -> Quality:
        found = Quality()
        self._lib.sim_quality(self._plant, stream, found)
        return found

    def halves(self, stream: int) -> bytes:
        """Of each half-second until now: 1 if it is imperfect."""
        room = self.now_ns // 500_000_000
        bad = ctypes.create_string_buffer(max(1, room))
        found = self._lib.sim_halves(self._plant, stream, bad, room)
        return bad.raw[:found]

    def reads(self, stream: int) -> Reads:
        found = Reads()
        self._lib.sim_reads(self._plant, stream, found)
        return found

    def round_trip(self, stream: int) -> RoundTrip:
        """As TCP_INFO would have it after the way back."""
        found = RoundTrip()
        self._lib.sim_round_trip(self._plant, stream, found)
        return found

    def hold_uplink(self, rate: float | None) -> None:
        self._lib.sim_hold_uplink(self._plant, rate or 0.0)

    def set_gate(self, vm: int, target_ns: int, shrink: float = 1.0) -> None:
        """Set the target of a VM's gate (0: open), and its window to a part of itself."""
        self._lib.sim_set_gate(self._plant, vm, target_ns, round(1024 * shrink))

    def gate(self, vm: int) -> Gate:
        found = Gate()
        self._lib.sim_gate(self._plant, vm, found)
        return found

    def sums(self) -> Sums:
        found = Sums()
        self._lib.sim_sums(self._plant, found)
        return found
