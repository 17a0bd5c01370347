#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Debian packages, with a record of what was installed for Sluice."""

from __future__ import annotations

DOCUMENTATION = r"""
module: packages
short_description: Install or purge Debian packages and keep a record
version_added: 0.1.0
author: The Sluice developers
description:
  - Installs packages, without recommended ones unless told to. Before anything is installed, the
    names of all packages that will be new are added to a record, so that an interrupted run can be
    taken back too; those that did not come are taken out again. Packages whose names begin with
    C(sluice-) are not recorded.
  - Waits until no other program changes packages. Finishes an interrupted installation first
    (C(dpkg --configure -a) and C(apt-get --fix-broken install)).
  - Never removes a package in order to install another.
options:
  name:
    description: The packages. With I(state=absent), C(*) stands for anything.
    type: list
    elements: str
    required: true
  state:
    description:
      - C(present) installs what is missing, C(latest) also upgrades, C(absent) purges.
    type: str
    choices: [present, latest, absent]
    default: present
  record:
    description: File on the host with the record.
    type: path
  watch:
    description:
      - Folders of the host. What appears right in them while packages are installed is recorded
        too, and so are new users and groups, because purging leaves some of that behind.
      - Only what the packages account for is recorded; paths are in dpkg's list of their files, or
        named by their scripts, units or tmpfiles.d, and were born while they were installed; users
        and groups are made by their scripts or sysusers.d files and have an id of the system's.
        After an interruption dpkg's log says when they were installed.
    type: list
    elements: str
    default: []
  keep:
    description:
      - With I(state=absent), folders in which only operators put anything. If there are files in
        them, they are not among what is left, nor are the folders that they are in. The same holds
        for files below C(/etc) that were not born while packages were installed or purged.
    type: list
    elements: str
    default: []
  written:
    description:
      - With I(state=absent), patterns of files below C(/etc) that the packages' services write
        while they run. They are not the operator's whenever they were born; C(*) stands for
        anything but C(/).
    type: list
    elements: str
    default: []
  expected:
    description:
      - Versions by name that a package source not yet set up will offer. In check mode they are
        taken as available.
    type: dict
    default: {}
  may_remove:
    description:
      - With I(state=absent), further packages that may go with the named ones. Others are never
        removed; the module fails and names them.
    type: list
    elements: str
    default: []
  recommends:
    description: Also install what the packages recommend, where it is available.
    type: bool
    default: false
  update:
    description: Read the package lists first (C(apt-get update)). Done anyway where it is needed.
    type: bool
    default: false
attributes:
  check_mode:
    description: Asks apt what it would do.
    support: full
  diff_mode:
    description: Versions before and after.
    support: full
"""

EXAMPLES = r"""
- name: Install libvirt
  sluice.appliance.packages:
    name: [libvirt-daemon-system]
    record: /var/lib/sluice-ansible/installed.json
"""

RETURN = r"""
installed:
  description: Packages that were or would be new.
  returned: always
  type: list
  elements: str
upgraded:
  description: Packages that were or would be replaced by a newer version.
  returned: always
  type: list
  elements: str
removed:
  description: Packages that were or would be purged.
  returned: always
  type: list
  elements: str
repaired:
  description: Packages whose interrupted installation was finished.
  returned: always
  type: list
  elements: str
left:
  description:
    - With I(state=absent) and I(record), the users, groups and paths that came with recorded
      packages, are still there and belong to no package any more, and in C(kept) what is
      spared (see I(keep)).
  returned: always
  type: dict
"""

import fnmatch
import os
import pathlib
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.apt import (
    LOCK_SECONDS,
    Apt,
    Failed,
)
from ansible_collections.sluice.appliance.plugins.module_utils.dpkg import (
    Installed,
    Plan,
    journal,
)
from ansible_collections.sluice.appliance.plugins.module_utils.package_record import (
    OWN_PREFIX,
    Host,
    Record,
    look,
)
from ansible_collections.sluice.appliance.plugins.module_utils.traces import (
    is_system,
    is_within_spans,
    read_owned,
    read_traces,
)


