# SPDX-License-Identifier: GPL-2.0-or-later
"""Two VMs on one disk have one gate: a stream of one, and readers of the other.

The disk is a modelled spindle that serves both VMs, so neither's QEMU sees the whole of its load.
sluiced cannot see a device behind an NBD socket; disks of this kind count as one device.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from measure.qmp import ask
from testbed import Controller, Guest, GuestSpec, Testbed, paths, patience, saved
from testbed.rotdisk import RotatingDisk

STREAM, OTHER = "film", "neighbour"
FILM_BPS = 500_000
# Of the readers.
REQUEST_BYTES = 128 << 10
# 64 KiB each eighth of a second, past the guest's cache.
FILM = """
while :; do
    for block in $(seq 0 63); do
        dd if=/dev/vdb of=/dev/null bs=64k count=1 skip=$((block * 97)) iflag=direct
        sleep 0.12
    done
done 2>/dev/null
"""
READ = """
for reader in $(seq 16); do
    (while :; do
        dd if=/dev/vdb of=/dev/null bs=128k count=400 skip=$((reader * 1000)) iflag=direct
    done) &
done 2>/dev/null
wait
"""


def until(
    question: Callable[[], Any], seconds: float = 30, explain: Callable = lambda: None
) -> Any:
    deadline = time.monotonic() + patience.seconds(seconds)
    while not (answer := question()):
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)
    return answer


@pytest.fixture(scope="module")
def host() -> Iterator[Testbed]:
    with Testbed("share") as testbed:
        testbed.start_controller()
        yield testbed


@pytest.fixture(scope="module")
def guests(host: Testbed) -> tuple[Guest, Guest]:
    """Both are up, each with its agent: the stream's and the readers'."""
    image = paths.image("media-data.img")
    disk = RotatingDisk(host, {STREAM: image, OTHER: image})
    disk.start()
    made = []
    for place, name in ((55, STREAM), (56, OTHER)):
        spec = GuestSpec(name, vcpus=1, disks=(disk.volume(name),))
        guest = host.add_guest(spec, place=place)
        host.controller.call("POST", f"/v1/domains/{name}/attach", {})
        saved.start(guest)
        host.controller.wait_for_agent(name)
        made.append(guest)
    return made[0], made[1]


@pytest.fixture(scope="module")
def gated(host: Testbed, guests: tuple[Guest, Guest]) -> Controller:
    """The film plays, the neighbour reads, and auto-shaping is on."""
    call = host.controller.call
    film, other = guests
    call("PUT", f"/v1/classes/{STREAM}", {"is_stream": True, "priority": 0})
    call("PUT", f"/v1/domains/{STREAM}/classes/{STREAM}", {"limits": {}})
    match = {"unit": "film.service"}
    call("POST", "/v1/rules", {"domain": STREAM, "class": STREAM, "match": match})
    body = {"domain": STREAM, "class": STREAM, "nominal_bytes_per_second": FILM_BPS}
    call("PUT", f"/v1/streams/{STREAM}", body)
    film.spawn(FILM, unit="film")
    other.spawn(READ, unit="readers")
    call("PUT", "/v1/auto", {"enabled": True})
    return host.controller


def device_of(controller: Controller) -> dict[str, Any] | None:
    """Return the device of both; None while a VM is not there."""
    for device in controller.call("GET", "/v1/auto")["devices"]:
        if {STREAM, OTHER} <= set(device["domains"]):
            return device
    return None


def pages_of(guest: Guest) -> list[dict[str, Any]]:
    return ask(guest, "query-shaper-gates")


def page_of(guest: Guest) -> dict[str, Any] | None:
    """Return the guest's gate page; None while its QEMU has none with members of two VMs."""
    for page in pages_of(guest):
        if len({member["pid"] for member in page["members"]}) == 2:
            return page
    return None


def gate_of(guest: Guest) -> dict[str, Any] | None:
    (shaper,) = ask(guest, "query-shapers")
    return shaper.get("gate")


def reads_of(controller: Controller, domain: str, name: str) -> float:
    live = controller.call("GET", f"/v1/live?domain={domain}")["domains"][domain]
    return live["classes"].get(name, {}).get("blk-read", {}).get("bytes_per_second", 0.0)


def test_both_are_members_of_one_page(gated: Controller, guests: tuple[Guest, Guest]):
    film, other = guests
    until(lambda: page_of(film), explain=lambda: (pages_of(film), gated.call("GET", "/v1/auto")))
    until(lambda: page_of(other), explain=lambda: pages_of(other))
    paths_there = {page["path"] for guest in guests for page in pages_of(guest) if page_of(guest)}
    assert len(paths_there) == 1
    labels = {member["label"].split()[0] for member in page_of(film)["members"]}
    assert labels == {STREAM, OTHER}


def test_the_stream_of_one_holds_the_readers_of_the_other(
    gated: Controller, guests: tuple[Guest, Guest]
):
    """The neighbour alone waits, and not for ever; the stream waits less than it bears."""
    _film, other = guests
    until(lambda: device_of(gated))

    def held() -> bool:
        """A reader waits, with no more in flight than the window and a request: some time after
        a cut of the window, as nothing is called back."""
        page = page_of(other)
        if not page or not any(member["waiting"] for member in page["members"]):
            return False
        return page["in-flight-bytes"] <= page["window-bytes"] + REQUEST_BYTES

    until(held, explain=lambda: (pages_of(other), device_of(gated)))
    names = until(lambda: device_of(gated)["held"], explain=lambda: device_of(gated))
    assert {one["domain"] for one in names} == {OTHER}

    def at_ease() -> bool:
        (stream,) = device_of(gated)["streams"]
        return 0 < stream["waits_ms"] < stream["bears_ms"]

    until(at_ease, explain=lambda: device_of(gated))
    until(lambda: reads_of(gated, OTHER, "default") > 0)
    until(lambda: reads_of(gated, STREAM, STREAM) > 0.3 * FILM_BPS)


def test_a_vm_that_is_killed_leaves_its_bytes_to_the_other(
    gated: Controller, guests: tuple[Guest, Guest]
):
    film, other = guests
    until(lambda: page_of(film))
    other.domain.destroy()

    def alone() -> bool:
        return len({member["pid"] for page in pages_of(film) for member in page["members"]}) == 1

    until(alone, explain=lambda: pages_of(film))
    until(lambda: reads_of(gated, STREAM, STREAM) > 0.3 * FILM_BPS)


def test_switching_off_opens_the_gate(gated: Controller, guests: tuple[Guest, Guest]):
    film, _other = guests
    gated.call("PUT", "/v1/auto", {"enabled": False})
    until(lambda: gate_of(film) is None)
    assert not device_of(gated)
