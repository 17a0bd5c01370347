# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of a guest's virtqueues is in the host's hands: asked of QEMU itself."""

from dataclasses import dataclass
from xml.etree import ElementTree as ET

from measure.qmp import ask
from testbed import Guest

# The queues of a virtio-net device with one pair are: receive, transmit, control.
TRANSMIT = 1
# Linux stops sending while fewer descriptors are free than its largest packet takes:
# two and one for each of 17 fragments.
TRANSMIT_SPARE = 19
# Whoever waits for a free request of a disk is woken when eight are (SBQ_WAKE_BATCH).
DISK_SPARE = 8


@dataclass(frozen=True)
class Ring:
    """One virtqueue: requests or packets that the host has not given back, and its size."""

    held: int
    size: int
    # How many have been given back, by a counter of 16 bits.
    used: int = 0


def disk_path(xml: str, target: str) -> str:
    """Return QEMU's path of a running domain's disk. Raises LookupError if there is none."""
    for disk in ET.fromstring(xml).iterfind("devices/disk"):
        if disk.find("target").get("dev") == target:
            return _path(disk)
    raise LookupError(f"the domain has no disk {target}")


def network_path(xml: str, index: int) -> str:
    """Return QEMU's path of a running domain's network card, counted from 0."""
    return _path(ET.fromstring(xml).findall("devices/interface")[index])


def _path(device: ET.Element) -> str:
    return f"/machine/peripheral/{device.find('alias').get('name')}/virtio-backend"


def disk_rings(guest: Guest, target: str) -> list[Ring]:
    """Return all queues of a disk."""
    path = disk_path(guest.domain.XMLDesc(), target)
    count = ask(guest, "x-query-virtio-status", path=path)["num-vqs"]
    return [_ring(guest, path, number) for number in range(count)]


def transmit_ring(guest: Guest, card: int = 0) -> Ring:
    """Return the queue by which a card with one pair of queues sends."""
    return _ring(guest, network_path(guest.domain.XMLDesc(), card), TRANSMIT)


def _ring(guest: Guest, path: str, number: int) -> Ring:
    status = ask(guest, "x-query-virtio-queue-status", path=path, queue=number)
    return Ring(status["inuse"], status["vring-num"], status["used-idx"])


def given_back(before: Ring, after: Ring) -> int:
    """Return how many the host gave back between two looks, if fewer than 65,536."""
    return (after.used - before.used) % 65536
