# SPDX-License-Identifier: GPL-2.0-or-later
"""Peers that limit a guest's disk: QEMU's throttling, cgroup block throttling.

Each limits one way, ``read`` or ``write``.
"""

import contextlib
import os
from pathlib import Path

from measure.experiments.subjects import Unavailable
from testbed import Guest, Testbed

BLKIO = Path("/sys/fs/cgroup/blkio")


class QemuThrottle:
    """libvirt's ``<iotune>``, which is QEMU's throttle group with its own burst."""

    name = "qemu-throttle"

    def __init__(self, target: str, way: str):
        self._target = target
        self._way = way
        self._guest: Guest | None = None

    def open(self, _testbed: Testbed, guest: Guest) -> None:
        self._guest = guest

    def set_rate(self, rate_bps: int | None) -> None:
        self._guest.domain.setBlockIoTune(
            self._target, {f"{self._way}_bytes_sec": rate_bps or 0}, 0
        )

    def close(self) -> None:
        """The last ``set_rate(None)`` left nothing."""


class CgroupThrottle:
    """The kernel's block throttling (blkio of cgroup v1) on the disk below the image."""

    name = "cgroup-blkio"

    def __init__(self, image: Path, way: str):
        self._image = image
        self._file = f"blkio.throttle.{way}_bps_device"
        self._group: Path | None = None
        self._device = ""

    def open(self, testbed: Testbed, guest: Guest) -> None:
        if not (BLKIO / self._file).exists():
            raise Unavailable(
                f"{BLKIO} is not a blkio hierarchy of cgroup v1; boot the host with"
                " systemd.unified_cgroup_hierarchy=0"
            )
        self._device = _whole_disk(testbed, self._image)
        pid = _outer_pid(testbed, guest.qemu_pid())
        self._group = BLKIO / f"sluice-perf-{os.getpid()}"
        self._group.mkdir()
        (self._group / "cgroup.procs").write_text(f"{pid}\n")

    def set_rate(self, rate_bps: int | None) -> None:
        (self._group / self._file).write_text(f"{self._device} {rate_bps or 0}\n")

    def close(self) -> None:
        if not self._group:
            return
        for pid in (self._group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (BLKIO / "cgroup.procs").write_text(f"{pid}\n")
        self._group.rmdir()
        self._group = None


def _whole_disk(testbed: Testbed, image: Path) -> str:
    """Return MAJOR:MINOR of the disk that holds a file; the throttle takes no partition."""
    # It may be mounted where the testbed alone sees it.
    number = int(testbed.sandbox.run(["stat", "-c", "%d", str(image)]).stdout)
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        raise Unavailable(
            f"{image} lies on no block device; give it one, as machine.disk_on_loop does"
        )
    whole = device.resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    return (whole / "dev").read_text().strip()


def _outer_pid(testbed: Testbed, inner: int) -> int:
    """Translate a process id of the sandbox into this program's numbering."""
    root = os.stat(f"/proc/{testbed.sandbox.holder_pid}/ns/pid").st_ino
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.stat(status.parent / "ns/pid").st_ino != root:
                continue
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        except (OSError, ValueError):
            continue
        if int(fields["NSpid"].split()[-1]) == inner:
            return int(status.parent.name)
    raise Unavailable(
        f"the sandbox's process {inner} is not to be seen from outside; run with the host's /proc"
    )
