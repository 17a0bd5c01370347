# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that wait, of a disk in an I/O thread, while QEMU's main loop stands still.

In real time: under qtest's clock no timer is ever late.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
sys.path.append(str(TOP / "qemu-patches" / "bench"))

from disk_driver import PATIENCE_S, RING_SIZE, Machine  # noqa: E402

BULK_TAG = 1
RATE, BURST = 200, 20
STILL_S = 1.5
STILL_PATIENCE_S = 30
WAITING = RING_SIZE - 100
OTHER_SLOT, THIRD_SLOT, EJECT_PORT = 6, 7, 0xAE08
# A second disk, of an I/O thread of its own, and a third, of the main loop.
# fmt: off
OTHER = (
    "-object", "iothread,id=io1",
    "-blockdev", "driver=null-co,node-name=d1,size=1048576",
    "-device", f"virtio-blk-pci,id=other,drive=d1,iothread=io1,shaper=sluice0,addr={OTHER_SLOT}",
    "-blockdev", "driver=null-co,node-name=d2,size=1073741824,read-zeroes=off",
    "-device", f"virtio-blk-pci,drive=d2,shaper=sluice0,addr={THIRD_SLOT},disable-modern=on,"
    f"queue-size={RING_SIZE}",
)
# fmt: on


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A class of 200 requests a second, beside the default class, which has no limit."""
    qemu = TOP / "build" / "qemu" / "qemu-system-x86_64"
    with Machine(qemu, tmp_path, shaper=True, more=OTHER) as started:
        limit = {"operations-per-second": RATE, "burst-operations": BURST}
        limits = [{"resource": "blk-read", **limit}]
        started.qmp(
            "shaper-set-class", id="sluice0", tag=BULK_TAG, limits=limits, **{"class": "bulk"}
        )
        yield started


def held_requests(machine: Machine, name: str) -> int:
    """How many requests of a class, by its counters, had to wait."""
    (shaper,) = machine.qmp("query-shapers")
    (shown,) = [each for each in shaper["classes"] if each["class"] == name]
    (counters,) = [each for each in shown["stats"] if each["resource"] == "blk-read"]
    return counters["held-requests"] + counters["backlog-requests"]


def check_rate_while_the_main_loop_stands_still(machine: Machine):
    with machine.still_main_loop():
        begun_s, before = time.monotonic(), machine.done()
        time.sleep(STILL_S)
        passed, took_s = machine.done() - before, time.monotonic() - begun_s
    print(f"{passed} of {took_s * RATE:.0f} requests passed")
    # A busy machine is late, and tokens beyond the burst are lost; half of them are not.
    assert STILL_S * RATE / 2 < passed <= took_s * RATE + BURST + 1


def test_a_limited_class_gets_its_rate_while_the_main_loop_stands_still(machine: Machine):
    for number in range(WAITING):
        machine.add(number, tag=BULK_TAG)
    machine.kick()
    check_rate_while_the_main_loop_stands_still(machine)


def test_a_disk_that_goes_leaves_the_timer_of_another_in_its_thread(machine: Machine):
    for number in range(WAITING):
        machine.add(number, tag=BULK_TAG)
    machine.kick()
    machine.qmp("device_del", id="other")
    machine.register(f"outl {EJECT_PORT:#x} {1 << OTHER_SLOT:#x}")
    end_s = time.monotonic() + PATIENCE_S
    while "other" in (each["name"] for each in machine.qmp("qom-list", path="/machine/peripheral")):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    check_rate_while_the_main_loop_stands_still(machine)


def test_a_request_behind_those_of_a_disk_of_the_main_loop_is_released_by_its_own_thread(
    machine: Machine,
):
    third = machine.at(THIRD_SLOT)
    for number in range(2 * RATE):
        third.add(number, tag=BULK_TAG)
    third.kick()
    # The first to be released is still the third disk's, at the same time.
    machine.add(0, tag=BULK_TAG)
    machine.kick()
    with machine.still_main_loop():
        end_s = time.monotonic() + STILL_PATIENCE_S
        while not machine.done() and time.monotonic() < end_s:
            time.sleep(0.02)
        assert machine.done() == 1


def test_none_of_an_unlimited_class_is_held_under_an_ample_ceiling(machine: Machine):
    ample = {"resource": "blk-read", "bytes-per-second": 10**10, "burst-bytes": 10**9}
    machine.qmp("shaper-set-ceiling", id="sluice0", limits=[ample])
    # The I/O thread looks at the ring by itself.
    machine.qmp("qom-set", path="/objects/io0", property="poll-max-ns", value=4 * 10**9)
    machine.qmp("qom-set", path="/objects/io0", property="poll-grow", value=100_000)
    for number in range(500):
        machine.add(number, tag=BULK_TAG)
    machine.kick()
    with machine.still_main_loop():
        for number in range(500, 600):
            machine.add(number)
            machine.show()
            time.sleep(0.003)
    machine.kick()
    machine.wait()
    assert held_requests(machine, "default") == 0
    assert held_requests(machine, "bulk") >= 500 - BURST - 1
