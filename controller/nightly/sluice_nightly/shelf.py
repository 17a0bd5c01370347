# SPDX-License-Identifier: GPL-2.0-or-later
"""A night's files on disk: its result, until sluiced has it and beyond.

    STATE/lock                  held by the run that is on; its text says whose folder it is
    STATE/results/RUN_ID.json   {"result", "page", "posted", "refused"}
    STATE/running.json          while a run is on: {"run_id", "started_at", …}
    STATE/runs/, images/        the testbed's; see runs.py and images.py

A result is written before it is posted, so the next night posts a result that sluiced missed. A
running.json without a holder of its lock is a run that ended without a word.

Leftovers of runs are deleted here, so the folder must be theirs: a folder with foreign files is
refused, and only files with a name and a form of ours are ever deleted.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sluice_nightly import images
from sluice_nightly.config import BadConfig, Config, default_config
from sluice_nightly.host import Controller, HostError, Refused
from testbed import runs

# All that is made in the state folder, or put there for the run.
NAMES = frozenset(
    {
        *("images", "ready", "results", "runs"),
        *("accelerator.json", "lock", "running.json"),
        "running.tmp",
    }
)
# Names at the top of a file system.
OF_MOUNTS = frozenset({"lost+found"})
MARK = b"This folder is sluice-nightly's, which deletes here what it made.\n"
RESULT = re.compile(r"[0-9a-f]{32}\.json")
TORN_RESULT = re.compile(r"[0-9a-f]{32}\.tmp")
TORN_PROBE = re.compile(r"accelerator\.[0-9]+\.tmp")


class Busy(Exception):
    """Another run is on."""


class Shelf:
    """The state folder."""

    def __init__(self, config: Config):
        self._config = config
        self.state = config.paths.state
        self._results = self.state / "results"
        self._running = self.state / "running.json"
        self._controller = Controller(config.paths.socket, config.paths.token_file)

    def see_own(self) -> None:
        """BadConfig if the state folder is somebody else's."""
        others = _others_things(self.state) if self.state.exists() else []
        if others and self.state != default_config().paths.state:
            raise BadConfig(
                f"paths.state {self.state} has {', '.join(others[:3])}, which no nightly run "
                "made: give a folder of its own, for example one below it"
            )

    def _claim(self) -> None:
        """Make the state folder, or see that it is the run's."""
        try:
            self.see_own()
            self.state.mkdir(parents=True, exist_ok=True)
            # As the unit's StateDirectoryMode, also for a folder made by hand: guests' keys are
            # in it.
            self.state.chmod(0o700)
        except OSError as problem:
            raise BadConfig(
                f"paths.state {self.state} cannot be used ({problem.strerror}): be root, and give "
                "a folder that can be written to; the service needs ReadWritePaths= for another "
                "than its own"
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the state folder; Busy if another run has it."""
        self._claim()
        with (self.state / "lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"another run has {self.state / 'lock'}; wait for its end") from None
            if file.tell() == 0:
                file.write(MARK)
                file.flush()
            yield

    # The run that is on

    def begin(self, about: dict[str, Any]) -> None:
        _write(self._running, about)

    def end(self) -> None:
        self._running.unlink(missing_ok=True)

    def unfinished(self) -> dict[str, Any] | None:
        """The running.json of a run that ended without a word. Needs the lock."""
        try:
            return json.loads(self._running.read_text())
        except (OSError, ValueError):
            return None

    # Results

    def keep(self, result: dict[str, Any], page: str | None) -> None:
        """Write a result, and drop the oldest others beyond ``keep.results``."""
        self._results.mkdir(parents=True, exist_ok=True)
        entry = {"result": result, "page": page, "posted": False, "refused": None}
        kept = self._results / f"{result['run_id']}.json"
        _write(kept, entry)
        # A clock that was set back makes a new one the oldest.
        others = [path for _, path in self._entries() if path != kept]
        for path in others[self._config.keep.results - 1 :]:
            path.unlink()

    def has(self, run_id: str) -> bool:
        """Whether there is a result of the run."""
        return (self._results / f"{run_id}.json").exists()

    def _entries(self) -> list[tuple[dict[str, Any], Path]]:
        """All results, newest first; a damaged one is dropped."""
        found = []
        for path in self._results.iterdir() if self._results.is_dir() else ():
            if not RESULT.fullmatch(path.name):
                continue
            try:
                entry = json.loads(path.read_text())
                found.append((entry["result"]["started_at"], entry, path))
            except OSError:
                continue
            except (ValueError, KeyError, TypeError):
                path.unlink(missing_ok=True)
        found.sort(key=lambda item: item[0], reverse=True)
        return [(entry, path) for _, entry, path in found]

    def results(self) -> list[dict[str, Any]]:
        """All results, newest first."""
        return [entry for entry, _ in self._entries()]

    def post(self) -> list[str]:
        """Post the results that sluiced lacks; return its words on those that it still lacks."""
        problems = []
        for entry, path in reversed(self._entries()):
            if entry["posted"] or entry["refused"]:
                continue
            body = {name: entry[name] for name in ("result", "page")}
            try:
                self._controller.call(
                    "POST", "/nightly", {**body, "keep": self._config.keep.results}
                )
                entry["posted"] = True
            except Refused as refusal:
                entry["refused"] = str(refusal)
                problems.append(str(refusal))
            except HostError as problem:
                problems.append(f"{problem}; the next run posts the result")
                break
            _write(path, entry)
        return problems


def _others_things(state: Path) -> list[str]:
    """Foreign names in the folder; none in a folder with our mark."""
    with contextlib.suppress(FileNotFoundError), (state / "lock").open("rb") as file:
        if file.read(len(MARK)) == MARK:
            return []
    others = set(os.listdir(state)) - NAMES - OF_MOUNTS
    return sorted(name for name in others if not TORN_PROBE.fullmatch(name))


def _write(path: Path, value: Any) -> None:
    """Whole or not at all, also over a power cut."""
    new = path.with_suffix(".tmp")
    with new.open("w") as file:
        json.dump(value, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _holders(folder: Path) -> list[tuple[int, Path]]:
    """Return the first processes of testbeds below ``folder``, each with its run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        plan = next((word for word in words if word.startswith(f"{folder}/")), None)
        holds = any(word.endswith("/holder.py") for word in words)
        if plan and holds:
            found.append((int(entry.name), Path(plan).parent))
    return found


def orphans(folder: Path) -> list[int]:
    """Return the first processes of testbeds below ``folder`` whose makers are gone."""
    return [pid for pid, run in _holders(folder) if not runs.alive(run)]


def end_own(config: Config) -> None:
    """End all processes of this process's testbeds; the kernel does it, with the first of them."""
    for pid, run in _holders(config.paths.state / "runs"):
        if runs.is_own(run):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def clean(config: Config) -> list[str]:
    """Remove the rest of ended runs; return a line for each thing. Needs the lock.

    Processes, mounts and interfaces end with the run's namespaces, which end
    with the run. Should a first process of theirs have outlived it, it is ended
    here, and the kernel ends the rest.
    """
    done = []
    folder = config.paths.state / "runs"
    for pid in orphans(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            done.append(f"ended process {pid}, the first of a dead run's namespaces")
    for run in sorted(folder.iterdir()) if folder.is_dir() else ():
        left = [name for name in ("disks", "libvirt", "shadow") if (run / name).exists()]
        if left and runs.is_run(run) and not runs.alive(run):
            runs.remove_disks(run)
            done.append(f"removed {', '.join(left)} of {run}")
    for path in images.sweep(config.paths.state / "images"):
        done.append(f"removed {path}")
    for path in _torn(config.paths.state):
        path.unlink()
        done.append(f"removed {path}")
    return done


def _torn(state: Path) -> list[Path]:
    """Files of ours that were being written when a run was killed."""
    found = [state / "running.tmp"]
    found += [path for path in state.glob("*.tmp") if TORN_PROBE.fullmatch(path.name)]
    found += [path for path in state.glob("results/*.tmp") if TORN_RESULT.fullmatch(path.name)]
    return [path for path in found if path.is_file()]
