#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The network beside a fuzzed device, and a reader of its page.

The network is a pair of datagram sockets, FOLDER/NAME-nic.socket of QEMU and
FOLDER/NAME-net.socket of ours. Frames are sent as long as QEMU takes some, one
after the other, over and over; frames that QEMU sends are read and forgotten.

The counters page, FOLDER/NAME.page, is read several times a second, because QEMU
removes it when it ends. On SIGTERM the last reading is judged: every limit that
FOLDER/commands.qmp sets must be there, no command may have been refused, and QEMU's
last answer about its shaper must have all the settings (FOLDER/NAME.monitor). On
each resource of the device requests must have gone and waited, and of frames some must
have been dropped for each reason that short runs have for sure. Not those of each class:
one large request of an input before may leave the ceiling in debt for longer than the
next inputs last.

usage: fuzz_peer.py NAME FOLDER FRAMES      exit status 1 if something is missing
"""

import contextlib
import json
import select
import signal
import socket
import sys
import time
from pathlib import Path

from sluice_controller.adapters.counters_page import CountersPages
from sluice_controller.domain.counters import DROP_REASONS, BadPage, Reading

READ_SECONDS = 0.1
CONNECT_SECONDS = 0.005
ROOM_BYTES = 1 << 17
RESOURCES = {
    "virtio-blk": ("blk-read", "blk-write"),
    # Has no driver among its inputs, see fuzz.sh; the work of random ones is luck.
    "virtio-blk-iothread": (),
    "virtio-net": ("net-tx", "net-rx"),
    "virtio-net-own": ("net-tx", "net-rx"),
}
# Events that frames of any class must have met, beside their being held.
HAPPENED = {
    "virtio-net": {
        "net-tx": ("backlog",),
        "net-rx": ("connection",),
    },
}
# Devices with one queue, which belongs to a class: no frame has another.
OWN = {"virtio-net-own": "own"}
# Of the default class, of the tags of all others, and expedited forwarding.
DSCPS = (0, *(tag << 2 | 3 for tag in range(1, 14)), 46)
UDP, TCP, SYN, ECN_CAPABLE = 17, 6, 2, 2
SIZES = (60, 1514)
# More than the class that is limited in them may have.
CONNECTIONS = 3
LARGE_DSCPS, LARGE_SIZES = (0, 11), (9000, 65000)


def ip_frame(dscp: int, size: int, ecn: int = 0, protocol: int = UDP, flags: int = 0) -> bytes:
    """Return an IPv4 frame to everybody; ``flags`` are those of TCP."""
    frame = bytearray(size)
    frame[0:6] = b"\xff" * 6
    frame[6] = 2
    frame[12:14] = b"\x08\x00"
    frame[14:16] = bytes((0x45, dscp << 2 | ecn))
    frame[16:18] = (size - 14).to_bytes(2, "big")
    frame[22:24] = bytes((64, protocol))
    frame[47] = flags
    return bytes(frame)


def frames(folder: Path) -> list[bytes]:
    """Return the frames from the network: good ones, and the seeds of their fuzzer."""
    good = [
        ip_frame(dscp, size, ecn) for size in SIZES for ecn in (0, ECN_CAPABLE) for dscp in DSCPS
    ]
    opening = [ip_frame(dscp, 60, protocol=TCP, flags=SYN) for dscp in DSCPS]
    good += opening * CONNECTIONS
    good += [ip_frame(dscp, size) for size in LARGE_SIZES for dscp in LARGE_DSCPS]
    odd = [path.read_bytes() for path in sorted(folder.iterdir())]
    return good + [frame for frame in odd if frame]


class Network:
    """The other end of the device's network; nothing at all until QEMU is there."""

    def __init__(self, nic: Path, net: Path, ring: list[bytes]) -> None:
        self.nic, self.ring, self.sent = nic, ring, 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(net))
        self.connected = False

    def _connect(self) -> bool:
        try:
            self.socket.connect(str(self.nic))
        except OSError:
            return False
        return True

    def serve(self, seconds: float) -> None:
        """Take frames and send as many as there is room for, waiting so long at most."""
        self.connected = self.connected or self._connect()
        if not self.connected:
            time.sleep(CONNECT_SECONDS)
            return
        readable, writable, _ = select.select([self.socket], [self.socket], [], seconds)
        try:
            if readable:
                self.socket.recv(ROOM_BYTES)
            if writable:
                self.socket.send(self.ring[self.sent % len(self.ring)])
                self.sent += 1
        except BlockingIOError:
            pass
        except OSError:
            time.sleep(seconds)  # QEMU has gone


def class_settings(commands: Path) -> dict[str, dict]:
    """Return the arguments of shaper-set-class by the class."""
    read = [json.loads(line) for line in commands.read_text().splitlines()]
    return {
        each["arguments"]["class"]: each["arguments"]
        for each in read
        if each["execute"] == "shaper-set-class"
    }


