# SPDX-License-Identifier: GPL-2.0-or-later
"""A test guest under a QEMU of its own, without libvirt, in a sandbox.

libvirt would hide the subject of these runs: two QEMUs of one guest on one host. The guest has
the testbed's kernel and root image, and a second disk for fio. Both disks and the network card
are shaped by ``sluice0``, unless the root disk is the control without a shaper.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure.qmp import Qmp, QmpError
from measure.stress import passage
from testbed import network, paths
from testbed.domain_xml import GuestSpec, Placement, kernel_command_line
from testbed.guest import Guest
from testbed.sandbox import CommandFailed, Sandbox, Task

ADDRESS = network.guest_address(0)
MAC = "52:54:00:77:00:01"
MEMORY_MIB = 384


@dataclass(frozen=True)
class Files:
    """Files that both QEMUs of a guest open."""

    folder: Path
    root: Path
    data: Path


@dataclass(frozen=True)
class DiskRequests:
    """How many requests were finished, as a QEMU or as the guest counts them."""

    reads: int = 0
    writes: int = 0

    def __add__(self, other: "DiskRequests") -> "DiskRequests":
        return DiskRequests(self.reads + other.reads, self.writes + other.writes)

    def __sub__(self, other: "DiskRequests") -> "DiskRequests":
        return DiskRequests(self.reads - other.reads, self.writes - other.writes)


class Machine:
    """One QEMU process. ``incoming`` waits for a migration to its socket; ``more`` are options."""

    def __init__(
        self,
        name: str,
        sandbox: Sandbox,
        files: Files,
        accelerator: str,
        *,
        incoming: bool = False,
        disk_options: str = "",
        root_options: str = ",shaper=sluice0",
        trace: Sequence[str] = (),
        more: Sequence[str] = (),
    ):
        self.name = name
        self._sandbox = sandbox
        self._files = files
        self.socket = files.folder / f"{name}.migrate"
        self.page = files.folder / f"{name}.page"
        self.trace_log = files.folder / "logs" / f"{name}.trace"
        self._tap = f"tap-{name}"[:15]
        self._make_tap()
        monitor = files.folder / f"{name}.qmp"
        options = {"root": root_options, "data": f",shaper=sluice0{disk_options}"}
        command = [*self._command(accelerator, monitor, incoming, options, trace), *more]
        self.log = files.folder / "logs" / f"qemu-{name}.log"
        self.task: Task = sandbox.popen(command, name=f"QEMU {name}", log=self.log)
        try:
            self.qmp = Qmp(monitor)
        except QmpError as problem:
            raise QmpError(f"{problem}; QEMU said: {self.log.read_text()[-1000:]}") from None

    def _make_tap(self) -> None:
        for words in (
            f"ip tuntap add {self._tap} mode tap",
            f"ip link set {self._tap} master {network.BRIDGE} up",
        ):
            self._sandbox.run(words.split())

    def _command(
        self,
        accelerator: str,
        monitor: Path,
        incoming: bool,
        disk_options: Mapping[str, str],
        trace: Sequence[str],
    ) -> list[str]:
        files = self._files
        spec = GuestSpec("stress", memory_mib=MEMORY_MIB)
        kernel = kernel_command_line(spec, placement(files, accelerator))
        disks = []
        for index, (node, image, form) in enumerate(
            (("root", files.root, "qcow2"), ("data", files.data, "raw"))
        ):
            disks += [
                "-blockdev",
                f"driver={form},node-name={node},cache.direct=on,"
                f"file.driver=file,file.filename={image},file.cache.direct=on",
            ]
            disks += [
                "-device",
                f"virtio-blk-pci,drive={node},id=disk{index}{disk_options[node]}",
            ]
        console = files.folder / "logs" / f"console-{self.name}.log"
        return [
            str(paths.emulator()), "-nodefaults", "-no-user-config", "-display", "none",
            "-machine", "q35", "-accel", accelerator, "-cpu", "max", "-smp", "2",
            "-m", str(MEMORY_MIB), "-serial", f"file:{console}",
            "-qmp", f"unix:{monitor},server=on,wait=off",
            "-object", f"shaper,id=sluice0,page={self.page}",
            "-object", "iothread,id=io0", "-object", "iothread,id=io1",
            *disks,
            "-netdev", f"tap,id=net0,ifname={self._tap},script=no,downscript=no,vhost=off",
            "-device", f"virtio-net-pci,netdev=net0,mac={MAC},shaper=sluice0,shaper-dscp=both",
            "-kernel", str(paths.image("vmlinuz")), "-initrd", str(paths.image("initrd.img")),
            "-append", kernel,
            *(["-incoming", f"unix:{self.socket}"] if incoming else []),
            *(word for event in trace for word in ("-trace", event)),
            *(["-D", str(self.trace_log)] if trace else []),
        ]  # fmt: skip

    def set_class(self, name: str, tag: int, **limits: int) -> None:
        """Limit a class; ``limits`` in bytes/s by resource, with _ for -."""
        self.qmp.execute(
            "shaper-set-class",
            id="sluice0",
            **{"class_": name},
            tag=tag,
            limits=[
                {"resource": resource.replace("_", "-"), "bytes-per-second": rate}
                for resource, rate in limits.items()
            ],
        )

    def shaping(self) -> dict[str, object]:
        """Return the shaper's settings, without its counters."""
        (shaper,) = self.qmp.execute("query-shapers")
        classes = [
            {name: value for name, value in row.items() if name != "stats"}
            for row in shaper["classes"]
        ]
        return {"classes": classes, "ceiling": shaper["ceiling"]}

    def migrate_to(self, target: "Machine", timeout_seconds: float) -> None:
        """Move the guest; QmpError if that fails or takes too long."""
        self.qmp.execute("migrate", uri=f"unix:{target.socket}")
        deadline = time.monotonic() + timeout_seconds
        while (status := self.qmp.execute("query-migrate"))["status"] != "completed":
            if status["status"] in ("failed", "cancelled") or time.monotonic() > deadline:
                raise QmpError(f"migration {status['status']}: {status.get('error-desc', '')}")
            time.sleep(0.1)
        while not target.qmp.execute("query-status")["running"]:
            if time.monotonic() > deadline:
                raise QmpError("the guest does not run on the target")
            time.sleep(0.05)

    def passed_bytes(self) -> dict[str, int]:
        """Return the bytes that have passed the shaper since this QEMU began, by resource."""
        return passage.totals(self.page.read_bytes())

    def disk_requests(self) -> "DiskRequests":
        """Return this QEMU's requests on the data disk since it began."""
        for disk in self.qmp.execute("query-blockstats"):
            if disk["node-name"] == "data":
                stats = disk["stats"]
                return DiskRequests(stats["rd_operations"], stats["wr_operations"])
        raise QmpError(f"{self.name} has no disk named data")

    def stop(self) -> int:
        """End QEMU and its tap; return its exit code."""
        try:
            self.qmp.execute("quit")
            self.task.wait(30)
        except (QmpError, CommandFailed, OSError):
            pass
        self.qmp.close()
        code = self.task.stop()
        self._sandbox.run(["ip", "link", "del", self._tap], check=False)
        return code


def placement(files: Files, accelerator: str) -> Placement:
    return Placement(
        accelerator=accelerator,
        emulator=paths.emulator(),
        kernel=paths.image("vmlinuz"),
        initrd=paths.image("initrd.img"),
        root_overlay=files.root,
        console_log=files.folder / "logs" / "console.log",
        address=ADDRESS,
        mac=MAC,
    )


class LiveGuest(Guest):
    """The guest in whichever QEMU it is: commands by ssh, which migration keeps."""

    def __init__(self, sandbox: Sandbox, files: Files, accelerator: str):
        spec = GuestSpec("stress", memory_mib=MEMORY_MIB)
        super().__init__(
            spec, placement(files, accelerator), sandbox, None, paths.image("id_ed25519")
        )

    def running(self) -> bool:
        return True

    def disk_requests(self) -> DiskRequests:
        """Return the answered requests of the guest's kernel on the data disk."""
        numbers = self.ssh("cat /sys/block/vdb/stat").stdout.split()
        return DiskRequests(int(numbers[0]), int(numbers[4]))
