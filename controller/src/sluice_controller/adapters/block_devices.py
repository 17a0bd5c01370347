# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's device under an image, by sysfs."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path


class BlockDevices:
    def __init__(
        self, by_number: Path = Path("/sys/dev/block"), by_name: Path = Path("/sys/block")
    ) -> None:
        self.by_number, self.by_name = by_number, by_name

    def under(self, path: str) -> str:
        """The name of the device, as `sda`; OSError if the path cannot be looked at.

        A partition is its disk's, and a layer that lies on one device, as a volume or encryption,
        is that device's; a layer on several, as a RAID, is a device by itself. A filesystem
        without a device, as of a network, stands for its server.
        """
        found = os.stat(path)
        number = found.st_rdev if stat.S_ISBLK(found.st_mode) else found.st_dev
        name = f"{os.major(number)}:{os.minor(number)}"
        entry = self.by_number / name
        return _lowest(entry.resolve()) if entry.exists() else f"filesystem {name}"

    def has_arm(self, device: str) -> bool:
        """Whether the device is one rotating disk, as far as the kernel knows.

        Only disks of the SCSI layer, SATA and SAS among them: paravirtual disks call themselves
        rotating whatever lies below, and several readers keep the disks of a RAID busy.
        """
        if not re.fullmatch(r"sd[a-z]+", device):
            return False
        try:
            said = (self.by_name / device / "queue" / "rotational").read_text()
        except (OSError, ValueError):
            return False
        return said.strip() == "1"


def _lowest(device: Path) -> str:
    while True:
        if (device / "partition").exists():
            device = device.parent
            continue
        slaves = device / "slaves"
        below = list(slaves.iterdir()) if slaves.is_dir() else []
        if len(below) != 1:
            return device.name
        device = below[0].resolve()
