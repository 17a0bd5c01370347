# SPDX-License-Identifier: GPL-2.0-or-later
"""attach.yml on a real libvirt: a domain that is defined and not running."""

import json

import libvirt
import pytest

import ansible_collection
from ansible_collection import recap
from testbed import Controller, Guest, GuestSpec, Testbed

RUN_SECONDS = 300
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
DOMAIN = {
    "name": "ansible-media",
    "devices": ["vda"],
    "ceiling": {"net-tx": "400Mbit/s"},
    "classes": [
        {"name": "film", "priority": 1, "stream": {"name": "film", "rate": "7Mbit/s"}},
        {
            "name": "batch",
            "priority": 7,
            "weight": 300,
            "limits": {"blk-read": "20MB/s"},
            "scheduling": {"blk-read": {"reserve": "2MB/s", "charge": "device"}},
            "queues": {"net-rx": {"aqm": "codel", "ecn": True, "connections": 200}},
        },
        {"name": "default", "limits": {"net-rx": {"rate": "80Mbit/s", "burst": "64KiB"}}},
    ],
    "rules": [{"class": "batch", "match": {"exe": "/usr/bin/rsync", "user": 1000}}],
}


def stored_xml(guest: Guest) -> str:
    """The persistent definition, whole."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return guest.domain.XMLDesc(flags)


@pytest.fixture
def guest(testbed: Testbed, controller: Controller):
    """A domain that is defined; it and its classes are gone at the end."""
    guest = testbed.add_guest(GuestSpec(DOMAIN["name"]))
    yield guest
    if controller.call("GET", f"/v1/domains/{guest.name}")["attached"]:
        controller.call("POST", f"/v1/domains/{guest.name}/detach", {})
    for rule in controller.call("GET", "/v1/rules"):
        if rule["domain"] == guest.name:
            controller.call("DELETE", f"/v1/rules/{rule['id']}")
    for stream in controller.call("GET", "/v1/streams"):
        if stream["domain"] == guest.name:
            controller.call("DELETE", f"/v1/streams/{stream['name']}")
    for name in ("film", "batch"):
        controller.request("DELETE", f"/v1/domains/{guest.name}/classes/{name}")
        controller.request("DELETE", f"/v1/classes/{name}")
    testbed.remove_guest(guest)


@pytest.fixture
def attach(testbed: Testbed, controller: Controller, tmp_path):
    """Runs attach.yml inside the testbed, with one entry of sluice_domains."""
    ansible_collection.link()

    def run(*options: str, **domain):
        host = {**LOCAL, "sluice_domains": [domain]}
        inventory = tmp_path / "inventory.yml"
        inventory.write_text(json.dumps({"sluice_hosts": {"hosts": {"here": host}}}))
        command = [str(ansible_collection.paths.VENV_BIN / "ansible-playbook"), "-i"]
        done = testbed.sandbox.run(
            [*command, str(inventory), "sluice.appliance.attach", *options],
            timeout_seconds=RUN_SECONDS,
            env=ansible_collection.environment(
                SLUICE_SOCKET=str(controller.socket), SLUICE_TOKEN_FILE=str(controller.token_file)
            ),
        )
        return recap(done.stdout)["here"]["changed"], done.stdout

    return run


def test_a_domain_is_shaped_from_data_and_given_back(attach, guest, controller):
    before = stored_xml(guest)
    foreseen, output = attach("--check", "--diff", **DOMAIN)
    assert foreseen > 0 and stored_xml(guest) == before
    assert '"attached": true' in output

    assert attach(**DOMAIN)[0] > 0
    domain = controller.call("GET", f"/v1/domains/{guest.name}")
    assert domain["attached"] and domain["ceiling"]["net-tx"]["bytes_per_second"] == 50_000_000
    granted = {g["class"]: g for g in domain["classes"]}
    batch = granted["batch"]
    assert batch["limits"]["blk-read"]["bytes_per_second"] == 20_000_000
    assert (batch["weight"], batch["scheduling"]["blk-read"]["charge"]) == (300, "device")
    assert batch["queues"]["net-rx"]["connections_per_second"] == 200
    assert granted["default"]["limits"]["net-rx"]["burst_bytes"] == 65536
    assert [s["name"] for s in controller.call("GET", "/v1/streams")] == ["film"]

    changed, output = attach(**DOMAIN)
    assert changed == 0, output

    fewer = {**DOMAIN, "classes": DOMAIN["classes"][1:], "exclusive": True}
    assert attach(**fewer)[0] == 1
    assert controller.call("GET", "/v1/streams") == []
    assert attach(**fewer)[0] == 0

    assert attach(name=guest.name, state="detached")[0] == 1
    assert stored_xml(guest) == before
    assert attach(name=guest.name, state="detached")[0] == 0
