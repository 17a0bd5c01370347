#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Whether a host is fit for Sluice; changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: See whether a host is fit for Sluice
version_added: 0.1.0
author: The Sluice developers
description:
  - Looks at the release, virtualisation, memory, free space, dpkg's state, the package source and
    the address of the web page, and reports everything that is wrong. Changes nothing.
options:
  releases:
    description: Supported releases, as C(ID VERSION_ID) of os-release.
    type: list
    elements: str
    required: true
  architectures:
    description: Supported architectures, as C(uname -m) prints them.
    type: list
    elements: str
    default: [x86_64]
  virtualisation:
    description: Whether the host is to run guests.
    type: bool
    default: true
  allow_tcg:
    description: Go on without hardware virtualisation.
    type: bool
    default: false
  free_mib:
    description: MiB that must be free, by folder. These count in place of I(install_mib).
    type: dict
    default: {}
  installs:
    description:
      - Names of the packages that are to be there, by part; those of the part C(prerequisites) at
        any version.
    type: dict
    default: {}
  install_mib:
    description:
      - MiB that must be free, by part and folder, while a package of that part is not installed or
        is of another version than offered. Those of several parts are added.
    type: dict
    default: {}
  expected:
    description:
      - Versions that are offered, by name. With I(source) those of that source count. A package
        that is in neither may have any version.
    type: dict
    default: {}
  free_inodes:
    description: Inodes that must be free on each of these file systems.
    type: int
    default: 5000
  bind:
    description: C(HOST:PORT) of the web page; not looked at if empty.
    type: str
    default: ""
  bind_owner:
    description: Systemd unit that may already have that address, and then has it still.
    type: str
    default: sluice-web.service
  source:
    description: An APT source line to try, in a folder of its own.
    type: str
    default: ""
  source_key:
    description: The source's public key, armoured. Without one it is taken unsigned.
    type: str
    default: ""
  users:
    description: Users that the host must have.
    type: list
    elements: str
    default: []
  interface:
    description: A network interface that the host must have; not looked at if empty.
    type: str
    default: ""
  nightly:
    description:
      - What a nightly run needs; not looked at if empty. C(state) is its folder, C(parts) are the
        images it makes there (C(files), and C(mib) while they are missing), C(run_mib) is what must
        be free on the disk besides, C(memory_mib) the memory.
    type: dict
    default: {}
  own_folders:
    description:
      - Folders that one program has for itself, each with the names that it makes there, as
        patterns. Nothing else may be in them.
    type: dict
    default: {}
  calendar:
    description: A time as systemd.time writes it, to be understood; not looked at if empty.
    type: str
    default: ""
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: See whether the host is fit
  sluice.appliance.preflight:
    releases: [debian 13]
"""

RETURN = r"""
problems:
  description: What is wrong, one sentence each.
  returned: always
  type: list
  elements: str
repairs:
  description: What a later role will finish.
  returned: always
  type: list
  elements: str
found:
  description: What was found.
  returned: always
  type: dict
"""

import errno
import fcntl
import os
import pwd
import re
import shutil
import socket
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.dpkg import (
    STATUS_FORMAT,
    errors_of,
    journal,
    read_candidates,
    read_plan,
    read_status,
)
from ansible_collections.sluice.appliance.plugins.module_utils.hostcheck import (
    KVM_MODULES,
    MIB,
    judge,
)
from ansible_collections.sluice.appliance.plugins.module_utils.listeners import (
    in_the_way,
    sockets_of,
    tables,
)
from ansible_collections.sluice.appliance.plugins.module_utils.sandbox import is_made

KVM_CREATE_VM = 0xAE01
ENVIRONMENT = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def os_release(path: str = "/etc/os-release") -> dict[str, str]:
    """The distribution's own words about itself."""
    values = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, equals, value = line.strip().partition("=")
            if equals:
                values[key] = value.strip("\"'")
    return values


