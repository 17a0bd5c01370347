# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the set-up steps of a purpose, two beside each other, and report the remaining time.

QEMU's build keeps the processors busy, the other steps mostly wait for the network
and the disk: so they run beside it. How long a step takes is learned: the last
duration is kept in the cache, and QEMU's build counts its own steps.

usage: all.py demo|test|test-long     exit status 1 if a step failed
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LOGS = TOP / "build" / "logs"
SETUP = "tools/setup"
# A step that ends sooner has found all there.
WORKED_SECONDS = 3
TOLD_EVERY_SECONDS = 30
NINJA = re.compile(r"\[(\d+)/(\d+)\] ")


@dataclass(frozen=True)
class Step:
    """A part of the set-up. ``seconds``: its time on two cores, until it is measured.

    ``log`` is the file of ninja's progress, if it has one.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    log: str = ""


def script(name: str, seconds: float, *command: str, log: str = "") -> Step:
    return Step(name, ("bash", f"{SETUP}/{command[0]}", *command[1:]), seconds, log)


QEMU = script("qemu", 240, "qemu.sh", log="qemu.log")
QTESTS = script("qtests", 40, "qemu.sh", "--qtests", log="qtests.log")
OTHER_BUILDS = (
    script("qemu with sanitizers", 600, "qemu.sh", "--asan", log="qemu-asan.log"),
    script("its qtests", 60, "qemu.sh", "--asan", "--qtests", log="qtests-asan.log"),
    # With all devices, for QEMU's own tests.
    script("whole qemu", 300, "qemu.sh", "--full", log="qemu-full.log"),
    script("stock qemu", 120, "qemu.sh", "--stock", "--full", log="qemu-stock-full.log"),
)
# The longest first: they decide the length of the lane beside QEMU.
OTHERS = (
    script("images", 75, "images.sh"),
    script("python packages", 45, "venv.sh"),
    script("agent", 40, "agent.sh"),
    script("web pages", 20, "web-assets.sh"),
    script("disk model", 2, "rotdisk.sh"),
)
# By purpose: lanes, whose steps run one after the other.
LANES: dict[str, tuple[tuple[Step, ...], ...]] = {
    "demo": ((QEMU,), OTHERS),
    "test": ((QEMU, QTESTS), OTHERS),
    "test-long": ((QEMU, QTESTS, *OTHER_BUILDS), OTHERS),
}


class Failed(Exception):
    """A step ended with an error; the text is its output."""


def in_words(seconds: float) -> str:
    """Return a duration as one says it: ``8 s``, ``40 s``, ``4 min``."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 100:
        return f"{10 * round(seconds / 10)} s"
    return f"{round(seconds / 60)} min"


def left_seconds(typical: float, elapsed: float, built: tuple[int, int] | None) -> float:
    """Return the rest of a step's time: by ninja's progress, else by its usual time.

    It is 0 for a step that has taken longer than usual.
    """
    if built and built[0] > built[1] // 20:
        return elapsed * (built[1] - built[0]) / built[0]
    return max(typical - elapsed, 0)


def remaining(
    running: Sequence[tuple[str, float]], waiting: Sequence[tuple[str, float]], done: int
) -> str:
    """Return the sentence about the remaining steps, each a name and its seconds.

    A waiting step takes its seconds at most: it may find all there.
    """
    total = done + len(running) + len(waiting)
    now = ", beside it ".join(
        f"{name} ({f'about {in_words(left)}' if left else 'longer than usual'})"
        for name, left in running
    )
    then = ", ".join(f"{name} ({in_words(usual)} at most)" for name, usual in waiting)
    return f"set-up: {done} of {total} done; now {now}" + (f"; then {then}" if then else "")


def ninja_progress(log: Path) -> tuple[int, int] | None:
    """Return (built, of so many) by the last of ninja's lines."""
    try:
        found = NINJA.findall(log.read_text(errors="replace")[-4000:])
    except OSError:
        return None
    return (int(found[-1][0]), int(found[-1][1])) if found else None


class Durations:
    """The last durations of steps, in a file of the cache."""

    def __init__(self, file: Path):
        self._file = file
        self._seconds: dict[str, float] = {}
        # A damaged file is written anew.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._seconds = {n: float(s) for n, s in json.loads(file.read_text()).items()}

    def of(self, step: Step) -> float:
        return self._seconds.get(step.name, step.seconds)

    def keep(self, step: Step, seconds: float) -> None:
        if seconds < WORKED_SECONDS:
            return
        self._seconds[step.name] = round(seconds, 1)
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self._seconds, indent=1))
        new.replace(self._file)


