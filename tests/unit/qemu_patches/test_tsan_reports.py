# SPDX-License-Identifier: GPL-2.0-or-later
"""Which reports of the thread sanitizer are about Sluice's own code."""

import importlib.util
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location(
    "tsan_reports", TOP / "qemu-patches" / "tests" / "tsan_reports.py"
)
tsan_reports = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tsan_reports)

LIBC = "memcpy /usr/include/x86_64-linux-gnu/bits/string_fortified.h:29:10 (qemu+0x1)"
QEMU = "aio_set_fd_handler /t/build/../util/aio-posix.c:133:26 (qemu+0x2)"
OURS = "shaper_complete /t/build/../hw/sluice/shaper.c:412:5 (qemu+0x3)"
ENGINE = "sluice_engine_submit /t/build/../sluice/engine.c:99:1 (qemu+0x4)"
INLINE = "sluice_blk_done /t/build/../include/hw/sluice/blk.h:50:1 (qemu+0x5)"


def report(first: list[str], second: list[str], allocated: str = QEMU) -> str:
    """A race in the sanitizer's words."""
    lines = ["WARNING: ThreadSanitizer: data race (pid=1)"]
    lines += ["  Write of size 8 at 0x1 by thread T1:"]
    lines += [f"    #{i} {frame}" for i, frame in enumerate(first)]
    lines += ["", "  Previous read of size 8 at 0x1 by main thread:"]
    lines += [f"    #{i} {frame}" for i, frame in enumerate(second)]
    lines += ["", "  Location is heap block of size 8 allocated by main thread:"]
    lines += ["    #0 malloc <null> (qemu+0x6)", f"    #1 {allocated}", ""]
    return "\n".join(lines)


@pytest.mark.parametrize("frame", [OURS, ENGINE, INLINE])
def test_access_by_our_code_is_ours(frame: str):
    assert tsan_reports.is_ours(report([frame, QEMU], [QEMU]))
    assert tsan_reports.is_ours(report([QEMU], [LIBC, frame, QEMU]))


def test_our_code_further_out_or_allocating_is_not_ours():
    assert not tsan_reports.is_ours(report([QEMU, OURS], [LIBC, QEMU]))
    assert not tsan_reports.is_ours(report([QEMU], [QEMU], allocated=OURS))


def test_a_deadlock_with_our_lock_is_ours():
    text = f"WARNING: ThreadSanitizer: lock-order-inversion\n    #0 {OURS}\n"
    assert tsan_reports.is_ours(text)


def test_reports_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture):
    log = tmp_path / "log"
    mine, other = report([OURS], [QEMU]), report([QEMU], [QEMU])
    log.write_text(f"{'=' * 18}\n{other}{'=' * 18}\n{'=' * 18}\n{mine}{'=' * 18}\n")
    assert tsan_reports.main([str(log)]) == 1
    assert "2 reports of the thread sanitizer, 1 about Sluice" in capsys.readouterr().out
    log.write_text(f"{'=' * 18}\n{other}{'=' * 18}\n")
    assert tsan_reports.main([str(log)]) == 0
