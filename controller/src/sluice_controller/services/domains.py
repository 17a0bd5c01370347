# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains of libvirt, with Sluice's knowledge of them; attach and detach.

Attach and detach change the persistent XML, once for a request, and a failure after that puts
the former XML back (`restarts.py`): a refused request changes nothing. Attaching anew is a
single change, too: the definition is never without a shaper in between.

Detach has two records: this host's, with the whole original, and the domain's own. The first is
exact as long as the definition is as attach left it; the second came with a domain that was
attached on another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ..domain import render
from ..domain.channel import channel_json
from ..domain.errors import Conflict, command, sluice
from ..domain.guests import AttachBody, DetachBody, Guest
from ..domain.models import parse
from ..domain.shaped import Shapes
from .catalogue import Catalogue
from .locks import DomainLocks
from .ports import Agents, Host, Store
from .restarts import Change, Power, Restarts


class Editor(Power, Protocol):
    """Definitions after attach and detach."""

    def check_emulator(self, emulator: str) -> None: ...
    def emulator_problem(self, emulator: str) -> str | None:
        """Why this QEMU cannot shape; None if it can."""
        ...

    def attach(
        self, xml: str, *, emulator: str, name: str, disable_vhost: bool
    ) -> tuple[str, dict[str, Any]]: ...
    def detach(self, xml: str, record: Mapping[str, Any]) -> str: ...
    def attach_record(self, xml: str, name: str) -> Mapping[str, Any] | None: ...
    def attached_alike(self, one: str, other: str) -> bool: ...


@dataclass(eq=False)
class Domains:
    store: Store
    host: Host
    agents: Agents
    editor: Editor
    catalogue: Catalogue
    changed: Callable[[str | None], None]
    editing: DomainLocks
    restarts: Restarts
    shapes: Callable[[Guest], Shapes]

    def list(self) -> list[dict[str, Any]]:
        guests = self.host.guests()
        declared = self.catalogue.of_domains(guest.name for guest in guests)
        return [self._json(guest, declared[guest.name]) for guest in guests]

    def get(self, name: str) -> dict[str, Any]:
        return self._json(self.host.guest(name), self.catalogue.of_domains([name])[name])

    def _json(self, guest: Guest, declared: Mapping[str, Any]) -> dict[str, Any]:
        # A running domain has been started with its QEMU.
        is_off = guest.attached and guest.live is None
        problem = self.editor.emulator_problem(guest.persistent.emulator or "") if is_off else None
        agent = self.agents.status(guest.name)
        return {
            **render.guest_json(guest, self.shapes(guest), problem),
            "agent": {k: v for k, v in agent.items() if k not in ("boot_id", "channel")},
            "channel": channel_json(guest, agent),
            **declared,
        }

    # Attach

    def attach(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse(AttachBody, body)
        restart, upgrade, disable_vhost = wanted.restart, wanted.upgrade, wanted.disable_vhost
        seconds = wanted.shutdown_seconds if restart else None
        with self._editing(name) as guest:
            if restart and guest.attached and guest.needs_restart and not upgrade:
                said = self._restart(guest, "attach", seconds)
            else:
                anew = upgrade and guest.attached
                said = self._attach(guest, seconds, disable_vhost, anew)
        return {**self.get(name), "changes": said}

    @contextmanager
    def _editing(self, name: str) -> Iterator[Guest]:
        """The domain, for a change; Conflict during another change."""
        try:
            with self.editing.changing(name):
                guest = self.host.guest(name)
                if guest.transient:
                    file = f"{name}.xml"
                    raise Conflict(
                        "domain",
                        name,
                        "is transient: it has no definition that could be changed",
                        f"define it first: {command('virsh', 'dumpxml', name)} >{command(file)};"
                        f" {command('virsh', 'define', file)}",
                    )
                yield guest
        finally:
            # Also after a change that was taken back.
            self.changed(name)

    def _attach(
        self, guest: Guest, seconds: int | None, disable_vhost: bool, anew: bool
    ) -> list[str]:
        """Returns the changes. `anew`: of an attached domain, as if it had been detached first."""
        name = guest.name
        emulator, record = self._known(guest)
        present = original = self.editor.persistent_xml(name)
        if anew:
            original = self._detached(name, present, record)
            disable_vhost = disable_vhost or self._gave_up_vhost(name, present, record)
        wanted, changes = self.editor.attach(
            original, emulator=emulator, name=name, disable_vhost=disable_vhost
        )
        if anew and self.editor.attached_alike(present, wanted):
            due = seconds is not None and guest.runs_otherwise
            return self._restart(guest, "attach", seconds) if due else []
        self.editor.check_emulator(emulator)
        change = Change("attach", present, wanted, original, changes, changes["said"])
        self._apply(guest, change, seconds)
        return changes["said"]

    def _known(self, guest: Guest) -> tuple[str, Mapping[str, Any] | None]:
        """The emulator for domains, and this host's record of the domain's attach."""
        self.catalogue.settle(guest)
        with self.store.transaction() as unit:
            return unit.settings().emulator, unit.stored_xml(guest.name)

    def _apply(self, guest: Guest, change: Change, seconds: int | None) -> None:
        self.restarts.run(guest, change, seconds if guest.live is not None else None)

    def _restart(self, guest: Guest, action: str, seconds: int) -> list[str]:
        """The definition is right already, and the domain waits for a restart."""
        self._known(guest)
        self._apply(guest, Change(action, said="restarted"), seconds)
        return ["restarted"]

    # Detach

    def detach(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse(DetachBody, body)
        restart = wanted.restart
        seconds = wanted.shutdown_seconds if restart else None
        with self._editing(name) as guest:
            if restart and not guest.attached and guest.needs_restart:
                self._restart(guest, "detach", seconds)
            elif guest.attached:
                _emulator, record = self._known(guest)
                present = self.editor.persistent_xml(name)
                wanted = self._detached(name, present, record)
                self._apply(guest, Change("detach", present, wanted), seconds)
            else:
                raise Conflict(
                    "domain",
                    name,
                    "is not attached",
                    f"attach it first: {sluice('attach', name)}",
                )
        return self.get(name)

    def _detached(self, name: str, present: str, record: Mapping[str, Any] | None) -> str:
        if record is not None and self.editor.same(present, record["attached"]):
            return record["original"]
        # Edited since, or attached elsewhere: take out attach's changes and keep the rest.
        changes = self._changes(name, present, record)
        if changes is None:
            raise Conflict(
                "domain",
                name,
                "has a shaper, and neither this host nor its metadata say what attach changed",
                "take the shaper out with 'virsh edit'",
            )
        return self.editor.detach(present, changes)

    def _changes(
        self, name: str, present: str, record: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The record of attach: the domain's, else this host's."""
        changes = self.editor.attach_record(present, name)
        return record["changes"] if changes is None and record is not None else changes

    def _gave_up_vhost(self, name: str, present: str, record: Mapping[str, Any] | None) -> bool:
        """Whether vhost was switched off for the shaper: that need not be allowed again."""
        changes = self._changes(name, present, record)
        return changes is not None and "vhost" in changes["drivers_named"].values()
