#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a fuzzer with an I/O thread that may get stuck in QEMU itself, and begins it anew then.

The device fuzzer puts rings where there is no RAM. An I/O thread takes the main
thread's lock to get at them, and the main thread keeps it while it waits for the
I/O thread to stop: both wait for ever. That is QEMU's, with any device that has an
I/O thread; a guest can do it to its own QEMU. The signal of libFuzzer's time limit
does not come through then, so it is seen here: a fuzzer that uses no processor is
stuck. The thread that waits for a lock is made to show its stack; if several wait for the
same one, the youngest, since QEMU's own threads, that of RCU for one, want the main thread's
lock from time to time, and are older than an I/O thread. With QEMU's way to
such memory in it, the fuzzer begins anew for the time that is left, without the input, for
an input that was collected before it got stuck would keep it from ever getting further; else it
has found something, and the wait of each thread is told. Without time left it is done.

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
# More than libFuzzer's own thread needs for a look at the memory.
WORK_SECONDS = 0.3
END_SECONDS = 60.0
STACK_LINES = 200
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
TIME_OPTION = "-max_total_time="
# QEMU's threads block the others.
SHOW_STACK = signal.SIGILL
OWN_DEADLOCK = b"prepare_mmio_access"
# libFuzzer names an input by the hash of it, also in the folder of those that it collects.
INPUT_WRITTEN = re.compile(rb"Test unit written to \S*-([0-9a-f]{40})$", re.MULTILINE)
RUNS = re.compile(rb"^#(\d+)\t", re.MULTILINE)
# Of futex(2) as in /proc/PID/task/TID/syscall: a mutex of the C library with waiters.
WAITS_FOR_LOCK = re.compile(r"202 (0x[0-9a-f]+) 0x80 0x2 ")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process; OSError if it has gone."""
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


def system_calls(pid: int) -> dict[int, str]:
    """Return the wait of each thread of a process, in the kernel's words, the oldest first."""
    found = {}
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name)):
        with contextlib.suppress(OSError):
            found[int(task.name)] = (task / "syscall").read_text().strip()
    return found


def thread_to_show(calls: dict[int, str]) -> int | None:
    """Return the youngest of the threads that wait for one mutex; None if for none, or several."""
    waits = {thread: WAITS_FOR_LOCK.match(call) for thread, call in calls.items()}
    waiting = {thread: match[1] for thread, match in waits.items() if match}
    return max(waiting) if len(set(waiting.values())) == 1 else None


def end(process: subprocess.Popen) -> str:
    """End a process that stands still; a thread that waits for a lock shows its stack.

    Returns the wait of each of its threads.
    """
    calls = system_calls(process.pid)
    thread = thread_to_show(calls)
    if thread is not None:
        ctypes.CDLL(None).tgkill(process.pid, thread, SHOW_STACK)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    process.kill()
    process.wait()
    return "".join(f"fuzz_watch: thread {number} in {call}\n" for number, call in calls.items())


def run(command: Sequence[str], output: BinaryIO) -> tuple[int, bytes | None]:
    """Run a fuzzer; return its exit status, and its output if it got stuck in QEMU itself.

    A deadlock that is not QEMU's has the status 1. The fuzzer's output goes to ``output``.
    """
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        told = ""
        try:
            stuck = stands_still(process)
            if stuck:
                told = end(process)
        finally:
            process.kill()
        file.seek(0)
        printed = file.read()
    output.write(printed)
    output.flush()
    if not stuck:
        return process.wait(), None
    if any(OWN_DEADLOCK in line for line in printed.splitlines()[-STACK_LINES:]):
        return 1, printed
    output.write(told.encode())
    output.flush()
    return 1, None


def forget_input(command: Sequence[str], printed: bytes) -> None:
    """Take the input that a fuzzer got stuck with from those that it has collected."""
    collected = next((word for word in command if os.path.isdir(word)), None)
    written = INPUT_WRITTEN.search(printed)
    if collected and written:
        Path(collected, written[1].decode()).unlink(missing_ok=True)


def with_seconds(command: Sequence[str], seconds: int) -> list[str]:
    """Return the command with another limit of time."""
    return [f"{TIME_OPTION}{seconds}" if word.startswith(TIME_OPTION) else word for word in command]


def main(command: Sequence[str], output: BinaryIO) -> int:
    """Run a fuzzer for as long as it says, however often it gets stuck in QEMU itself."""
    seconds = next(
        int(word[len(TIME_OPTION) :]) for word in command if word.startswith(TIME_OPTION)
    )
    ends_at, runs, left = time.monotonic() + seconds, 0, seconds
    for times in count(1):
        status, printed = run(with_seconds(command, left), output)
        if printed is None:
            return status
        print(f"fuzz_watch: stuck in QEMU itself {times} times, begun anew", flush=True)
        forget_input(command, printed)
        runs += int((RUNS.findall(printed) or [0])[-1])
        left = round(ends_at - time.monotonic())
        if left < 1:
            output.write(f"Done {runs} runs in {seconds} second(s)\n".encode())
            output.flush()
            # A fuzzer that never got as far as to try an input has shown nothing.
            return 0 if runs else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:], sys.stdout.buffer))
