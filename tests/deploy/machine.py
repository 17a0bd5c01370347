# SPDX-License-Identifier: GPL-2.0-or-later
"""One emulated Debian 13 machine: its QEMU, its ssh.

The machine is emulated whatever the host can do: TCG's CPU model ``max`` has
AMD's SVM with nested paging, so inside the machine ``kvm_amd`` loads and
/dev/kvm works. Counts (bytes, requests, exits) inside are KVM's; times are not.
"""

import base64
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from testbed.sandbox import CommandFailed, Sandbox, Task

# For anything that takes seconds on an idle computer: on a busy one it takes minutes, and a
# machine that dies is noticed sooner.
PATIENCE_SECONDS = 900.0
BRIDGE = "br0"


class MachineError(Exception):
    """A machine did not start or died; the text ends with its console's last lines."""


@dataclass(frozen=True)
class MachineSpec:
    """What makes one machine differ from the other.

    ``data`` names files of build/images that it has as read-only disks, from
    /dev/vdc on.
    """

    name: str
    address: str
    mac: str
    memory_mib: int = 4096
    # With two, a machine and a nested guest were seen to reset themselves; why is not known.
    processors: int = 1
    # A fifth level of page tables makes each miss of the emulated TLB dearer, and one
    # of a nested guest by a half: 35 loads instead of 24. What it gains was not measured.
    cpu: str = "max,la57=off"
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Image:
    """The files that tests/deploy/images/machine.sh makes."""

    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"

    @property
    def root(self) -> Path:
        return self.folder / "root.img"


def kernel_command_line(
    hostname: str, address: str, gateway: str, public_key: str, bridge: bool
) -> str:
    """Return the words by which an instance of the image learns who it is.

    With ``bridge`` its address is on BRIDGE, which holds eth0, as hosts have it
    whose guests are on the same network.
    """
    device = BRIDGE if bridge else "eth0"
    words = [
        "console=ttyS0 root=/dev/vda rw net.ifnames=0 loglevel=4",
        # Emulated, they cost much and protect nothing.
        "mitigations=off",
        # Ticks that come late on a busy machine are no reason to panic.
        "no_timer_check",
        f"systemd.hostname={hostname}",
        f"ip={address}::{gateway}:255.255.255.0::{device}:none",
        "systemd.set_credential_binary=ssh.authorized_keys.root:"
        + base64.b64encode(public_key.encode()).decode(),
    ]
    if bridge:
        words.append(f"bridge={BRIDGE}:eth0")
    else:
        # A guest of a guest would compile profiles, and exit for each character that it
        # shows, for minutes.
        words.append("apparmor=0 systemd.show_status=error")
    return " ".join(words)


def qemu_command(
    spec: MachineSpec,
    *,
    emulator: Path,
    image: Image,
    overlay: Path,
    data: Sequence[Path],
    tap: str,
    append: str,
    console: Path,
    qmp: Path,
) -> list[str]:
    """Return the command line of a machine.

    Its second disk is the pristine root image, read-only: the base of the
    guests that the machine runs.
    """
    command = [str(emulator), "-name", spec.name, "-nodefaults", "-no-user-config"]
    command += ["-machine", "q35", "-accel", "tcg", "-cpu", spec.cpu]
    command += ["-smp", str(spec.processors), "-m", str(spec.memory_mib), "-display", "none"]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", append]
    command += ["-serial", f"file:{console}", "-qmp", f"unix:{qmp},server=on,wait=off"]
    command += ["-drive", f"if=none,id=root,format=qcow2,cache=unsafe,file={overlay}"]
    command += ["-device", "virtio-blk-pci,drive=root"]
    command += ["-drive", f"if=none,id=base,format=raw,readonly=on,file={image.root}"]
    command += ["-device", "virtio-blk-pci,drive=base"]
    for index, path in enumerate(data):
        command += ["-drive", f"if=none,id=data{index},format=raw,readonly=on,file={path}"]
        command += ["-device", f"virtio-blk-pci,drive=data{index}"]
    command += ["-netdev", f"tap,id=lan,ifname={tap},script=no,downscript=no,vhost=off"]
    command += ["-device", f"virtio-net-pci,netdev=lan,mac={spec.mac}"]
    command += ["-device", "virtio-rng-pci"]
    # No test restarts a machine: one that resets itself has failed, and says how it stood.
    command += ["-action", "reboot=shutdown"]
    command += ["-d", "cpu_reset", "-D", str(console.with_name(f"resets-{spec.name}.log"))]
    return command


