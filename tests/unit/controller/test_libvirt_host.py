# SPDX-License-Identifier: GPL-2.0-or-later
"""What a poll of libvirt keeps: a connection of this process, with domains that are only XML."""

import libvirt
import pytest

from sluice_controller.adapters.libvirt_host import LibvirtHost
from unit.controller.libvirt_model import PLAIN

ATTACHED = PLAIN.replace(
    "</domain>",
    "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
    "<qemu:arg value='-object'/><qemu:arg value='shaper,id=sluice0'/>"
    "</qemu:commandline></domain>",
)
# Deeper than the parser takes.
METADATA = "<metadata>" + "<m>" * 300 + "</m>" * 300 + "</metadata>"
DEEP = PLAIN.replace("<devices>", METADATA + "<devices>")


class Domain:
    def __init__(self, number, xml=PLAIN):
        self.number, self.xml, self.fails = number, xml, None
        self.reading = lambda: None

    def UUIDString(self):
        return f"u-{self.number}"

    def name(self):
        return f"web{self.number}"

    def ID(self):
        return -1

    def state(self):
        return [libvirt.VIR_DOMAIN_SHUTOFF, 0]

    def isActive(self):
        return 0

    def isPersistent(self):
        return 1

    def XMLDesc(self, _flags):
        if self.fails:
            raise libvirt.libvirtError(self.fails)
        xml = self.xml
        self.reading()
        return xml


class Connection:
    def __init__(self, *domains):
        self.domains = list(domains)

    def getAllDomainStats(self, _stats, _flags):
        return [(d, {"state.state": libvirt.VIR_DOMAIN_SHUTOFF}) for d in self.domains]

    def lookupByName(self, name):
        return next(d for d in self.domains if d.name() == name)

    def isAlive(self):
        return 1

    def getLibVersion(self):
        return 11_003_000


@pytest.fixture
def host(monkeypatch):
    """(the host, the connection that it opens)"""
    connection = Connection()
    monkeypatch.setattr(libvirt, "open", lambda _uri: connection)
    now = [0.0]
    host = LibvirtHost("test:///", lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    host.passes = passes
    return host, connection


def names(host):
    return [guest.name for guest in host.guests()]


def test_a_domain_that_cannot_be_parsed_keeps_no_other_from_being_seen(host):
    host, connection = host
    connection.domains = [Domain(1), Domain(2, DEEP), Domain(3)]
    host.refresh()
    assert names(host) == ["web1", "web3"]


def test_a_domain_that_cannot_be_read_stays_as_it_was(host):
    host, connection = host
    connection.domains = [Domain(1), Domain(2)]
    host.refresh()
    connection.domains[0].fails = "cannot acquire state change lock"
    connection.domains[1].xml = ATTACHED
    connection.domains.append(Domain(3))
    host.passes(60)
    host.refresh()
    assert [(g.name, g.attached) for g in host.guests()] == [
        ("web1", False), ("web2", True), ("web3", False),
    ]  # fmt: skip


def test_a_poll_does_not_take_back_what_was_read_meanwhile(host):
    """As when a domain is attached while the poll has its old definition in hand."""
    host, connection = host
    connection.domains = [Domain(1)]

    def attach():
        domain = connection.domains[0]
        domain.xml, domain.reading = ATTACHED, lambda: None
        host.passes(0.1)
        assert host.guest("web1").attached
        connection.domains.append(Domain(2))
        assert host.guest("web2")

    connection.domains[0].reading = attach
    host.refresh()
    assert [(g.name, g.attached) for g in host.guests()] == [("web1", True), ("web2", False)]


def test_a_domain_that_is_gone_is_gone_with_the_next_poll(host):
    host, connection = host
    connection.domains = [Domain(1), Domain(2)]
    host.refresh()
    host.guest("web2")
    del connection.domains[1]
    host.passes(0.5)
    host.refresh()
    assert names(host) == ["web1"]
