# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders of testbed runs: build/testbed/LABEL-PID, with logs that stay.

A run that ended in a crash leaves its folder; the namespaces are gone by then, because the
kernel ended them (``holder.py``). The next run removes the crashed run's disks, and of all
ended runs keeps the newest few for reading their logs. Live runs of any program are not
touched.
"""

import json
import os
import re
import shutil
from pathlib import Path

from testbed import paths

KEPT_RUNS = 8
OWNER = "owner.json"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?-[0-9]+(-[0-9]+)?")


def start_ticks(pid: int) -> int | None:
    """Return when the process started, which tells apart reused process ids."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def make(label: str) -> Path:
    """Make a folder for a new run and clear away leftovers of older ones."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", label):
        raise ValueError(f"testbed label {label!r}: use up to 32 of a-z, 0-9 and inner hyphens")
    runs = paths.layout().runs
    runs.mkdir(parents=True, exist_ok=True)
    prune(runs)
    pid = os.getpid()
    for number in range(1000):
        folder = runs / (f"{label}-{pid}" if not number else f"{label}-{pid}-{number}")
        try:
            folder.mkdir()
            break
        except FileExistsError:
            continue
    (folder / "logs").mkdir()
    owner = {"pid": pid, "start_ticks": start_ticks(pid)}
    (folder / OWNER).write_text(json.dumps(owner))
    return folder


def _maker(folder: Path) -> int | None:
    """Return the process that made the run's folder, while it is alive."""
    try:
        owner = json.loads((folder / OWNER).read_text())
        pid, since = int(owner["pid"]), owner["start_ticks"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if since is not None and start_ticks(pid) == since else None


def alive(folder: Path) -> bool:
    """True while the program that made the run's folder is alive."""
    return _maker(folder) is not None


def is_own(folder: Path) -> bool:
    """True if this process made the run's folder."""
    return _maker(folder) == os.getpid()


def is_run(folder: Path) -> bool:
    """True for a folder of ``make``, ended or not, also if ``make`` was interrupted.

    A runs/ may be in a folder with foreign files, too.
    """
    if not NAME.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
        return False
    return (folder / OWNER).exists() or {entry.name for entry in folder.iterdir()} <= {"logs"}


def remove_disks(folder: Path) -> None:
    """Remove a run's large files and libvirt's state; keep its logs."""
    for name in ("disks", "libvirt", "shadow"):
        shutil.rmtree(folder / name, ignore_errors=True)


def prune(runs: Path) -> None:
    """Clear ended runs: disks of all, and the whole of those beyond KEPT_RUNS."""
    ended = [folder for folder in runs.iterdir() if is_run(folder) and not alive(folder)]
    ended.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for index, folder in enumerate(ended):
        if index < KEPT_RUNS:
            remove_disks(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