def wanted_limits(classes: dict[str, dict]) -> dict[tuple[str, str, str], int]:
    """Return {(class, resource, field): value} as the commands set them."""
    return {
        (name, limit["resource"], f"limit_{kind}_per_second"): limit[f"{kind}-per-second"]
        for name, arguments in classes.items()
        for limit in arguments.get("limits", [])
        for kind in ("bytes", "operations")
        if f"{kind}-per-second" in limit
    }


def shown_classes(monitor: str) -> dict[str, dict]:
    """Return QEMU's last answer about each class."""
    shown: dict[str, dict] = {}
    for line in monitor.splitlines():
        with contextlib.suppress(ValueError):
            answer = json.loads(line).get("return")
            for shaper in answer if isinstance(answer, list) else []:
                shown = {each["class"]: each for each in shaper["classes"]}
    return shown


def lacks(wanted: object, shown: object) -> bool:
    """Tell whether something wanted is not shown; lists of resources have any order."""
    if isinstance(wanted, dict):
        return not isinstance(shown, dict) or any(
            lacks(value, shown.get(name)) for name, value in wanted.items()
        )
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        return not isinstance(shown, list) or any(
            all(lacks(each, other) for other in shown) for each in wanted
        )
    return wanted != shown


def setting_complaints(classes: dict[str, dict], monitor: str) -> list[str]:
    """Return the settings that were made and are not shown."""
    shown = shown_classes(monitor)
    return [
        f"class {name}: {setting} is not {json.dumps(value)}"
        for name, arguments in classes.items()
        for setting, value in arguments.items()
        if setting != "id" and lacks(value, shown.get(name, {}).get(setting))
    ]


def traffic_complaints(name: str, reading: Reading) -> list[str]:
    """Return the events that no request, or no frame, has met."""
    found = []
    for resource in RESOURCES[name]:
        slots = [
            slot
            for (class_name, of), slot in reading.slots.items()
            if of == resource and class_name == OWN.get(name, class_name)
        ]
        passed = sum(each.requests for each in slots)
        held = sum(each.held_requests for each in slots)
        if not passed or not held:
            whose = f"class {OWN[name]}" if name in OWN else "all classes"
            found.append(f"{whose}, {resource}: {passed} passed, {held} of them held")
    for resource, events in HAPPENED.get(name, {}).items():
        happened = outcomes(reading, resource)
        found += [f"{resource}: no frame was {event}" for event in events if not happened[event]]
    return found


def outcomes(reading: Reading, resource: str) -> dict[str, int]:
    """Return how many frames of all classes were dropped, by reason, or marked."""
    slots = [slot.more for slot in reading.slots.values() if slot.resource == resource]
    drops = zip(*(more.drops for more in slots if more), strict=True)
    found = dict(zip(DROP_REASONS, map(sum, drops), strict=False))
    marked = sum(more.marked_requests for more in slots if more)
    return dict.fromkeys(DROP_REASONS, 0) | found | {"marked": marked}


def complaints(name: str, folder: Path, reading: Reading | None) -> list[str]:
    """Return the events that the run should have shown and did not."""
    if reading is None:
        return [f"{folder / name}.page was never there"]
    found = []
    classes = class_settings(folder / "commands.qmp")
    for (class_name, resource, field), value in wanted_limits(classes).items():
        slot = reading.slots.get((class_name, resource))
        if getattr(slot, field, None) != value:
            found.append(f"class {class_name}, {resource}: {field} is not {value}")
    monitor = (folder / f"{name}.monitor").read_text()
    refused = [line for line in monitor.splitlines() if '"error"' in line]
    found += [f"the monitor refused: {line}" for line in refused]
    found += setting_complaints(classes, monitor)
    return found or traffic_complaints(name, reading)


def summary(name: str, reading: Reading) -> str:
    """Return a summary of the run, for people."""
    told = []
    for resource in RESOURCES[name]:
        slots = [slot for slot in reading.slots.values() if slot.resource == resource]
        passed, held = (
            sum(each.requests for each in slots),
            sum(each.held_requests for each in slots),
        )
        happened = ", ".join(
            f"{count} {event}" for event, count in outcomes(reading, resource).items() if count
        )
        told.append(f"{resource} {passed} ({held} held{happened and '; ' + happened})")
    return ", ".join(told) or "settings are there"


def main(name: str, folder: Path, frame_folder: Path) -> int:
    """Serve until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    page, reading, read_at = folder / f"{name}.page", None, 0.0
    network = Network(
        folder / f"{name}-nic.socket", folder / f"{name}-net.socket", frames(frame_folder)
    )
    pages = CountersPages(time.monotonic_ns)
    while not ended:
        network.serve(READ_SECONDS)
        if time.monotonic() - read_at >= READ_SECONDS:
            read_at = time.monotonic()
            # It is not there yet, or no more.
            with contextlib.suppress(OSError, BadPage):
                reading = pages.read(str(page), reading)
    found = complaints(name, folder, reading)
    for complaint in found:
        print(f"missing: {complaint}")
    if reading is not None and not found:
        print(summary(name, reading))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
