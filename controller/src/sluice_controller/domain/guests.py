# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of a libvirt domain."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class Device:
    kind: str
    alias: str | None
    target: str | None
    shapeable: bool
    reason: str | None = None
    # Whether the XML gives it the shaper; libvirt passes that on at a start only.
    overridden: bool = False


@dataclass(frozen=True)
class Description:
    """What a domain's XML says about shaping."""

    emulator: str | None = None
    shaper_id: str | None = None
    page_path: str | None = None
    agent_socket: str | None = None
    devices: tuple[Device, ...] = ()
    # What it carries of its shaping (`carried.py`), as it stands there.
    carried: str | None = None
    # Which of its limits are auto-shaping's (`Tuned` there), as it stands there.
    tuned: str | None = None


class Off(Enum):
    """Why a domain does not run, as far as libvirt knows."""

    SHUT_DOWN = "shut down"
    # libvirtd was away at that time.
    UNKNOWN = "unknown"
    DESTROYED = "destroyed"
    CRASHED = "crashed"
    SAVED = "saved"
    MOVED = "moved"


# A moved domain runs elsewhere, and a saved one would go on with the definition that is
# saved with it.
NOT_TO_BE_STARTED = (Off.SAVED, Off.MOVED)


@dataclass(frozen=True)
class Seen:
    """A domain now. `incarnation` counts its starts; `off` is None while it runs."""

    uuid: str
    incarnation: int
    off: Off | None = None


@dataclass(frozen=True)
class Guest:
    """`live` is None unless the domain has a QEMU process."""

    name: str
    uuid: str
    state: str
    incarnation: int
    persistent: Description = field(default_factory=Description)
    live: Description | None = None
    # libvirt has paused it while it arrives, leaves or starts.
    moving: bool = False
    # libvirt forgets it when it ends: there is no definition.
    transient: bool = False

    @property
    def attached(self) -> bool:
        return self.persistent.shaper_id is not None

    @property
    def active(self) -> bool:
        return self.live is not None and self.live.shaper_id is not None

    @property
    def needs_restart(self) -> bool:
        return self.live is not None and self.attached != self.active

    @property
    def runs_otherwise(self) -> bool:
        """Whether it runs with another shaper or QEMU than it is defined with."""
        return self.live is not None and (
            self.needs_restart or self.live.emulator != self.persistent.emulator
        )
