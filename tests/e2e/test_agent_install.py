# SPDX-License-Identifier: GPL-2.0-or-later
"""``sluice agent install``: from a guest without the agent to a greeted agent, and back."""

import pytest

from testbed import Controller, Guest, GuestSpec, Testbed, agent_disk

NAME = "bare"
LEFT = "ls /usr/local/sbin /etc/systemd/system /run | grep sluice || true"


@pytest.fixture
def bare(testbed: Testbed, controller: Controller):
    """A running, attached guest with the QEMU guest agent and without ours."""
    guest = testbed.add_guest(GuestSpec(NAME, agent=False, guest_agent=True), place=58)
    controller.call("POST", f"/v1/domains/{NAME}/attach", {})
    # Booted: libvirt does not learn of ports that were open when a guest was kept.
    guest.start()
    guest.wait_ready()
    yield guest
    testbed.remove_guest(guest)


def test_an_agent_is_installed_upgraded_and_removed(bare: Guest, controller: Controller):
    before = bare.ssh(LEFT).stdout
    missing = controller.cli("agent", "install", NAME)
    assert missing.returncode == 1
    assert str(controller.agent_archive) in missing.stderr
    assert "sluice-agent-archive" in missing.stderr

    agent_disk.pack(controller.agent_archive)
    for _ in ("installed", "upgraded"):
        done = controller.cli("agent", "install", NAME)
        assert done.returncode == 0, done.stderr
        assert "is installed and runs" in done.stdout
    controller.wait_for_agent(NAME)
    assert controller.call("GET", "/v1/audit?limit=1")[0]["action"] == "install agent"

    assert "is removed" in bare.ssh("sluice-agent-uninstall").stdout
    assert bare.ssh(LEFT).stdout == before


def test_a_guest_without_a_channel_is_refused(guest: Guest, controller: Controller):
    agent_disk.pack(controller.agent_archive)
    refused = controller.request("POST", f"/v1/domains/{guest.name}/agent", {})
    assert refused.status_code == 409
    assert "org.qemu.guest_agent.0" in refused.json()["detail"]
