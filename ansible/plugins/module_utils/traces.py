# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Which users, groups and paths came with packages. Pure, but for what reads dpkg's folder.

dpkg takes away what it unpacked. What maintainer scripts and services made besides
is found by comparing the host before and after. Others work on a host too, and an
interrupted run may be taken up a month later, so being new is not enough. Something
counts as the packages' only if all of this holds:

* it was not there before;
* the packages account for it: a path is in dpkg's list of their files, or their
  scripts, units or tmpfiles.d name it or something below it, or it is an enabled
  unit of theirs; a user or group is made by their scripts or sysusers.d files;
* a path was born while the packages were installed (``spans``), and no other
  package has it; a user or group has an id of the system's.

What lacks evidence is left on the host: better something too much than something
of the operator's gone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# dpkg's log says when a script begins. A longer silence is an interruption's.
LONGEST_STEP_SECONDS = 600
# What a service that was just started still makes, and times without fractions.
LATE_SECONDS = 30

SCRIPTS = ("config", "preinst", "postinst", "prerm", "postrm")
DESCRIPTIONS = re.compile(r"(?:/usr)?/lib/(?:systemd/system|tmpfiles\.d|sysusers\.d)/[^/]+")
UNIT_FOLDERS = {
    "State": "/var/lib",
    "Cache": "/var/cache",
    "Logs": "/var/log",
    "Configuration": "/etc",
}


@dataclass(frozen=True)
class Look:
    """A host at one time: ids of users and groups, paths in the watched folders.

    Of a path it holds to what it links: itself, or all that is in it if it is
    a folder of enabled units.
    """

    users: Mapping[str, int]
    groups: Mapping[str, int]
    paths: Mapping[str, tuple[str, ...]]

    def names(self) -> dict[str, list[str]]:
        """For the record."""
        return {
            "users": sorted(self.users),
            "groups": sorted(self.groups),
            "paths": sorted(self.paths),
        }


@dataclass
class Traces:
    """What packages account for."""

    paths: set[str] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)

    def account_for(self, path: str, links: Iterable[str]) -> bool:
        """Whether a path is theirs by name, or enables nothing but units of theirs."""
        targets = {_merged(target) for target in links}
        return path in self.paths or bool(targets) and targets <= self.paths


def is_system(number: int) -> bool:
    """Whether Debian gives this id to packages: people have those from 1000 on."""
    return 0 < number < 1000 or 60000 <= number < 65000


def is_within_spans(moment: float, spans: Iterable[tuple[float, float]]) -> bool:
    """Whether packages were worked on at that time."""
    return any(begin <= moment <= end for begin, end in spans)


def claimed(
    before: Mapping[str, Iterable[str]],
    now: Look,
    traces: Traces,
    born: Mapping[str, float],
    spans: Iterable[tuple[float, float]],
) -> dict[str, list[str]]:
    """What came with the packages that left these traces while they were installed."""
    spans = list(spans)
    found = {
        kind: [
            name
            for name in set(numbers).difference(before[kind])
            if is_system(numbers[name]) and name in traces.accounts
        ]
        for kind, numbers in (("users", now.users), ("groups", now.groups))
    }
    found["paths"] = [
        path
        for path in set(now.paths).difference(before["paths"])
        if traces.account_for(path, now.paths[path]) and is_within_spans(born.get(path, -1), spans)
    ]
    return {kind: sorted(names) for kind, names in found.items()}


def spans_of(log: str, names: Iterable[str], since: float) -> list[tuple[float, float]]:
    """When dpkg worked on these packages, by its own log, from a time on."""
    names, steps = set(names), []
    for line in log.splitlines():
        words = line.split()
        try:
            moment = time.mktime(time.strptime(" ".join(words[:2]), "%Y-%m-%d %H:%M:%S"))
            package = words[4 if words[2] == "status" else 3].partition(":")[0]
        except (ValueError, IndexError, OverflowError):
            continue
        steps.append((moment, package))
    ends = [moment for moment, _package in steps[1:]] + [float("inf")]
    return [
        (max(begin, since), min(end, begin + LONGEST_STEP_SECONDS) + LATE_SECONDS)
        for (begin, package), end in zip(steps, ends)  # noqa: B905, one for each
        if package in names and begin >= since
    ]


# Reading


def read_traces(root: str, listed: Mapping[str, Iterable[str]]) -> Traces:
    """What the packages account for whose files in dpkg's folder are given (see ``info_files``)."""
    traces = Traces()
    for files in listed.values():
        for file in files:
            extension = file.rpartition(".")[2]
            if extension == "list":
                _add_files(traces, root, _read(file).splitlines())
            elif extension in SCRIPTS:
                _add_text(traces, root, _read(file))
    return traces


def read_owned(root: str, listed: Mapping[str, Iterable[str]]) -> set[str]:
    """The paths that these packages have by dpkg's lists."""
    lists = (file for files in listed.values() for file in files if file.endswith(".list"))
    return {root + line for file in lists for line in _read(file).splitlines()}


def info_files(folder: str) -> dict[str, list[str]]:
    """dpkg's files on each package: lists and scripts."""
    found: dict[str, list[str]] = {}
    for file in sorted(os.listdir(folder)):
        name = file.rpartition(".")[0].partition(":")[0]
        found.setdefault(name, []).append(os.path.join(folder, file))
    return found


def _add_files(traces: Traces, root: str, files: Iterable[str]) -> None:
    for file in files:
        traces.paths.add(_merged(root + file))
        traces.paths.add(root + file)
        if DESCRIPTIONS.fullmatch(file):
            _add_text(traces, root, _read(root + file))


def _add_text(traces: Traces, root: str, text: str) -> None:
    """What a script or a description names."""
    text = re.sub(r"(?m)^\s*#.*$", "", text).replace("\\\n", " ")
    paths = re.findall(r"(?<![\w.}/-])/(?:etc|var)/[\w.+@:/-]+", text)
    for kind, names in re.findall(r"(?m)^(\w+)Directory=(.*)$", text):
        paths += [f"{UNIT_FOLDERS[kind]}/{n}" for n in names.split() if kind in UNIT_FOLDERS]
    for path in paths:
        while path.count("/") > 1:
            traces.paths.add(root + path.rstrip("/"))
            path = path.rstrip("/").rpartition("/")[0]
    traces.accounts.update(_accounts(text))


def _accounts(text: str) -> set[str]:
    """Users and groups that a script or a sysusers.d file makes."""
    values = dict(re.findall(r"(?m)^\s*(\w+)=[\"']?([\w.-]+)[\"']?\s*$", text))
    made = re.findall(r"(?m)\b(?:adduser|addgroup|useradd|groupadd)\b(.*)$", text)
    words = {word.strip("\"'") for line in made for word in line.split()}
    words = {values.get(word.strip("${}"), "") if "$" in word else word for word in words}
    words.update(re.findall(r"(?m)^[ug]!?\s+[\"']?([\w.-]+)", text))
    return {word for word in words if re.fullmatch(r"[a-z_][\w.-]*", word)}


def _merged(path: str) -> str:
    """A unit's path as dpkg has it since /lib is /usr/lib."""
    return re.sub(r"(^|/)lib/systemd/", r"\1usr/lib/systemd/", path.replace("/usr/lib/", "/lib/"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
