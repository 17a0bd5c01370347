# SPDX-License-Identifier: GPL-2.0-or-later
"""The channel between a domain's guest and its shaper (`docs/specs/channel.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from .errors import sluice
from .guests import Guest
from .knobs import Flag, Model, Text
from .later import START, waits_for


@dataclass(frozen=True)
class Channel(Model):
    """Whether a domain has the device sluice-channel, and who uses it."""

    present: Annotated[bool, Flag(help="the domain has the device sluice-channel")]
    absent_because: str | None
    port_map: Annotated[bool, Flag(help="the agent says that its port map is in force")]
    unused_because: str | None
    sentence: Annotated[str, Text(2000, help="the same for people")]


def absence(guest: Guest) -> str | None:
    """Why the domain has no channel, as it runs or as it will start; None if it has one."""
    shown = guest.live or guest.persistent
    if shown.has_channel:
        return None
    wait = waits_for(guest)
    if wait is not None and wait[0] != START:
        return wait[1]
    upgrade = ["--upgrade"] if guest.live is None else ["--upgrade", "--restart"]
    anew = sluice("attach", guest.name, *upgrade)
    if guest.persistent.has_channel:
        return f"it comes with a restart: {anew}"
    if guest.persistent.no_channel_because:
        return guest.persistent.no_channel_because
    return f"attach added none, as an earlier sluice-qemu has none; with a newer one: {anew}"


def channel_json(guest: Guest, agent: Mapping[str, Any]) -> dict[str, Any]:
    """A `Channel`. `agent`: its status."""
    said = agent.get("channel")
    absent = absence(guest)
    if absent is not None:
        unused = None
    elif guest.live is None:
        unused = "the domain is off"
    elif not agent.get("connected"):
        unused = "no agent is connected"
    elif said is None:
        unused = "the agent is of a version that does not use it"
    else:
        unused = said["why"] or None
    has_map = absent is None and bool(said and said["port_map"])
    if has_map:
        unused = None
    return {
        "present": absent is None,
        "absent_because": absent,
        "port_map": has_map,
        "unused_because": unused,
        "sentence": _sentence(absent, has_map, unused),
    }


def _sentence(absent: str | None, has_map: bool, unused: str | None) -> str:
    if absent is not None:
        return f"no channel: {absent}"
    if has_map:
        return "channel with the guest's port map in force"
    return f"channel without a port map in force: {unused or 'the agent gives no reason'}"
