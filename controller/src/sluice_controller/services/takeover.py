# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes over domains of other sluiceds, and prepares this one's for being taken over.

A running domain is this sluiced's when its metadata says so, or when it has none and this store
has attached it or taken it over. All others came by migration, or are older than the store:
their shaper stays as it is, or is configured from the metadata, until the catalogue has taken
both in, in one transaction. Then the metadata names this sluiced as the owner.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..domain.carried import (
    Carried,
    Holding,
    Tuned,
    as_text,
    content,
    holding,
    parse,
    tuned_text,
)
from ..domain.errors import Conflict, SluiceError, sluice
from ..domain.events import Subject
from ..domain.guests import Guest
from ..domain.model import MAX_RULES
from ..domain.shaper_config import actual, commands, wanted
from ..domain.takeover import Plan, holding_of, is_bare, merged, planned
from .catalogue import audited
from .locks import DomainLocks
from .ports import Clock, Shapers, Store, Transaction

log = logging.getLogger(__name__)

# (class, resource)
Pairs = Collection[tuple[str, str]]


class Metadata(Protocol):
    """The metadata of domains."""

    def remove_command(self, name: str) -> str: ...
    def write(self, name: str, text: str, tuned: str | None) -> None: ...
    def host_id(self) -> str: ...


def own_id(store: Store) -> str:
    """Tells this store's sluiced from all others; made when the store is."""
    with store.transaction() as unit:
        stored = unit.value("owner", {})
        if not stored:
            stored = {"id": str(uuid.uuid4())}
            unit.put_value("owner", stored)
        return stored["id"]


def _mark_key(guest: Guest) -> str:
    """The store's key for the last metadata of a domain that was read or written."""
    return f"carried {guest.uuid}"


