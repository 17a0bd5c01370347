# SPDX-License-Identifier: GPL-2.0-or-later
"""A libvirt of the testbed's own: virtlogd and libvirtd inside the sandbox.

Their folders are bind mounts of the sandbox, so the machine's own libvirt,
running or not, is neither seen nor touched.
"""

import contextlib
import time
import uuid
from pathlib import Path

import libvirt

from testbed import patience
from testbed.sandbox import Sandbox, Task

SOCKET = "/run/libvirt/libvirt-sock"
START_SECONDS = 60.0

LIBVIRTD_CONF = """\
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_group = "root"
host_uuid = "{host_uuid}"
log_outputs = "2:stderr"
"""

# QEMU runs as root in the sandbox: it has no other users, security drivers or
# delegated cgroups, and the outer namespaces bound it.
QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
max_core = 0
"""


class HypervisorError(Exception):
    """libvirt did not start; the text has its words."""


def binds(folder: Path) -> dict[Path, Path]:
    """Return the binds of the sandbox: libvirt's folder → the testbed's own."""
    own = folder / "libvirt"
    mapping = {
        Path("/etc/libvirt"): own / "etc",
        Path("/var/lib/libvirt"): own / "lib",
        Path("/var/cache/libvirt"): own / "cache",
        Path("/var/log/libvirt"): folder / "logs" / "libvirt",
    }
    for source in mapping.values():
        source.mkdir(parents=True, exist_ok=True)
    (own / "etc" / "libvirtd.conf").write_text(LIBVIRTD_CONF.format(host_uuid=uuid.uuid4()))
    (own / "etc" / "qemu.conf").write_text(QEMU_CONF)
    (own / "etc" / "virtlogd.conf").write_text('log_outputs = "2:stderr"\n')
    return mapping


class Hypervisor:
    """The two daemons, and a connection to them."""

    def __init__(self, sandbox: Sandbox):
        self._sandbox = sandbox
        self._tasks: list[Task] = []
        self.connection: libvirt.virConnect | None = None
        # The command of each daemon.
        self.commands = {"virtlogd": ["virtlogd"], "libvirtd": ["libvirtd"]}

    @property
    def uri(self) -> str:
        """The address as a process inside the sandbox uses it."""
        return f"qemu:///system?socket={SOCKET}"

    def start(self) -> None:
        """Start both daemons and connect. Known problems come back as exceptions."""
        # libvirt prints each error to stderr besides raising it.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        for name, command in self.commands.items():
            log = self._sandbox.folder / "logs" / f"{name}.log"
            self._tasks.append(self._sandbox.popen(command, name=name, log=log))
            if name == "virtlogd":
                self._wait_for_file("/run/libvirt/virtlogd-sock")
        self._wait_for_file(SOCKET)
        self.connection = self._connect()

    def _wait_for_file(self, inner: str) -> None:
        deadline = time.monotonic() + patience.seconds(START_SECONDS)
        while not self._sandbox.path(inner).exists():
            self._check(deadline, f"{inner} did not appear")
            time.sleep(0.02)

    def _connect(self) -> libvirt.virConnect:
        """Connect from outside, through the sandbox's view of the file system."""
        uri = f"qemu+unix:///system?socket={self._sandbox.path(SOCKET)}"
        deadline = time.monotonic() + patience.seconds(START_SECONDS)
        while True:
            try:
                return libvirt.open(uri)
            except libvirt.libvirtError as problem:
                self._check(deadline, str(problem))
                time.sleep(0.1)

    def _check(self, deadline: float, what: str) -> None:
        for task in self._tasks:
            if not task.running():
                raise HypervisorError(f"{task.name} ended at its start: {self._tail(task.name)}")
        if time.monotonic() > deadline:
            raise HypervisorError(
                f"libvirt did not start in {patience.seconds(START_SECONDS):g} s: {what}; "
                f"{self._tail('libvirtd')}"
            )

    def _tail(self, name: str) -> str:
        log = self._sandbox.folder / "logs" / f"{name}.log"
        text = log.read_text(errors="replace").strip()[-1500:] if log.exists() else ""
        return text or f"nothing in {log}"

    def stop(self) -> None:
        """Stop the daemons; guests that still run live on until the sandbox closes."""
        if self.connection:
            with contextlib.suppress(libvirt.libvirtError):
                self.connection.close()
            self.connection = None
        for task in reversed(self._tasks):
            task.stop(grace_seconds=5)
        self._tasks.clear()

    def restart(self) -> None:
        """Stop the daemons and start them again; running guests keep running."""
        self.stop()
        self.start()
