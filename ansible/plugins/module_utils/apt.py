# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""apt-get and dpkg on this host, as a module runs them."""

from __future__ import annotations

import fcntl
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sluice.appliance.plugins.module_utils.dpkg import (
    STATUS_FORMAT,
    Installed,
    Plan,
    errors_of,
    held_lock,
    read_plan,
    read_status,
)

# When a run ends early, its apt-get goes on alone: the next one waits for that.
LOCK_SECONDS = 900
LOCK_LOOK_SECONDS = 0.5
LOCK_AGAIN_SECONDS = 3
ADMIN_FOLDER = "/var/lib/dpkg"
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
# that is not named goes (see the module packages).
# So a package that Debian holds to be essential goes as well, if it came with the others.
PURGE_OPTIONS = ("--allow-remove-essential",)


class Failed(Exception):
    """What went wrong, with the remedy."""


def _held(path: str) -> str:
    return (
        f"another program has held {path!r} for {LOCK_SECONDS} s: wait for it"
        f" ('fuser {path}' tells which it is) and run the playbook again"
    )


class Apt:
    """apt-get and dpkg on this host.

    ``hold`` keeps others from changing packages until apt-get or dpkg is run here,
    which take the lock themselves.
    """

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        recommends = "true" if module.params["recommends"] else "false"
        self.options = (*APT_OPTIONS, f"-oAPT::Install-Recommends={recommends}")
        self._lock: int | None = None

    def _run(self, *command: str) -> tuple[int, str]:
        code, out, error = self.module.run_command(list(command), environ_update=ENVIRONMENT)
        return code, f"{out}\n{error}"

    def root(self) -> str:
        """Where the file system begins that apt-get works on; empty for the host's own."""
        code, out, _error = self.module.run_command(
            ["apt-config", "shell", "STATUS", "Dir::State::status/f"], environ_update=ENVIRONMENT
        )
        folder = os.path.dirname(out.partition("=")[2].strip().strip("'\""))
        if code or not folder.endswith(ADMIN_FOLDER):
            raise Failed(
                f"apt keeps dpkg's status in {folder!r} and not in {ADMIN_FOLDER!r}: correct"
                " Dir::State::status in the APT configuration of this host"
            )
        return folder.removesuffix(ADMIN_FOLDER)

    def hold(self) -> None:
        """Wait until nobody else changes packages, and let nobody begin. Raises Failed."""
        if self._lock is not None:
            return
        path = f"{self.root()}{ADMIN_FOLDER}/lock-frontend"
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if time.monotonic() >= end:
                    raise Failed(_held(path)) from error
            time.sleep(LOCK_LOOK_SECONDS)

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

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
        code, text = self._run("apt-get", "--simulate", *self._options(verb), verb, *names)
        return read_plan(text), errors_of(text) if code else ""

    def update(self) -> str:
        """Read the package lists; returns the complaint, if any."""
        return self._patiently("apt-get", *self.options, "update")

    def change(self, verb: str, names: list[str]) -> str:
        """Install or purge; returns the complaint, if any."""
        self._let_go()
        return self._patiently("apt-get", *self._options(verb), verb, *names)

    def _patiently(self, *command: str) -> str:
        """Run it, again while another has a lock; its complaint, if any. Raises Failed.

        DPkg::Lock::Timeout is about dpkg's locks: for those of the package lists and of the
        downloaded packages apt-get does not wait, and has changed nothing when it meets one.
        """
        end = time.monotonic() + LOCK_SECONDS
        while True:
            code, text = self._run(*command)
            path = held_lock(text) if code else None
            if path is None:
                return errors_of(text) if code else ""
            if time.monotonic() >= end:
                raise Failed(_held(path))
            time.sleep(LOCK_AGAIN_SECONDS)

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
        """Take up what an interruption left. Raises Failed.

        What is unpacked without its needs cannot be configured before apt-get has
        brought these, so only what is there in the end counts.
        """
        self._let_go()
        self._configure()
        self._fix_broken(sorted(p.name for p in self.status().values() if p.broken))
        complaint = self._configure()
        if complaint:
            raise Failed(
                f"'dpkg --configure -a' failed ({complaint}): run it by hand on this host"
                " and correct what it names"
            )
        broken = sorted(p.name for p in self.status().values() if p.broken)
        if broken:
            raise Failed(
                f"{', '.join(broken)} are unpacked in part and no package source offers them any"
                f" more: run 'apt-get --reinstall install {' '.join(broken)}' with one that does"
            )

    def _configure(self) -> str:
        code, text = self._run("dpkg", "--force-confdef", "--force-confold", "--configure", "-a")
        return errors_of(text) if code else ""

    def _fix_broken(self, broken: list[str]) -> None:
        """Bring what is needed, and anew what was unpacked in part, which apt leaves alone else."""
        names = ["--reinstall", "install", *broken] if broken else ["install"]
        command = " ".join(["apt-get --fix-broken", *names])
        plan, complaint = self.simulate("--fix-broken", names)
        if plan.removed:
            raise Failed(
                f"'{command}' would remove {', '.join(plan.removed)}: give apt the package"
                " sources that it lacks, or run it by hand on this host"
            )
        automatic = self.automatic(broken)
        complaint = complaint or self.change("--fix-broken", names)
        if complaint:
            raise Failed(
                f"'{command}' failed ({complaint}): run it by hand on this host"
                " and correct what it names"
            )
        self.mark_automatic(automatic)
