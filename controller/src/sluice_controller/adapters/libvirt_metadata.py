# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes domains' shaping into their metadata."""

from __future__ import annotations

import libvirt
from lxml import etree

from ..domain.errors import Unavailable
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
            try:
                capabilities = self.host.open().getCapabilities()
            except libvirt.libvirtError as error:
                self.host.lost(error)
                raise Unavailable(
                    "capabilities of libvirt",
                    self.host.uri,
                    f"cannot be read ({error})",
                    "nothing to do; sluiced tries again by itself",
                ) from error
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
        try:
            flags = libvirt.VIR_DOMAIN_AFFECT_LIVE
            if domain.isPersistent() and _is_attached(domain):
                flags |= libvirt.VIR_DOMAIN_AFFECT_CONFIG
            domain.setMetadata(
                libvirt.VIR_DOMAIN_METADATA_ELEMENT,
                xml,
                domain_metadata.PREFIX,
                domain_metadata.uri(kind),
                flags,
            )
        except libvirt.libvirtError as error:
            self.host.lost(error)
            raise Unavailable(
                "metadata of domain",
                name,
                f"cannot be written ({error})",
                "nothing to do; sluiced tries again by itself",
            ) from error


def _is_attached(domain: libvirt.virDomain) -> bool:
    return describe(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)).shaper_id is not None
