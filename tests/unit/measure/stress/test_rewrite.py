# SPDX-License-Identifier: GPL-2.0-or-later
"""stress/rewrite.c on a file: all is well, and each kind of wrong block is seen.

The program runs while the test meddles with its file. A block that is put there
between comparing and writing goes unseen, so each is put there again and again
until the program ends.
"""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from measure.stress import rewriter

BLOCK_BYTES = 4096
OFFSET = 16 * BLOCK_BYTES
BLOCKS = 4 * rewriter.WRITERS
# Only for a program that never ends.
LIMIT_SECONDS = 120
# Seven of eight are seen; so many in a row that are not, never.
ATTEMPTS = 100


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rewrite") / "rewrite"
    rewriter.build(path)
    return path


@pytest.fixture
def disk(tmp_path) -> Path:
    path = tmp_path / "disk"
    path.write_bytes(bytes(OFFSET + BLOCKS * BLOCK_BYTES))
    return path


@pytest.fixture
def running(program, disk) -> Iterator[subprocess.Popen]:
    command = [program, disk, str(OFFSET), str(rewriter.WRITERS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def _block(disk: Path, number: int) -> bytes:
    with disk.open("rb") as file:
        file.seek(OFFSET + number * BLOCK_BYTES)
        return file.read(BLOCK_BYTES)


def _sequence(block: bytes) -> int:
    return int.from_bytes(block[16:24], "little")


def _until(disk: Path, running: subprocess.Popen, number: int, sequence: int) -> bytes:
    """Return a block as soon as its sequence number is above one, or the program has ended."""
    while running.poll() is None:
        block = _block(disk, number)
        if _sequence(block) > sequence:
            return block
    return _block(disk, number)


def _meddle(disk: Path, running: subprocess.Popen, number: int, change: Callable) -> str:
    """Put ``change(block)`` in a block's place until the program ends; return its words."""
    for _ in range(ATTEMPTS):
        if running.poll() is not None:
            break
        block = _until(disk, running, number, 0)
        wrong = change(block)
        _until(disk, running, number, _sequence(block))
        with disk.open("r+b", buffering=0) as file:
            file.seek(OFFSET + number * BLOCK_BYTES)
            file.write(wrong)
    assert running.returncode == 1
    return running.communicate(timeout=LIMIT_SECONDS)[0]


def test_blocks_that_nobody_meddles_with_are_right_to_the_end(disk, running):
    for number in range(BLOCKS):
        _until(disk, running, number, 3)
    running.send_signal(signal.SIGINT)
    said = rewriter.outcome(running.communicate(timeout=LIMIT_SECONDS)[0])
    assert (running.returncode, said.errors) == (0, "")
    assert said.writes >= 4 * BLOCKS
    assert said.longest_ms > 0


def test_every_block_ends_with_the_last_write(disk, running):
    _until(disk, running, BLOCKS - 1, 3)
    running.send_signal(signal.SIGINT)
    said = rewriter.outcome(running.communicate(timeout=LIMIT_SECONDS)[0])
    assert sum(_sequence(_block(disk, number)) for number in range(BLOCKS)) == said.writes
    assert disk.read_bytes()[:OFFSET] == bytes(OFFSET)


def test_an_older_write_over_a_newer_one_is_seen(disk, running):
    said = _meddle(disk, running, 5, lambda block: block)
    found = re.search(r"block 5, byte 0: holds write (\d+) of block 5, wanted write (\d+)", said)
    assert int(found[1]) < int(found[2])


def test_half_a_write_is_seen(disk, running):
    half = BLOCK_BYTES // 2
    said = _meddle(disk, running, 31, lambda block: block[:half])
    assert re.search(r"block 31, byte \d+: holds write \d+ of block 31, wanted write", said)


def test_another_blocks_write_is_seen(disk, running):
    _until(disk, running, 1, 0)
    said = _meddle(disk, running, 0, lambda _: _block(disk, 1))
    assert re.search(r"block 0, byte \d+: holds write \d+ of block 1, wanted", said)


def test_what_an_earlier_run_has_left_is_not_taken_for_this_ones(disk, running):
    def other_run(block: bytes) -> bytes:
        stamps = [block[at : at + 32] for at in range(0, BLOCK_BYTES, 32)]
        return b"".join(b"\x01" + bytes(7) + stamp[8:] for stamp in stamps)

    assert "of another run, wanted" in _meddle(disk, running, 9, other_run)


@pytest.mark.parametrize("arguments", [[], ["disk", "0"], ["disk", "0", "0"], ["disk", "0", "65"]])
def test_wrong_arguments_are_refused(program, arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: rewrite" in done.stderr


def test_a_disk_that_is_not_there_is_named(program, tmp_path):
    done = subprocess.run([program, tmp_path / "none", "0", "1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"rewrite: {tmp_path}/none: No such file or directory\n"
