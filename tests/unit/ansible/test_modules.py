# SPDX-License-Identifier: GPL-2.0-or-later
"""What the modules decide, apart from what they do."""

import errno
import os
import socket

import pytest
from ansible_collections.sluice.appliance.plugins.filter.domain_problems import unknown_variables
from ansible_collections.sluice.appliance.plugins.modules import (
    certificate,
    preflight,
    running_emulators,
    sluice_domain,
    sluice_only,
)

DOMAIN = {
    "name": "media",
    "attached": False,
    "needs_restart": False,
    "devices": [
        {"target": "vda", "shapeable": True, "reason": None},
        {"target": "sda", "shapeable": False, "reason": "bus 'sata' is not shaped"},
    ],
}


def wanted(state="attached", restart=False, upgrade=False):
    return {"state": state, "restart": restart, "upgrade": upgrade}


NOW, LATER = {"restart": True}, {"restart": False}


@pytest.mark.parametrize(
    ("params", "change", "older", "call"),
    [
        (wanted(), {}, False, ("attach", LATER)),
        (wanted(restart=True), {}, False, ("attach", NOW)),
        (wanted(upgrade=True), {}, False, ("attach", LATER)),
        (wanted(), {"attached": True}, False, None),
        (wanted(), {"attached": True, "needs_restart": True}, False, None),
        # It only waits for its restart: the definition stays as it is, whatever comes of it.
        (wanted(restart=True), {"attached": True, "needs_restart": True}, False, ("attach", NOW)),
        # A newer package alone touches nobody, even where a restart is allowed.
        (wanted(restart=True), {"attached": True}, True, None),
        (wanted(upgrade=True), {"attached": True}, True, ("attach", {**LATER, "upgrade": True})),
        (
            wanted(restart=True, upgrade=True),
            {"attached": True},
            True,
            ("attach", {**NOW, "upgrade": True}),
        ),
        (wanted(upgrade=True), {"attached": True}, False, None),
        (wanted("detached"), {"attached": True}, False, ("detach", LATER)),
        (wanted("detached", restart=True), {"attached": True}, True, ("detach", NOW)),
        (wanted("detached"), {}, False, None),
        # Detached while it ran: its shaper goes with the next start.
        (wanted("detached"), {"needs_restart": True}, False, None),
        (wanted("detached", restart=True), {"needs_restart": True}, False, ("detach", NOW)),
        (wanted("detached", restart=True), {}, False, None),
        (wanted("seen", restart=True, upgrade=True), {}, True, None),
    ],
)
def test_the_plan_for_a_domain(params, change, older, call):
    assert sluice_domain.plan(params, {**DOMAIN, **change}, older) == call


def test_a_device_that_cannot_be_shaped_is_named():
    assert sluice_domain.device_problem(DOMAIN, ["vda"]) is None
    assert "device 'sda' of domain 'media' cannot be shaped (bus 'sata'" in str(
        sluice_domain.device_problem(DOMAIN, ["vda", "sda"])
    )
    assert "device 'vdb' of domain 'media' does not exist: it has sda, vda" in str(
        sluice_domain.device_problem(DOMAIN, ["vdb"])
    )


def test_only_what_is_not_named_is_surplus():
    rules = [
        {"id": 1, "domain": "media", "class": "batch", "match": {"user": "1000"}},
        {"id": 2, "domain": "media", "class": "batch", "match": {"exe": "/x"}},
        {"id": 3, "domain": None, "class": "old", "match": {"exe": "/x"}},
    ]
    streams = [
        {"name": "film", "domain": "media", "class": "old"},
        {"name": "other", "domain": "web", "class": "old"},
    ]
    grants = [{"class": name} for name in ("default", "batch", "old")]
    params = {
        "domain": "media",
        "classes": ["batch"],
        "rules": [{"class": "batch", "match": {"user": 1000, "exe": None}}],
    }
    found = sluice_only.surplus(params, grants, rules, streams)
    assert [path for _description, path in found] == [
        ("rules", 2),
        ("streams", "film"),
        ("domains", "media", "classes", "old"),
    ]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["qemu", "-name", "guest=web1,debug-threads=on"], "web1"),
        (["qemu", "-name", "guest=a,,b"], "a,b"),
        (["qemu", "-name", "plain"], "plain"),
        (["qemu", "-m", "1"], None),
    ],
)
def test_a_guests_name_is_read_from_its_command_line(line, name):
    assert running_emulators.domain_of(line) == name


