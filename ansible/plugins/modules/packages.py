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
    taken back too. Packages whose names begin with C(sluice-) are not recorded.
  - Finishes an interrupted installation first (C(dpkg --configure -a)).
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
  leftovers:
    description:
      - Folders that the packages are known to leave behind when they are purged. Those that do not
        exist when the record is begun are noted in it, with the users and groups of that moment.
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
"""

import fnmatch
import grp
import json
import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.dpkg import (
    STATUS_FORMAT,
    Installed,
    Plan,
    errors_of,
    journal,
    read_plan,
    read_status,
)

OWN_PREFIX = "sluice-"
LOCK_SECONDS = 300
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "l",
    "LC_ALL": "C",
    "APT_LISTCHANGES_FRONTEND": "none",
}
APT_OPTIONS = (
    "--assume-yes",
    f"-oDPkg::Lock::Timeout={LOCK_SECONDS}",
    "-oDpkg::Options::=--force-confdef",
    "-oDpkg::Options::=--force-confold",
)


class Failed(Exception):
    """What went wrong, with the remedy."""


class Record:
    """The file with what was installed for Sluice, and what was there before."""

    def __init__(self, path: str | None, leftovers: list[str]) -> None:
        self.path, self.leftovers = path, leftovers

    def read(self) -> dict:
        """The record, or a new one that knows the users and groups of now."""
        if self.path and os.path.exists(self.path):
            try:
                with open(self.path, encoding="utf-8") as file:
                    return json.load(file)
            except ValueError as error:
                raise Failed(
                    f"record {self.path!r} is not JSON ({error}): restore it from a backup, or"
                    " delete it; what it names is then never removed"
                ) from error
        return {
            "format": 1,
            "packages": [],
            "users_before": sorted(user.pw_name for user in pwd.getpwall()),
            "groups_before": sorted(group.gr_name for group in grp.getgrall()),
            "absent_before": [path for path in self.leftovers if not os.path.lexists(path)],
        }

    def add(self, names: list[str]) -> None:
        """Add packages, whole or not at all, and on the disk before returning."""
        if not self.path:
            return
        record = self.read()
        record["packages"] = sorted({*record["packages"], *names})
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        new = f"{self.path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)


class Apt:
    """apt-get and dpkg on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        recommends = "true" if module.params["recommends"] else "false"
        self.options = (*APT_OPTIONS, f"-oAPT::Install-Recommends={recommends}")

    def _run(self, *command: str) -> tuple[int, str]:
        code, out, error = self.module.run_command(list(command), environ_update=ENVIRONMENT)
        return code, f"{out}\n{error}"

    def status(self) -> dict[str, Installed]:
        """dpkg's database."""
        _code, out, _error = self.module.run_command(
            ["dpkg-query", "-W", "-f", STATUS_FORMAT], environ_update=ENVIRONMENT
        )
        return read_status(out)

    def simulate(self, verb: str, names: list[str]) -> tuple[Plan, str]:
        """What apt-get would do, and its complaint if it would not."""
        if not names:
            return Plan({}, {}, ()), ""
        code, text = self._run("apt-get", "--simulate", *self.options, verb, *names)
        return read_plan(text), errors_of(text) if code else ""

    def update(self) -> str:
        """Read the package lists; returns the complaint, if any."""
        code, text = self._run("apt-get", *self.options, "update")
        return errors_of(text) if code else ""

    def change(self, verb: str, names: list[str]) -> str:
        """Install or purge; returns the complaint, if any."""
        code, text = self._run("apt-get", *self.options, verb, *names)
        return errors_of(text) if code else ""

    def finish_interrupted(self) -> None:
        """Take up what an interruption left. Raises Failed."""
        code, text = self._run("dpkg", "--force-confdef", "--force-confold", "--configure", "-a")
        if code:
            raise Failed(
                f"'dpkg --configure -a' failed ({errors_of(text)}): run it by hand on this host"
                " and correct what it names"
            )
        complaint = self.change("--fix-broken", ["install"])
        if complaint:
            raise Failed(
                f"'apt-get --fix-broken install' failed ({complaint}): run it by hand on this host"
                " and correct what it names"
            )


class Work:
    """One run of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.apt, self.record = (
            Apt(module),
            Record(module.params["record"], module.params["leftovers"]),
        )
        self.repaired: list[str] = []

    def run(self) -> dict:
        """Do it; returns the result."""
        status = self.apt.status()
        unfinished = sorted(p.name for p in status.values() if p.repairable or p.broken)
        if unfinished or journal():
            self.repaired = unfinished or ["dpkg's own journal"]
            if not self.module.check_mode:
                self.apt.finish_interrupted()
                status = self.apt.status()
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
            "diff": {"before": _lines(before), "after": _lines(after)},
        }

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
            self.record.add([name for name in plan.new if not name.startswith(OWN_PREFIX)])
            complaint = self.apt.change("install", names)
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
        there = [name for name, package in status.items() if package.state != "not-installed"]
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
            complaint = self.apt.change("purge", names)
            if complaint:
                raise Failed(
                    f"purging {', '.join(names)} failed ({complaint}): correct what apt-get names"
                    " and run the playbook again"
                )
        return Plan({}, {}, tuple(sorted({*names, *plan.removed})))


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
            "leftovers": {"type": "list", "elements": "str", "default": []},
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
