# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands beside a fuzzed device, its shaper, and the drivers that it begins with."""

import importlib.util
import json
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice_controller.domain import scheduling
from sluice_controller.domain.counters import More, Slot
from sluice_controller.domain.group_page import check_identity, read_limit

TOP = Path(__file__).parents[3]


def load(name):
    path = TOP / "qemu-patches" / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


peer, seeds, shaper = load("fuzz_peer"), load("fuzz_device_seeds"), load("fuzz_shaper")
DROPS = {"net-tx": (1, 1, 0, 1, 0), "net-rx": (0, 0, 1, 1, 0)}


def slot(resource, requests=5, held=2, limit=10000, drops=None, marked=1, name="default"):
    values = [requests, requests, held] + [0] * 5 + [limit] + [0] * 6
    more = More(drops or DROPS[resource], marked, 0, 0, 0, 0)
    return Slot(name, 0, resource, 5, *values, histogram=(0,) * 12, more=more)


def reading(*slots):
    """What a peer asks of a reading."""
    return SimpleNamespace(slots={(s.class_name, s.resource): s for s in slots})


LIMITS = [{"resource": resource, "bytes-per-second": 10000} for resource in ("net-tx", "net-rx")]


def shown(**settings):
    """Return the answer to query-shapers, which has more than was asked for."""
    limits = [{**limit, "burst-bytes": 65536} for limit in reversed(LIMITS)]
    default = {"class": "default", "tag": 0, "priority": 5, "limits": limits, **settings}
    return json.dumps({"return": [{"id": "sluice0", "classes": [default]}]}) + "\n"


@pytest.fixture
def folder(tmp_path):
    arguments = {"id": "sluice0", "class": "default", "tag": 0, "limits": LIMITS}
    commands = [
        {"execute": "qmp_capabilities"},
        {"execute": "shaper-set-class", "arguments": arguments},
    ]
    (tmp_path / "commands.qmp").write_text("\n".join(json.dumps(line) for line in commands))
    (tmp_path / "virtio-net.monitor").write_text('{"return": {}}\n' + shown())
    return tmp_path


def test_a_run_that_did_all_is_good(folder):
    assert peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx"))) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"limit": 0}, "net-rx: limit_bytes_per_second is not 10000"),
        ({"requests": 0, "held": 0}, "all classes, net-rx: 0 passed, 0 of them held"),
        ({"held": 0}, "all classes, net-rx: 5 passed, 0 of them held"),
        ({"drops": (1, 1, 0, 1, 1)}, "net-rx: no frame was connection"),
    ],
)
def test_what_is_missing_is_named(folder, changed, complaint):
    found = peer.complaints(
        "virtio-net", folder, reading(slot("net-tx"), slot("net-rx", **changed))
    )
    assert len(found) == 1 and complaint in found[0]


def test_whichever_class_waits_is_enough(folder):
    slots = [
        slot(each, name=name, held=held)
        for each in ("net-tx", "net-rx")
        for name, held in (("default", 0), ("aqm", 1))
    ]
    assert peer.complaints("virtio-net", folder, reading(*slots)) == []


def test_frames_that_nothing_became_of_are_named(folder):
    found = peer.complaints(
        "virtio-net",
        folder,
        reading(slot("net-tx", drops=(0, 0, 0, 0, 9), marked=0), slot("net-rx")),
    )
    assert found == ["net-tx: no frame was backlog"]


def test_a_queue_of_one_class_has_requests_of_that_class_alone(folder):
    (folder / "virtio-net-own.monitor").write_text(shown())
    slots = [
        slot(resource, name=name, requests=count, held=count)
        for resource in ("net-tx", "net-rx")
        for name, count in (("default", 0), ("own", 3))
    ]
    assert peer.complaints("virtio-net-own", folder, reading(*slots)) == []
    without = [each for each in slots if each.class_name == "default"]
    found = peer.complaints("virtio-net-own", folder, reading(*without))
    assert [each.split(":")[0] for each in found] == ["class own, net-tx", "class own, net-rx"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"limits": LIMITS[:1]}, "class default: limits is not "),
        ({"limits": [LIMITS[0], {**LIMITS[1], "bytes-per-second": 1}]}, "class default: limits"),
        ({"tag": 3}, "class default: tag is not 0"),
    ],
)
def test_a_setting_that_is_not_shown_is_named(folder, settings, complaint):
    (folder / "virtio-net.monitor").write_text(shown() + shown(**settings) + '{"cut')
    found = peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx")))
    assert len(found) == 1 and found[0].startswith(complaint)


def test_a_shaper_that_was_never_shown_lacks_everything(folder):
    (folder / "virtio-net.monitor").write_text('{"return": {}}\n')
    found = peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx")))
    assert [complaint.split(" is not ")[0] for complaint in found] == [
        f"class default: {setting}" for setting in ("class", "tag", "limits")
    ]


