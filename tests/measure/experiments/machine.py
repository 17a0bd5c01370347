# SPDX-License-Identifier: GPL-2.0-or-later
"""What experiments do to a testbed before they measure."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from testbed import CLIENTS, FileDisk, Guest, Testbed

SHAPER_SECONDS = 20.0
# The network of the guests' second cards; the guests' addresses begin with this one.
SECOND_CLIENT = "10.78.0.200"
SECOND_GUEST = "10.78.0.11"


class NotAlike(Exception):
    """What is to be compared differs in more than it should; the text says in what."""


def attach(testbed: Testbed, guest: Guest) -> None:
    """Have the controller put the shaper into a guest that is not running yet."""
    testbed.controller.call("POST", f"/v1/domains/{guest.name}/attach", {})


def await_shaper(testbed: Testbed, guest: Guest) -> None:
    """Wait until the controller has the running guest's shaper in hand."""
    deadline = time.monotonic() + SHAPER_SECONDS
    while not testbed.controller.call("GET", f"/v1/domains/{guest.name}")["active"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the shaper of {guest.name} is not active in {SHAPER_SECONDS:g} s")
        time.sleep(0.2)


def second_client(testbed: Testbed) -> None:
    """Give the clients an address of another network, which is that of guests' second cards."""
    address = ["ip", "address", "add", f"{SECOND_CLIENT}/24", "dev", "eth0"]
    testbed.sandbox.run(address, netns=CLIENTS)


def second_address(guest: Guest) -> None:
    """Give a running guest's second card its address in the second network.

    Both cards are on one wire: each answers for its own address alone.
    """
    guest.ssh(
        "sysctl -q -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 &&"
        f" ip address add {SECOND_GUEST}/24 dev eth1 && ip link set eth1 up"
    )


def keep_apart(guests: Sequence[Guest]) -> list[int] | list[None]:
    """Give each running guest a processor of its own, its QEMU's main loop included.

    What one guest does with its ring must not be mistaken for what it does to the
    other's processors. Returns the number of each one's processor: who sends to a guest, or
    receives from it, belongs there too. Where there are fewer processors than guests it does
    nothing, and there is None for each.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < len(guests):
        return [None] * len(guests)
    for processor, guest in zip(usable, guests, strict=False):
        only = tuple(number == processor for number in range(usable[-1] + 1))
        for vcpu in range(guest.vcpus()):
            guest.domain.pinVcpu(vcpu, only)
        guest.domain.pinEmulator(only)
    return usable[: len(guests)]


def without_scheduler(guest: Guest, devices: Sequence[str]) -> None:
    """Have a running guest's kernel hand requests on at once, all that a ring has slots for.

    With a scheduler it would keep fewer, and choose their order.
    """
    names = " ".join(devices)
    guest.ssh(f"for disk in {names}; do echo none >/sys/block/$disk/queue/scheduler; done")


def of_constant_speed(guest: Guest, devices: Sequence[str], requests_per_second: int) -> None:
    """Have a running guest's disks do so many requests a second, reads or writes, and no more.

    What a host's disk or memory can do changes from one minute to the next, and a share of it
    is then no rate that it can always do. The limit is QEMU's throttling, below the shaper. It
    counts requests, as a spindle does, and leaves throttling in bytes to who is compared.
    """
    # In one call: what a call leaves out of a pair is set to none.
    limits = {f"{way}_iops_sec": requests_per_second for way in ("read", "write")}
    for device in devices:
        guest.domain.setBlockIoTune(device, limits, 0)


def main_loop_apart(guest: Guest) -> None:
    """Give a running guest's processors one of the host's, and its QEMU's main loop the others.

    A timer of the main loop then need not wait for an emulated processor to be done. Does
    nothing on a host with one processor.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return
    numbers = range(others[-1] + 1)
    for vcpu in range(guest.vcpus()):
        guest.domain.pinVcpu(vcpu, tuple(number == first for number in numbers))
    guest.domain.pinEmulator(tuple(number in others for number in numbers))


def disk_in_memory(testbed: Testbed, name: str, size_mib: int, *, readonly: bool) -> FileDisk:
    """Return a disk, all of it allocated, as fast as the host's memory.

    What QEMU does for a request hides behind a medium that is slower. And what a host's own
    disk can do changes more from one minute to the next, though memory is not constant either
    (``of_constant_speed``).
    """
    folder = _memory(testbed, name, size_mib + 1)
    return FileDisk(_filled(testbed, folder, size_mib), readonly=readonly)


def disk_on_loop(testbed: Testbed, name: str, size_mib: int, *, readonly: bool) -> FileDisk:
    """Return the same on a block device, which the kernel's block throttling wants.

    It lies on a filesystem of its own, on a loop device that ends with the testbed.
    """
    overhead_mib = size_mib // 8 + 16
    memory = _memory(testbed, f"{name}-memory", size_mib + overhead_mib + 1)
    folder = testbed.folder / name
    folder.mkdir()
    device = memory / "device.img"
    run = testbed.sandbox.run
    run(["truncate", "-s", f"{size_mib + overhead_mib}M", str(device)])
    run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(device)])
    run(["mount", "-o", "loop", str(device), str(folder)])
    return FileDisk(_filled(testbed, folder, size_mib), readonly=readonly)


def _memory(testbed: Testbed, name: str, size_mib: int) -> Path:
    folder = testbed.folder / name
    folder.mkdir()
    options = f"size={size_mib}m"
    testbed.sandbox.run(["mount", "-t", "tmpfs", "-o", options, "sluice", str(folder)])
    return folder


def _filled(testbed: Testbed, folder: Path, size_mib: int) -> Path:
    image = folder / "disk.img"
    fill = ["dd", "if=/dev/urandom", f"of={image}", "bs=1M", f"count={size_mib}"]
    testbed.sandbox.run(fill)
    return image
