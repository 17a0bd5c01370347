# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""What dpkg and apt-get say, read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

# dpkg-query's format for read_status.
STATUS_FORMAT = (
    "${db:Status-Want}\\t${db:Status-Status}\\t${db:Status-Eflag}\\t${Package}\\t${Version}\\n"
)

# What `dpkg --configure -a` finishes.
_UNFINISHED = ("unpacked", "half-configured", "triggers-awaited", "triggers-pending")


@dataclass(frozen=True)
class Installed:
    """A package as dpkg's database has it."""

    name: str
    version: str
    state: str
    reinstall: bool

    @property
    def installed(self) -> bool:
        """True when it is there and configured."""
        return self.state == "installed" and not self.reinstall

    @property
    def repairable(self) -> bool:
        """True when `dpkg --configure -a` finishes it."""
        return self.state in _UNFINISHED and not self.reinstall

    @property
    def broken(self) -> bool:
        """True when it has to be unpacked anew first."""
        return self.state == "half-installed" or self.reinstall


def read_status(text: str) -> dict[str, Installed]:
    """dpkg-query's answer to STATUS_FORMAT, by name."""
    found = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) != 5:
            continue
        _want, state, flag, name, version = parts
        found[name] = Installed(name, version, state, flag.strip() == "reinstreq")
    return found


def journal(folder: str = "/var/lib/dpkg/updates") -> bool:
    """True if an interrupted dpkg left a journal; apt then refuses to do anything."""
    try:
        return any(name.isdigit() for name in os.listdir(folder))
    except OSError:
        return False


@dataclass(frozen=True)
class Plan:
    """What a run of apt-get would do: versions by name."""

    new: dict[str, str]
    upgraded: dict[str, tuple[str, str]]
    removed: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """True when nothing would be done."""
        return not (self.new or self.upgraded or self.removed)


def read_plan(text: str) -> Plan:
    """The answer of ``apt-get --simulate``."""
    new, upgraded, removed = {}, {}, []
    for line in text.splitlines():
        install = re.match(r"Inst (\S+?)(?::\S+)? (?:\[(\S+)\] )?\((\S+)", line)
        if install:
            name, old, version = install.groups()
            if old is None:
                new[name] = version
            else:
                upgraded[name] = (old, version)
            continue
        remove = re.match(r"(?:Remv|Purg) (\S+?)(?::\S+)?(?: |$)", line)
        if remove and remove[1] not in removed:
            removed.append(remove[1])
    return Plan(new, upgraded, tuple(removed))


def read_candidates(text: str) -> dict[str, str]:
    """The answer of ``apt-cache policy``: the version that apt would install, by name."""
    found = re.findall(r"(?m)^(\S+):\n  Installed: .*\n  Candidate: (\S+)$", text)
    return {name: version for name, version in found if version != "(none)"}


def errors_of(text: str) -> str:
    """apt-get's own words about what failed, in one line."""
    lines = [line[3:].strip() for line in text.splitlines() if line.startswith("E: ")]
    lines += re.findall(r"(?m)^ (\S+ : Depends: .*)$", text)
    tail = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    return "; ".join(lines or tail) or "no message"


def held_lock(text: str) -> str | None:
    """The lock that apt-get could not get because another program has it.

    A lock file that cannot even be opened, on a full disk for example, is no matter of waiting.
    """
    errors = "\n".join(line for line in text.splitlines() if line.startswith("E: "))
    file = re.search(r"Could not get lock (\S+?)\.?(?=\s|$)", errors)
    if file:
        return file[1]
    folder = re.search(r"Unable to lock directory (\S+)", errors)
    if folder and "Could not open lock file" not in errors:
        return os.path.join(folder[1], "lock")
    return None
