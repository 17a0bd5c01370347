#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the device fuzzer's first inputs: drivers that get requests to the shaper.

From random bytes alone the generic fuzzer finds the registers, but no ring with a
request in it. An input is a list of operations with a separator between them
(tests/qtest/fuzz/generic_fuzz.c in QEMU): the first byte says which. These here
write the registers of a device from before virtio 1.0, in its only I/O region,
and fill the guest's memory for the device's reads: each read finds the next pattern,
over and over.

A disk's driver has a pattern for each read, in their order. A card's has one for
all: 16 bytes that are a descriptor, the first two of them COUNT, as the index of
the ring, as a place in it, and as its flags. So its frames are no IP packets.

A driver of frames with a DSCP needs a ring that is in memory. The bytes to be sent are
written there when the device maps them: a pattern for each read up to that puts
anything anywhere (`place`). Patterns go on, and the faults that the device finds then
end with the next reset. Then there are no patterns, and it reads what is there.

Classes are chosen by their tags (docs/specs/tags.md): the inputs have each of them.

usage: fuzz_device_seeds.py NAME FOLDER
"""

import struct
import sys
from collections.abc import Iterable
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
# Pages of the queues' rings, so far apart; others for the driver that places things.
RING_PAGE, RING_PAGES, PLACING_PAGE = 0x200, 0x10, 0x240
PAGE_BYTES = 4096
# A ring begins behind its table, which has so many descriptors.
ENTRIES, DESCRIPTOR_BYTES = (1024, 1024), 16
# Of a received frame of any size, with its header.
BUFFER_BYTES = 70_000
REALTIME, HINT_SHIFT = 1 << 13, 3
TAGS = range(14)
LOCAL_DSCP = 3
ECN_CAPABLE = 2
SYN, ACK = 2, 16
# Frames one behind another, each of which goes on into the next ones: the bytes behind
# their headers are of no interest.
FRAMES, FRAME_AT, HEADER_BYTES = 0x320000, 64, 10
MANY = 16
BUFFERS = (8, 20, 40, 60)
SIZES = (1000, 400, 700, 1400)
# Classes of fuzz_shaper.py that drop or mark frames that wait for long: more chances.
DROPPING = (1, 3, 8)
# Longer than the interval of CoDel, at the rates of fuzz_shaper.py. Timers of the
# shaper itself are met, too.
MANY_STEPS = 90


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


def driver(queues: Iterable[int], page: int = RING_PAGE) -> list[bytes]:
    """Return the operations that start the device with these queues."""
    start = [write(STATUS, 0), write(STATUS, DRIVER)]
    for queue in queues:
        start += [write(SELECT, queue), write(PAGE, page + RING_PAGES * queue)]
    return [*start, write(STATUS, DRIVER_OK)]


def notify(queue: int, steps: int = COUNT + 2) -> list[bytes]:
    """Return the operations that make the device look, and let all held requests go."""
    return [write(NOTIFY, queue)] + [bytes((CLOCK,))] * steps


def ioprio(tag: int) -> int:
    """Return the ioprio of a disk's request in the class of a tag."""
    return REALTIME | tag >> 3 << HINT_SHIFT | tag & 7 if tag else 0


def disk_input(kind: int, tag: int = 0, queue: int = 0) -> list[bytes]:
    """Return the driver that has COUNT reads or writes of 4096 bytes in the ring."""
    payload = WRITE if kind == READ_REQUEST else 0
    request = [
        bytes(2),
        descriptor(MEMORY, 16, NEXT, 1),
        struct.pack("<IIQ", kind, ioprio(tag), 0),
        descriptor(MEMORY + 0x1000, 4096, NEXT | payload, 2),
        b"\x55",
        descriptor(MEMORY + 0x2000, 1, WRITE),
        b"\xff",
    ]
    ring = [bytes(2), struct.pack("<H", COUNT)]
    found = driver(range(queue + 1)) + [pattern(data) for data in ring + request * COUNT]
    return found + notify(queue, 2 * COUNT + 2)


def place(address: int, data: bytes) -> list[bytes]:
    """Return the operations by which a card's driver has data at an address: it sends them.

    There is no receive queue: QEMU looks at that again and again as long as it
    changes (virtio_net_has_buffers), and with several patterns it always does.
    """
    reads = [bytes(2), struct.pack("<H", 1), bytes(2), descriptor(address, len(data), 0), data]
    return [
        *driver([TRANSMIT], PLACING_PAGE),
        bytes((CLEAR,)),
        *(pattern(each) for each in reads),
        write(NOTIFY, TRANSMIT),
        bytes((CLEAR,)),
    ]


