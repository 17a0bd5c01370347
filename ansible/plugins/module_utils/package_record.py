# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""The record of what came with the packages that were installed for Sluice."""

from __future__ import annotations

import fcntl
import grp
import json
import os
import pwd
import time
from collections.abc import Callable, Iterable

from ansible_collections.sluice.appliance.plugins.module_utils.apt import Failed
from ansible_collections.sluice.appliance.plugins.module_utils.traces import (
    Look,
    claimed,
    info_files,
    read_owned,
    read_traces,
    spans_of,
)

OWN_PREFIX = "sluice-"
DPKG_LOGS = ("/var/log/dpkg.log.1", "/var/log/dpkg.log")


def look(folders: Iterable[str]) -> Look:
    """Users, groups and what is right in the watched folders, as of now."""
    paths = {}
    for folder in folders:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        paths.update({entry.path: _links(entry) for entry in entries})
    return Look(
        {user.pw_name: user.pw_uid for user in pwd.getpwall()},
        {group.gr_name: group.gr_gid for group in grp.getgrall()},
        paths,
    )


def _links(entry: os.DirEntry) -> tuple[str, ...]:
    """What it links, if it is a link or a folder of nothing but links."""
    if entry.is_symlink():
        return (os.readlink(entry.path),)
    if entry.is_dir() and entry.name.endswith((".wants", ".requires")):
        inner = list(os.scandir(entry.path))
        if all(one.is_symlink() for one in inner):
            return tuple(os.readlink(one.path) for one in inner)
    return ()


class Host:
    """What dpkg knows on the host of what came with packages."""

    def __init__(self, root: str, births: Callable[[list[str]], dict[str, float]]) -> None:
        self.root, self.births = root, births

    def listed(self, wanted: Callable[[str], bool]) -> dict[str, list[str]]:
        """dpkg's files on some of its packages."""
        every = info_files(f"{self.root}/var/lib/dpkg/info")
        return {name: files for name, files in every.items() if wanted(name)}

    def spans(self, names: Iterable[str], since: float) -> list[tuple[float, float]]:
        """When dpkg worked on these packages, by its log."""
        text = ""
        for log in DPKG_LOGS:
            try:
                with open(self.root + log, encoding="utf-8", errors="replace") as file:
                    text += file.read()
            except OSError:
                continue
        return spans_of(text, names, since)


class Record:
    """The file with what came with the packages that were installed for Sluice.

    Before a transaction it holds, in ``before``, how the host looked, since when, and
    which packages it is about; afterwards what is new and theirs (see ``traces``). A
    run that finds ``before`` there takes up where an interrupted one ended.

    ``lock`` keeps a second run out while one that lost its connection still works.
    """

    def __init__(self, path: str | None, folders: list[str]) -> None:
        self.path, self.folders = path, folders
        self._lock: int | None = None

    def lock(self, seconds: float) -> None:
        """Wait for another run of the module, if there is a record. Raises Failed."""
        folder = os.path.dirname(self.path) if self.path else ""
        if self._lock is not None or not os.path.isdir(folder):
            return
        self._lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if time.monotonic() >= end:
                    raise Failed(
                        f"another run has held {folder!r} for {seconds:g} s: wait until it ends"
                        " and run the playbook again"
                    ) from error
            time.sleep(0.5)

    def read(self) -> dict:
        """The record, or an empty one."""
        if self.path and os.path.exists(self.path):
            try:
                with open(self.path, encoding="utf-8") as file:
                    return json.load(file)
            except ValueError as error:
                raise Failed(
                    f"record {self.path!r} is not JSON ({error}): restore it from a backup, or"
                    " delete it; what it names is then never removed"
                ) from error
        return {"format": 1, "packages": [], "users": [], "groups": [], "paths": []}

    def begin(self, names: list[str]) -> None:
        """Add the packages that will be new, and how the host looks before them."""
        if self.path:
            record = self.read()
            record["packages"] = sorted({*record["packages"], *names})
            now = look(self.folders).names()
            record["before"] = {"since": int(time.time()), "packages": names, **now}
            self._write(record)

    def end(self, host: Host, there: set[str], ended: float | None = None) -> None:
        """Add what is new since the beginning and came with the packages.

        Packages that did not come are taken out: installed later by the operator, they
        are theirs. Without the time at which the transaction ended, it was interrupted,
        and dpkg's log says when it went on.
        """
        record = self.read()
        if not self.path or "before" not in record:
            return
        before, now = record.pop("before"), look(self.folders)
        missed = set(before.get("packages", [])).difference(there)
        record["packages"] = sorted(set(record["packages"]).difference(missed))

        def ours(name: str) -> bool:
            return name in record["packages"] or name.startswith(OWN_PREFIX)

        listed = host.listed(ours)
        since = before.get("since", float("inf"))
        spans = [(since, ended)] if ended is not None else host.spans(listed, since)
        born = host.births(sorted(set(now.paths).difference(before["paths"])))
        found = claimed(before, now, read_traces(host.root, listed), born, spans)
        others = read_owned(host.root, host.listed(lambda name: not ours(name)))
        found["paths"] = [path for path in found["paths"] if path not in others]
        for kind, new in found.items():
            record[kind] = sorted({*new, *record[kind]})
        record["spans"] = [*record.get("spans", []), *spans]
        self._write(record)

    def purged(self, began: float) -> None:
        """Add the time of a purge, in which scripts may write what they leave."""
        if self.path and os.path.exists(self.path):
            record = self.read()
            record["spans"] = [*record.get("spans", []), (began, time.time())]
            self._write(record)

    def _write(self, record: dict) -> None:
        """Whole or not at all, and on the disk before returning."""
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        self.lock(0)
        new = f"{self.path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
