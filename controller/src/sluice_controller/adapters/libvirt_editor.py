# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes domain definitions through libvirt, and starts and stops domains."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt

from ..domain.errors import Conflict, SluiceError, Unavailable
from ..domain.guests import Off, Seen
from ..domain.models import as_json
from . import domain_xml
from .emulator import Emulators, check, has_channel
from .libvirt_host import LibvirtHost

# libvirt before this passes -no-acpi for a domain without the acpi feature,
# and QEMU 10 no longer knows that option.
FIRST_LIBVIRT_WITHOUT_NO_ACPI = 9_001_000

UNANSWERED = (libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_ERR_AGENT_UNRESPONSIVE)
OFF = {
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: Off.SHUT_DOWN,
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: Off.DESTROYED,
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: Off.CRASHED,
    libvirt.VIR_DOMAIN_SHUTOFF_FAILED: Off.CRASHED,
    libvirt.VIR_DOMAIN_SHUTOFF_DAEMON: Off.CRASHED,
    libvirt.VIR_DOMAIN_SHUTOFF_SAVED: Off.SAVED,
    libvirt.VIR_DOMAIN_SHUTOFF_FROM_SNAPSHOT: Off.SAVED,
    libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED: Off.MOVED,
}


class LibvirtEditor:
    def __init__(self, host: LibvirtHost, pages_dir: Path) -> None:
        self.host = host
        self.pages_dir = pages_dir
        self.emulator_problem = Emulators(host.monotonic).problem

    def persistent_xml(self, name: str) -> str:
        domain = self.host.domain(name)
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        return self._ask(name, "read", lambda: domain.XMLDesc(flags))

    def define(self, xml: str) -> None:
        connection = self.host.open()
        self._ask("definition", "define", lambda: connection.defineXML(xml))

    def attach(
        self, xml: str, *, emulator: str, name: str, disable_vhost: bool
    ) -> tuple[str, dict[str, Any]]:
        new_xml, changes = domain_xml.attach(
            xml,
            # An upgrade moves the link; the domain stays with the file that it was attached to.
            emulator=os.path.realpath(emulator),
            page_path=str(self.pages_dir / f"{name}.page"),
            name=name,
            disable_vhost=disable_vhost,
            acpi_required=self.host.version() < FIRST_LIBVIRT_WITHOUT_NO_ACPI,
            has_channel=has_channel(emulator),
        )
        return new_xml, as_json(changes)

    detach = staticmethod(domain_xml.detach)
    attach_record = staticmethod(domain_xml.record_in)
    same = staticmethod(domain_xml.same)
    attached_alike = staticmethod(domain_xml.attached_alike)
    check_emulator = staticmethod(check)

    # Running

    def ask_to_shut_down(self, name: str) -> None:
        domain = self.host.domain(name)
        self._ask(name, "shut down", domain.shutdown)

    def look(self, name: str) -> Seen:
        """How the domain is now, asked of libvirt each time: the connection may be a new one."""
        domain = self.host.domain(name)
        try:
            state, reason = domain.state()
            off = OFF.get(reason, Off.UNKNOWN) if state == libvirt.VIR_DOMAIN_SHUTOFF else None
            return Seen(domain.UUIDString(), domain.ID(), off)
        except libvirt.libvirtError as error:
            self.host.lost(error)
            raise _unanswered(name, error) from error

    def start(self, name: str) -> None:
        domain = self.host.domain(name)
        self._ask(name, "start", domain.create)

    def _ask(self, name: str, verb: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except libvirt.libvirtError as error:
            self.host.lost(error)
            raise self._refusal(name, verb, error) from error

    def _refusal(self, name: str, verb: str, error: libvirt.libvirtError) -> SluiceError:
        if not self.host.connection()["connected"]:
            return self.host.unavailable()
        text = str(error)
        # The second: the connection broke, and another thread has made a new one.
        if error.get_error_code() in UNANSWERED or error.get_error_domain() == libvirt.VIR_FROM_RPC:
            return _unanswered(name, error)
        return Conflict(
            "domain",
            name,
            f"cannot be changed: libvirt refused to {verb} it ({text})",
            "correct what libvirt names and try again",
        )


def _unanswered(name: str, error: libvirt.libvirtError) -> Unavailable:
    return Unavailable("domain", name, f"does not answer ({error})", "try again")
