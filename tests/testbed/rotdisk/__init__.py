# SPDX-License-Identifier: GPL-2.0-or-later
"""A modelled rotating disk for guests: nbdkit with the plugin of this folder.

    disk = RotatingDisk(testbed, {"movie": movie_img, "media": media_img})
    disk.start()
    GuestSpec("media", disks=(disk.volume("movie"), disk.volume("media")))
    before = disk.counters()

All volumes share one spindle; ``model.c`` explains the effects.
"""

import mmap
import re
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from testbed import paths, patience
from testbed.clients_priority import first_in_line
from testbed.domain_xml import NbdDisk
from testbed.host import Testbed

SOCKET = "/run/rotdisk.sock"
STATS = "/run/rotdisk.stats"
START_SECONDS = 20.0
MAGIC = b"ROTDISK1"
HEADER_BYTES = 16
NAME_BYTES = 32
EXPORT = struct.Struct("<8Q")
MOST_EXPORTS = 16
SPEED_AT = HEADER_BYTES + MOST_EXPORTS * (NAME_BYTES + EXPORT.size)


class DiskError(Exception):
    """The disk's server did not start; the text has its words."""


@dataclass(frozen=True)
class VolumeCounters:
    """Counters of one volume of the disk since the start."""

    requests: int
    bytes: int
    seeks: int
    busy_ns: int
    positioning_ns: int
    latency_ns: int
    latency_max_ns: int

    def since(self, earlier: "VolumeCounters") -> "VolumeCounters":
        """Return the increase since ``earlier``; the maximum stays one of all time."""
        parts = {f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        return VolumeCounters(**{**parts, "latency_max_ns": self.latency_max_ns})


@dataclass(frozen=True)
class Constant:
    """A constant of the model and where it comes from."""

    name: str
    value: int
    why: str


def constants() -> list[Constant]:
    """Return the model's table of constants, as the plugin has them."""
    answer = subprocess.run(
        ["nbdkit", "--dump-plugin", str(paths.rotdisk_plugin())],
        capture_output=True,
        text=True,
        timeout=patience.seconds(20),
        check=True,
    )
    rows = re.findall(r"^(\w+)=(\d+) # (.*)$", answer.stdout, re.MULTILINE)
    return [Constant(name, int(value), why) for name, value, why in rows]


def read_counters(page: bytes) -> dict[str, VolumeCounters]:
    """Read the counters' file; DiskError if it is not one."""
    if page[: len(MAGIC)] != MAGIC:
        raise DiskError("the disk's counters do not begin with ROTDISK1")
    (count,) = struct.unpack_from("<Q", page, len(MAGIC))
    found = {}
    for index in range(count):
        at = HEADER_BYTES + index * (NAME_BYTES + EXPORT.size)
        name = page[at : at + NAME_BYTES].rstrip(b"\0").decode()
        found[name] = VolumeCounters(*EXPORT.unpack_from(page, at + NAME_BYTES)[:-1])
    return found


class RotatingDisk:
    """The server; it ends with the testbed."""

    def __init__(self, testbed: Testbed, images: Mapping[str, Path]):
        self._testbed = testbed
        self._images = dict(images)
        self._page: mmap.mmap | None = None

    def start(self) -> None:
        """Start the server inside the testbed and wait until it listens."""
        sandbox = self._testbed.sandbox
        log = self._testbed.logs / "rotdisk.log"
        command = [*first_in_line(), "nbdkit", "--foreground"]
        command += [f"--unix={SOCKET}", "--threads=32"]
        command += [str(paths.rotdisk_plugin()), f"stats={STATS}"]
        command += [f"image={name}:{path}" for name, path in self._images.items()]
        server = sandbox.popen(command, name="rotdisk", log=log)
        deadline = time.monotonic() + patience.seconds(START_SECONDS)
        while not sandbox.path(SOCKET).exists():
            if not server.running() or time.monotonic() > deadline:
                raise DiskError(f"the modelled disk does not start: {log.read_text().strip()}")
            time.sleep(0.02)
        with sandbox.path(STATS).open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    def volume(self, name: str) -> NbdDisk:
        """Return the volume as a disk for a guest."""
        if name not in self._images:
            raise KeyError(f"the disk has no volume {name}; it has {', '.join(self._images)}")
        return NbdDisk(Path(SOCKET), name, readonly=True)

    def counters(self) -> dict[str, VolumeCounters]:
        return read_counters(self._page)

    def set_speed(self, bytes_per_s: int) -> None:
        """Let the platter pass the head at another speed from the next request on."""
        if bytes_per_s <= 0:
            raise DiskError(f"{bytes_per_s} bytes/s is no speed of a disk; use more than 0")
        struct.pack_into("<Q", self._page, SPEED_AT, bytes_per_s)
