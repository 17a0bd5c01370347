# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes domains' shaping into their metadata."""

from __future__ import annotations

import libvirt
from lxml import etree

from . import domain_metadata
from .domain_xml import describe, parse
from .libvirt_host import LibvirtHost


class LibvirtMetadata:
    def __init__(self, host: LibvirtHost) -> None:
        self.host = host
        self._host_id: str | None = None

    def host_id(self) -> str:
        """By which libvirt tells hosts apart, too: it migrates between different ones only."""
        if self._host_id is None:
            connection = self.host.open()
            capabilities = self.host.tried(
                connection.getCapabilities,
                "capabilities of libvirt",
                self.host.uri,
                "cannot be read",
            )
            self._host_id = parse(capabilities).findtext("host/uuid") or ""
        return self._host_id

    def remove_command(self, name: str) -> str:
        return domain_metadata.remove_command(name, domain_metadata.SHAPING)

    def write(self, name: str, text: str, tuned: str | None) -> None:
        """To the running domain, and to its definition if that is attached."""
        domain = self.host.domain(name)
        kind = domain_metadata.SHAPING
        element = etree.Element(kind)
        element.text = text
        if tuned is not None:
            element.set(domain_metadata.TUNED, tuned)
        xml = etree.tostring(element, encoding="unicode")

        def write() -> None:
            flags = libvirt.VIR_DOMAIN_AFFECT_LIVE
            if domain.isPersistent() and _is_attached(domain):
                flags |= libvirt.VIR_DOMAIN_AFFECT_CONFIG
            where = domain_metadata.PREFIX, domain_metadata.uri(kind)
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, xml, *where, flags)

        self.host.tried(write, "metadata of domain", name, "cannot be written")


def _is_attached(domain: libvirt.virDomain) -> bool:
    return describe(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)).shaper_id is not None