def frame(tag: int, port: int, ecn: int = 0, flags: int = ACK) -> bytes:
    """Return the headers of a TCP segment of a class, behind those of virtio."""
    service = (tag << 2 | LOCAL_DSCP) << 2 if tag else 0
    return b"".join((
        bytes(HEADER_BYTES),
        b"\xff" * 6 + b"\x02" + bytes(5) + b"\x08\x00",
        struct.pack(">BBHIBBHII", 0x45, service | ecn, 1000, 0, 64, 6, 0, 1, 2),
        struct.pack(">HHIIBBHI", port, 80, 0, 0, 0x50, flags, 0, 0),
    ))  # fmt: skip


def place_ring(queue: int, table: list[bytes]) -> list[bytes]:
    """Return the operations that place the ring of a card's queue, with all of the table."""
    at = (RING_PAGE + RING_PAGES * queue) * PAGE_BYTES
    ring = struct.pack(f"<HH{len(table)}H", 0, len(table), *range(len(table)))
    return [
        *place(at, b"".join(table)),
        *place(at + ENTRIES[queue] * DESCRIPTOR_BYTES, ring),
    ]


def send_input(frames: list[bytes], size: int) -> list[bytes]:
    """Return the driver that sends frames of so many bytes."""
    table = [descriptor(FRAMES + FRAME_AT * at, size, 0) for at in range(len(frames))]
    return [
        *place(FRAMES, b"".join(each.ljust(FRAME_AT, b"\0") for each in frames)),
        *place_ring(TRANSMIT, table),
        *driver([TRANSMIT]),
        *notify(TRANSMIT, MANY_STEPS),
    ]


def receive_input(buffers: int) -> list[bytes]:
    """Return the driver that offers so many buffers for any frame."""
    table = [descriptor(MEMORY, BUFFER_BYTES, WRITE)] * buffers
    return [*place_ring(RECEIVE, table), *driver([RECEIVE]), *notify(RECEIVE, MANY_STEPS)]


def card_input(queues: list[int]) -> list[bytes]:
    """Return the driver that sends COUNT frames, or offers COUNT buffers, or both."""
    operations = driver([RECEIVE, TRANSMIT])
    for queue in queues:
        size, flags = (70, 0) if queue == TRANSMIT else (2048, WRITE)
        operations += [bytes((CLEAR,)), pattern(descriptor(MEMORY + COUNT, size, flags))]
        operations += notify(queue)
    return operations


def waiting_input() -> list[bytes]:
    """Return the input that does nothing while the monitor reads its commands.

    A small one, for inputs are tried in the order of their sizes.
    """
    return [bytes((CLEAR,))] * 40


def disk_inputs() -> dict[str, list[bytes]]:
    """Return reads and writes of each class, and on the other queue."""
    found = {"waiting": waiting_input()}
    for what, kind in (("read", READ_REQUEST), ("write", WRITE_REQUEST)):
        found |= {f"{what}-{tag}": disk_input(kind, tag) for tag in TAGS}
        found[f"{what}-own"] = disk_input(kind, queue=1)
    return found


def card_inputs() -> dict[str, list[bytes]]:
    """Return the inputs that send in each class, in all of them, and that receive."""
    return {
        "waiting": waiting_input(),
        "transmit": card_input([TRANSMIT]),
        "receive": card_input([RECEIVE]),
        "both": card_input([TRANSMIT, RECEIVE]),
        **{f"receive-{buffers}": receive_input(buffers) for buffers in BUFFERS},
        "mixed": send_input([frame(at % len(TAGS), at) for at in range(MANY)], 500),
        "opening": send_input([frame(at, 7, flags=SYN) for at in TAGS], 100),
        **{
            f"transmit-{tag}-{size}": send_input(
                [frame(tag, at % 3, ECN_CAPABLE * (at % 4 > 0)) for at in range(MANY)], size
            )
            for tag in TAGS
            for size in (SIZES if tag in DROPPING else SIZES[:1])
        },
    }


INPUTS = {
    "virtio-blk": disk_inputs(),
    "virtio-net": card_inputs(),
    "virtio-net-own": card_inputs(),
}


def main(name: str, folder: Path) -> None:
    """Write the inputs of a device into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, operations in INPUTS[name].items():
        (folder / what).write_bytes(SEPARATOR.join(operations))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
