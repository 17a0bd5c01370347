# SPDX-License-Identifier: GPL-2.0-or-later
"""Of every disk and card: whether it is shaped, and why not."""

from dataclasses import replace

import pytest

from sluice_controller.adapters.domain_xml import attach, describe
from sluice_controller.domain.guests import Guest
from sluice_controller.domain.render import guest_json
from sluice_controller.domain.shaped import UNKNOWN, Shapes, shaped_ids

DISK = "<disk device='disk'><target dev='vda' bus='virtio'/></disk>"
CARD = (
    "<interface type='network'><mac address='52:54:00:00:00:01'/><model type='virtio'/></interface>"
)
LATER = "<disk device='disk'><target dev='vdb' bus='virtio'/><alias name='virtio-disk1'/></disk>"
BOTH = Shapes(frozenset({"ua-sluice-disk0", "ua-sluice-net1"}))


def xml(*devices: str) -> str:
    return f"<domain type='kvm'><name>web1</name><devices>{''.join(devices)}</devices></domain>"


def attached(*devices: str) -> str:
    return attach(xml(*devices), emulator="/opt/qemu", page_path="/run/web1", name="web1")[0]


def plugged(defined: str, device: str) -> str:
    return defined.replace("</devices>", f"{device}</devices>")


def guest(defined: str, live: str | None = None, name: str = "web1") -> Guest:
    running = None if live is None else describe(live)
    return Guest(name, "u-1", "running" if live else "shut off", 1, describe(defined), running)


def answer(guest, shapes=BOTH, emulator_problem=None):
    return guest_json(guest, shapes, emulator_problem)


def reasons(*given, **named):
    return [device["unshaped_because"] for device in answer(*given, **named)["devices"]]


ALL = attached(DISK, CARD)


def test_all_devices_of_a_domain_that_runs_with_its_shaper_are_shaped():
    said = answer(guest(ALL, ALL))
    assert [d["shaped"] for d in said["devices"]] == [True, True]
    assert [d["unshaped_because"] for d in said["devices"]] == [None, None]
    assert (said["shaped_count"], said["shaped_sentence"]) == (2, "2 of 2 disks and cards shaped")


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (DISK.replace("virtio", "sata"), "bus 'sata' is not shaped: use bus='virtio'"),
        (DISK.replace("virtio", "scsi"), "bus 'scsi' is not shaped: use bus='virtio'"),
        (DISK.replace("<disk", "<disk type='vhostuser'"), "type 'vhostuser' bypasses QEMU"),
        (DISK.replace("'disk'", "'cdrom'"), "a cdrom is not shaped"),
        (CARD.replace("'network'", "'hostdev'"), "type 'hostdev' bypasses QEMU"),
        (CARD.replace("'network'", "'vhostuser'"), "type 'vhostuser' bypasses QEMU"),
        (CARD.replace("'network'", "'vdpa'"), "type 'vdpa' bypasses QEMU"),
        (CARD.replace("'virtio'", "'e1000'"), "model 'e1000' is not shaped"),
    ],
)
def test_a_device_that_cannot_be_shaped_says_so_wherever_the_domain_is(device, why):
    other = attached(DISK, device)
    for one in (guest(xml(DISK, device)), guest(other), guest(other, other)):
        assert reasons(one)[1].startswith(why)


@pytest.mark.parametrize(
    ("defined", "live", "why"),
    [
        (xml(DISK), None, "the domain is not attached: sluice attach web1"),
        (xml(DISK), xml(DISK), "the domain is not attached: sluice attach web1"),
        (ALL, xml(DISK), "the domain waits for a restart: sluice attach web1 --restart"),
        (plugged(ALL, LATER), None, "was added after attach: sluice attach web1 --upgrade"),
    ],
    ids=["off", "running", "attached since", "added while off"],
)
def test_a_domain_without_a_shaper_says_what_would_give_it_one(defined, live, why):
    assert reasons(guest(defined, live), UNKNOWN)[-1] == why


def test_a_domain_that_is_off_is_judged_by_its_definition():
    assert reasons(guest(ALL), UNKNOWN) == [None, None]
    said = reasons(guest(ALL), UNKNOWN, "emulator '/usr/bin/kvm' is a QEMU without shaping")
    assert said == ["emulator '/usr/bin/kvm' is a QEMU without shaping"] * 2


def test_a_device_that_was_plugged_later_is_not_shaped():
    said = reasons(guest(plugged(ALL, LATER), plugged(ALL, LATER)))
    assert said == [None, None, "was added after attach: sluice attach web1 --upgrade --restart"]


def test_the_same_device_plugged_again_is_not_shaped_though_its_override_is_there():
    assert reasons(guest(ALL, ALL), Shapes(frozenset({"ua-sluice-net1"}))) == [
        "was plugged in while the domain ran: shut the domain down and start it",
        None,
    ]


def test_until_its_qemu_has_said_what_it_shapes_nothing_counts_as_shaped():
    assert reasons(guest(ALL, ALL), UNKNOWN) == ["QEMU has not said yet what it shapes"] * 2
    said = reasons(guest(ALL, ALL), Shapes(None, "it does not answer"))
    assert said == ["QEMU has not said yet what it shapes (it does not answer)"] * 2


def test_what_is_shaped_until_a_restart_is_shaped():
    assert reasons(guest(xml(DISK, CARD), ALL)) == [None, None]


def test_the_sentence_names_those_that_are_not_shaped_by_reason():
    sata = [DISK.replace("vda", dev).replace("virtio", "sata") for dev in ("sda", "sdb")]
    mixed = attached(DISK, *sata, CARD.replace("'virtio'", "'e1000'"))
    assert answer(guest(mixed, mixed))["shaped_sentence"] == (
        "1 of 4 disks and cards shaped; sda, sdb: bus 'sata' is not shaped: use bus='virtio'; "
        "52:54:00:00:00:01: model 'e1000' is not shaped: use model type='virtio'"
    )
    said = answer(guest(xml(DISK, CARD)))["shaped_sentence"]
    assert said == ("0 of 2 disks and cards shaped; the domain is not attached: sluice attach web1")
    assert answer(guest(xml()))["shaped_sentence"] == "no disks or cards"


def test_a_remedy_can_be_pasted_into_a_shell():
    odd = replace(guest(xml(DISK)), name="web 1;rm")
    assert reasons(odd) == ["the domain is not attached: sluice attach 'web 1;rm'"]


def test_the_ids_of_what_a_qemu_shapes_are_in_its_paths():
    paths = [
        "/machine/peripheral/ua-sluice-disk0/virtio-backend",
        "/machine/peripheral/ua-sluice-net1",
        "/machine/peripheral-anon/device[3]",
        "/machine/unattached/device[7]/virtio-backend",
        "/",
    ]
    assert shaped_ids({"devices": paths}) == {"ua-sluice-disk0", "ua-sluice-net1"}
    assert shaped_ids({}) == frozenset()
