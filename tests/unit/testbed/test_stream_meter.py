# SPDX-License-Identifier: GPL-2.0-or-later
"""The meter as a whole, its verdict, and VLC's statistics."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.stream import Meter, Window, judge, total
from testbed.stream.decoder import Counts, Viewer, parse_stats, vlc_command
from testbed.stream.verdict import delivered_ratio, verdict_of
from unit.testbed.stream_data import Programme, rtp


def run(meter: Meter, programme: Programme, seconds: float, start: float = 0.0, lose=()) -> None:
    for index in range(round(seconds / programme.step_s)):
        datagram = programme.datagram()
        if index not in lose:
            meter.add(datagram, start + index * programme.step_s)


def test_a_clean_stream_is_perfect():
    meter = Meter(1.0)
    run(meter, Programme(), 10)
    window = meter.close_window(10.0)
    assert verdict_of(window) == "perfect"
    assert window.received_datagrams == round(10 / 0.0015)
    assert window.received_bytes == window.received_datagrams * 7 * 188
    assert window.max_gap_ms == pytest.approx(1.5, abs=0.1)
    assert delivered_ratio(window) == 1.0


def test_one_lost_datagram_is_not_perfect():
    meter = Meter(1.0)
    run(meter, Programme(), 10, lose={3000})
    window = meter.close_window(10.0)
    assert (window.lost_datagrams, window.continuity_errors) == (1, 1)
    assert verdict_of(window) == "good"


def test_windows_add_up_and_the_gap_is_the_largest():
    meter, programme = Meter(1.0), Programme()
    windows = []
    for second in range(5):
        run(meter, programme, 1, start=float(second), lose={5} if second == 2 else ())
        windows.append(meter.close_window(second + 1.0, (25, second, 0)))
    whole = total(windows)
    assert whole.received_datagrams == sum(w.received_datagrams for w in windows)
    assert (whole.pictures, whole.lost_pictures, whole.lost_datagrams) == (125, 10, 1)
    assert whole.max_gap_ms == max(w.max_gap_ms for w in windows)
    assert whole.window_ms == pytest.approx(5000, abs=5)


def test_silence_is_a_stall_and_a_growing_gap():
    meter = Meter(1.0)
    run(meter, Programme(), 5)
    meter.close_window(5.0)
    silent = meter.close_window(9.0)
    assert silent.stalls == 1
    assert silent.stall_seconds == pytest.approx(3.0, abs=0.02)
    assert silent.max_gap_ms == pytest.approx(4000, abs=10)
    assert verdict_of(silent) == "poor"


def test_other_traffic_on_the_port_is_counted_and_left_out():
    meter = Meter(1.0)
    assert meter.add(b"hello", 0.0) == b""
    assert meter.add(rtp(1, b"\x00" * 188), 0.1) == b""
    assert not meter.started
    run(meter, Programme(), 1, start=0.2)
    window = meter.close_window(1.2)
    assert window.foreign_datagrams == 2
    assert verdict_of(window) == "perfect"


def test_payload_goes_on_in_order_only():
    meter, programme = Meter(1.0), Programme()
    first, second, third = (programme.datagram() for _ in range(3))
    assert meter.add(first, 0.0) == first[12:]
    assert meter.add(third, 0.01) == third[12:]
    assert meter.add(second, 0.02) == b""


def window(**changes) -> Window:
    whole = Window(window_ms=10_000, received_datagrams=6660, received_bytes=8_750_000)
    return dataclasses.replace(whole, pictures=250, **changes)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "perfect"),
        ({"lost_pictures": 1}, "good"),
        ({"continuity_errors": 1, "lost_datagrams": 1}, "good"),
        ({"lost_audio_buffers": 1}, "good"),
        ({"stalls": 1, "stall_seconds": 0.05}, "good"),
        ({"stalls": 1, "stall_seconds": 0.2}, "poor"),
        ({"lost_pictures": 3}, "poor"),
        ({"continuity_errors": 4}, "poor"),
        ({"lost_datagrams": 400}, "poor"),
        ({"received_datagrams": 0}, "poor"),
    ],
)
def test_verdicts(changes, verdict):
    assert verdict_of(window(**changes)) == verdict


def test_nothing_at_all_is_poor():
    assert judge(Window(window_ms=1000)).verdict == "poor"
    assert judge(Window()).delivered_ratio == 0.0


@given(
    lost=st.integers(0, 7000),
    stalled=st.floats(0, 10),
    errors=st.integers(0, 100),
    pictures=st.integers(0, 100),
)
def test_more_faults_never_make_a_better_verdict(lost, stalled, errors, pictures):
    order = ["perfect", "good", "poor"]
    faulty = window(
        lost_datagrams=lost,
        stalls=1 if stalled else 0,
        stall_seconds=stalled,
        continuity_errors=errors,
        lost_pictures=pictures,
    )
    worse = dataclasses.replace(faulty, lost_pictures=pictures + 1, stall_seconds=stalled + 0.1)
    assert order.index(verdict_of(worse)) >= order.index(verdict_of(faulty))
    assert 0 <= delivered_ratio(worse) <= delivered_ratio(faulty) <= 1


STATS = """\
+----[ begin of statistical info ]
+-[Incoming]
| input bytes read :      417 KiB
| demux corrupted  :        0
+-[Video Decoding]
| video decoded    :      113
| frames displayed :       99
| frames lost      :        2
+-[Audio Decoding]
| buffers played   :      196
| buffers lost     :        4
+----[ end of statistical info ]
"""


def test_vlc_statistics_are_read():
    assert parse_stats(STATS) == {"frames displayed": 99, "frames lost": 2, "buffers lost": 4}
    assert parse_stats("status: returned 0 (no error)") is None


def test_only_what_is_new_counts_and_a_restarted_input_counts_anew():
    counts = Counts()
    assert counts.new(parse_stats(STATS)) == (99, 2, 4)
    assert counts.new(parse_stats(STATS)) == (0, 0, 0)
    assert counts.new(None) == (0, 0, 0)
    fresh = {"frames displayed": 10, "frames lost": 1, "buffers lost": 0}
    assert counts.new(fresh) == (10, 1, 0)


def test_the_viewer_restarts_the_player_once_the_stream_is_in_order():
    viewer = Viewer(patience_s=2.0, settling_s=2.0)
    assert not viewer.presses_play(False, 0.0)
    assert not viewer.presses_play(True, 1.0)
    assert not viewer.presses_play(False, 2.5)
    assert viewer.counts(2.5)
    assert viewer.presses_play(False, 3.0)
    assert not viewer.counts(4.9)
    assert viewer.counts(5.0)
    assert not viewer.presses_play(False, 6.0)


def test_the_player_needs_no_screen_and_no_sound_card():
    command = vlc_command(5006, "/run/player/control", 1000)
    assert "--vout=dummy" in command
    assert "--aout=dummy" in command
    assert command[-1] == "udp://@127.0.0.1:5006"
