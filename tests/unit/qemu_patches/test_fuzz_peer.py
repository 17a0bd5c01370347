# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands beside a fuzzed device, its shaper, and the drivers that it begins with."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice_controller.domain.counters import More, Slot

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


def test_a_refused_command_and_a_page_that_never_was_are_named(folder):
    assert "was never there" in peer.complaints("virtio-net", folder, None)[0]
    (folder / "virtio-net.monitor").write_text('{"error": {"desc": "no"}}\n' + shown())
    found = peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx")))
    assert found == ['the monitor refused: {"error": {"desc": "no"}}']
