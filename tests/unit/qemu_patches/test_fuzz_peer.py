# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands beside a fuzzed device, and the drivers that it begins with."""

import importlib.util
import json
import struct
from pathlib import Path

import pytest

from sluice_controller.domain.counters import Header, Reading, Slot

TOP = Path(__file__).parents[3]


def load(name):
    path = TOP / "qemu-patches" / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


peer, seeds = load("fuzz_peer"), load("fuzz_device_seeds")


def slot(resource, requests=5, held=2, limit=10000):
    values = [requests, requests, held] + [0] * 5 + [limit] + [0] * 6
    return Slot("default", 0, resource, 5, *values, histogram=(0,) * 12)


def reading(*slots):
    return Reading(0, Header(0, 0, 0, 0, "sluice0"), {("default", s.resource): s for s in slots})


@pytest.fixture
def folder(tmp_path):
    limits = [
        {"resource": resource, "bytes-per-second": 10000} for resource in ("net-tx", "net-rx")
    ]
    arguments = {"class": "default", "limits": limits}
    commands = [
        {"execute": "qmp_capabilities"},
        {"execute": "shaper-set-class", "arguments": arguments},
    ]
    (tmp_path / "commands.qmp").write_text("\n".join(json.dumps(line) for line in commands))
    (tmp_path / "virtio-net.monitor").write_text('{"return": {}}\n')
    return tmp_path


def test_a_run_that_did_all_is_good(folder):
    assert peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx"))) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"limit": 0}, "net-rx: limit_bytes_per_second is not 10000"),
        ({"requests": 0, "held": 0}, "net-rx: 0 passed, 0 of them held"),
        ({"held": 0}, "net-rx: 5 passed, 0 of them held"),
    ],
)
def test_what_is_missing_is_named(folder, changed, complaint):
    found = peer.complaints(
        "virtio-net", folder, reading(slot("net-tx"), slot("net-rx", **changed))
    )
    assert len(found) == 1 and complaint in found[0]


def test_a_refused_command_and_a_page_that_never_was_are_named(folder):
    assert "was never there" in peer.complaints("virtio-net", folder, None)[0]
    (folder / "virtio-net.monitor").write_text('{"error": {"desc": "no"}}\n')
    found = peer.complaints("virtio-net", folder, reading(slot("net-tx"), slot("net-rx")))
    assert found == ['the monitor refused: {"error": {"desc": "no"}}']


def test_frames_are_what_they_say():
    frame = peer.udp_frame(46, 1514)
    assert len(frame) == 1514 and frame[15] >> 2 == 46
    assert struct.unpack(">H", frame[16:18]) == (1500,)
    assert all(peer.frames(TOP / "qemu-patches" / "tests" / "fuzz-frame-seeds"))


@pytest.mark.parametrize("name", seeds.INPUTS)
def test_drivers_have_whole_operations(name, tmp_path):
    seeds.main(name, tmp_path / "made")
    lengths = {seeds.OUT: {9}, seeds.CLEAR: {1}, seeds.CLOCK: {1}}
    for path in (tmp_path / "made").iterdir():
        operations = path.read_bytes().split(seeds.SEPARATOR)
        for operation in operations:
            assert len(operation) in lengths.get(operation[0], range(4, 100))
        assert operations[-1][0] == seeds.CLOCK
