# SPDX-License-Identifier: GPL-2.0-or-later
"""A whole KVM host for tests and the demo: ``Testbed``."""

import itertools
import os
import subprocess
import uuid
from pathlib import Path
from typing import Self

from testbed import accelerator, agent_disk, hypervisor, network, paths, processors, runs
from testbed.domain_xml import GuestSpec, Placement
from testbed.guest import Guest
from testbed.sandbox import Sandbox, Task
from testbed.services import Controller, Web

DEFAULT_LINK_BPS = 50_000_000
FIRST_UUID = uuid.UUID("5e1a7c60-0000-4000-8000-000000000000")


class Testbed:
    """A host with its network, libvirt, guests and Sluice's daemons.

    It is a context manager; leaving it, in any way, ends everything that was started in it.
    Only ``folder/logs`` stays.
    """

    __test__ = False

    def __init__(
        self,
        label: str = "test",
        *,
        link_bps: int = DEFAULT_LINK_BPS,
        ingress_bps: int | None = None,
        queue_bytes: int = network.LINK_QUEUE_BYTES,
    ):
        """``link_bps`` limits traffic of guests to clients, ``ingress_bps`` the reverse."""
        self._label = label
        self._link = (link_bps, ingress_bps, queue_bytes)
        self.folder = Path()
        self.sandbox: Sandbox | None = None
        self.hypervisor: hypervisor.Hypervisor | None = None
        self.accelerator: accelerator.Accelerator | None = None
        self.guests: dict[str, Guest] = {}
        self._indices = itertools.count()
        self.controller: Controller | None = None
        self.web: Web | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def open(self) -> None:
        """Make the namespaces and the network, and start libvirt."""
        paths.emulator()
        self.accelerator = accelerator.choose()
        self.folder = runs.make(self._label)
        (self.folder / "disks").mkdir()
        (self.logs / "accelerator.txt").write_text(
            f"{self.accelerator.name}: {self.accelerator.reason}\n"
        )
        self.sandbox = Sandbox(self.folder, hypervisor.binds(self.folder))
        try:
            self.sandbox.open()
            network.set_up(self.sandbox, *self._link)
            self.hypervisor = hypervisor.Hypervisor(self.sandbox)
            self.hypervisor.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything, in order where that can be done. Safe to repeat."""
        try:
            for part in (self.web, self.controller, *self.guests.values(), self.hypervisor):
                if part:
                    part.stop()
        finally:
            if self.sandbox:
                self.sandbox.close()
                runs.remove_disks(self.folder)
            self.web = self.controller = self.hypervisor = None
            self.guests.clear()

    def add_guest(self, spec: GuestSpec, place: int | None = None) -> Guest:
        """Define a guest on a fresh overlay of the root image; it is not started.

        With a ``place``, 50 to 99, it has the same addresses and UUID in every testbed, so
        that ``saved.start`` can start it. Each guest of a testbed has a place of its own.
        """
        if spec.name in self.guests:
            raise ValueError(f"guest {spec.name} is there already")
        index = next(self._indices) if place is None else place
        overlay = self.folder / "disks" / f"{spec.name}.qcow2"
        self._make_overlay(overlay, paths.image("root.img"))
        allowed = processors.allowed()
        placement = Placement(
            accelerator=self.accelerator.name,
            # Not by the name of a checkout: a kept guest outlives that.
            emulator=(spec.emulator or paths.emulator()).resolve(),
            kernel=paths.image("vmlinuz"),
            initrd=paths.image("initrd.img"),
            root_overlay=overlay,
            console_log=self.logs / f"console-{spec.name}.log",
            address=network.guest_address(index),
            mac=f"52:54:00:77:00:{index + 1:02x}",
            agent_image=self._agent_image(overlay, place) if spec.agent else None,
            uuid=None if place is None else str(uuid.UUID(int=FIRST_UUID.int + place)),
            processors=len(allowed),
            cpuset=_list_of(allowed) if len(allowed) < (os.cpu_count() or 1) else None,
        )
        key = paths.image("id_ed25519")
        guest = Guest(spec, placement, self.sandbox, self.hypervisor, key)
        guest.define()
        self.guests[spec.name] = guest
        return guest

    def take(self, guest: Guest) -> Guest:
        """Return a guest that has migrated from another testbed to this one."""
        key = paths.image("id_ed25519")
        here = Guest(guest.spec, guest.placement, self.sandbox, self.hypervisor, key)
        self.guests[here.name] = here
        return here

    def remove_guest(self, guest: Guest) -> None:
        """Stop a guest and undefine it. Its address is not used again."""
        guest.stop()
        guest.domain.undefine()
        del self.guests[guest.name]

    def scratch_disk(self, name: str, size_mib: int) -> Path:
        """Make an empty ext4 disk, label SCRATCH: the guest mounts it at /srv/scratch."""
        path = self.folder / "disks" / f"{name}.img"
        command = ["mke2fs", "-q", "-t", "ext4", "-m", "0", "-L", "SCRATCH", str(path)]
        _run([*command, f"{size_mib}M"])
        return path

    def writable_copy(self, source: Path, name: str) -> Path:
        """Copy a data disk into the run, cheaply where the file system can."""
        path = self.folder / "disks" / f"{name}.img"
        _run(["cp", "--reflink=auto", "--sparse=always", str(source), str(path)])
        return path

    def _make_overlay(self, overlay: Path, base: Path) -> None:
        command = [str(paths.qemu_img()), "create", "-q", "-f", "qcow2"]
        _run([*command, "-b", str(base), "-F", "raw", str(overlay)])

    def _agent_image(self, overlay: Path, place: int | None) -> Path:
        """Today's agent and its unit on a small disk; one for all guests without a place.

        That of a guest with a place is replaced when it goes on where it was kept.
        """
        image = overlay.with_name("agent.img" if place is None else f"{overlay.stem}-agent.img")
        if not image.exists():
            agent_disk.make(image)
        return image

    def start_controller(self) -> Controller:
        """Start sluiced beside libvirt."""
        self.controller = Controller(self.sandbox, self.hypervisor.uri, paths.emulator())
        self.controller.start()
        return self.controller

    def start_web(self) -> Web:
        """Start sluice-web; ``web.url`` is its address on this machine's loopback."""
        self.web = Web(self.sandbox, self.controller or self.start_controller())
        self.web.start()
        return self.web

    def client_popen(self, command: list[str], *, name: str, **options: object) -> Task:
        """Start a program on the clients' side of the link."""
        options.setdefault("log", self.logs / f"{name}.log")
        return self.sandbox.popen(command, name=name, netns=network.CLIENTS, **options)

    def client_run(self, command: list[str], **options: object) -> subprocess.CompletedProcess:
        """Run a program on the clients' side of the link to its end."""
        return self.sandbox.run(command, netns=network.CLIENTS, **options)

    def restore_uplink(self) -> None:
        """Give the uplink its own limit back, in whose place something else was put."""
        link_bps, _ingress_bps, queue_bytes = self._link
        network.limit_uplink(self.sandbox, link_bps, queue_bytes)

    def link_counters(self) -> network.LinkCounters:
        """Read the uplink's queue: bytes sent, packets dropped, backlog."""
        return network.link_counters(self.sandbox)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr}")


def _list_of(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
