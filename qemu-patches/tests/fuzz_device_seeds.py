#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the device fuzzer's first inputs: drivers that get requests to the shaper.

From random bytes alone the generic fuzzer finds the registers, but no ring with a
request in it. An input is a list of operations with a separator between them
(tests/qtest/fuzz/generic_fuzz.c in QEMU): the first byte says which. These here
write the registers of a device from before virtio 1.0, in its only I/O region,
and say what the device finds when it reads the guest's memory: each read finds
the next pattern, over and over.

A disk's driver has a pattern for each read, in their order. A card's has one for
all: 16 bytes that are a descriptor, and whose first two are COUNT, as the index of
the ring, as a place in it, and as its flags.

usage: fuzz_device_seeds.py NAME FOLDER
"""

import struct
import sys
from pathlib import Path

SEPARATOR = b"FUZZ"
OUT, PATTERN, CLEAR, CLOCK = 1, 7, 8, 9
# Registers, with the code of their size: a byte, two or four.
PAGE, SELECT, NOTIFY, STATUS = (0x08, 2), (0x0E, 1), (0x10, 1), (0x12, 0)
DRIVER, DRIVER_OK = 3, 7
NEXT, WRITE = 1, 2
READ_REQUEST, WRITE_REQUEST = 0, 1
# More than pass at once, so that some are held.
COUNT = 4
MEMORY = 0x300000
RECEIVE, TRANSMIT = 0, 1


def write(register: tuple[int, int], value: int) -> bytes:
    """Return the operation that writes a register."""
    offset, size = register
    return struct.pack("<BBBHI", OUT, size, 0, offset, value)


def pattern(data: bytes) -> bytes:
    """Return the operation that appends a pattern, which stays as it is."""
    return bytes((PATTERN, 0, 0)) + data


def descriptor(address: int, size: int, flags: int, following: int = 0) -> bytes:
    """Return an entry of a split virtqueue's table."""
    return struct.pack("<QIHH", address, size, flags, following)


def driver(queues: int) -> list[bytes]:
    """Return what starts the device."""
    start = [write(STATUS, 0), write(STATUS, DRIVER)]
    for queue in range(queues):
        start += [write(SELECT, queue), write(PAGE, 0x200 + 0x10 * queue)]
    return [*start, write(STATUS, DRIVER_OK)]


def notify(queue: int) -> list[bytes]:
    """Return what makes the device look, and lets all that it holds go."""
    return [write(NOTIFY, queue)] + [bytes((CLOCK,))] * (COUNT + 2)


def disk_input(kind: int) -> list[bytes]:
    """Return the driver that has COUNT reads or writes of 4096 bytes in the ring."""
    payload = WRITE if kind == READ_REQUEST else 0
    request = [
        bytes(2),
        descriptor(MEMORY, 16, NEXT, 1),
        struct.pack("<IIQ", kind, 0, 0),
        descriptor(MEMORY + 0x1000, 4096, NEXT | payload, 2),
        b"\x55",
        descriptor(MEMORY + 0x2000, 1, WRITE),
        b"\xff",
    ]
    ring = [bytes(2), struct.pack("<H", COUNT)]
    return driver(1) + [pattern(data) for data in ring + request * COUNT] + notify(0)


def card_input(queues: list[int]) -> list[bytes]:
    """Return the driver that sends COUNT frames, or offers COUNT buffers, or both."""
    operations = driver(2)
    for queue in queues:
        size, flags = (70, 0) if queue == TRANSMIT else (2048, WRITE)
        operations += [bytes((CLEAR,)), pattern(descriptor(MEMORY + COUNT, size, flags))]
        operations += notify(queue)
    return operations


INPUTS = {
    "virtio-blk": {"read": disk_input(READ_REQUEST), "write": disk_input(WRITE_REQUEST)},
    "virtio-net": {
        "transmit": card_input([TRANSMIT]),
        "receive": card_input([RECEIVE]),
        "both": card_input([TRANSMIT, RECEIVE]),
    },
}


def main(name: str, folder: Path) -> None:
    """Write the inputs of a device into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, operations in INPUTS[name].items():
        (folder / what).write_bytes(SEPARATOR.join(operations))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
