# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses in an RTP stream of MPEG transport packets.

RTP (RFC 3550): each datagram has a sequence number of 16 bits, so a gap says exactly how many
datagrams are missing. A late datagram takes its loss back; a repeated one was not lost, and
counts once.

MPEG-2 transport stream (ISO/IEC 13818-1, 2.4.3): each PID counts its packets
with payload modulo 16. The counter stands still in a packet without payload,
may stand still once in a duplicate, may be anything after a packet which says
so (discontinuity_indicator), and means nothing on the null PID.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

PACKET_BYTES = 188
SYNC = 0x47
NULL_PID = 0x1FFF
RTP_HEADER_BYTES = 12
RTP_MP2T = 33
# A gap beyond this is a restarted sender (RFC 3550, A.1: MAX_DROPOUT), not loss.
RESTART_GAP = 3000
LATE_MOST = 100
PCR_HZ = 27_000_000
PCR_WRAP = (1 << 33) * 300


class NotAStream(ValueError):
    """The datagram is no RTP with transport packets."""


@dataclass(frozen=True)
class TsPacket:
    """The meter's part of one transport packet."""

    pid: int
    counter: int
    has_payload: bool
    discontinuity: bool
    pcr: int | None


def ts_packets(payload: bytes) -> Iterator[TsPacket]:
    """Read whole transport packets; NotAStream if they do not begin with a sync byte."""
    if len(payload) % PACKET_BYTES:
        raise NotAStream(f"{len(payload)} bytes are no whole transport packets of 188")
    for at in range(0, len(payload), PACKET_BYTES):
        if payload[at] != SYNC:
            raise NotAStream(f"byte {at} is {payload[at]:#x}, not the sync byte 0x47")
        flags = payload[at + 3]
        adaptation = flags & 0x20 and payload[at + 4]
        bits = payload[at + 5] if adaptation else 0
        pcr = None
        if bits & 0x10 and adaptation >= 7:
            high, low = struct.unpack_from(">IH", payload, at + 6)
            pcr = ((high << 1) | (low >> 15)) * 300 + (low & 0x1FF)
        yield TsPacket(
            ((payload[at + 1] & 0x1F) << 8) | payload[at + 2],
            flags & 0x0F,
            bool(flags & 0x10),
            bool(bits & 0x80),
            pcr,
        )


@dataclass
class Continuity:
    """Continuity errors over all PIDs."""

    errors: int = 0
    _last: dict[int, int] = field(default_factory=dict)
    _repeated: set[int] = field(default_factory=set)

    def add(self, packet: TsPacket) -> None:
        if packet.pid == NULL_PID:
            return
        last = self._last.get(packet.pid)
        if packet.discontinuity or last is None:
            self._accept(packet)
        elif not packet.has_payload:
            # The counter must not move; a move is a loss before this packet.
            if packet.counter != last:
                self.errors += 1
                self._accept(packet)
        elif packet.counter == (last + 1) % 16:
            self._accept(packet)
        elif packet.counter == last and packet.pid not in self._repeated:
            self._repeated.add(packet.pid)
        else:
            self.errors += 1
            self._accept(packet)

    def _accept(self, packet: TsPacket) -> None:
        self._last[packet.pid] = packet.counter
        self._repeated.discard(packet.pid)


def rtp_payload(datagram: bytes) -> tuple[int, bytes]:
    """Return (sequence number, payload) of an RTP datagram with transport packets."""
    if len(datagram) < RTP_HEADER_BYTES or datagram[0] >> 6 != 2:
        raise NotAStream("the datagram is no RTP version 2")
    if datagram[1] & 0x7F != RTP_MP2T:
        raise NotAStream(f"RTP payload type {datagram[1] & 0x7F}, expected {RTP_MP2T} (MP2T)")
    start = RTP_HEADER_BYTES + 4 * (datagram[0] & 0x0F)
    end = len(datagram)
    if datagram[0] & 0x10:
        if start + 4 > end:
            raise NotAStream("the RTP header extension is cut")
        start += 4 + 4 * struct.unpack_from(">H", datagram, start + 2)[0]
    if datagram[0] & 0x20:
        end -= datagram[-1]
    if start > end:
        raise NotAStream("the RTP datagram is cut")
    return struct.unpack_from(">H", datagram, 2)[0], datagram[start:end]


@dataclass
class Sequence:
    """Datagrams received and missing, by their sequence numbers."""

    received: int = 0
    lost: int = 0
    restarts: int = 0
    _next: int | None = None
    _missing: set[int] = field(default_factory=set)  # lost, and may still come late

    def add(self, number: int) -> bool:
        """Count a datagram; False if it came after later ones."""
        if self._next is None:
            self._next = number
        ahead = (number - self._next) % 65536
        behind = 65536 - ahead
        if ahead >= RESTART_GAP and behind > LATE_MOST:
            self.restarts += 1
            self._missing.clear()
            ahead = 0
        elif ahead >= RESTART_GAP:
            if number in self._missing:
                self._missing.remove(number)
                self.received += 1
                self.lost -= 1
            return False
        self.received += 1
        self.lost += ahead
        self._note_missing(number, ahead)
        self._next = (number + 1) % 65536
        return True

    def _note_missing(self, number: int, ahead: int) -> None:
        """Remember the ``ahead`` numbers before this one, as long as they may come late."""
        new = range(number - min(ahead, LATE_MOST), number)
        self._missing.update(missing % 65536 for missing in new)
        self._missing = {m for m in self._missing if (number - m) % 65536 <= LATE_MOST}