@dataclass(eq=False)
class TakeOver:
    """`editing` has a lock for each domain, held while its definition is changed."""

    store: Store
    shapers: Shapers
    metadata: Metadata
    editing: DomainLocks
    clock: Clock

    def __post_init__(self) -> None:
        self.owner = own_id(self.store)

    # News in metadata

    def _carried(self, guest: Guest) -> Carried | None:
        """The domain's own metadata; Conflict if it cannot be read."""
        text = guest.live.carried if guest.live else None
        if text is None:
            return None
        try:
            carried = parse(text, guest.name, self.clock(), guest.live.tuned)
        except SluiceError as error:
            raise Conflict(
                "domain",
                guest.name,
                f"carries a configuration that cannot be read ({error.detail})",
                f"remove it: {self.metadata.remove_command(guest.name)}",
            ) from error
        # A copied domain carries the other domain's metadata.
        return carried if carried.uuid == guest.uuid else None

    def due(self, guest: Guest) -> bool:
        """Whether the domain is another sluiced's, or new. Conflict as `_carried`."""
        with self.store.transaction() as unit:
            mark = unit.value(_mark_key(guest), {})
            attached_here = unit.stored_xml(guest.name) is not None
        try:
            carried = self._carried(guest)
        except Conflict:
            if mark.get("owner") == self.owner:
                return False  # it is ours, and will be written anew
            raise
        if carried is None:
            return not mark and not attached_here
        if carried.owner == self.owner:
            return False
        return mark != {"owner": carried.owner, "revision": carried.revision}

    # Arriving

    def hold(self, guest: Guest) -> None:
        """Configures the shaper of an arriving domain from its metadata; stores nothing."""
        shaper, held = self._merged(guest, self._carried(guest))
        self._push(guest, shaper, held)

    def _merged(self, guest: Guest, carried: Carried | None) -> tuple[Mapping[str, Any], Holding]:
        shaper = self.shapers.query(guest.name, guest.live.shaper_id)
        found = holding_of(guest.name, shaper)
        if carried is None:
            return shaper, merged(found, None)
        return shaper, merged(found, carried.holding, self._tuned_elsewhere(carried.tuned))

    def _tuned_elsewhere(self, tuned: Tuned | None) -> Pairs:
        """Empty on this host: the guest has not moved, and its shaper is up to date."""
        if tuned is None or tuned.host == self.metadata.host_id():
            return ()
        return tuned.limits

    def _push(self, guest: Guest, shaper: Mapping[str, Any], held: Holding) -> None:
        want = wanted(guest.name, list(held.grants), held.classes.values(), held.ceiling, {})
        shaper_id = guest.live.shaper_id
        have = actual(shaper, want)
        # Groups and cards are a host's, and set there.
        want = {**want, **{part: have[part] for part in ("groups", "objects", "cards")}}
        for command, arguments in commands(shaper_id, have, want):
            self.shapers.execute(guest.name, command, arguments)

    # Here

    def take(self, guest: Guest) -> None:
        """The domain's configuration into the catalogue, whole or not at all.

        On Conflict the shaper is configured all the same.
        """
        carried = self._carried(guest)
        shaper, held = self._merged(guest, carried)
        try:
            with self.store.transaction() as unit:
                self._take(unit, guest, held, carried)
        except SluiceError:
            self._push(guest, shaper, held)
            raise

    def refused(self, guest: Guest, error: SluiceError) -> None:
        with self.store.transaction() as unit:
            about = Subject((guest.name,))
            audited(unit, self.clock, "take over refused", guest.name, None, error.detail, about)

    def _take(
        self, unit: Transaction, guest: Guest, held: Holding, carried: Carried | None
    ) -> None:
        name = guest.name
        before = self._here(unit, name, own_rules=True)
        if carried is None:
            # New here: grants that exist already are the operator's wish.
            held = _beside(before, held)
        others = [r for r in unit.rules() if r.domain != name]
        plan = planned(name, held, unit.classes(), unit.streams(), others, MAX_RULES)
        if carried and carried.left_out:
            plan = replace(plan, notes=(*plan.notes, *carried.left_out))
        self._store(unit, name, plan)
        mark = {"owner": carried.owner, "revision": carried.revision} if carried else {"owner": ""}
        unit.put_value(_mark_key(guest), mark)
        if carried or not all(map(is_bare, plan.holding.grants)) or plan.holding.ceiling:
            after = {**content(plan.holding), "notes": list(plan.notes)}
            audited(unit, self.clock, "take over", name, content(before), after, Subject((name,)))
            log.info("domain %s: taken over, %s", name, _said(plan))

    def _store(self, unit: Transaction, name: str, plan: Plan) -> None:
        for shaping_class in plan.new_classes:
            unit.put_class(shaping_class)
        for grant in unit.grants(name):
            unit.delete_grant(name, grant.class_name)
        for grant in plan.holding.grants:
            if not is_bare(grant):
                unit.put_grant(grant)
        unit.put_ceiling(name, plan.holding.ceiling)
        for rule in unit.rules():
            if rule.domain == name:
                unit.delete_rule(rule.id)
        for rule in plan.holding.rules:
            unit.add_rule(rule)
        for assignment in unit.assignments(name):
            unit.delete_assignment(name, assignment.pid)
        for assignment in plan.holding.assignments:
            unit.put_assignment(assignment)

    def _here(self, unit: Transaction, name: str, *, own_rules: bool) -> Holding:
        """The catalogue's part of a domain, with the rules for every domain or without."""
        return holding(
            name,
            unit.grants(name),
            unit.classes(),
            unit.ceiling(name),
            [r for r in unit.rules() if r.domain == name or not own_rules],
            unit.assignments(name),
        )

    # For others

    def to_carry(self, unit: Transaction, name: str, tuned: Pairs) -> dict[str, Any]:
        """The domain's due metadata; `tuned` are its limits of auto-shaping."""
        return _wish(self._here(unit, name, own_rules=False), tuned)

    def carries(self, guest: Guest, wish: Mapping[str, Any]) -> bool:
        """Whether the domain carries that, in this sluiced's name."""
        try:
            carried = self._carried(guest)
        except SluiceError:
            return False
        if carried is None or carried.owner != self.owner or carried.left_out:
            return False
        return _wish(carried.holding, carried.tuned.limits if carried.tuned else ()) == wish

    def write(self, guest: Guest, tuned: Pairs) -> dict[str, Any] | None:
        """Writes the catalogue's part into the domain's metadata; returns it, or None if not
        now."""
        lock = self.editing.of(guest.name)
        if not lock.acquire(blocking=False):
            return None
        try:
            with self.store.transaction() as unit:
                held = self._here(unit, guest.name, own_rules=False)
                mark = unit.value(_mark_key(guest), {})
            revision = mark.get("revision", 0) + 1
            limits = frozenset(_of(held, tuned))
            beside = Tuned(self.metadata.host_id(), limits) if limits else None
            carried = Carried(guest.uuid, self.owner, revision, held, beside)
            self.metadata.write(guest.name, as_text(carried), tuned_text(beside))
            with self.store.transaction() as unit:
                unit.put_value(_mark_key(guest), {"owner": self.owner, "revision": revision})
            return _wish(held, tuned)
        finally:
            lock.release()


def _of(held: Holding, tuned: Pairs) -> list[tuple[str, str]]:
    """Auto-shaping may not have seen yet that a class is revoked."""
    return sorted(pair for pair in tuned if pair[0] in held.classes)


def _wish(held: Holding, tuned: Pairs) -> dict[str, Any]:
    return {**content(held), "tuned": _of(held, tuned)}


def _beside(before: Holding, held: Holding) -> Holding:
    """The former items, and those of the other that do not collide with them."""
    tags = {g.tag for g in before.grants}
    names = {g.class_name for g in before.grants}
    values = {value for g in before.grants for value in g.dscp}
    added = []
    for grant in held.grants:
        if grant.class_name in names:
            continue
        if grant.tag in tags or values & set(grant.dscp):
            raise Conflict(
                "class",
                grant.class_name,
                "has a tag or a DSCP value in the running shaper that is another's here",
                f"revoke the other: {sluice('revoke', grant.domain, 'CLASS')}",
            )
        added.append(grant)
    return Holding(
        {**held.classes, **before.classes},
        (*before.grants, *added),
        before.ceiling or held.ceiling,
        before.rules,
        before.assignments,
    )


def _said(plan: Plan) -> str:
    names = ", ".join(g.class_name for g in plan.holding.grants) or "no classes"
    return "; ".join([f"with {names}", *plan.notes])
