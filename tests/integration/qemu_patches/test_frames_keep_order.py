# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames of one queue keep their order, also while the timer that releases them is late.

In real time: under qtest's clock no timer is ever late.
"""

import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

TOP = Path(__file__).resolve().parents[3]
sys.path.append(str(TOP / "qemu-patches" / "bench"))

from disk_driver import PATIENCE_S, Machine  # noqa: E402

SLOT, PORTS, RING_SIZE = 5, 0xD000, 1024
RING, DATA, BUFFER_BYTES = 0x3000000, 0x5000000, 2048
AVAIL = RING + 16 * RING_SIZE
USED = (AVAIL + 6 + 2 * RING_SIZE + 4095) & ~4095
HEADER_BYTES, WRITES = 10, 2
RATE, BURST_BYTES = 40_000, 60_000
LARGE, LARGE_BYTES = 60, 1500  # the burst, and 0.75 s
SMALL, SMALL_BYTES = 300, 60  # 0.45 s
STILL_S = 1.6
ETHERNET = b"\xff" * 6 + b"\x02\0\0\0\0\1" + b"\x88\xb5"
NUMBER = HEADER_BYTES + len(ETHERNET)


class Card:
    """A card of the machine that receives, and the far end of its wire."""

    def __init__(self, machine: Machine, wire: socket.socket, far: Path) -> None:
        self.machine, self.memory = machine, machine.memory
        self._wire, self._far = wire, far
        for register, value in ((0x10, PORTS), (4, 5)):
            machine.register(f"outl 0xcf8 {0x80000000 | SLOT << 11 | register:#x}")
            machine.register(f"outl 0xcfc {value:#x}")
        for status in (0, 3):
            machine.register(f"outb {PORTS + 18:#x} {status}")
        machine.register(f"outl {PORTS + 4:#x} 0")
        machine.register(f"outw {PORTS + 14:#x} 0")
        assert machine.register(f"inw {PORTS + 12:#x}") == RING_SIZE
        for number in range(RING_SIZE):
            place = DATA + number * BUFFER_BYTES
            self._write(RING + 16 * number, "<QIHH", place, BUFFER_BYTES, WRITES, 0)
            self._write(AVAIL + 4 + 2 * number, "<H", number)
        self._write(AVAIL, "<HH", 1, RING_SIZE)  # no interrupts; all buffers
        machine.register(f"outl {PORTS + 8:#x} {RING >> 12:#x}")
        machine.register(f"outb {PORTS + 18:#x} 7")
        machine.register(f"outw {PORTS + 16:#x} 0")

    def _write(self, place: int, form: str, *values: int) -> None:
        self.memory[place : place + struct.calcsize(form)] = struct.pack(form, *values)

    def _read(self, place: int, form: str) -> int:
        return struct.unpack_from(form, self.memory, place)[0]

    def send(self, number: int, size: int) -> None:
        frame = ETHERNET + struct.pack("<I", number)
        self._wire.sendto(frame.ljust(size, b"\0"), str(self._far))

    def received(self, count: int) -> list[int]:
        """The numbers of the frames as the guest finds them."""
        end = time.monotonic() + PATIENCE_S
        while self._read(USED + 2, "<H") < count:
            assert time.monotonic() < end
            time.sleep(0.01)
        buffers = [self._read(USED + 4 + 8 * i, "<I") for i in range(count)]
        return [self._read(DATA + i * BUFFER_BYTES + NUMBER, "<I") for i in buffers]


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Card]:
    near, far = tmp_path / "near", tmp_path / "far"
    netdev = f"dgram,id=n0,local.type=unix,local.path={far},remote.type=unix,remote.path={near}"
    device = f"virtio-net-pci,netdev=n0,disable-modern=on,addr={SLOT},mrg_rxbuf=off,romfile="
    more = ["-netdev", netdev, "-device", f"{device},shaper=sluice0"]
    qemu = TOP / "build" / "qemu" / "qemu-system-x86_64"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
        wire.bind(str(near))
        with Machine(qemu, tmp_path, shaper=True, more=more) as machine:
            limit = {"resource": "net-rx", "bytes-per-second": RATE, "burst-bytes": BURST_BYTES}
            machine.qmp(
                "shaper-set-class", id="sluice0", tag=0, limits=[limit], **{"class": "default"}
            )
            yield Card(machine, wire, far)


def test_a_frame_that_comes_when_others_are_due_goes_behind_them(card: Card):
    """The main loop stands still twice, the second time beyond the time of all that wait.

    Then it takes up a frame of those that are left before it looks at its timers.
    """
    for number in range(LARGE):
        card.send(number, LARGE_BYTES)
    small = Thread(target=lambda: [card.send(LARGE + i, SMALL_BYTES) for i in range(SMALL)])
    with card.machine.still_main_loop("first"):
        small.start()
        card.machine.send_still("second")
    time.sleep(STILL_S)
    card.machine.end_still("second")
    small.join()
    assert card.received(LARGE + SMALL) == list(range(LARGE + SMALL))