class Work:
    """One run of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.apt = Apt(module)
        self.record = Record(module.params["record"], module.params["watch"])
        self.host = Host(self.apt.root(), self.births)
        self.repaired: list[str] = []

    def run(self) -> dict:
        """Do it; returns the result."""
        if not self.module.check_mode:
            # What another apt is at is neither broken nor ours.
            self.record.lock(LOCK_SECONDS)
            self.apt.hold()
        status = self.apt.status()
        unfinished = sorted(p.name for p in status.values() if p.repairable or p.broken)
        if unfinished or journal(f"{self.host.root}/var/lib/dpkg/updates"):
            self.repaired = unfinished or ["dpkg's own journal"]
            if not self.module.check_mode:
                self.apt.finish_interrupted()
                self.apt.hold()
                status = self.apt.status()
        if not self.module.check_mode:
            self.record.end(self.host, _there(status))
        action = self.purge if self.params["state"] == "absent" else self.install
        plan = action(status)
        before = {name: status[name].version for name in plan.removed if name in status}
        before.update({name: old for name, (old, _new) in plan.upgraded.items()})
        after = {**plan.new, **{name: new for name, (_old, new) in plan.upgraded.items()}}
        return {
            "changed": bool(self.repaired) or not plan.empty,
            "installed": sorted(plan.new),
            "upgraded": sorted(plan.upgraded),
            "removed": sorted(plan.removed),
            "repaired": self.repaired,
            "left": self.left_behind(plan),
            "diff": {"before": _lines(before), "after": _lines(after)},
        }

    def births(self, paths: list[str]) -> dict[str, float]:
        """When paths were made; where the file system does not know, when last changed."""
        found = {}
        if paths:
            command = ["stat", "--printf=%.9W %.9Z %n\\0", "--", *paths]
            _code, out, _error = self.module.run_command(command)
            for entry in out.split("\0")[:-1]:
                born, changed, path = entry.split(" ", 2)
                found[path] = float(born if born[0] in "123456789" else changed)
        return found

    def left_behind(self, plan: Plan) -> dict[str, list[str]]:
        """What the record names, is still there and belongs to nobody else."""
        if self.params["state"] != "absent" or not self.params["record"]:
            return {"users": [], "groups": [], "paths": [], "kept": []}
        record, now = self.record.read(), look(self.params["watch"])
        others = self.host.listed(lambda name: name not in plan.removed)
        accounts = read_traces(self.host.root, others).accounts
        owned = read_owned(self.host.root, others)
        left = {
            kind: sorted(
                name
                for name in set(record[kind]).intersection(numbers)
                if is_system(numbers[name]) and name not in accounts
            )
            for kind, numbers in (("users", now.users), ("groups", now.groups))
        }
        paths = [
            path
            for path in sorted(set(record["paths"]).intersection(now.paths))
            if path not in owned and not os.path.basename(path).startswith("sluice")
        ]
        kept = [folder for folder in self.params["keep"] if _files(folder)]
        kept += self.operators_files(paths, record.get("spans", []))
        left["paths"] = [one for path in paths for one in _around(path, kept)]
        left["kept"] = [one for one in kept if any(_is_within(one, path) for path in paths)]
        return left

    def operators_files(self, paths: list[str], spans: list) -> list[str]:
        """What scripts did not write of the configuration.

        Services keep their state below /var but for what is named as written by them; what
        else comes to /etc later is the operator's.
        """
        configuration = [path for path in paths if path.startswith(f"{self.host.root}/etc/")]
        written = [f"{self.host.root}{pattern}" for pattern in self.params["written"]]
        files = sorted(file for path in configuration for file in _files(path))
        born = self.births([file for file in files if not _matches(file, written)])
        return [file for file, at in born.items() if not is_within_spans(at, spans)]

    # Installing

    def install(self, status: dict[str, Installed]) -> Plan:
        """Install or upgrade the named packages."""
        names = self.params["name"]
        if self.params["state"] == "present":
            names = [n for n in names if n not in status or not status[n].installed]
        if not names:
            return Plan({}, {}, ())
        plan, complaint = self.planned(names, status)
        if self.module.check_mode and (complaint or self.outdated(plan, names, status)):
            return self.foreseen(names, status, complaint)
        if complaint:
            raise Failed(
                f"packages {', '.join(names)} cannot be installed ({complaint}): see that the"
                " package sources of this host offer them"
            )
        if plan.removed:
            raise Failed(
                f"installing {', '.join(names)} would remove {', '.join(plan.removed)}: solve the"
                " conflict on this host first"
            )
        if not plan.empty and not self.module.check_mode:
            # Names are those of the host's architecture: what comes for another one must not
            # have the package of that name taken away that was there before.
            present = {name for name, package in status.items() if package.installed}
            new = [n for n in plan.new if not n.startswith(OWN_PREFIX) and n not in present]
            automatic = self.apt.automatic(sorted(present.intersection(names)))
            self.record.begin(new)
            complaint = self.apt.change("install", names)
            self.record.end(self.host, _there(self.apt.status()), time.time())
            self.apt.mark_automatic(automatic)
            if complaint:
                raise Failed(
                    f"installing {', '.join(names)} failed ({complaint}): correct what apt-get"
                    " names and run the playbook again"
                )
        return plan

    def planned(self, names: list[str], status: dict[str, Installed]) -> tuple[Plan, str]:
        """apt's plan, with fresh package lists where they may be the trouble."""
        if self.params["update"] and not self.module.check_mode:
            self.updated()
        plan, complaint = self.apt.simulate("install", names)
        stale = complaint or self.outdated(plan, names, status)
        if stale and not self.params["update"] and not self.module.check_mode:
            self.updated()
            plan, complaint = self.apt.simulate("install", names)
        return plan, complaint

    def outdated(self, plan: Plan, names: list[str], status: dict[str, Installed]) -> bool:
        """Whether the lists do not know an expected version yet."""
        would_be = {name: package.version for name, package in status.items()}
        would_be.update(plan.new)
        would_be.update({name: new for name, (_old, new) in plan.upgraded.items()})
        expected = self.params["expected"]
        return any(name in expected and would_be.get(name) != expected[name] for name in names)

    def updated(self) -> None:
        complaint = self.apt.update()
        if complaint:
            raise Failed(
                f"'apt-get update' failed ({complaint}): correct the package sources of this host"
            )

    def foreseen(self, names: list[str], status: dict[str, Installed], complaint: str) -> Plan:
        """Check mode before the package source is there: the expected versions."""
        expected = self.params["expected"]
        unknown = [name for name in names if name not in expected]
        if unknown:
            _plan, other = self.apt.simulate("install", unknown)
            if other:
                self.module.warn(f"cannot tell yet what installing would do: {complaint or other}")
        new = {n: str(expected.get(n, "?")) for n in names if n not in status}
        upgraded = {
            name: (status[name].version, str(expected[name]))
            for name in names
            if name in status and name in expected and status[name].version != expected[name]
        }
        return Plan(new, upgraded, ())

    # Purging

    def purge(self, status: dict[str, Installed]) -> Plan:
        """Purge what there is of the named packages, and nothing that is not named."""
        there = sorted(_there(status))
        names = sorted({n for wanted in self.params["name"] for n in fnmatch.filter(there, wanted)})
        plan, complaint = self.apt.simulate("purge", names)
        if complaint:
            raise Failed(
                f"packages {', '.join(names)} cannot be purged ({complaint}): correct what apt-get"
                " names"
            )
        allowed = {*names, *self.params["may_remove"]}
        others = [name for name in plan.removed if name not in allowed]
        if others:
            raise Failed(
                f"purging {', '.join(names)} would also remove {', '.join(others)}, which did not"
                " come with Sluice: remove these first, or keep the prerequisites"
            )
        if names and not self.module.check_mode:
            began = time.time()
            complaint = self.apt.change("purge", names)
            self.record.purged(began)
            if complaint:
                raise Failed(
                    f"purging {', '.join(names)} failed ({complaint}): correct what apt-get names"
                    " and run the playbook again"
                )
        return Plan({}, {}, tuple(sorted({*names, *plan.removed})))


