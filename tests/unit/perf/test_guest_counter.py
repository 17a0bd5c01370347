# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.guest_counter: the script that counts in a guest, run here, and the two clocks."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from perf import bars, guest_counter
from perf.accuracy import Sample
from perf.guest_counter import Mark, clock_error_ratio, parse


def _count(counter: Path, *numbers: int) -> subprocess.CompletedProcess:
    words = ["bash", guest_counter.SCRIPT, counter, *map(str, numbers)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def growing(tmp_path):
    """A counter that grows by 1,000 bytes at a time, as fast as it can be written."""
    counter, ended = tmp_path / "rx_bytes", threading.Event()
    counter.write_text("7\n")

    def grow():
        count = 7
        while not ended.wait(0.002):
            count += 1000
            (tmp_path / "new").write_text(f"{count}\n")
            os.replace(tmp_path / "new", counter)

    writer = threading.Thread(target=grow)
    writer.start()
    yield counter
    ended.set()
    writer.join()


def test_the_script_counts_from_when_a_load_has_begun(growing):
    done = _count(growing, 16384, 1, 30)
    assert (done.returncode, done.stderr) == (0, "")
    samples = parse(done.stdout)
    assert samples[0].bytes >= 16384
    assert all(0 <= sample.unsure_seconds < 1 for sample in samples)
    assert samples[-1].at_seconds - samples[0].at_seconds >= 0.9
    ordered = sorted(samples)
    assert samples == ordered and samples[-1].bytes > samples[0].bytes
    assert all(sample.bytes % 1000 == 7 for sample in samples)


def test_the_script_gives_up_when_nothing_comes(tmp_path):
    counter = tmp_path / "rx_bytes"
    counter.write_text("7\n")
    done = _count(counter, 16384, 1, 0)
    assert (done.returncode, done.stdout) == (1, "")
    assert "has not grown by 16384" in done.stderr
    with pytest.raises(ValueError, match="nothing"):
        parse(done.stdout)


def test_a_counter_that_is_not_there_is_no_count(tmp_path):
    done = _count(tmp_path / "none", 1, 1, 1)
    assert done.returncode != 0 and done.stdout == ""


def test_a_line_is_the_time_of_a_reading_and_half_of_what_it_took():
    assert parse("1000000 1004000 77\n") == [Sample(1.002, 77.0, 0.002)]


def test_a_clock_is_as_wrong_as_it_runs_and_as_asking_took():
    first = Mark(100.0, 5000.0, 0.05)
    assert clock_error_ratio(first, Mark(1100.0, 6000.0, 0.05)) == pytest.approx(1e-4)
    assert clock_error_ratio(first, Mark(1100.0, 6001.0, 0.05)) == pytest.approx(11e-4)
    assert clock_error_ratio(first, Mark(1100.0, 5999.0, 0.05)) == pytest.approx(11e-4)
    with pytest.raises(ValueError, match="same"):
        clock_error_ratio(first, first)


def test_asking_may_take_a_fifth_of_a_second_when_ten_minutes_lie_between():
    later = Mark(700.0, 5600.0, 0.1)
    assert clock_error_ratio(Mark(100.0, 5000.0, 0.1), later) < bars.GUEST_CLOCK_MAX