def processor_flag() -> str | None:
    """svm, vmx, or None."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                flags = line.split()
                return next((flag for flag in KVM_MODULES if flag in flags), None)
    return None


def kvm_error() -> str | None:
    """Make an empty virtual machine; why that fails. An absent device is no verdict:
    the kernel module may not be loaded yet.
    """
    try:
        device = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror
    try:
        os.close(fcntl.ioctl(device, KVM_CREATE_VM, 0))
    except OSError as error:
        return error.strerror
    finally:
        os.close(device)
    return None


def mount_of(path: str) -> str:
    """The mount point that a path, or its nearest existing parent, lies on."""
    path = os.path.realpath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def filesystem(path: str) -> dict:
    """Mount point and free room."""
    mount = mount_of(path)
    stat = os.statvfs(mount)
    return {
        "mount": mount,
        "free_bytes": stat.f_bavail * stat.f_frsize,
        # Some file systems (btrfs) do not count inodes.
        "free_inodes": stat.f_favail if stat.f_files else None,
    }


def split_bind(bind: str) -> tuple[str, str]:
    """Host, without brackets, and port."""
    host, _colon, port = bind.rpartition(":")
    return host.strip("[]"), port


def port_error(bind: str) -> OSError | str | None:
    """Why a listener cannot be put there."""
    host, port = split_bind(bind)
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        return "it is not HOST:PORT, for example 0.0.0.0:8480"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except OSError as error:
        return error
    return None


def others_things(path: str, known: list[str]) -> list[str]:
    """What is in a folder and not of these patterns; a file in its place, too."""
    if os.path.isdir(path):
        # What a file system of its own has at its top.
        known = [*known, "lost+found"]
        return sorted(name for name in os.listdir(path) if not is_made(name, known))
    return [path] if os.path.lexists(path) else []


def memory_mib(path: str = "/proc/meminfo") -> int:
    """All memory that the kernel manages."""
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    return 0


def nightly_files(state: str) -> set[str]:
    """Images of the nightly run that are made, or lie ready to be taken."""
    found = set()
    for folder in ("images", "ready"):
        place = os.path.join(state, folder)
        if os.path.isdir(place):
            # A link to a part that is gone counts for nothing.
            found |= {n for n in os.listdir(place) if os.path.exists(os.path.join(place, n))}
    return found


def missing_interface(name: str) -> str | None:
    """The name, if the host has no such interface."""
    return None if not name or os.path.exists(f"/sys/class/net/{name}") else name


def missing_users(names: list[str]) -> list[str]:
    """Those that the host does not know."""
    missing = []
    for name in names:
        try:
            pwd.getpwnam(name)
        except KeyError:
            missing.append(name)
    return missing


class Host:
    """Gathers what is to be judged."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        # What the source offers; known when it was tried.
        self.offered: dict[str, str] = {}

    def names(self) -> list[str]:
        """Packages that are to be there, as dpkg calls those of the host's architecture."""
        listed = [name for names in self.params["installs"].values() for name in names]
        return sorted({name.partition(":")[0] for name in listed})

    def _output(self, *command: str) -> tuple[int, str]:
        code, out, error = self.module.run_command(list(command), environ_update=ENVIRONMENT)
        return code, f"{out}\n{error}"

    def main_process(self, unit: str) -> int:
        """The unit's first process; 0 without one, or without systemd."""
        systemctl = self.module.get_bin_path("systemctl")
        if not systemctl:
            return 0
        _code, text = self._output(systemctl, "show", "--property=MainPID", "--value", "--", unit)
        first = text.split("\n", 1)[0].strip()
        return int(first) if first.isdigit() else 0

    def packages(self) -> dict:
        """dpkg's state."""
        _code, text = self._output("dpkg-query", "-W", "-f", STATUS_FORMAT)
        status = read_status(text)
        broken = sorted(p.name for p in status.values() if p.broken)
        restorable = broken if self.apt_brings(broken) else []
        return {
            "broken_packages": [name for name in broken if name not in restorable],
            "restorable_packages": restorable,
            "unfinished_packages": sorted(p.name for p in status.values() if p.repairable),
            "dpkg_journal": journal(),
            "installed": {
                name: status[name].version
                for name in self.names()
                if name in status and status[name].installed
            },
        }

    def apt_brings(self, names: list[str]) -> bool:
        """Whether apt has all of them to be unpacked anew, and removes nothing for that."""
        options = ("--simulate", "--fix-broken", "--reinstall")
        code, text = self._output("apt-get", *options, "install", *names) if names else (0, "")
        return code == 0 and not read_plan(text).removed

    def source_error(self) -> str | None:
        """Read the lists of the source in a folder of its own; apt's complaint."""
        line = self.params["source"]
        if not line:
            return None
        folder = tempfile.mkdtemp(prefix="sluice-apt-", dir=self.module.tmpdir)
        try:
            for name in ("lists/partial", "cache/archives/partial", "etc"):
                os.makedirs(os.path.join(folder, name))
            if self.params["source_key"]:
                key = os.path.join(folder, "key.asc")
                with open(key, "w", encoding="utf-8") as file:
                    file.write(self.params["source_key"])
                line = re.sub(r"^deb(\s+\[([^]]*)\])?\s", rf"deb [\2 signed-by={key}] ", line)
            with open(os.path.join(folder, "sources.list"), "w", encoding="utf-8") as file:
                file.write(line + "\n")
            flags = self._source_flags(folder)
            code, text = self._output("apt-get", *flags, "update")
            # apt-get update only warns of a source that does not answer.
            failed = code != 0 or "\nErr:" in f"\n{text}" or "W: Failed to fetch" in text
            if not failed and self.names():
                _code, policy = self._output("apt-cache", *flags, "policy", *self.names())
                self.offered = read_candidates(policy)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return f"{self.params['source']!r} does not work ({errors_of(text)})" if failed else None

    def _source_flags(self, folder: str) -> list[str]:
        options = {
            "Dir::Etc::sourcelist": f"{folder}/sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": f"{folder}/lists",
            "Dir::Cache": f"{folder}/cache",
            "APT::Sandbox::User": "root",
            "Acquire::Retries": "1",
            "APT::Update::Error-Mode": "any",
        }
        return [part for name, value in options.items() for part in ("-o", f"{name}={value}")]

    def ports(self) -> dict[str, str]:
        """The web page's address, unless its own service has it."""
        bind = self.params["bind"]
        error = port_error(bind) if bind else None
        if error is None:
            return {}
        if isinstance(error, OSError):
            if error.errno == errno.EADDRINUSE and self.is_its_own(bind):
                return {}
            error = error.strerror or str(error)
        return {bind: error}

    def is_its_own(self, bind: str) -> bool:
        """Whether nobody but the page's own service is in the way."""
        host, port = split_bind(bind)
        there = in_the_way(host, int(port), tables())
        own = sockets_of(self.main_process(self.params["bind_owner"]))
        return bool(there) and all(one.inode in own for one in there)

    def calendar_error(self) -> str | None:
        """What systemd has against the time of a timer."""
        analyze, value = self.module.get_bin_path("systemd-analyze"), self.params["calendar"]
        if not value or not analyze:
            return None
        code, text = self._output(analyze, "calendar", "--", value)
        return f"{value!r} ({text.strip()})" if code else None

    def folders(self) -> list[str]:
        """Where free space counts."""
        nightly = self.params["nightly"]
        rooms = [self.params["free_mib"], *self.params["install_mib"].values()]
        return [path for room in rooms for path in room] + ([nightly["state"]] if nightly else [])

    def nightly(self) -> dict:
        """What is there of the nightly run."""
        nightly = self.params["nightly"]
        return {"nightly_files": nightly_files(nightly["state"]) if nightly else set()}

    def gather(self) -> dict:
        """Everything."""
        release = os_release()
        with open("/proc/1/comm", encoding="ascii") as file:
            init = file.read().strip()
        return {
            "release_id": release.get("ID", "?"),
            "release_version": release.get("VERSION_ID", "?"),
            "release_name": release.get("PRETTY_NAME", "?"),
            "architecture": os.uname().machine,
            "init": init,
            "uid": os.geteuid(),
            "kvm_flag": processor_flag(),
            "kvm_error": kvm_error(),
            "filesystems": {path: filesystem(path) for path in self.folders()},
            "memory_mib": memory_mib(),
            "missing_interface": missing_interface(self.params["interface"]),
            "source_error": self.source_error(),
            "port_errors": self.ports(),
            "others_things": {
                path: others_things(path, known)
                for path, known in self.params["own_folders"].items()
            },
            "missing_users": missing_users(self.params["users"]),
            "calendar_error": self.calendar_error(),
            **self.packages(),
            "offered": self.offered,
            **self.nightly(),
        }


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "releases": {"type": "list", "elements": "str", "required": True},
            "architectures": {"type": "list", "elements": "str", "default": ["x86_64"]},
            "virtualisation": {"type": "bool", "default": True},
            "allow_tcg": {"type": "bool", "default": False},
            "free_mib": {"type": "dict", "default": {}},
            "installs": {"type": "dict", "default": {}},
            "install_mib": {"type": "dict", "default": {}},
            "expected": {"type": "dict", "default": {}},
            "free_inodes": {"type": "int", "default": 5000},
            "bind": {"type": "str", "default": ""},
            "bind_owner": {"type": "str", "default": "sluice-web.service"},
            "source": {"type": "str", "default": ""},
            "source_key": {"type": "str", "default": "", "no_log": False},
            "users": {"type": "list", "elements": "str", "default": []},
            "interface": {"type": "str", "default": ""},
            "nightly": {"type": "dict", "default": {}},
            "own_folders": {"type": "dict", "default": {}},
            "calendar": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = dict(module.params)
    wanted["free_bytes"] = {path: int(need) * MIB for path, need in wanted["free_mib"].items()}
    try:
        found = Host(module).gather()
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}: correct it on this host")
    problems, repairs = judge(found, wanted)
    found["nightly_files"] = sorted(found["nightly_files"])
    module.exit_json(changed=False, problems=problems, repairs=repairs, found=found)


if __name__ == "__main__":
    main()
