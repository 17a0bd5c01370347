# SPDX-License-Identifier: GPL-2.0-or-later
"""Two machines on a network of their own, and the APT repository they install from.

    host1 10.78.0.11 ── tap ──┐
                              ├── br-fleet 10.78.0.1 (HTTP: the repository)
    host2 10.78.0.12 ── tap ──┘

All of it is inside namespaces that end with the program that made them
(``testbed.sandbox``). The machines have no other network, so nothing that a
deployment fetches can come from anywhere else. The control node, where Ansible
runs, is this program's side of the bridge.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

from deploy.machine import Image, Machine, MachineSpec, kernel_command_line, qemu_command
from testbed import paths, runs
from testbed.sandbox import Sandbox, Task

BRIDGE = "br-fleet"
CONTROL_ADDRESS = "10.78.0.1"
REPOSITORY_PORT = 80
HOSTS = (
    MachineSpec("host1", "10.78.0.11", "52:54:00:78:00:11"),
    MachineSpec(
        "host2",
        "10.78.0.12",
        "52:54:00:78:00:12",
        data=("root.img", "media-data.img", "web-data.img", "movie.img"),
    ),
)
RECORD = "fleet.json"


def image() -> Image:
    """The machines' image, as `make machines` links it."""
    return Image(paths.require(paths.BUILD / "machines" / "root.img", "make machines").parent)


class Fleet:
    """The machines and what they stand on. A context manager."""

    def __init__(self, label: str = "deploy", specs: Sequence[MachineSpec] = HOSTS):
        self._label = label
        self.folder = Path()
        self.sandbox: Sandbox | None = None
        self._owned = True
        self._server: Task | None = None
        self.specs = tuple(specs)
        self.machines: dict[str, Machine] = {}

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def public_key(self) -> str:
        return self.key.with_suffix(".pub").read_text().strip()

    def open(self) -> None:
        """Make the network, start the repository and the machines; do not wait for them."""
        image()
        self.folder = runs.make(self._label)
        (self.folder / "disks").mkdir()
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "run", "-f", str(self.key)])
        self.sandbox = Sandbox(self.folder, {})
        try:
            self.sandbox.open()
            self._make_network()
            self._serve_repository()
            for spec in self.specs:
                self._boot(spec)
            self._record()
        except BaseException:
            self.close()
            raise

    @classmethod
    def attach(cls, folder: Path) -> "Fleet":
        """Use a fleet that another program holds (``python -m deploy up``)."""
        record = json.loads((folder / RECORD).read_text())
        fleet = cls(
            specs=[
                MachineSpec(**{**spec, "data": tuple(spec["data"])}) for spec in record["machines"]
            ]
        )
        fleet.folder = folder
        fleet._owned = False
        fleet.sandbox = Sandbox(folder, {})
        fleet.sandbox.holder_pid = record["holder_pid"]
        for spec in fleet.specs:
            fleet.machines[spec.name] = Machine(spec, fleet.sandbox, fleet.key, fleet.logs)
        return fleet

    def close(self) -> None:
        """Power the machines off and end the network. Safe to repeat."""
        if not self._owned:
            return
        try:
            for machine in self.machines.values():
                machine.stop()
        finally:
            if self.sandbox:
                self.sandbox.close()
                runs.remove_disks(self.folder)
            self.machines.clear()

    def _record(self) -> None:
        record = {
            "holder_pid": self.sandbox.holder_pid,
            "machines": [asdict(spec) for spec in self.specs],
        }
        (self.folder / RECORD).write_text(json.dumps(record))

    def _make_network(self) -> None:
        for line in (
            f"ip link add {BRIDGE} type bridge stp_state 0 forward_delay 0",
            f"ip address add {CONTROL_ADDRESS}/24 dev {BRIDGE}",
            f"ip link set {BRIDGE} up",
        ):
            self.sandbox.run(line.split())

    def _serve_repository(self) -> None:
        """Serve build/machines/repository at /debian and build/deb at /sluice."""
        served = self.folder / "www"
        served.mkdir()
        (served / "debian").symlink_to(image().folder.resolve() / "repository")
        (served / "sluice").symlink_to(paths.BUILD / "deb")
        command = [sys.executable, "-m", "http.server", str(REPOSITORY_PORT)]
        command += ["--bind", CONTROL_ADDRESS, "--directory", str(served)]
        self._server = self.sandbox.popen(
            command, name="repository", log=self.logs / "repository.log"
        )

    def add(self, spec: MachineSpec) -> Machine:
        """Boot one more machine and wait for it; ``close`` or its ``stop`` ends it."""
        self._boot(spec)
        machine = self.machines.pop(spec.name)
        machine.wait_ready()
        self.prepare(machine)
        return machine

    def copy_guest_files(self, machine: Machine, folder: str) -> None:
        """Copy what a guest boots with, less its root disk; the folder is there."""
        for name in ("vmlinuz", "initrd.img", "id_ed25519"):
            machine.copy(paths.image(name), f"{folder}/{name}")
        machine.ssh(f"chmod 0600 {folder}/id_ed25519")

    def _boot(self, spec: MachineSpec) -> None:
        machine = Machine(spec, self.sandbox, self.key, self.logs)
        tap = f"tap-{spec.name}"
        self.sandbox.run(["ip", "tuntap", "add", tap, "mode", "tap"])
        self.sandbox.run(["ip", "link", "set", tap, "master", BRIDGE, "up"])
        overlay = self.folder / "disks" / f"{spec.name}.qcow2"
        base = image()
        command = [str(paths.qemu_img()), "create", "-q", "-f", "qcow2", "-F", "raw"]
        _run([*command, "-b", str(base.root.resolve()), str(overlay)])
        append = kernel_command_line(
            spec.name, spec.address, CONTROL_ADDRESS, self.public_key, bridge=True
        )
        machine.start(
            qemu_command(
                spec,
                emulator=paths.emulator(),
                image=base,
                overlay=overlay,
                data=[paths.image(name) for name in spec.data],
                tap=tap,
                append=append,
                console=machine.console,
                qmp=self.folder / f"{spec.name}.qmp",
            )
        )
        self.machines[spec.name] = machine

    def wait_ready(self) -> dict[str, float]:
        """Wait for every machine, and give the operator's account its key."""
        elapsed = {}
        for machine in self.machines.values():
            elapsed[machine.name] = machine.wait_ready()
            self.prepare(machine)
        return elapsed

    def prepare(self, machine: Machine) -> None:
        """Give the operator's account its key, and the machine its package source.

        For a guest too: it is an instance of the same image.
        """
        machine.ssh(
            "install -m 0600 -o ops -g ops /root/.ssh/authorized_keys "
            "/home/ops/.ssh/authorized_keys"
        )
        machine.write("/etc/apt/sources.list.d/fleet.sources", APT_SOURCE)
        machine.ssh("apt-get -q update")

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_seconds: float,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess:
        """Run a command on the control node, in the fleet's network."""
        return self.sandbox.run(command, timeout_seconds=timeout_seconds, check=False, env=env)

    def shell_hint(self) -> str:
        """Return the lines that let a person in, while the fleet is held."""
        lines = []
        for machine in self.machines.values():
            argv = machine.ssh_argv()
            lines.append(
                f"{machine.name}: nsenter -t {self.sandbox.holder_pid} -m -n -- {' '.join(argv)}"
            )
        return "\n".join(lines)


APT_SOURCE = f"""\
Types: deb
URIs: http://{CONTROL_ADDRESS}/debian
Suites: ./
Trusted: yes
"""


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr}")
