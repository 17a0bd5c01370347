#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a fuzzer whose I/O thread may get stuck in QEMU itself, and begins it anew then.

The device fuzzer puts rings where there is no RAM. An I/O thread takes the main
thread's lock to get at them, and the main thread keeps it while it waits for the
I/O thread to stop: both wait for ever. That is QEMU's, with any device that has an
I/O thread; a guest can do it to its own QEMU. The signal of libFuzzer's time limit
does not come through then, so it is seen here: a fuzzer that uses no processor is
stuck. The thread that waits for a lock is made to show its stack. With QEMU's way to
such memory in it, the fuzzer begins anew for the time that is left; else it has found
something.

usage: fuzz_watch.py COMMAND… -max_total_time=SECONDS …
       exit status: the command's; 1 if it got stuck in anything else
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import BinaryIO

POLL_SECONDS = 1.0
# Of polls without work.
STUCK_POLLS = 15
# Less than that is what libFuzzer's own thread needs for a look at the memory.
WORK_SECONDS = 0.3
END_SECONDS = 60.0
STACK_LINES = 200
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
TIME_OPTION = "-max_total_time="
# QEMU's threads block the others.
SHOW_STACK = signal.SIGILL
OWN_DEADLOCK = b"prepare_mmio_access"
# Of futex(2) as in /proc/PID/task/TID/syscall: a mutex of the C library with waiters.
WAITS_FOR_LOCK = re.compile(r"202 0x[0-9a-f]+ 0x80 0x2 ")


def cpu_seconds(pid: int) -> float:
    """Return what a process has used of processors; OSError if it has gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def stands_still(process: subprocess.Popen) -> bool:
    """Wait until a process has ended (False) or works no more."""
    used: deque[float] = deque(maxlen=STUCK_POLLS + 1)
    while True:
        with contextlib.suppress(OSError):
            used.append(cpu_seconds(process.pid))
        if len(used) > STUCK_POLLS and used[-1] - used[0] < WORK_SECONDS:
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return False


def threads_at_a_lock(pid: int) -> list[int]:
    """Return the threads of a process that wait for a mutex."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name)):
        with contextlib.suppress(OSError):
            if WAITS_FOR_LOCK.match((task / "syscall").read_text()):
                found.append(int(task.name))
    return found


def end(process: subprocess.Popen) -> None:
    """End a process that stands still; what waits for a lock in it shows its stack."""
    waiting = threads_at_a_lock(process.pid)
    if len(waiting) == 1:
        ctypes.CDLL(None).tgkill(process.pid, waiting[0], SHOW_STACK)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    process.kill()
    process.wait()


def run(command: Sequence[str], output: BinaryIO) -> tuple[int, bool]:
    """Run a fuzzer; return its exit status and whether it got stuck in QEMU's own deadlock.

    A deadlock that is not QEMU's has the status 1. What the fuzzer prints goes to ``output``.
    """
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
        try:
            stuck = stands_still(process)
            if stuck:
                end(process)
        finally:
            process.kill()
        printed.seek(0)
        lines = printed.readlines()
    output.writelines(lines)
    output.flush()
    if not stuck:
        return process.wait(), False
    own = any(OWN_DEADLOCK in line for line in lines[-STACK_LINES:])
    return 1, own


def with_seconds(command: Sequence[str], seconds: int) -> list[str]:
    """Return the command with another limit of time."""
    return [f"{TIME_OPTION}{seconds}" if word.startswith(TIME_OPTION) else word for word in command]


def main(command: Sequence[str], output: BinaryIO) -> int:
    """Run a fuzzer for as long as it says, however often it gets stuck in QEMU itself."""
    seconds = next(
        int(word[len(TIME_OPTION) :]) for word in command if word.startswith(TIME_OPTION)
    )
    ends_at = time.monotonic() + seconds
    for times in count(1):
        left = max(1, round(ends_at - time.monotonic()))
        status, own_deadlock = run(with_seconds(command, left), output)
        if not own_deadlock:
            return status
        print(f"fuzz_watch: stuck in QEMU itself {times} times, begun anew", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:], sys.stdout.buffer))
