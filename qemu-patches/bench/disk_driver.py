# SPDX-License-Identifier: GPL-2.0-or-later
"""Drives a virtio-blk disk of a QEMU that runs in real time, without a guest.

Under qtest's clock no timer is ever late. So QEMU runs with TCG here; its processor halts at once,
and its memory is a file that this process has mapped: requests are written into the ring, and
answers read from it, also while QEMU's main loop stands still. The device's registers (virtio
legacy, PCI) are reached by ``-qtest``.
"""

import copy
import json
import mmap
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RING_SIZE = 1024
MEMORY_BYTES = 128 << 20
SLOT, PORTS = 4, 0xC000
RING, REQUESTS, DATA = 0x1000000, 0x2000000, 0x4000000
AVAIL = RING + 16 * RING_SIZE
USED = (AVAIL + 6 + 2 * RING_SIZE + 4095) & ~4095
FIRMWARE = ("/usr/share/qemu", "/usr/share/seabios", "/usr/lib/ipxe/qemu")
# The reset vector: hlt, and a jump back to it.
HALT = (b"\xf4" * (65536 - 16)) + b"\xfa\xf4\xeb\xfd" + b"\xf4" * 12
INDIRECT, WRITES, NEXT = 4, 2, 1
MANAGED_TAG = 1 << 13  # the real-time I/O class
DISK = "driver=null-co,node-name=d0,size=1073741824,read-zeroes=off"
PATIENCE_S = 120