def _there(status: dict[str, Installed]) -> set[str]:
    """The packages of which dpkg has anything, if only the configuration."""
    return {name for name, package in status.items() if package.state != "not-installed"}


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _matches(path: str, patterns: list[str]) -> bool:
    return any(pathlib.PurePosixPath(path).match(pattern) for pattern in patterns)


def _files(path: str) -> list[str]:
    """The path, or what is in it, without folders."""
    if os.path.islink(path) or not os.path.isdir(path):
        return [path] if os.path.lexists(path) else []
    with os.scandir(path) as entries:
        return [file for entry in entries for file in _files(entry.path)]


def _around(path: str, kept: list[str]) -> list[str]:
    """The path, or all in it but the folders that are kept."""
    if not any(_is_within(folder, path) for folder in kept):
        return [path]
    if path in kept:
        return []
    inner = sorted(os.path.join(path, name) for name in os.listdir(path))
    return [one for part in inner for one in _around(part, kept)]


def _lines(versions: dict[str, str]) -> str:
    return "".join(f"{name} {version}\n" for name, version in sorted(versions.items()))


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "state": {
                "type": "str",
                "choices": ["present", "latest", "absent"],
                "default": "present",
            },
            "record": {"type": "path"},
            "watch": {"type": "list", "elements": "str", "default": []},
            "keep": {"type": "list", "elements": "str", "default": []},
            "written": {"type": "list", "elements": "str", "default": []},
            "expected": {"type": "dict", "default": {}},
            "may_remove": {"type": "list", "elements": "str", "default": []},
            "recommends": {"type": "bool", "default": False},
            "update": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Work(module).run())
    except Failed as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}: correct it on this host")


if __name__ == "__main__":
    main()
