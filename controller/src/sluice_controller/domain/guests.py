# SPDX-License-Identifier: GPL-2.0-or-later
"""A libvirt domain, as sluiced knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from .knobs import Flag, Model, Whole

# How long a guest may take to shut down: if nothing is said, and at most.
SHUTDOWN_SECONDS = 90
LONGEST_SHUTDOWN_SECONDS = 900


@dataclass(frozen=True)
class Throttle:
    """A limit of QEMU's or of libvirt's own on a disk or card: `<iotune>`, `<bandwidth>`."""

    device: str
    kind: str  # "iotune" or "bandwidth"
    # A resource, or "blk" for reads and writes together.
    resource: str
    bytes_per_second: float | None = None
    operations_per_second: float | None = None


@dataclass(frozen=True)
class Device(Model):
    kind: str
    alias: str | None
    target: str | None
    shapeable: bool
    reason: str | None = None
    # Whether the XML gives it the shaper; libvirt passes that on at a start only.
    overridden: bool = False
    # Of a network card; None while libvirt has given it none.
    mac: str | None = None


@dataclass(frozen=True)
class Description:
    """The shaping in a domain's XML."""

    emulator: str | None = None
    shaper_id: str | None = None
    page_path: str | None = None
    agent_socket: str | None = None
    devices: tuple[Device, ...] = ()
    # Of each shapeable disk the path of its image or block device, PROTOCOL:NAME of a network's;
    # None where it has neither.
    images: tuple[str | None, ...] = ()
    throttles: tuple[Throttle, ...] = ()
    # The device sluice-channel; and why attach cannot add it, None if it can.
    has_channel: bool = False
    no_channel_because: str | None = None
    # The text of its metadata about shaping (`carried.py`).
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
        """Whether it runs with another shaper, QEMU or channel than it is defined with."""
        if self.live is None:
            return False
        live, defined = self.live, self.persistent
        return (live.emulator, live.shaper_id is None, live.has_channel) != (
            defined.emulator,
            defined.shaper_id is None,
            defined.has_channel,
        )


@dataclass(frozen=True)
class DetachBody(Model):
    """How a domain gets its former definition back."""

    restart: Annotated[
        bool, Flag(help="shut the guest down and start it again", option="--restart")
    ] = False
    shutdown_seconds: Annotated[
        int, Whole(1, LONGEST_SHUTDOWN_SECONDS, help="how long the guest may take for that")
    ] = SHUTDOWN_SECONDS


@dataclass(frozen=True)
class AttachBody(DetachBody):
    """How a domain's devices are put behind a shaper."""

    upgrade: Annotated[
        bool, Flag(help="of an attached domain: make it as attach would now", option="--upgrade")
    ] = False
    disable_vhost: Annotated[
        bool, Flag(help="switch vhost off where a card has it", option="--disable-vhost")
    ] = False


@dataclass(frozen=True)
class InstallBody(Model):
    """How Sluice's agent is installed in a guest."""

    seconds: Annotated[int, Whole(1, 600, help="how many the script in the guest may take")] = 120
