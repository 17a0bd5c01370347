# SPDX-License-Identifier: GPL-2.0-or-later
"""Limits of libvirt's and QEMU's own in a domain's XML: `<iotune>` and `<bandwidth>`."""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from ..domain.guests import Throttle
from ..domain.limits import BLK_READ, BLK_WRITE, NET_RX, NET_TX

_DISK = {"total": "blk", "read": BLK_READ, "write": BLK_WRITE}
# As libvirt names them: seen from the guest.
_CARD = {"inbound": NET_RX, "outbound": NET_TX}
# `average` is in kilobytes per second, as tc reads "kbps".
_KILO = 1000.0


def found(root: etree._Element) -> Iterator[Throttle]:
    """Those that limit a rate, in document order."""
    for disk in root.findall("devices/disk"):
        tune = disk.find("iotune")
        if tune is not None:
            for part, resource in _DISK.items():
                rate = _number(tune.findtext(f"{part}_bytes_sec"))
                operations = _number(tune.findtext(f"{part}_iops_sec"))
                if rate or operations:
                    yield Throttle(_target(disk), "iotune", resource, rate, operations)
    for card in root.findall("devices/interface"):
        for part, resource in _CARD.items():
            side = card.find(f"bandwidth/{part}")
            rate = None if side is None else _number(side.get("average"))
            if rate:
                yield Throttle(_target(card), "bandwidth", resource, rate * _KILO)


def _number(text: str | None) -> float | None:
    """None: no limit. libvirt writes whole numbers; anything else is not its own."""
    text = (text or "").strip()
    return float(text) or None if text.isascii() and text.isdecimal() else None


def _target(device: etree._Element) -> str:
    target = device.find("target")
    return "" if target is None else target.get("dev") or ""