class Machine:
    """A QEMU with a disk of null-co in an I/O thread of its own, ``io0``.

    ``shaper``: the disk has the shaper ``sluice0``. ``throttle``: the options of a throttle group
    above the disk. ``more``: further arguments. ``folder`` is for its sockets.
    """

    def __init__(
        self,
        qemu: Path,
        folder: Path,
        shaper: bool = False,
        throttle: str = "",
        more: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        (folder / "halt.rom").write_bytes(HALT)
        node = "t0" if throttle else "d0"
        # fmt: off
        command = [
            str(qemu), "-nodefaults", "-display", "none", "-machine", "pc,memory-backend=m",
            "-accel", "tcg", "-m", "128", "-vga", "none", "-net", "none",
            "-name", "bench,debug-threads=on", "-bios", str(folder / "halt.rom"),
            "-object", f"memory-backend-file,id=m,size=128M,mem-path={folder}/memory,share=on",
            "-qmp", f"unix:{folder}/qmp,server=on,wait=off",
            "-qtest", f"unix:{folder}/qtest,server=on,wait=off", "-qtest-log", "/dev/null",
            "-object", "iothread,id=io0", "-blockdev", DISK,
        ]
        # fmt: on
        for place in FIRMWARE:
            command += ["-L", place]
        if throttle:
            command += ["-object", f"throttle-group,id=tg,{throttle}"]
            command += ["-blockdev", "driver=throttle,node-name=t0,throttle-group=tg,file=d0"]
        device = f"virtio-blk-pci,drive={node},iothread=io0,disable-modern=on,addr={SLOT}"
        device += f",queue-size={RING_SIZE}"
        if shaper:
            command += ["-object", f"shaper,id=sluice0,page={folder}/page"]
            device += ",shaper=sluice0"
        self.process = subprocess.Popen([*command, "-device", device, *more])
        self.slot, self.ports, self.offset = SLOT, PORTS, 0
        self.added = 0
        try:
            self._qmp = self._connect("qmp")
            self._qmp.readline()
            self.qmp("qmp_capabilities")
            self._qtest = self._connect("qtest")
            with (folder / "memory").open("r+b") as memory:
                self.memory = mmap.mmap(memory.fileno(), MEMORY_BYTES)
            self._start_disk()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _connect(self, name: str):
        end = time.monotonic() + PATIENCE_S
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.folder / name))
                return connection.makefile("rw")
            except OSError:
                connection.close()
                if self.process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def send(self, command: str, **arguments: object) -> None:
        """A QMP command, whose answer ``receive()`` awaits."""
        self._qmp.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._qmp.flush()

    def receive(self) -> object:
        answer = json.loads(self._qmp.readline())
        while "event" in answer:
            answer = json.loads(self._qmp.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"]["desc"])
        return answer["return"]

    def qmp(self, command: str, **arguments: object) -> object:
        self.send(command, **arguments)
        return self.receive()

    def register(self, line: str) -> int:
        """A command of -qtest. Returns its value, or 0."""
        self._qtest.write(line + "\n")
        self._qtest.flush()
        while True:
            words = self._qtest.readline().split()
            if words and words[0] == "OK":
                return int(words[1], 16) if len(words) > 1 else 0
            if not words or words[0] != "IRQ":
                raise RuntimeError(f"{line}: {words}")

    def at(self, slot: int) -> "Machine":
        """The machine, to drive another disk of it, which is in that slot."""
        other = copy.copy(self)
        other.slot, other.added = slot, 0
        other.ports = PORTS + (slot - SLOT) * 0x100
        other.offset = (slot - SLOT) << 20
        other._start_disk()
        return other

    def _start_disk(self) -> None:
        for register, value in ((0x10, self.ports), (4, 5)):
            self.register(f"outl 0xcf8 {0x80000000 | self.slot << 11 | register:#x}")
            self.register(f"outl 0xcfc {value:#x}")
        for status in (0, 3):
            self.register(f"outb {self.ports + 18:#x} {status}")
        features = self.register(f"inl {self.ports:#x}")
        self.register(f"outl {self.ports + 4:#x} {features & (1 << 28):#x}")  # indirect descriptors
        self.register(f"outw {self.ports + 14:#x} 0")
        assert self.register(f"inw {self.ports + 12:#x}") == RING_SIZE
        self._write(RING, bytes(0x20000))
        self._write(AVAIL, struct.pack("<H", 1))  # no interrupts
        self.register(f"outl {self.ports + 8:#x} {RING + self.offset >> 12:#x}")
        self.register(f"outb {self.ports + 18:#x} 7")

    def _write(self, place: int, data: bytes) -> None:
        place += self.offset
        self.memory[place : place + len(data)] = data

    def add(self, number: int, tag: int = 0, size: int = 4096) -> None:
        """A read, as entry ``number`` of the ring; kick() shows it to the device."""
        place, sector = REQUESTS + number * 256, number * 16
        table = place + 64
        ioprio = MANAGED_TAG | (tag & 7) | (tag >> 3 << 3) if tag else 0
        self._write(place, struct.pack("<IIQ", 0, ioprio, sector))
        self._write(
            table,
            struct.pack("<QIHH", place + self.offset, 16, NEXT, 1)
            + struct.pack("<QIHH", DATA, size, NEXT | WRITES, 2)
            + struct.pack("<QIHH", place + 32 + self.offset, 1, WRITES, 0),
        )
        entry = struct.pack("<QIHH", table + self.offset, 48, INDIRECT, 0)
        self._write(RING + 16 * number, entry)
        self._write(AVAIL + 4 + 2 * (self.added % RING_SIZE), struct.pack("<H", number))
        self.added += 1

    def show(self) -> None:
        """The device may see what was added; one that polls does."""
        self._write(AVAIL + 2, struct.pack("<H", self.added & 0xFFFF))

    def kick(self) -> None:
        self.show()
        self.register(f"outw {self.ports + 16:#x} 0")

    def done(self) -> int:
        """How many requests are done, modulo 2^16."""
        return struct.unpack_from("<H", self.memory, USED + 2 + self.offset)[0]

    def wait(self) -> None:
        """Until all is done that was added."""
        end = time.monotonic() + PATIENCE_S
        while self.done() != self.added & 0xFFFF:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.done()} of {self.added & 0xFFFF} requests are done")
            time.sleep(0.0003)

    def send_still(self, name: str) -> None:
        """The main loop will wait for the reader of a file, as for a server that hangs."""
        fifo = self.folder / name
        os.mkfifo(fifo)
        self.send("pmemsave", val=0, size=4096, filename=str(fifo))

    def end_still(self, name: str) -> None:
        (self.folder / name).read_bytes()
        self.receive()
        (self.folder / name).unlink()

    @contextmanager
    def still_main_loop(self, name: str = "fifo") -> Iterator[None]:
        """The main loop waits for the reader of a file, as it would for a server that hangs."""
        self.send_still(name)
        time.sleep(0.1)
        try:
            yield
        finally:
            self.end_still(name)

    def cpu_ns(self, name: str = "") -> int:
        """The processor time of its threads whose name begins so."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text().startswith(name):
                total += int((task / "schedstat").read_text().split()[0])
        return total
