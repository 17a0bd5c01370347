# SPDX-License-Identifier: GPL-2.0-or-later
"""The processors that a run may use, and a control group that makes its own first there.

Linux gives each session of a terminal an equal share where ``sched_autogroup`` is on, so
``nice`` and idle scheduling mean nothing between two of them. A control group is no such
session: within it they count again, and its weight counts against all others.

    Group           all that a run starts; ten times the weight of another program
    └─ main         the program itself, and whatever is not put elsewhere
    └─ NAME         of a program that polls: a bounded share of one processor

Both versions of control groups are used as they are found. Where there is neither, or it
may not be written, ``Group.reason`` says so and nothing is changed.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
WEIGHT = 10
PERIOD_US = 20_000
# Of a second, for the programs of a group that ask for real-time scheduling (version 1 only).
REAL_TIME_US = 400_000
EMPTY_SECONDS = 2.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Times:
    """Processor time in seconds since the machine's start, of the processors we may use."""

    busy_s: float
    total_s: float


def allowed() -> set[int]:
    """Return the numbers of the processors that this program may use."""
    return os.sched_getaffinity(0)


def times(stat: str, numbers: set[int]) -> Times:
    """Read /proc/stat's lines of the processors with these numbers."""
    busy = total = 0
    for line in stat.splitlines():
        name, *words = line.split()
        if not name.startswith("cpu") or name == "cpu" or int(name[3:]) not in numbers:
            continue
        ticks = [int(word) for word in words[:8]]
        total += sum(ticks)
        busy += sum(ticks) - ticks[3] - ticks[4]
    return Times(busy / TICKS_PER_S, total / TICKS_PER_S)


def now() -> Times:
    return times(Path("/proc/stat").read_text(), allowed())


@dataclass(frozen=True)
class Threads:
    """The scheduler's counts for one or more threads, in seconds.

    ``waited_s`` is time in which a thread could have run and another one did.
    """

    ran_s: float = 0.0
    waited_s: float = 0.0

    def since(self, earlier: "Threads") -> "Threads":
        return Threads(self.ran_s - earlier.ran_s, self.waited_s - earlier.waited_s)


def threads_of(process: Path) -> dict[int, Threads]:
    """Read the times of each thread of a process, by its number; empty if it is gone.

    ``process`` is its folder in a /proc.
    """
    found = {}
    for task in process.glob("task/*/schedstat"):
        with contextlib.suppress(OSError, ValueError):
            ran_ns, waited_ns = map(int, task.read_text().split()[:2])
            found[int(task.parent.name)] = Threads(ran_ns / 1e9, waited_ns / 1e9)
    return found


class Group:
    """A control group for all that this program starts. A context manager.

    ``reason`` is empty where it is in force, else it says why it is not.
    """

    def __init__(self, name: str, mount: Path = MOUNT):
        self._name = name
        self._mount = mount
        self._version = 0
        self._made: list[Path] = []
        self._entered: list[tuple[Path, Path]] = []
        self.reason = "no group was made"

    def __enter__(self) -> "Group":
        try:
            self._open()
            self.reason = ""
        except OSError as problem:
            self.close()
            self.reason = f"control groups of processors cannot be used here: {problem}"
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _open(self) -> None:
        if (self._mount / "cgroup.controllers").exists():
            version, base = 2, self._mount
            # A group that has programs, as a session's has, may have no groups below it.
            before = base / _own_path("")
            (base / "cgroup.subtree_control").write_text("+cpu")
        elif (self._mount / "cpu" / "cpu.shares").exists():
            # The groups above are bounded perhaps, and so shall this one be.
            version, base = 1, self._mount / "cpu" / _own_path("cpu")
            before = base
        else:
            raise FileNotFoundError(f"{self._mount} has no controller named cpu")
        _remove_left_over(base, self._name)
        self._top = self._account = self._make(base / f"{self._name}-{os.getpid()}")
        if version == 2:
            (self._top / "cpu.weight").write_text(str(100 * WEIGHT))
            (self._top / "cgroup.subtree_control").write_text("+cpu")
        else:
            (self._top / "cpu.shares").write_text(str(1024 * WEIGHT))
        self._enter(self._make(self._top / "main"), before)
        base = self._mount / "cpuacct" / _own_path("cpuacct")
        # Most hosts have both controllers of version 1 in one tree.
        if version == 1 and not (base / self._top.name).exists():
            _remove_left_over(base, self._name)
            self._account = self._make(base / self._top.name)
            self._enter(self._account, base)
        self._version = version

    def _make(self, path: Path) -> Path:
        path.mkdir(exist_ok=True)
        if path not in self._made:
            self._made.append(path)
        # Where groups have parts of real-time, too, one without may not use it.
        real_time = path / "cpu.rt_runtime_us"
        if real_time.exists():
            with contextlib.suppress(OSError):
                real_time.write_text(str(REAL_TIME_US))
        return path

    def _enter(self, path: Path, before: Path) -> None:
        (path / "cgroup.procs").write_text(str(os.getpid()))
        self._entered.append((path, before))

    def bounded(self, name: str, share: float) -> tuple[str, ...]:
        """Return the words before a command that give it at most a share of one processor.

        Empty where groups are not in force.
        """
        if not self._version:
            return ()
        path = self._make(self._top / name)
        quota_us = max(1000, round(PERIOD_US * share))
        if self._version == 2:
            (path / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (path / "cpu.cfs_quota_us").write_text(str(quota_us))
        return ("/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', str(path / "cgroup.procs"))

    def used_s(self) -> float | None:
        """Return the processor time used within the group so far; None if it is not in force."""
        if self._version == 1:
            return int((self._account / "cpuacct.usage").read_text()) / 1e9
        if self._version == 2:
            words = (self._account / "cpu.stat").read_text().split()
            return int(words[words.index("usage_usec") + 1]) / 1e6
        return None

    def close(self) -> None:
        """Go back to where this program was, and take the groups away. Safe to repeat."""
        self._version = 0
        for _path, before in self._entered:
            with contextlib.suppress(OSError):
                (before / "cgroup.procs").write_text(str(os.getpid()))
        self._entered.clear()
        deadline = time.monotonic() + EMPTY_SECONDS
        while self._made and time.monotonic() < deadline:
            try:
                self._made[-1].rmdir()
                self._made.pop()
            except OSError:
                # A program that ran in it is still ending.
                time.sleep(0.02)
        self._made.clear()


def _remove_left_over(base: Path, name: str) -> None:
    """Take groups of killed programs away; a group in use refuses."""
    for top in base.glob(f"{name}-*"):
        for path in (*top.glob("*/"), top):
            with contextlib.suppress(OSError):
                path.rmdir()


def _own_path(controller: str) -> str:
    """Return this program's group of a version 1 controller, without the leading slash."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _number, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path.lstrip("/")
    return ""
