# SPDX-License-Identifier: GPL-2.0-or-later
"""The control node: an operator's inventory, and Ansible runs against the fleet.

What is run is what the documentation tells an operator to run: the collection
is installed with ``ansible-galaxy`` and its playbooks are started by name. The
operator signs in as an ordinary user and becomes root by sudo.
"""

import json
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_collection
from deploy.fleet import Fleet
from deploy.machine import PATIENCE_SECONDS
from testbed import paths
from testbed.sandbox import CommandFailed

COLLECTION = paths.TOP / "ansible"
# Beside other loads an emulated machine takes several times as long.
RUN_SECONDS = 5400.0
RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=(?P<ok>\d+)\s+changed=(?P<changed>\d+)\s+"
    r"unreachable=(?P<unreachable>\d+)\s+failed=(?P<failed>\d+)",
    re.MULTILINE,
)
TASK = re.compile(r"^TASK \[(?P<name>.*)\] \*+$", re.MULTILINE)


class RunFailed(Exception):
    """A playbook did not succeed; the text ends with what it said."""


@dataclass(frozen=True)
class Run:
    """How a playbook run ended. ``recap`` maps a host to Ansible's counts."""

    name: str
    exit_code: int
    output: str = field(repr=False)
    seconds: float
    recap: Mapping[str, Mapping[str, int]]

    @property
    def tasks(self) -> list[str]:
        return TASK.findall(self.output)

    def says(self, text: str) -> bool:
        """Return whether Ansible printed the text, wherever it broke the line."""
        return text in " ".join(self.output.split())

    def tail(self) -> str:
        """Return the end of what was printed, for an error."""
        return f"{self.name} ended with {self.exit_code}:\n{self.output[-3000:]}"

    def changed(self) -> dict[str, int]:
        """Return how many tasks changed something, by host."""
        return {host: counts["changed"] for host, counts in self.recap.items()}

    def changes(self) -> list[str]:
        """Return each task that changed something, with its host, for an error."""
        found, task = [], "?"
        for line in self.output.splitlines():
            match = TASK.match(line)
            if match:
                task = match["name"]
            elif line.startswith("changed: "):
                found.append(f"{line.split()[1].strip('[]')}: {task}")
        return found


def parse_recap(output: str) -> dict[str, dict[str, int]]:
    """Return the counts of Ansible's closing lines, by host, without localhost."""
    found = {}
    for match in RECAP.finditer(output):
        counts = {key: int(value) for key, value in match.groupdict().items() if key != "host"}
        if match["host"] != "localhost":
            found[match["host"]] = counts
    return found


# Ansible's own, and a sign of life each ten seconds, as the tests' own connections have.
SSH_ARGUMENTS = (
    "-C -o ControlMaster=auto -o ControlPersist=60s"
    " -o ServerAliveInterval=10 -o ServerAliveCountMax=12"
)


class ControlNode:
    """The operator's working folder, and what is started there."""

    def __init__(self, fleet: Fleet):
        self._fleet = fleet
        self.folder = fleet.folder / "control"
        self.folder.mkdir(exist_ok=True)
        self._number = len(list(fleet.logs.glob("ansible-*.log")))

    @property
    def passwords(self) -> Path:
        return self.folder / "sluice-passwords"

    def environment(self) -> dict[str, str]:
        return {
            "ANSIBLE_HOME": str(self.folder / "home"),
            # In the second one is the collection that Debian's package ansible brings.
            "ANSIBLE_COLLECTIONS_PATH": f"{self.folder / 'collections'}:{self.folder / 'debian'}",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "True",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": "/run/ansible",
            "ANSIBLE_TIMEOUT": "60",
            # The kernel of a guest under an emulated KVM was seen to panic in the middle of a
            # play, and to boot anew: a connection would not notice, and the play wait for ever.
            "ANSIBLE_SSH_ARGS": SSH_ARGUMENTS,
            "ANSIBLE_SSH_RETRIES": "4",
            "PWD": str(self.folder),
        }

    def install_collection(self) -> None:
        """Install the collection as the documentation says."""
        ansible_collection.provide_community(self.folder / "debian")
        galaxy = paths.require(paths.VENV_BIN / "ansible-galaxy", "make venv")
        command = [str(galaxy), "collection", "install", "--offline", "--force", str(COLLECTION)]
        done = self._fleet.run(command, timeout_seconds=PATIENCE_SECONDS, env=self.environment())
        if done.returncode:
            raise RunFailed(f"ansible-galaxy: {done.stderr or done.stdout}")

    def write_inventory(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write an inventory; JSON is YAML."""
        path = self.folder / f"{name}.yml"
        path.write_text(json.dumps(content, indent=2))
        return path

    def play(
        self,
        playbook: str,
        inventory: Path,
        *options: str,
        check: bool = True,
        stop_when: Callable[[list[str]], bool] | None = None,
        timeout_seconds: float = RUN_SECONDS,
    ) -> Run:
        """Run a playbook of the collection, for example ``site``.

        ``stop_when`` gets the names of the tasks started so far; when it says
        true, Ansible is killed as by a power cut of the control node.
        RunFailed unless the run succeeds (if ``check``).
        """
        self._number += 1
        name = f"ansible-{self._number:02d}-{playbook}"
        log = self._fleet.logs / f"{name}.log"
        command = [str(paths.require(paths.VENV_BIN / "ansible-playbook", "make venv"))]
        command += ["-i", str(inventory), f"sluice.appliance.{playbook}", *options]
        started = time.monotonic()
        task = self._fleet.sandbox.popen(
            ["env", "-C", str(self.folder), *command],
            name=name,
            log=log,
            env=self.environment(),
        )
        try:
            code = self._follow(task, log, started + timeout_seconds, stop_when)
        finally:
            task.stop()
        output = log.read_text(errors="replace")
        run = Run(name, code, output, time.monotonic() - started, parse_recap(output))
        if check and code:
            raise RunFailed(f"{playbook} ended with {code}; the end of {log}:\n{output[-4000:]}")
        return run

    def _follow(self, task, log: Path, deadline: float, stop_when) -> int:
        while task.running():
            if time.monotonic() > deadline:
                raise CommandFailed(f"{task.name} still runs after its time; see {log}")
            if stop_when and stop_when(TASK.findall(log.read_text(errors="replace"))):
                task.signal(signal.SIGKILL)
                return -signal.SIGKILL
            time.sleep(0.2)
        return task.process.returncode
