# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds RTP datagrams with transport packets for the meter's tests."""

import struct

VIDEO = 0x100
PCR_HZ = 27_000_000


def ts_packet(
    pid: int,
    counter: int,
    *,
    payload: bool = True,
    pcr: int | None = None,
    discontinuity: bool = False,
) -> bytes:
    """Return one packet of 188 bytes; an adaptation field appears if it is needed."""
    field = b""
    if pcr is not None or discontinuity or not payload:
        flags = (0x80 if discontinuity else 0) | (0x10 if pcr is not None else 0)
        body = bytes([flags])
        if pcr is not None:
            base, extension = divmod(pcr % ((1 << 33) * 300), 300)
            body += struct.pack(">IH", base >> 1, ((base & 1) << 15) | 0x7E00 | extension)
        if not payload:
            body += b"\xff" * (183 - len(body))
        field = bytes([len(body)]) + body
    control = (0x20 if field else 0) | (0x10 if payload else 0)
    head = struct.pack(">BHB", 0x47, pid & 0x1FFF, control | (counter & 15))
    packet = head + field
    return packet + b"\x00" * (188 - len(packet))


def rtp(number: int, payload: bytes, *, kind: int = 33, timestamp: int = 0) -> bytes:
    """Return an RTP datagram."""
    return struct.pack(">BBHII", 0x80, kind, number & 0xFFFF, timestamp, 1) + payload


class Programme:
    """A stream of one PID at a constant rate: one datagram of seven packets each step."""

    def __init__(self, step_s: float = 0.0015, first_number: int = 0, first_pcr: int = 0):
        self.step_s = step_s
        self._index = 0
        self._counter = 0
        self._number = first_number
        self._first_pcr = first_pcr

    def datagram(self) -> bytes:
        """Return the next datagram; its first packet carries the clock."""
        pcr = self._first_pcr + round(self._index * self.step_s * PCR_HZ)
        packets = []
        for position in range(7):
            packets.append(ts_packet(VIDEO, self._counter, pcr=pcr if position == 0 else None))
            self._counter += 1
        self._index += 1
        self._number += 1
        return rtp(self._number - 1, b"".join(packets))
