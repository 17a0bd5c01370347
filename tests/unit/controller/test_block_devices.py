# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's device under an image, by a made-up sysfs."""

import os
from pathlib import Path

import pytest

from sluice_controller.adapters.block_devices import BlockDevices


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.touch()
    return path


class Sysfs:
    """`/sys`, in which the device of the image can be made anything."""

    def __init__(self, root, image):
        number = os.stat(image).st_dev
        self.entry = root / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
        self.entry.parent.mkdir(parents=True)
        self.block = root / "devices"
        self.devices = BlockDevices(self.entry.parent)

    def add(self, *parts, slaves=()):
        device = self.block.joinpath(*parts)
        (device / "slaves").mkdir(parents=True)
        for slave in slaves:
            (device / "slaves" / slave.name).symlink_to(slave)
        return device

    def partition(self, disk, name):
        found = self.add(*disk.relative_to(self.block).parts, name)
        (found / "partition").touch()
        return found


@pytest.fixture
def sysfs(tmp_path, image):
    return Sysfs(tmp_path / "sys", image)


def test_a_filesystem_without_a_device_stands_for_itself(sysfs, image):
    assert sysfs.devices.under(str(image)) == f"filesystem {sysfs.entry.name}"


def test_partitions_and_layers_on_one_disk_are_the_disk(sysfs, image):
    disk = sysfs.add("sda")
    crypt = sysfs.add("dm-0", slaves=[sysfs.partition(disk, "sda2")])
    sysfs.entry.symlink_to(sysfs.add("dm-1", slaves=[crypt]))
    assert sysfs.devices.under(str(image)) == "sda"


def test_a_layer_on_several_disks_is_a_device(sysfs, image):
    raid = sysfs.add("md0", slaves=[sysfs.add("sda"), sysfs.add("sdb")])
    sysfs.entry.symlink_to(sysfs.partition(raid, "md0p1"))
    assert sysfs.devices.under(str(image)) == "md0"


def test_a_path_that_is_not_there_is_an_error(sysfs):
    with pytest.raises(OSError, match="nowhere"):
        sysfs.devices.under("/nowhere/image")


@pytest.mark.parametrize(
    ("device", "said", "expected"),
    [
        ("sda", "1\n", True),
        ("sda", "0\n", False),
        ("sda", None, False),
        ("vda", "1\n", False),
        ("md0", "1\n", False),
        ("filesystem 0:46", None, False),
    ],
)
def test_a_single_disk_that_says_that_it_rotates_has_an_arm(tmp_path, device, said, expected):
    if said is not None:
        queue = tmp_path / device / "queue"
        queue.mkdir(parents=True)
        (queue / "rotational").write_text(said)
    assert BlockDevices(by_name=tmp_path).has_arm(device) is expected


def test_this_hosts_own_filesystem_has_a_name():
    assert BlockDevices().under(str(Path(__file__)))
