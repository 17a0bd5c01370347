# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains: what libvirt has and what Sluice knows of it; attach and detach.

Attach and detach change the persistent XML. Whatever fails after that puts the
stored original back, so that a refused request changes nothing.

Detach has two records to go by: this host's own with the whole original, and
the one that the domain carries. The first is exact as long as the definition
is as attach left it; the second came with the domain if that was elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..domain import render
from ..domain.errors import Conflict, SluiceError
from ..domain.guests import Guest
from ..domain.values import parse_bool, parse_integer
from .catalogue import Catalogue, audited
from .locks import DomainLocks
from .ports import Agents, Clock, Host, Store

log = logging.getLogger(__name__)

# How long a guest may take to shut down: if nothing is said, and at most.
SHUTDOWN_SECONDS = 90
LONGEST_SHUTDOWN_SECONDS = 900


class Editor(Protocol):
    """Changes a domain's definition and runs it."""

    def persistent_xml(self, name: str) -> str: ...
    def define(self, xml: str) -> None: ...
    def check_emulator(self, emulator: str) -> None: ...
    def attach(
        self, xml: str, *, emulator: str, name: str, disable_vhost: bool
    ) -> tuple[str, dict[str, Any]]: ...
    def detach(self, xml: str, record: Mapping[str, Any]) -> str: ...
    def attach_record(self, xml: str, name: str) -> Mapping[str, Any] | None: ...
    def same(self, one: str, other: str) -> bool: ...
    def shut_down(self, name: str, seconds: float) -> bool: ...
    def start(self, name: str) -> None: ...


def _shutdown_seconds(body: Mapping[str, Any]) -> int:
    raw = body.get("shutdown_seconds", SHUTDOWN_SECONDS)
    return parse_integer(raw, "shutdown_seconds", 1, LONGEST_SHUTDOWN_SECONDS)


class Domains:
    def __init__(
        self,
        store: Store,
        host: Host,
        agents: Agents,
        editor: Editor,
        catalogue: Catalogue,
        clock: Clock,
        changed: Callable[[str | None], None],
        editing: DomainLocks,
    ) -> None:
        self.store = store
        self.host = host
        self.agents = agents
        self.editor = editor
        self.catalogue = catalogue
        self.clock = clock
        self.changed = changed
        self.editing = editing

    def list(self) -> list[dict[str, Any]]:
        return [self._json(guest) for guest in self.host.guests()]

    def get(self, name: str) -> dict[str, Any]:
        return self._json(self.host.guest(name))

    def _json(self, guest: Guest) -> dict[str, Any]:
        return {
            **render.guest_json(guest),
            "agent": dict(self.agents.status(guest.name)),
            "classes": self.catalogue.grants(guest.name),
            "ceiling": self.catalogue.ceiling(guest.name),
        }

    # Attach

    def attach(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        restart = parse_bool(body.get("restart", False), "restart")
        disable_vhost = parse_bool(body.get("disable_vhost", False), "disable_vhost")
        seconds = _shutdown_seconds(body)
        with self.editing.of(name):
            guest = self.host.guest(name)
            if restart and guest.attached and guest.needs_restart:
                return self._only_restart(guest, "attach", seconds)
            with self.store.transaction() as unit:
                unit.remember_domain(guest.name, guest.uuid)
                emulator = unit.settings().emulator
            original = self.editor.persistent_xml(name)
            new_xml, changes = self.editor.attach(
                original, emulator=emulator, name=name, disable_vhost=disable_vhost
            )
            self.editor.check_emulator(emulator)
            self._apply(guest, original, new_xml, seconds if restart else None)
            record = {
                "original": original,
                "attached": self.editor.persistent_xml(name),
                "changes": changes,
            }
            with self.store.transaction() as unit:
                unit.put_stored_xml(name, record)
                audited(unit, self.clock, "attach", name, None, changes["said"])
        self.changed(name)
        return {**self.get(name), "changes": changes["said"]}

    def _apply(
        self, guest: Guest, original: str, new_xml: str, restart_seconds: int | None
    ) -> None:
        """Defines the new XML and restarts the domain if asked; undoes both on failure.

        A restart waits `restart_seconds` for the guest to shut down; None: no restart.
        """
        stopped = False
        try:
            self.editor.define(new_xml)
            if restart_seconds is not None and guest.live is not None:
                self._shut_down(guest.name, restart_seconds)
                stopped = True
                self.editor.start(guest.name)
        except SluiceError:
            self._restore(guest.name, original, stopped)
            raise

    def _shut_down(self, name: str, seconds: int) -> None:
        if not self.editor.shut_down(name, seconds):
            raise Conflict(
                "domain",
                name,
                f"did not shut down within {seconds} s",
                "give it longer with shutdown_seconds, shut it down from inside, or repeat"
                " without restart and restart it later",
            )

    def _only_restart(self, guest: Guest, action: str, seconds: int) -> dict[str, Any]:
        """The definition is what was asked for, and the domain waits for a restart."""
        self._shut_down(guest.name, seconds)
        self.editor.start(guest.name)
        with self.store.transaction() as unit:
            audited(unit, self.clock, action, guest.name, None, "restarted")
        self.changed(guest.name)
        answer = self.get(guest.name)
        return {**answer, "changes": ["restarted"]} if action == "attach" else answer

    def _restore(self, name: str, original: str, start: bool) -> None:
        try:
            self.editor.define(original)
            if start:
                self.editor.start(name)
        except SluiceError as error:
            log.error("domain %s: restoring its definition failed: %s", name, error)

    # Detach

    def detach(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        restart = parse_bool(body.get("restart", False), "restart")
        seconds = _shutdown_seconds(body)
        with self.editing.of(name):
            guest = self.host.guest(name)
            if restart and not guest.attached and guest.needs_restart:
                return self._only_restart(guest, "detach", seconds)
            with self.store.transaction() as unit:
                unit.remember_domain(guest.name, guest.uuid)
                record = unit.stored_xml(name)
            if not guest.attached:
                raise Conflict(
                    "domain", name, "is not attached", f"attach it first: sluice attach {name}"
                )
            present = self.editor.persistent_xml(name)
            target = self._detached(name, present, record)
            self._apply(guest, present, target, seconds if restart else None)
            with self.store.transaction() as unit:
                unit.put_stored_xml(name, None)
                audited(unit, self.clock, "detach", name, None, None)
        self.changed(name)
        return self.get(name)

    def _detached(self, name: str, present: str, record: Mapping[str, Any] | None) -> str:
        if record is not None and self.editor.same(present, record["attached"]):
            return record["original"]
        # Edited since, or attached elsewhere: take out what attach put in and keep the rest.
        changes = self.editor.attach_record(present, name)
        if changes is None and record is not None:
            changes = record["changes"]
        if changes is None:
            raise Conflict(
                "domain",
                name,
                "has a shaper, and neither this host nor its metadata say what attach changed",
                "take the shaper out with 'virsh edit'",
            )
        return self.editor.detach(present, changes)
