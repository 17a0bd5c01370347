# SPDX-License-Identifier: GPL-2.0-or-later
"""A throw-away Debian 13 tree whose process 1 is systemd, in namespaces of its own.

Units are started there with all of their sandbox, which no plain command in a
tree has. It is no machine of its own: the kernel and its clock are this one's,
and there is no network but a loopback. ``ssh`` is a program that Ansible takes
for ssh and that leads into the tree.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from testbed.debian_root import DEB, DebianRoot

BOOT_SECONDS = 300
COMMAND_SECONDS = 600
ENVIRONMENT = (
    *("env", "-i", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"),
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
)
NODES = ("null", "zero", "full", "random", "urandom", "tty")
# The group of control groups is entered before there are namespaces of it.
BOOT = """
tree=$1 debs=$2 group=$3
shift 3
echo $$ >"$group/cgroup.procs"
exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child bash -euc '
    tree=$1 debs=$2
    shift 2
    mount --make-rprivate /
    mount --bind "$tree" "$tree"
    mkdir -p "$tree/debs"
    mount --bind "$debs" "$tree/debs"
    mount -t proc proc "$tree/proc"
    mount -t sysfs -o ro sysfs "$tree/sys"
    mount -t cgroup2 cgroup2 "$tree/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
    mkdir "$tree/dev/pts" "$tree/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts"
    ln -s pts/ptmx "$tree/dev/ptmx"
    mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"
    for node in "$@"; do
        : >"$tree/dev/$node"
        mount --bind "/dev/$node" "$tree/dev/$node"
    done
    mount -t tmpfs -o mode=755 tmpfs "$tree/run"
    ip link set lo up
    mkdir -p "$tree/.before"
    cd "$tree"
    pivot_root . .before
    umount --lazy /.before
    exec env -i container=sluice-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /usr/lib/systemd/systemd --system --show-status=0 --unit=multi-user.target
' boot "$tree" "$debs" "$@"
"""


def control_groups() -> Path | None:
    """Where control groups of version 2 are, which systemd needs; none if nowhere."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _what, where, kind, *_rest = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


class BootedRoot(DebianRoot):
    """A copy of a Debian 13 with these packages, booted, and gone at the end of the block."""

    def __init__(self, folder: Path, packages: Iterable[str]):
        super().__init__(folder, packages)
        self.ssh = folder / "ssh"
        self._log = folder / "boot.log"
        self._group: Path | None = None
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "BootedRoot":
        super().__enter__()
        self.path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)
        groups = control_groups()
        assert groups, "systemd needs control groups of version 2: mount -t cgroup2"
        self._group = groups / f"sluice-booted-{os.getpid()}"
        self._group.mkdir()
        words = [str(self.tree), str(DEB), str(self._group), *NODES]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["bash", "-euc", BOOT, "boot", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        inward = shlex.join([*self._inward(), "sh", "-c"])
        # ssh OPTION… HOST COMMAND: only the last word counts.
        self.ssh.write_text(f'#!/bin/bash\nexec {inward} "${{@:$#}}"\n')
        self.ssh.chmod(0o755)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process:
            # unshare ends its child with itself, and the kernel all others with that one.
            self._process.kill()
            self._process.wait(60)
        super().__exit__(*exception)
        if self._group:
            for group in sorted(self._group.rglob("*/"), reverse=True):
                group.rmdir()
            self._group.rmdir()

    def _first(self) -> int:
        """The process that is process 1 inside."""
        assert self._process
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])

    def _inward(self) -> list[str]:
        flags = ("-m", "-p", "-n", "-i", "-u", "-C", "-r", "-w")
        return ["nsenter", "-t", str(self._first()), *flags, *ENVIRONMENT]

    def _wait(self) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            assert self._process and self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.2)
            try:
                state = self.run("systemctl is-system-running", check=False).stdout.strip()
            except (IndexError, OSError):
                continue
            # Some of its own units cannot run in namespaces.
            if state in ("running", "degraded"):
                return

    def run(
        self, script: str, *, check: bool = True, binds: Iterable[str] = ()
    ) -> subprocess.CompletedProcess:
        """Run shell commands inside; both outputs are in ``stdout``. The packages are in /debs."""
        assert not binds, "nothing can be bound into a tree that runs"
        done = subprocess.run(
            [*self._inward(), "bash", "-ec", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{script[-500:]}: {done.returncode}\n{done.stdout}")
        return done

    def out(self, script: str) -> str:
        """Run shell commands inside; returns their output without the last line's end."""
        return self.run(script).stdout.strip()
