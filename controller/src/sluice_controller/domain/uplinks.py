# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports beneath an interface: a bridge, a bond or a VLAN has no queue of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NO_QUEUE = "noqueue"
_ON_ANOTHER = frozenset({"vlan", "macvlan", "ipvlan"})
_OF_MANY = frozenset({"bond", "team"})
# Ports of guests and containers: a bridge sends to them, not through them.
_OF_GUESTS = frozenset({"tun", "veth", "macvtap"})


@dataclass(frozen=True)
class Link:
    """An interface, as the kernel lists it. ``queue``: its root discipline."""

    index: int
    name: str
    kind: str = ""
    queue: str = ""
    # The bridge or bond that it is a port of; the interface a VLAN is on; a bond's port in use.
    master: int | None = None
    beneath: int | None = None
    active: int | None = None


def ports(links: Iterable[Link], name: str) -> list[Link]:
    """The interfaces in whose queues the frames of ``name`` wait: itself, or ports beneath it.

    Raises ValueError, which says the reason and the remedy, where there is none, or where a
    bridge has several ways out.
    """
    known = {link.index: link for link in links}
    named = [link for link in known.values() if link.name == name]
    if not named:
        names = ", ".join(sorted(link.name for link in known.values()))
        raise ValueError(f"there is no interface {name}; there are {names or 'none'}")
    return _ports(known, named[0], frozenset())


def _ports(known: dict[int, Link], link: Link, above: frozenset[int]) -> list[Link]:
    if link.queue != NO_QUEUE:
        return [link]
    if link.kind == "bridge":
        lower = [one for one in _members(known, link) if one.kind not in _OF_GUESTS]
        if len(lower) > 1:
            names = ", ".join(one.name for one in lower)
            raise ValueError(f"bridge {link.name} has several ways out; name one of {names}")
    elif link.kind in _OF_MANY:
        lower = _members(known, link)
        lower = [one for one in lower if one.index == link.active] or lower
    elif link.kind in _ON_ANOTHER:
        lower = [known[link.beneath]] if link.beneath in known else []
    else:
        raise ValueError(
            f"interface {link.name} has no queue (its discipline is {NO_QUEUE}): nothing ever waits"
            " there; name the interface that frames leave the host by"
        )
    above |= {link.index}
    if any(one.index in above for one in lower):
        raise ValueError(f"{link.kind} {link.name} is beneath itself")
    if not lower:
        raise ValueError(
            f"{link.kind} {link.name} has no port that leads out of the host; name the interface"
            " that frames leave the host by"
        )
    return [port for one in lower for port in _ports(known, one, above)]


def _members(known: dict[int, Link], link: Link) -> list[Link]:
    found = [one for one in known.values() if one.master == link.index]
    return sorted(found, key=lambda one: one.name)
