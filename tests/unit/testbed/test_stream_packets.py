# SPDX-License-Identifier: GPL-2.0-or-later
"""RTP sequence numbers and continuity counters (ISO/IEC 13818-1, 2.4.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.stream.packets import (
    NULL_PID,
    Continuity,
    NotAStream,
    Sequence,
    rtp_payload,
    ts_packets,
)
from unit.testbed.stream_data import VIDEO, rtp, ts_packet


def errors_of(*packets: bytes) -> int:
    continuity = Continuity()
    for packet in packets:
        for parsed in ts_packets(packet):
            continuity.add(parsed)
    return continuity.errors


def test_counters_in_order_are_no_error_across_the_wrap():
    assert errors_of(*(ts_packet(VIDEO, n) for n in range(40))) == 0


def test_a_missing_packet_is_one_error():
    assert errors_of(ts_packet(VIDEO, 3), ts_packet(VIDEO, 5), ts_packet(VIDEO, 6)) == 1


def test_one_duplicate_is_allowed_a_second_is_not():
    first = ts_packet(VIDEO, 7)
    assert errors_of(first, first, ts_packet(VIDEO, 8)) == 0
    assert errors_of(first, first, first) == 1


def test_the_counter_stands_still_without_payload():
    empty = ts_packet(VIDEO, 4, payload=False)
    assert errors_of(ts_packet(VIDEO, 4), empty, empty, ts_packet(VIDEO, 5)) == 0


def test_a_moved_counter_without_payload_is_an_error():
    assert errors_of(ts_packet(VIDEO, 4), ts_packet(VIDEO, 6, payload=False)) == 1


def test_an_announced_discontinuity_is_none():
    assert errors_of(ts_packet(VIDEO, 4), ts_packet(VIDEO, 11, discontinuity=True)) == 0


def test_null_packets_have_no_order_and_pids_count_apart():
    assert errors_of(ts_packet(NULL_PID, 4), ts_packet(NULL_PID, 9)) == 0
    assert errors_of(ts_packet(1, 4), ts_packet(2, 9), ts_packet(1, 5), ts_packet(2, 10)) == 0


@pytest.mark.parametrize("pcr", [0, 1, 299, 300, 27_000_000, (1 << 33) * 300 - 1])
def test_the_clock_is_read_back(pcr):
    (packet,) = ts_packets(ts_packet(VIDEO, 0, pcr=pcr))
    assert packet.pcr == pcr


@pytest.mark.parametrize(
    "data", [b"x", b"\x47" * 187, b"\x00" * 188, ts_packet(1, 0) + b"\x00" * 188]
)
def test_what_is_no_transport_stream_is_refused(data):
    with pytest.raises(NotAStream):
        list(ts_packets(data))


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x80\x21\x00",
        rtp(1, b"", kind=96),
        b"\x40" + rtp(1, b"")[1:],
        b"\x8f" + rtp(1, b"")[1:],
        b"\x90" + rtp(1, b"")[1:],
    ],
)
def test_what_is_no_rtp_of_a_transport_stream_is_refused(datagram):
    with pytest.raises(NotAStream):
        rtp_payload(datagram)


@given(st.binary(max_size=2000))
def test_any_datagram_is_either_read_or_refused(data):
    try:
        _, payload = rtp_payload(data)
        packets = list(ts_packets(payload))
    except NotAStream:
        return
    assert len(packets) * 188 == len(payload)


def count(numbers) -> Sequence:
    sequence = Sequence()
    for number in numbers:
        sequence.add(number % 65536)
    return sequence


def test_gaps_are_losses_across_the_wrap():
    sequence = count([65533, 65534, 1, 2])
    assert (sequence.received, sequence.lost) == (4, 2)


def test_a_late_datagram_takes_its_loss_back():
    sequence = count([1, 2, 4, 3, 5])
    assert (sequence.received, sequence.lost) == (5, 0)


def test_a_restarted_sender_is_no_loss():
    sequence = count([10, 11, 40_000, 40_001])
    assert (sequence.lost, sequence.restarts) == (0, 1)


@given(
    first=st.integers(0, 65535),
    kept=st.lists(st.booleans(), min_size=2, max_size=400).filter(lambda k: k[0] and k[-1]),
)
def test_received_and_lost_add_up_to_what_was_sent(first, kept):
    sequence = count(first + n for n, keep in enumerate(kept) if keep)
    assert sequence.received == sum(kept)
    assert sequence.lost == len(kept) - sum(kept)


@given(
    first=st.integers(0, 65535),
    order=st.permutations(range(1, 40)),
    window=st.integers(1, 5),
)
def test_reordering_is_no_loss(first, order, window):
    """Datagrams that swap places within a few positions."""
    nearby = sorted(order, key=lambda n: (n - 1) // window)
    numbers = [0, *nearby, 40]
    sequence = count(first + n for n in numbers)
    assert (sequence.received, sequence.lost) == (41, 0)
