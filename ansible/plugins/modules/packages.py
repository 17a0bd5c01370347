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
  watch:
    description:
      - Folders of the host. What appears right in them while packages are installed is recorded
        too, and so are new users and groups, because purging leaves some of that behind.
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
      packages, are still there and belong to no package any more.
  returned: always
  type: dict
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


# What is named for purging comes from the record of what was not there before, and nothing
# that is not named goes (see Packages.purge).
# So a package that Debian holds to be essential goes as well, if it came with the others.
PURGE_OPTIONS = ("--allow-remove-essential",)


class Failed(Exception):
    """What went wrong, with the remedy."""


def look(folders: list[str]) -> dict[str, list[str]]:
    """Users, groups and what is right in the watched folders, as of now."""
    paths = []
    for folder in folders:
        try:
            paths += [os.path.join(folder, name) for name in os.listdir(folder)]
        except OSError:
            continue
    return {
        "users": sorted(user.pw_name for user in pwd.getpwall()),
        "groups": sorted(group.gr_name for group in grp.getgrall()),
        "paths": sorted(paths),
    }


class Record:
    """The file with what came with the packages that were installed for Sluice.

    Before a transaction it holds, in ``before``, how the host looked; afterwards
    what is new. A run that finds ``before`` there takes up where an interrupted
    one ended.
    """

    def __init__(self, path: str | None, folders: list[str]) -> None:
        self.path, self.folders = path, folders

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
            record.setdefault("before", look(self.folders))
            self._write(record)

    def end(self) -> None:
        """Add what is new since the beginning."""
        record = self.read()
        if self.path and "before" in record:
            before, now = record.pop("before"), look(self.folders)
            for kind, present in now.items():
                new = set(present).difference(before[kind])
                record[kind] = sorted(new.union(record[kind]))
            self._write(record)

    def forget(self, names: list[str]) -> None:
        """Take out packages that did not come after all."""
        if self.path and names:
            record = self.read()
            record["packages"] = sorted(set(record["packages"]).difference(names))
            self._write(record)

    def _write(self, record: dict) -> None:
        """Whole or not at all, and on the disk before returning."""
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

    def owners(self, path: str) -> set[str]:
        """Names of the packages that a path belongs to."""
        code, text = self._run("dpkg-query", "--search", path)
        if code:
            return set()
        lines = [line.partition(": ")[0] for line in text.splitlines() if ": " in line]
        return {name.strip().partition(":")[0] for line in lines for name in line.split(",")}

    def simulate(self, verb: str, names: list[str]) -> tuple[Plan, str]:
        """What apt-get would do, and its complaint if it would not."""
        if not names:
            return Plan({}, {}, ()), ""
        code, text = self._run("apt-get", "--simulate", *self._options(verb), verb, *names)
        return read_plan(text), errors_of(text) if code else ""

    def update(self) -> str:
        """Read the package lists; returns the complaint, if any."""
        code, text = self._run("apt-get", *self.options, "update")
        return errors_of(text) if code else ""

    def change(self, verb: str, names: list[str]) -> str:
        """Install or purge; returns the complaint, if any."""
        code, text = self._run("apt-get", *self._options(verb), verb, *names)
        return errors_of(text) if code else ""

    def _options(self, verb: str) -> tuple[str, ...]:
        return (*self.options, *PURGE_OPTIONS) if verb == "purge" else self.options

    def automatic(self, names: list[str]) -> list[str]:
        """Those of the packages that APT may take away when nothing needs them."""
        code, text = self._run("apt-mark", "showauto", *names) if names else (0, "")
        return [] if code else sorted(set(text.split()).intersection(names))

    def mark_automatic(self, names: list[str]) -> None:
        """Naming a package to apt-get made it the operator's choice, which it is not."""
        if names:
            self._run("apt-mark", "auto", *names)

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
            Record(module.params["record"], module.params["watch"]),
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
        if not self.module.check_mode:
            self.record.end()
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

    def left_behind(self, plan: Plan) -> dict[str, list[str]]:
        """What the record names, is still there and belongs to no package any more."""
        if self.params["state"] != "absent" or not self.params["record"]:
            return {"users": [], "groups": [], "paths": []}
        record, now = self.record.read(), look(self.params["watch"])
        there = {kind: sorted(set(record[kind]).intersection(now[kind])) for kind in now}
        there["paths"] = [path for path in there["paths"] if self.is_nobodys(path, plan)]
        return there

    def is_nobodys(self, path: str, plan: Plan) -> bool:
        """Whether no package but those that go has it, and it is not Sluice's own."""
        owners = self.apt.owners(path) - set(plan.removed)
        return not owners and not os.path.basename(path).startswith("sluice")

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
            self.record.end()
            self.apt.mark_automatic(automatic)
            if complaint:
                # Installed later by the operator, these are theirs.
                now = self.apt.status()
                self.record.forget([name for name in new if not _is_there(name, now)])
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
        there = [name for name in status if _is_there(name, status)]
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


def _is_there(name: str, status: dict[str, Installed]) -> bool:
    """Whether dpkg has anything of the package, if only its configuration."""
    return name in status and status[name].state != "not-installed"


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
