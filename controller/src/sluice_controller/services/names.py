# SPDX-License-Identifier: GPL-2.0-or-later
"""Assigns policies to domains.

A policy (grants, ceiling, groups, streams, rules) belongs to a domain, which is known by its
uuid, and follows the domain when libvirt renames it. The policy of a vanished domain is kept
under its name for the next domain of that name, so a domain that is defined anew without its
uuid goes on as before. A newcomer with a policy of its own keeps that, and the kept policy is
put aside, under a name with the uuid.
"""

from __future__ import annotations

import logging
from typing import Protocol

from ..domain.events import Subject
from ..domain.guests import Guest
from ..domain.model import AuditEntry
from .ports import Clock, Store

log = logging.getLogger(__name__)

ACTOR = "sluiced"


class Present(Protocol):
    def has(self, uuid: str) -> bool:
        """Whether libvirt has a domain of this uuid, under any name. Unavailable."""
        ...


def settle(store: Store, host: Present, clock: Clock, guest: Guest) -> None:
    """Before the domain's policy is read or changed: it is stored under its present name."""
    with store.transaction() as unit:
        holder = unit.uuid_of(guest.name)
    if holder == guest.uuid:
        return
    # libvirt may take its time: no unit of work waits for it.
    gone = holder if holder is not None and not host.has(holder) else None
    # Where it was looked after before, it was given a policy there.
    has_its_own = guest.live is not None and guest.uuid in (guest.live.carried or "")
    with store.transaction() as unit:
        for action, before, after in unit.remember_domain(
            guest.name, guest.uuid, gone, has_its_own
        ):
            log.warning("domain %s: %s: %s, before %s", guest.name, action, after, before)
            entry = AuditEntry(clock(), ACTOR, action, guest.name, before, after)
            unit.add_audit(entry, Subject((guest.name,)))