def test_running_guests_are_found_by_their_binary(tmp_path):
    for pid, binary in (("7", "/usr/lib/sluice/qemu-1/bin/q (deleted)"), ("8", "/usr/bin/q")):
        (tmp_path / pid).mkdir()
        os.symlink(binary, tmp_path / pid / "exe")
        (tmp_path / pid / "cmdline").write_bytes(f"q\0-name\0guest=g{pid}\0".encode())
        (tmp_path / pid / "cgroup").write_text("0::/machine.slice/a.scope/libvirt/emulator\n")
    (tmp_path / "9").mkdir()
    assert running_emulators.running("/usr/lib/sluice", str(tmp_path)) == [
        ("g7", "/usr/lib/sluice/qemu-1/bin/q")
    ]


def test_guests_of_the_nightly_run_are_not_the_operators(tmp_path):
    for pid, group in (("7", "sluice-nightly.service"), ("8", "libvirtd.service")):
        (tmp_path / pid).mkdir()
        os.symlink("/usr/lib/sluice/qemu-1/bin/q", tmp_path / pid / "exe")
        (tmp_path / pid / "cmdline").write_bytes(f"q\0-name\0guest=g{pid}\0".encode())
        (tmp_path / pid / "cgroup").write_text(f"0::/system.slice/{group}\n")
    assert running_emulators.running("/usr/lib/sluice", str(tmp_path)) == [
        ("g8", "/usr/lib/sluice/qemu-1/bin/q")
    ]


def test_names_of_a_certificate():
    assert certificate.alternative_names(["kvm1", "192.0.2.1", "::1", "kvm1"]) == [
        "DNS:kvm1",
        "IP:192.0.2.1",
        "IP:::1",
    ]
    text = "    DNS:kvm1, IP Address:192.0.2.1, IP Address:0:0:0:0:0:0:0:1\n"
    assert certificate.names_in(text) == ["DNS:kvm1", "IP:192.0.2.1", "IP:::1"]


def test_an_address_is_tried(tmp_path):
    assert preflight.port_error("127.0.0.1:0") == "it is not HOST:PORT, for example 0.0.0.0:8480"
    assert preflight.port_error("8480") == "it is not HOST:PORT, for example 0.0.0.0:8480"
    error = preflight.port_error("192.0.2.77:8480")
    assert isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL
    with socket.create_server(("127.0.0.1", 0)) as there:
        error = preflight.port_error(f"127.0.0.1:{there.getsockname()[1]}")
        assert isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def test_a_kernel_without_ipv6_is_said_of_the_address(monkeypatch):
    # A family that no kernel has.
    monkeypatch.setattr(socket, "AF_INET6", 200)
    error = preflight.port_error("[::]:8480")
    assert isinstance(error, OSError) and error.errno == errno.EAFNOSUPPORT


def test_other_things_in_a_folder_are_seen(tmp_path):
    for name in ("sluice.db", "lost+found", "web1.img"):
        (tmp_path / name).touch()
    assert preflight.others_things(str(tmp_path), ["sluice.db"]) == ["web1.img"]
    assert preflight.others_things(str(tmp_path / "away"), []) == []
    # A file where the folder is to be.
    assert preflight.others_things(str(tmp_path / "web1.img"), []) == [str(tmp_path / "web1.img")]


def test_a_file_system_is_found_for_a_folder_that_is_not_there_yet(tmp_path):
    place = preflight.filesystem(str(tmp_path / "a" / "b"))
    assert place["free_bytes"] > 0
    assert os.path.ismount(place["mount"])


def test_a_misspelt_variable_is_named_with_its_neighbour():
    known = ["sluice_domains", "sluice_uplink"]
    assert unknown_variables(["sluice_domians", "sluice_uplink", "sluice_xyzzy"], known) == [
        "variable 'sluice_domians' is not known: did you mean 'sluice_domains'?",
        "variable 'sluice_xyzzy' is not known: see docs/reference/ansible.md",
    ]
