# SPDX-License-Identifier: GPL-2.0-or-later
"""The scheduler's times of the threads of a QEMU that carry a guest's I/O.

QEMU names its vCPUs and I/O threads by QMP; the main loop serves the devices that have no I/O
thread. The files of /proc stay open: of a thread that has ended they can be read no more, and no
other thread can take its place. A QEMU that its guest has taken over can name threads of another
program. So the program must have been started with the guest's uuid.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..domain.errors import Unavailable
from ..domain.guests import Guest
from ..domain.processors import Turns

PROC = Path("/proc")
# vCPUs and I/O threads may be added to a running guest.
NAMED_SECONDS = 30.0
MOST_THREADS = 1024

Execute = Callable[[str, str, Mapping[str, Any]], Any]


@dataclass
class _Open:
    incarnation: int
    named_s: float
    files: dict[int, int]

    def close(self) -> None:
        for file in self.files.values():
            os.close(file)
        self.files = {}


class QemuThreads:
    """Not for two threads at a time with the same guest."""

    def __init__(self, execute: Execute, monotonic: Callable[[], float], proc: Path = PROC) -> None:
        self.execute = execute
        self.monotonic = monotonic
        self.proc = proc
        # By the guest's uuid.
        self._open: dict[str, _Open] = {}

    def read(self, guest: Guest) -> dict[int, Turns]:
        """By the threads' numbers. Unavailable, or Conflict, if that is not known."""
        known = self._open.get(guest.uuid)
        now_s = self.monotonic()
        if (
            known is None
            or known.incarnation != guest.incarnation
            or now_s - known.named_s >= NAMED_SECONDS
        ):
            self.forget(guest.uuid)
            files = self._opened(guest)
            known = self._open[guest.uuid] = _Open(guest.incarnation, now_s, files)
        found = {}
        for number, file in list(known.files.items()):
            try:
                ran_ns, waited_ns = map(int, os.pread(file, 128, 0).split()[:2])
            except OSError:
                # The thread has ended.
                os.close(known.files.pop(number))
                continue
            found[number] = Turns(ran_ns, waited_ns)
        if not found:
            self.forget(guest.uuid)
            raise _unknown(guest, "the threads that its QEMU named have ended")
        return found

    def forget(self, uuid: str) -> None:
        known = self._open.pop(uuid, None)
        if known is not None:
            known.close()

    def _opened(self, guest: Guest) -> dict[int, int]:
        numbers = self._named(guest)
        process = self._process(guest, numbers)
        files: dict[int, int] = {}
        for number in {process, *numbers}:
            path = self.proc / str(process) / "task" / str(number) / "schedstat"
            try:
                files[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                for file in files.values():
                    os.close(file)
                raise _unknown(guest, f"{path}: {error.strerror}") from error
        return files

    def _named(self, guest: Guest) -> list[int]:
        answers = [
            *self.execute(guest.name, "query-cpus-fast", {}),
            *self.execute(guest.name, "query-iothreads", {}),
        ]
        try:
            numbers = [int(one["thread-id"]) for one in answers[:MOST_THREADS]]
        except (KeyError, TypeError, ValueError) as error:
            raise _unknown(guest, f"its QEMU names no threads ({error!r})") from error
        if not numbers:
            raise _unknown(guest, "its QEMU names no threads")
        return numbers

    def _process(self, guest: Guest, numbers: list[int]) -> int:
        """The number of the program that the first of these threads is of."""
        folder = self.proc / str(numbers[0])
        try:
            status = (folder / "status").read_text()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError as error:
            raise _unknown(guest, f"{error.filename}: {error.strerror}") from error
        if guest.uuid.encode() not in words:
            raise _unknown(guest, f"thread {numbers[0]} is not of its QEMU")
        return next(int(line.split()[1]) for line in status.splitlines() if line[:5] == "Tgid:")


def _unknown(guest: Guest, why: str) -> Unavailable:
    return Unavailable(
        "processors of domain",
        guest.name,
        f"cannot be watched ({why})",
        "nothing to do; sluiced tries again by itself",
    )