def test_a_refused_command_and_a_page_that_never_was_are_named(folder):
    assert "was never there" in peer.complaints("virtio-net", folder, None)[0]
    (folder / "virtio-net.monitor").write_text('{"error": {"desc": "no"}}\n' + shown())
    found = peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx")))
    assert found == ['the monitor refused: {"error": {"desc": "no"}}']


def test_what_was_done_is_told_of_all_classes():
    told = peer.summary(
        "virtio-net", reading(slot("net-tx"), slot("net-tx", name="aqm"), slot("net-rx"))
    )
    assert told.startswith("net-tx 10 (4 held; 2 backlog, 2 codel, 2 window, 2 marked), net-rx 5")
    assert peer.summary("virtio-blk-iothread", reading()) == "settings are there"


def test_frames_are_what_they_say():
    frame = peer.ip_frame(46, 1514, peer.ECN_CAPABLE)
    assert len(frame) == 1514 and frame[15] >> 2 == 46 and frame[15] & 3 == 2
    assert struct.unpack(">H", frame[16:18]) == (1500,)
    opening = peer.ip_frame(0, 60, protocol=peer.TCP, flags=peer.SYN)
    assert opening[23] == 6 and opening[34 + 13] == 2
    assert all(peer.frames(TOP / "qemu-patches" / "tests" / "fuzz-frame-seeds"))


def test_every_class_has_a_tag_a_dscp_and_a_driver():
    classes = shaper.classes()
    assert list(classes) == list(shaper.TAGS)
    assert set(shaper.TAGS.values()) == set(seeds.TAGS) == set(range(len(classes)))
    tags = {dscp >> 2 for dscp in peer.DSCPS if dscp & 3 == 3}
    assert tags == set(shaper.TAGS.values()) - {0}
    assert {dscp for list_ in shaper.DSCPS.values() for dscp in list_} <= set(peer.DSCPS)
    assert set(peer.OWN.values()) <= set(classes)


def test_every_kind_of_setting_is_there():
    classes = shaper.classes().values()
    settings = [each for one in classes for each in one.get("scheduling", [])]
    queues = [each for one in classes for each in one.get("queues", [])]
    members = {name for each in settings + queues for name in each}
    assert members >= {"window", "reservation-bytes-per-second", "peak-bytes-per-second"}
    assert members >= {"minimum-charge-bytes", "connections-per-second", "ecn", "limit-bytes"}
    kinds = {(name, each[name]) for each in settings + queues for name in each if name != "window"}
    assert kinds >= {("policy", kind) for kind in scheduling.POLICIES[1:]}
    assert kinds >= {("dynamic", kind) for kind in scheduling.DYNAMICS[1:]}
    assert kinds >= {("charge", "device"), ("aqm", "codel")}
    (window,) = {
        json.dumps(each["window"])
        for each in settings
        if "window" in each and each["resource"] == "net-tx"
    }
    assert json.loads(window)["may-miss"] > 0


def test_groups_are_pages_that_begin_with_the_clock(tmp_path):
    prefix = str(tmp_path / "virtio-net")
    for _twice in range(2):
        shaper.make_groups(prefix)
    for name, limit in shaper.GROUPS.items():
        path = Path(f"{prefix}-{name}.group")
        page = path.read_bytes()
        assert check_identity(page) == name and read_limit(page, 0) == limit
        assert not path.stat().st_mode & 0o002
    joined = [each["arguments"] for each in shaper.commands() if "group" in each["execute"]]
    assert {each["group"] for each in joined} == set(shaper.GROUPS)
    assert len({each["resource"] for each in joined}) == 4


def test_requests_have_the_tags_of_their_classes():
    """As docs/specs/tags.md has them, and as the kernel writes them."""
    assert [seeds.ioprio(tag) for tag in (0, 1, 7, 8, 13)] == [0, 0x2001, 0x2007, 0x2008, 0x200D]
    frame = seeds.frame(13, 5, seeds.ECN_CAPABLE)
    assert frame[seeds.HEADER_BYTES + 15] == 55 << 2 | 2
    assert re.match(rb"\x00{10}\xff{6}.{6}\x08\x00\x45", frame, re.DOTALL)
    assert len(frame) <= seeds.FRAME_AT


@pytest.mark.parametrize("name", seeds.INPUTS)
def test_drivers_have_whole_operations(name, tmp_path):
    seeds.main(name, tmp_path / "made")
    lengths = {seeds.OUT: {9}, seeds.CLEAR: {1}, seeds.CLOCK: {1}}
    longest = seeds.MANY * seeds.FRAME_AT + 4
    for path in (tmp_path / "made").iterdir():
        operations = path.read_bytes().split(seeds.SEPARATOR)
        for operation in operations:
            assert len(operation) in lengths.get(operation[0], range(4, longest))
        assert operations[-1][0] == (seeds.CLEAR if path.name == "waiting" else seeds.CLOCK)