class Machine:
    """A machine of a fleet. Its QEMU belongs to the fleet's holder."""

    def __init__(self, spec: MachineSpec, sandbox: Sandbox, key: Path, logs: Path):
        self.spec = spec
        self._sandbox = sandbox
        self._key = key
        self._logs = logs
        self.task: Task | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def address(self) -> str:
        return self.spec.address

    @property
    def console(self) -> Path:
        return self._logs / f"console-{self.name}.log"

    def start(self, command: Sequence[str]) -> None:
        """Start its QEMU."""
        self.task = self._sandbox.popen(
            command, name=self.name, log=self._logs / f"qemu-{self.name}.log"
        )

    def stop(self) -> None:
        """Power it off, as pulling the plug does. Safe to repeat."""
        if self.task:
            self.task.stop()
            self.task = None

    def ssh_argv(self, command: Sequence[str] = (), user: str = "root") -> list[str]:
        """Return the ssh command, to be run in the fleet's network."""
        argv = ["ssh", "-F", "/dev/null", "-i", str(self._key)]
        for option in SSH_OPTIONS:
            argv += ["-o", option]
        argv += ["-o", f"ControlPath=/run/ssh-{self.name}-%r"]
        return [*argv, f"{user}@{self.address}", *command]

    def ssh(
        self,
        command: str,
        *,
        timeout_seconds: float = PATIENCE_SECONDS,
        check: bool = True,
        input: str | None = None,
    ) -> CompletedProcess:
        """Run a shell command as root; CommandFailed on error (if ``check``) or time-out."""
        done = self._sandbox.run(
            self.ssh_argv([command]), timeout_seconds=timeout_seconds, check=False, input=input
        )
        if check and done.returncode:
            text = (done.stderr.strip() or done.stdout.strip())[-4000:]
            raise CommandFailed(f"{self.name}: `{command}` ended with {done.returncode}: {text}")
        return done

    def out(self, command: str, **options) -> str:
        """Run a shell command as root and return what it printed, stripped."""
        return self.ssh(command, **options).stdout.strip()

    def python(
        self, script: Path, *arguments: str, timeout_seconds: float = PATIENCE_SECONDS
    ) -> str:
        """Run a script of ours with the machine's own Python; return what it printed.

        Nothing of it is stored on the machine.
        """
        words = " ".join(shlex.quote(word) for word in ("-", *arguments))
        done = self.ssh(
            f"python3 -I {words}", input=script.read_text(), timeout_seconds=timeout_seconds
        )
        return done.stdout

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """Write a text file on the machine."""
        target = shlex.quote(path)
        self.ssh(f"install -D -m {mode} /dev/stdin {target}", input=text)

    def copy(self, source: Path, target: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Copy a file to the machine."""
        argv = self.ssh_argv()
        shell = " ".join(shlex.quote(word) for word in argv[:-1])
        # scp would start a connection of its own for its protocol's sake.
        script = (
            f"{shell} {argv[-1]} {shlex.quote('cat >' + shlex.quote(target))} "
            f"<{shlex.quote(str(source))}"
        )
        self._sandbox.run(["sh", "-c", script], timeout_seconds=timeout_seconds)

    def wait_ready(self, timeout_seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until ssh works and the boot has ended; return how long that took."""
        started = time.monotonic()
        while True:
            try:
                if self.ssh("true", timeout_seconds=15, check=False).returncode == 0:
                    break
            except CommandFailed:
                pass
            if self.task and not self.task.running():
                raise MachineError(f"{self.name} has died{self.tail()}")
            if time.monotonic() - started > timeout_seconds:
                raise MachineError(f"{self.name}: no ssh after {timeout_seconds:g} s{self.tail()}")
            time.sleep(0.5)
        self.ssh("systemctl is-system-running --wait", check=False, timeout_seconds=timeout_seconds)
        return time.monotonic() - started

    def tail(self) -> str:
        """Return the console's last lines, for an error."""
        if not self.console.exists():
            return ""
        lines = self.console.read_text(errors="replace").strip().splitlines()[-20:]
        return "\n".join([f"\n--- end of {self.console}:", *lines])

    def save_journal(self) -> Path | None:
        """Save the machine's journal beside the logs; None if it does not answer."""
        target = self._logs / f"journal-{self.name}.log"
        try:
            text = self.ssh("journalctl -b --no-pager -o short-monotonic").stdout
        except CommandFailed:
            return None
        target.write_text(text)
        return target


SSH_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=5",
    # One connection carries all commands: the key exchange is the dearest part
    # of a command on an emulated machine.
    "ControlMaster=auto",
    "ControlPersist=600",
    "IdentitiesOnly=yes",
    "KexAlgorithms=curve25519-sha256",
    "LogLevel=ERROR",
    "ServerAliveCountMax=12",
    "ServerAliveInterval=10",
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
)
