# SPDX-License-Identifier: GPL-2.0-or-later
"""What was on a host before and after: compare two manifests.

A manifest maps each path to its entry as ``collect.py`` prints it. Two hosts
are equal if no path was added, removed or changed in type, mode, owner,
content, link target or extended attributes. Times of change are left out: a
file that was replaced by an equal one is as it was.

``Excepted`` names paths that any use of the host changes, each with its reason.
"""

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from deploy.machine import Machine

FOLDERS = ("/etc", "/usr", "/var", "/boot", "/opt", "/srv", "/root", "/home")
COLLECT = Path(__file__).with_name("collect.py")
COLLECT_SECONDS = 600.0

Manifest = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Excepted:
    """A path, or a pattern of paths in which ``*`` also crosses ``/``, and why."""

    pattern: str
    reason: str

    def covers(self, path: str) -> bool:
        return fnmatch.fnmatchcase(path, self.pattern)


@dataclass(frozen=True)
class Difference:
    """One path: ``added``, ``removed`` or ``changed`` with the fields that differ."""

    path: str
    kind: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + (f" ({', '.join(self.fields)})" if self.fields else "")


def collect(machine: Machine) -> str:
    """Return what ``collect.py`` prints on the machine."""
    return machine.python(COLLECT, *FOLDERS, timeout_seconds=COLLECT_SECONDS)


def take_all(
    machines: Iterable[Machine], keep: Path | None = None
) -> dict[str, dict[str, dict[str, object]]]:
    """Return the manifests of machines by name, taken at the same time.

    With ``keep``, a folder, those that are there are returned, and new ones stored.
    """
    wanted = list(machines)
    stored = {machine.name: keep and keep / f"manifest-{machine.name}.jsonl" for machine in wanted}

    def one(machine: Machine) -> str:
        path = stored[machine.name]
        if path and path.exists():
            return path.read_text()
        lines = collect(machine)
        if path:
            path.write_text(lines)
        return lines

    with ThreadPoolExecutor(len(wanted)) as pool:
        lines = list(pool.map(one, wanted))
    return {machine.name: parse(text) for machine, text in zip(wanted, lines, strict=True)}


def parse(lines: str) -> dict[str, dict[str, object]]:
    """Read what ``collect.py`` printed. ValueError on a line that is no entry."""
    manifest = {}
    for number, line in enumerate(lines.splitlines(), 1):
        entry = json.loads(line)
        if not isinstance(entry, dict) or "path" not in entry or "type" not in entry:
            raise ValueError(f"line {number} of the manifest is no entry: {line[:80]}")
        manifest[entry["path"]] = entry
    return manifest


def differences(before: Manifest, after: Manifest) -> list[Difference]:
    """Return everything that differs, sorted by path."""
    found = []
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            found.append(Difference(path, "removed"))
        elif path not in before:
            found.append(Difference(path, "added"))
        else:
            old, new = before[path], after[path]
            fields = sorted(
                name for name in old.keys() | new.keys() if old.get(name) != new.get(name)
            )
            if fields:
                found.append(Difference(path, "changed", tuple(fields)))
    return found


def unexpected(found: Iterable[Difference], excepted: Sequence[Excepted]) -> list[Difference]:
    """Return the differences that no exception covers."""
    return [one for one in found if not any(rule.covers(one.path) for rule in excepted)]
