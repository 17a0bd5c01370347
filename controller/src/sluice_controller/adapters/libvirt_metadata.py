# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes what domains carry of their shaping."""

from __future__ import annotations

import libvirt
from lxml import etree

from ..domain.errors import Unavailable
from . import domain_metadata
from .domain_xml import describe
from .libvirt_host import LibvirtHost


class LibvirtMetadata:
    def __init__(self, host: LibvirtHost) -> None:
        self.host = host

    def remove_command(self, name: str) -> str:
        return domain_metadata.remove_command(name, domain_metadata.SHAPING)

    def write(self, name: str, text: str) -> None:
        """To the running domain, and to its definition if that is attached."""
        domain = self.host.domain(name)
        kind = domain_metadata.SHAPING
        element = etree.Element(kind)
        element.text = text
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
