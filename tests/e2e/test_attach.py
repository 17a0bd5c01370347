# SPDX-License-Identifier: GPL-2.0-or-later
"""Attach and detach on real domains: the XML comes back as it was."""

import libvirt
import pytest

from testbed import Controller, Guest, GuestSpec, Testbed, paths, saved


def stored_xml(guest: Guest) -> str:
    """The persistent definition, whole."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return guest.domain.XMLDesc(flags)


@pytest.fixture
def define(testbed: Testbed, controller: Controller):
    """A function that defines a guest; what it defined is removed at the end."""
    made = []

    def make(spec: GuestSpec, **options) -> Guest:
        guest = testbed.add_guest(spec, **options)
        made.append(guest)
        return guest

    yield make
    for guest in made:
        testbed.remove_guest(guest)


def test_detach_gives_the_xml_back(define, controller: Controller):
    guest = define(GuestSpec("round-trip"))
    before = stored_xml(guest)
    answer = controller.call("POST", "/v1/domains/round-trip/attach", {})
    assert answer["attached"] and not answer["active"]
    attached = stored_xml(guest)
    for part in ("shaper", "org.sluice.agent.0", str(paths.emulator().resolve())):
        assert part in attached
    answer = controller.call("POST", "/v1/domains/round-trip/detach", {})
    assert not answer["attached"]
    assert stored_xml(guest) == before


def test_attach_twice_and_detach_twice_change_nothing_more(define, controller: Controller):
    guest = define(GuestSpec("twice"))
    before = stored_xml(guest)
    controller.call("POST", "/v1/domains/twice/attach", {})
    attached = stored_xml(guest)
    controller.request("POST", "/v1/domains/twice/attach", {})
    assert stored_xml(guest) == attached
    controller.call("POST", "/v1/domains/twice/detach", {})
    controller.request("POST", "/v1/domains/twice/detach", {})
    assert stored_xml(guest) == before


def test_vhost_is_refused_until_it_is_switched_off(define, controller: Controller):
    guest = define(GuestSpec("fast-net", vhost=True))
    before = stored_xml(guest)
    refused = controller.request("POST", "/v1/domains/fast-net/attach", {})
    problem = refused.json()
    assert refused.status_code == 409 and "vhost" in problem["detail"]
    assert stored_xml(guest) == before
    by_command = controller.cli("attach", "fast-net")
    assert by_command.returncode == 1
    assert by_command.stderr.strip() == f"sluice: {problem['detail']}"
    controller.call("POST", "/v1/domains/fast-net/attach", {"disable_vhost": True})
    assert "<driver name='vhost'" not in stored_xml(guest)
    controller.call("POST", "/v1/domains/fast-net/detach", {})
    assert stored_xml(guest) == before


def test_a_running_domain_is_shaped_after_a_restart_and_stock_after_another(
    define, controller: Controller
):
    guest = define(GuestSpec("live"), place=51)
    before = stored_xml(guest)
    saved.start(guest)
    first = guest.qemu_pid()

    pending = controller.call("POST", "/v1/domains/live/attach", {})
    assert pending["attached"] and pending["needs_restart"] and not pending["active"]
    assert guest.qemu_pid() == first
    undone = controller.call("POST", "/v1/domains/live/detach", {})
    assert not undone["attached"] and not undone["needs_restart"]
    assert stored_xml(guest) == before and guest.qemu_pid() == first

    # The definition waits for a restart: asking for one is no second attach.
    controller.call("POST", "/v1/domains/live/attach", {})
    refused = controller.request("POST", "/v1/domains/live/attach", {})
    assert refused.status_code == 409
    restarted = controller.call("POST", "/v1/domains/live/attach", {"restart": True})
    assert restarted["active"] and not restarted["needs_restart"]
    guest.wait_ready()
    controller.wait_for_agent("live")
    assert guest.qemu_pid() != first

    controller.call("POST", "/v1/domains/live/detach", {})
    detached = controller.call("POST", "/v1/domains/live/detach", {"restart": True})
    assert not detached["attached"] and not detached["active"] and guest.running()
    assert "shaper" not in guest.domain.XMLDesc()
    assert stored_xml(guest) == before
