# SPDX-License-Identifier: GPL-2.0-or-later
"""One guest of a testbed: define, start, wait for it, run commands in it, stop it."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import libvirt

from testbed import patience, processors
from testbed.domain_xml import GuestSpec, Placement, domain_xml
from testbed.hypervisor import Hypervisor
from testbed.sandbox import CommandFailed, Sandbox, Task

READY_SECONDS = 180.0
# A guest that boots runs, or waits for a processor, nearly all of the time.
ASLEEP_SECONDS = 30.0
ASLEEP_SHARE = 0.02
KILL_SECONDS = 20.0


class GuestError(Exception):
    """A guest did not start or died; the text ends with its console's last lines."""


@dataclass(frozen=True)
class DiskCounters:
    """The host kernel's counters of the guest's QEMU process, in bytes."""

    read_bytes: int
    written_bytes: int


class Guest:
    """A libvirt domain of the testbed."""

    def __init__(
        self,
        spec: GuestSpec,
        placement: Placement,
        sandbox: Sandbox,
        hypervisor: Hypervisor,
        key: Path,
    ):
        self.spec = spec
        self.placement = placement
        self._sandbox = sandbox
        self._hypervisor = hypervisor
        self._key = key

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def folder(self) -> Path:
        """The run's folder, in which the guest's own files are."""
        return self._sandbox.folder

    @property
    def address(self) -> str:
        return self.placement.address

    @property
    def domain(self) -> libvirt.virDomain:
        """The libvirt object, looked up anew (the daemon may have been restarted)."""
        return self._hypervisor.connection.lookupByName(self.name)

    def define(self) -> None:
        self._hypervisor.connection.defineXML(domain_xml(self.spec, self.placement))

    def running(self) -> bool:
        try:
            return bool(self.domain.isActive())
        except libvirt.libvirtError:
            return False

    def start(self) -> None:
        """Start the domain; GuestError with libvirt's and QEMU's words if it refuses."""
        try:
            self.domain.create()
        except libvirt.libvirtError as problem:
            raise GuestError(
                f"guest {self.name} does not start: {problem}{self._tails()}"
            ) from None

    def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> float:
        """Wait until ssh works; return how long that took."""
        # After a restart the old connection would only time out.
        self._forget_connection()
        started = time.monotonic()
        limit_seconds = patience.seconds(timeout_seconds)
        sleep = _Sleep(started)
        while True:
            try:
                if self._ssh(["true"], connect_seconds=2, timeout_seconds=15).returncode == 0:
                    return time.monotonic() - started
            except CommandFailed:
                pass
            if not self.running():
                raise GuestError(f"guest {self.name} has died{self._tails()}")
            if sleep.lasts(self.threads(), time.monotonic()):
                raise GuestError(
                    f"guest {self.name} has done nothing for {ASLEEP_SECONDS:g} s while it "
                    f"should boot{self._tails()}"
                )
            if time.monotonic() - started > limit_seconds:
                raise GuestError(
                    f"guest {self.name} has no ssh after {limit_seconds:g} s{self._tails()}"
                )
            # Each question takes time from a slow guest's boot.
            time.sleep(min(5.0, 0.2 + (time.monotonic() - started) / 40))

    def _tails(self) -> str:
        """Return the last lines of the console and of QEMU's log, for an error."""
        text = ""
        qemu_log = self._sandbox.folder / "logs" / "libvirt" / "qemu" / f"{self.name}.log"
        for title, path in (("console", self.placement.console_log), ("QEMU", qemu_log)):
            if path.exists():
                lines = path.read_text(errors="replace").strip().splitlines()[-15:]
                text += "\n".join([f"\n--- end of {title} ({path}):", *lines])
        return text

    def _ssh_argv(self, command: list[str], connect_seconds: int) -> list[str]:
        options = {
            "BatchMode": "yes",
            # Also the time for the banner of a guest's sshd.
            "ConnectTimeout": round(patience.seconds(connect_seconds)),
            # One connection per guest carries all commands: key exchange is
            # the dearest part of a command when the guest is emulated.
            "ControlMaster": "auto",
            "ControlPath": f"/run/ssh-{self.name}",
            "ControlPersist": round(patience.seconds(300)),
            "IdentitiesOnly": "yes",
            "KexAlgorithms": "curve25519-sha256",
            "LogLevel": "ERROR",
            "ServerAliveCountMax": round(patience.seconds(6)),
            "ServerAliveInterval": 10,
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
        }
        argv = ["ssh", "-F", "/dev/null", "-i", str(self._key)]
        for name, value in options.items():
            argv += ["-o", f"{name}={value}"]
        return [*argv, f"root@{self.address}", *command]

    def _ssh(
        self,
        command: list[str],
        *,
        timeout_seconds: float,
        connect_seconds: int = 10,
        input: str | None = None,
    ) -> CompletedProcess:
        return self._sandbox.run(
            self._ssh_argv(command, connect_seconds),
            timeout_seconds=timeout_seconds,
            check=False,
            input=input,
            shown=f"{self.name}: `{' '.join(command)}`",
        )

    def ssh(
        self,
        command: str,
        *,
        timeout_seconds: float = 30.0,
        check: bool = True,
        input: str | None = None,
    ) -> CompletedProcess:
        """Run a shell command in the guest as root; its end is awaited."""
        done = self._ssh([command], timeout_seconds=timeout_seconds, input=input)
        if check and done.returncode:
            text = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise CommandFailed(f"{self.name}: `{command}` ended with {done.returncode}: {text}")
        return done

    def ssh_popen(self, command: str, *, name: str, log: Path | None = None) -> Task:
        """Start a shell command in the guest and return at once.

        Stopping the task ends the ssh client; the command in the guest ends by itself only if
        it reads from or writes to the client. Prefer ``spawn`` for loads.
        """
        return self._sandbox.popen(self._ssh_argv([command], 10), name=name, log=log)

    def spawn(self, command: str, *, unit: str, user: str = "root", weight: int = 100) -> None:
        """Start a shell command as a transient service of the guest.

        It has a unit, and so a cgroup, of its own: ``kill_unit`` ends it with
        all its children. ``weight`` is its share of the guest's processors beside
        other units, which have 100; nice says nothing between two units.
        """
        self.ssh(
            f"systemd-run --quiet --collect --unit={unit} --uid={user} "
            f"--property=KillSignal=SIGKILL --property=CPUWeight={weight} "
            f"/bin/sh -c {shell_quote(command)}"
        )

    def kill_unit(self, unit: str) -> None:
        """End a unit of ``spawn``; no error if it has ended."""
        self.ssh(f"systemctl stop {unit}", check=False)

    def wait_unit(self, unit: str, timeout_seconds: float) -> None:
        """Wait until a unit of ``spawn`` has ended; CommandFailed if it does not in time."""
        self.ssh(
            f"while systemctl is-active --quiet {unit}; do sleep 0.2; done",
            timeout_seconds=timeout_seconds,
        )

    def pids(self, comm: str) -> list[int]:
        """Return the guest's process ids of programs with this name."""
        done = self.ssh(f"pgrep -x {shell_quote(comm)}", check=False)
        return [int(word) for word in done.stdout.split()]

    def drop_caches(self) -> None:
        """Make the guest's next reads come from its disks."""
        self.ssh("sync; echo 3 >/proc/sys/vm/drop_caches")

    def qemu_pid(self) -> int:
        """Return the process id of the guest's QEMU, as the sandbox numbers it."""
        pid_file = self._sandbox.path(f"/run/libvirt/qemu/{self.name}.pid")
        try:
            return int(pid_file.read_text())
        except (OSError, ValueError):
            raise GuestError(f"guest {self.name} has no QEMU process{self._tails()}") from None

    def threads(self) -> dict[int, processors.Threads]:
        """Return the times of the threads of the guest's QEMU; empty if it does not run."""
        try:
            return processors.threads_of(self._sandbox.path(f"/proc/{self.qemu_pid()}"))
        except GuestError:
            return {}

    def vcpus(self) -> int:
        """Return how many processors the running guest has."""
        return self.domain.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def disk_counters(self) -> DiskCounters:
        """Read the host kernel's accounts of the QEMU process, all threads."""
        text = self._sandbox.path(f"/proc/{self.qemu_pid()}/io").read_text()
        fields = dict(line.split(": ") for line in text.splitlines())
        return DiskCounters(int(fields["read_bytes"]), int(fields["write_bytes"]))

    def disk_read_bps(self, window_seconds: float) -> float:
        """Measure the bytes per second that QEMU reads from the host's disk."""
        return _rate(lambda: self.disk_counters().read_bytes, window_seconds)

    def save(self, folder: Path) -> None:
        """Stop the guest and keep its definition, memory and root disk in a new folder."""
        folder.mkdir(parents=True)
        self.domain.save(str(folder / "memory"))
        shutil.copyfile(self.placement.root_overlay, folder / "root.qcow2")
        self._forget_connection()

    def restore(self, folder: Path, definition: str | None = None) -> None:
        """Have the guest, which does not run, go on where it was saved; as often as wanted.

        Other disks than the root disk stay as they are now. With a ``definition`` it goes on
        under that: another emulator, say, but the same devices.
        """
        shutil.copyfile(folder / "root.qcow2", self.placement.root_overlay)
        self._hypervisor.connection.restoreFlags(str(folder / "memory"), definition, 0)

    def kill(self) -> None:
        """End the guest's QEMU at once, which a saved guest does not miss. Safe to repeat."""
        if self.running():
            self._sandbox.run(["kill", "-KILL", str(self.qemu_pid())], check=False)
        deadline = time.monotonic() + KILL_SECONDS
        while self.running():
            if time.monotonic() > deadline:
                raise GuestError(f"guest {self.name} runs {KILL_SECONDS:g} s after it was killed")
            time.sleep(0.01)
        self._forget_connection()

    def stop(self, grace_seconds: float = 0.0) -> None:
        """Power the guest off; with a grace, ask it first. Safe to repeat."""
        try:
            domain = self.domain
            if grace_seconds and domain.isActive():
                domain.shutdown()
                deadline = time.monotonic() + grace_seconds
                while domain.isActive() and time.monotonic() < deadline:
                    time.sleep(0.2)
            if domain.isActive():
                domain.destroy()
        except libvirt.libvirtError:
            # Gone between the question and the act, as it should be.
            if self.running():
                raise
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._sandbox.run(
            [
                "ssh",
                "-F",
                "/dev/null",
                "-O",
                "exit",
                "-o",
                f"ControlPath=/run/ssh-{self.name}",
                "x",
            ],
            check=False,
        )


class _Sleep:
    """Notices a guest whose QEMU neither runs nor waits for a processor."""

    def __init__(self, now_s: float):
        self._since_s = now_s
        self._then: dict[int, processors.Threads] = {}

    def lasts(self, threads: dict[int, processors.Threads], now_s: float) -> bool:
        """Take a reading; True if nothing was done for ASLEEP_SECONDS.

        Without threads, on a kernel that does not count for them, nothing is known.
        """
        none = processors.Threads()
        since = [now.since(self._then.get(number, none)) for number, now in threads.items()]
        used_s = sum(thread.ran_s + thread.waited_s for thread in since)
        if not threads or used_s > ASLEEP_SHARE * (now_s - self._since_s):
            self._since_s, self._then = now_s, threads
        return now_s - self._since_s > ASLEEP_SECONDS


def _rate(read: Callable[[], int], window_seconds: float) -> float:
    started, first = time.monotonic(), read()
    time.sleep(window_seconds)
    last, ended = read(), time.monotonic()
    return (last - first) / (ended - started)


def shell_quote(text: str) -> str:
    """Quote for a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"
