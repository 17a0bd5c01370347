# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of a domain's disks and cards are shaped, and why not the others.

A domain that is off is judged by its definition, as it will start. A running domain is judged
by its QEMU: libvirt lists an override for a device that was plugged in later, too, and has not
told QEMU of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .errors import sluice
from .guests import Device, Guest
from .later import START, waits_for


@dataclass(frozen=True)
class Shapes:
    """The devices that a running QEMU says that it shapes, by their ids (libvirt's aliases).

    `ids` is None before it said so; `problem` is why, where known.
    """

    ids: frozenset[str] | None = None
    problem: str = ""


UNKNOWN = Shapes()


def shaped_ids(shaper: Mapping[str, Any]) -> frozenset[str]:
    """The ids of the devices in an answer to query-shapers.

    A path there is /machine/peripheral/ID, or one below it.
    """
    parts = [str(path).split("/") for path in shaper.get("devices", ())]
    return frozenset(part[3] for part in parts if part[1:3] == ["machine", "peripheral"])


def why_unshaped(
    guest: Guest, device: Device, shapes: Shapes, emulator_problem: str | None
) -> str | None:
    """None: it is shaped. `emulator_problem`: why the defined QEMU cannot shape, None if it can."""
    if device.reason is not None:
        return device.reason
    wait = waits_for(guest)
    if wait is not None and wait[0] != START:
        return wait[1]
    if guest.live is None:
        if emulator_problem is not None:
            return emulator_problem
        return None if device.overridden else f"was added after attach: {_anew(guest.name)}"
    if shapes.ids is None:
        return f"QEMU has not said yet what it shapes{shapes.problem and f' ({shapes.problem})'}"
    if device.alias in shapes.ids:
        return None
    if any(d.overridden and d.alias == device.alias for d in guest.persistent.devices):
        return "was plugged in while the domain ran: shut the domain down and start it"
    return f"was added after attach: {_anew(guest.name, '--restart')}"


def _anew(name: str, *options: str) -> str:
    return sluice("attach", name, "--upgrade", *options)


def devices_json(
    guest: Guest, shapes: Shapes, emulator_problem: str | None
) -> list[dict[str, Any]]:
    """The devices as the domain runs, or as it is defined while it is off."""
    found = []
    for device in (guest.live or guest.persistent).devices:
        row = asdict(device)
        del row["overridden"]
        why = why_unshaped(guest, device, shapes, emulator_problem)
        found.append({**row, "shaped": why is None, "unshaped_because": why})
    return found


def sentence(devices: Sequence[Mapping[str, Any]]) -> str:
    """How many of the devices are shaped, and why each of the others is not."""
    if not devices:
        return "no disks or cards"
    reasons: dict[str, list[str]] = {}
    for device in devices:
        if not device["shaped"]:
            label = device["target"] or device["alias"] or device["kind"]
            reasons.setdefault(device["unshaped_because"], []).append(label)
    of = len(devices)
    said = f"{sum(d['shaped'] for d in devices)} of {of} disks and cards shaped"
    for reason, labels in reasons.items():
        named = "" if len(labels) == of else f"{', '.join(labels)}: "
        said += f"; {named}{reason}"
    return said
