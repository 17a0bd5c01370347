# SPDX-License-Identifier: GPL-2.0-or-later
"""From when on a change holds that a domain's QEMU does not get at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .errors import sluice
from .guests import Guest
from .knobs import Model, Text, Word

ATTACH, START, RESTART, DEFINITION, LIBVIRT = FROM = (
    "attach",
    "start",
    "restart",
    "definition",
    "libvirt",
)


@dataclass(frozen=True)
class Later(Model):
    """A domain for which a change does not hold yet."""

    domain: Annotated[str, Text(255, example="media")]
    holds_from: Annotated[str, Word(FROM, help="what the change waits for")]
    sentence: str


def waits_for(guest: Guest) -> tuple[str, str] | None:
    """Of FROM, and in words: why the domain has no shaper now; None if it has one."""
    if guest.active:
        return None
    if not guest.attached:
        return ATTACH, f"the domain is not attached: {sluice('attach', guest.name)}"
    if guest.live is None:
        return START, "the domain is off"
    return RESTART, f"the domain waits for a restart: {sluice('attach', guest.name, '--restart')}"


def later(name: str, guest: Guest | None, libvirt_answers: bool = True) -> Later | None:
    """None: what is declared for the domain holds at once."""
    if not libvirt_answers:
        wait = LIBVIRT, "libvirt cannot be asked now"
    elif guest is None:
        wait = DEFINITION, "libvirt has no domain of that name yet"
    else:
        wait = waits_for(guest)
    return wait and Later(name, wait[0], f"{name}: not in force yet, {wait[1]}")