class Run:
    """Lanes of steps, each in a thread; `status` reports on them."""

    def __init__(self, lanes: Sequence[Sequence[Step]], durations: Durations):
        self._durations = durations
        self._lock = threading.Lock()
        self._waiting = [list(lane) for lane in lanes]
        self._running: dict[Step, tuple[subprocess.Popen, float]] = {}
        self._ended: list[tuple[Step, float]] = []
        self._told = 0
        self._failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in self._waiting
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _lane(self, lane: list[Step]) -> None:
        while (step := self._begin(lane)) is not None:
            process, started = self._running[step]
            status = process.wait()
            seconds = time.monotonic() - started
            with self._lock:
                del self._running[step]
                if status:
                    text = (LOGS / f"setup-{step.name.replace(' ', '-')}.log").read_text()
                    self._failures.append(f"{step.name} failed after {seconds:.0f} s:\n{text}")
                    return
                self._ended.append((step, seconds))
                self._durations.keep(step, seconds)

    def _begin(self, lane: list[Step]) -> Step | None:
        with self._lock:
            if self._failures or not lane:
                return None
            step = lane.pop(0)
            if step.log:  # of the run before
                (LOGS / step.log).unlink(missing_ok=True)
            log = LOGS / f"setup-{step.name.replace(' ', '-')}.log"
            with log.open("w") as output:
                process = subprocess.Popen(
                    step.command,
                    cwd=TOP,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # One process group, which can be ended as a whole.
                    start_new_session=True,
                )
            self._running[step] = process, time.monotonic()
            return step

    def alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads) and not self._failures

    def status(self) -> str:
        """Return the sentence about the remaining steps; empty if nothing runs."""
        with self._lock:
            now = time.monotonic()
            running = [
                (step.name, self._left(step, now - started))
                for step, (_, started) in self._running.items()
            ]
            waiting = [(s.name, self._durations.of(s)) for lane in self._waiting for s in lane]
            return remaining(running, waiting, len(self._ended)) if running else ""

    def _left(self, step: Step, elapsed: float) -> float:
        built = ninja_progress(LOGS / step.log) if step.log else None
        return left_seconds(self._durations.of(step), elapsed, built)

    def news(self) -> list[str]:
        """Return a line for each step that has worked and ended since it was asked last."""
        with self._lock:
            new, self._told = self._ended[self._told :], len(self._ended)
        return [f"{s.name:<24} {took:4.0f} s  done" for s, took in new if took >= WORKED_SECONDS]

    def end(self) -> None:
        """End running steps. The next run goes on with half-built parts."""
        with self._lock:
            self._failures.append("interrupted")
            processes = [process for process, _ in self._running.values()]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def wait(self) -> None:
        """Wait for the lanes' ends. Raises Failed."""
        failures = list(self._failures)
        if failures:
            self.end()
        for thread in self._threads:
            thread.join()
        if failures:
            raise Failed("\n".join(failures))


def show(run: Run) -> None:
    """Tell how far it is until it ends: a line that changes, or in a log one now and then."""
    terminal = sys.stdout.isatty()
    started = told = time.monotonic()
    while run.alive():
        time.sleep(0.1 if time.monotonic() - started < WORKED_SECONDS else 1)
        news, now = run.news(), time.monotonic()
        if news and terminal:
            print("\r\x1b[K", end="")
        for line in news:
            print(line, flush=True)
        if now - started < WORKED_SECONDS:
            continue
        if terminal:
            columns = os.get_terminal_size().columns
            print(f"\r\x1b[K{run.status()[: columns - 1]}", end="", flush=True)
        elif news or told == started or now - told >= TOLD_EVERY_SECONDS:
            told = now
            if status := run.status():
                print(status, flush=True)
    if terminal:
        print("\r\x1b[K", end="")
    for line in run.news():
        print(line, flush=True)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in LANES:
        print(f"usage: all.py {'|'.join(LANES)}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("SLUICE_CACHE") or Path(home) / "sluice")
    run = Run(LANES[arguments[0]], Durations(cache / "durations.json"))
    started = time.monotonic()
    run.start()
    try:
        show(run)
        run.wait()
    except Failed as problem:
        print(problem, file=sys.stderr)
        return 1
    except BaseException:
        run.end()
        raise
    if (took := time.monotonic() - started) >= WORKED_SECONDS:
        print(f"set-up of {arguments[0]} took {took:.0f} s")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
