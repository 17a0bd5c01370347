#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fuzzed device has beside it: a network, and somebody who reads its page.

The network is a pair of datagram sockets, FOLDER/NAME-nic.socket of QEMU and
FOLDER/NAME-net.socket of ours. Frames are sent as long as QEMU takes some, one
after the other, over and over; what it sends is read and forgotten.

The counters page, FOLDER/NAME.page, is read several times a second, because QEMU
removes it when it ends. On SIGTERM the last reading is judged: every limit that
FOLDER/commands.qmp sets must be there, no command may have been refused
(FOLDER/NAME.monitor), and on each resource of the device requests of the default
class must have gone, waited and, for frames from the network, come.

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
from sluice_controller.domain.counters import BadPage, Reading

READ_SECONDS = 0.1
CONNECT_SECONDS = 0.005
ROOM_BYTES = 1 << 17
RESOURCES = {
    "virtio-blk": ("blk-read", "blk-write"),
    # Has no driver among its inputs, see fuzz.sh; what random ones do is luck.
    "virtio-blk-iothread": (),
    "virtio-net": ("net-tx", "net-rx"),
}
# DSCPs of the default class, of class bulk, and expedited forwarding.
DSCPS = (0, 11, 46)
SIZES = (60, 1514, 9000, 65000)


def udp_frame(dscp: int, size: int) -> bytes:
    """Return an IPv4 frame to everybody."""
    frame = bytearray(size)
    frame[0:6] = b"\xff" * 6
    frame[6] = 2
    frame[12:14] = b"\x08\x00"
    frame[14:16] = bytes((0x45, dscp << 2))
    frame[16:18] = (size - 14).to_bytes(2, "big")
    frame[22:24] = bytes((64, 17))
    return bytes(frame)


def frames(folder: Path) -> list[bytes]:
    """Return what comes from the network: good frames, and the seeds of their fuzzer."""
    good = [udp_frame(dscp, size) for size in SIZES for dscp in DSCPS]
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
        """Take what there is and send what there is room for, waiting so long at most."""
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


def wanted_limits(commands: Path) -> dict[tuple[str, str, str], int]:
    """Return {(class, resource, field): value} as the commands set them."""
    wanted = {}
    for line in commands.read_text().splitlines():
        command = json.loads(line)
        if command["execute"] == "shaper-set-class":
            arguments = command["arguments"]
            for limit in arguments["limits"]:
                for kind in ("bytes", "operations"):
                    value = limit.get(f"{kind}-per-second")
                    if value:
                        field = f"limit_{kind}_per_second"
                        wanted[arguments["class"], limit["resource"], field] = value
    return wanted


def complaints(name: str, folder: Path, reading: Reading | None) -> list[str]:
    """Return what the run should have shown and did not."""
    if reading is None:
        return [f"{folder / name}.page was never there"]
    found = []
    for (class_name, resource, field), value in wanted_limits(folder / "commands.qmp").items():
        slot = reading.slots.get((class_name, resource))
        if getattr(slot, field, None) != value:
            found.append(f"class {class_name}, {resource}: {field} is not {value}")
    found += [
        f"the monitor refused: {line}"
        for line in (folder / f"{name}.monitor").read_text().splitlines()
        if '"error"' in line
    ]
    for resource in RESOURCES[name]:
        slot = reading.slots["default", resource]
        if not slot.requests or not slot.held_requests:
            found.append(f"{resource}: {slot.requests} passed, {slot.held_requests} of them held")
    return found


def summary(name: str, reading: Reading) -> str:
    """Return what was done, for people."""
    slots = [reading.slots["default", resource] for resource in RESOURCES[name]]
    done = (
        f"{slot.resource} {slot.requests} ({slot.held_requests} held, "
        f"{slot.dropped_requests} dropped)"
        for slot in slots
    )
    return ", ".join(done) or "limits are there"


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
                reading = pages.read(str(page))
    found = complaints(name, folder, reading)
    for complaint in found:
        print(f"missing: {complaint}")
    if reading is not None and not found:
        print(summary(name, reading))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
