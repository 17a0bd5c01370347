# SPDX-License-Identifier: GPL-2.0-or-later
"""What the testbed promises to the tests built on it."""

import json
import socket
import time
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest

from measure.experiments.subjects.net import TcHtb, TcTbf
from testbed import (
    FileDisk,
    GuestError,
    GuestSpec,
    Sandbox,
    Testbed,
    accelerator,
    network,
    paths,
    patience,
    rates,
)
from testbed.sandbox import CommandFailed
from testbed.services import FORWARD

LINK_BPS = 4_000_000
# The bucket lets its burst go at once; beyond it the rate holds.
DOWNLOAD_BYTES = 12_000_000

SENDER = """
import socket
with socket.create_server(("10.77.0.1", 9000)) as server:
    connection, _ = server.accept()
    connection.sendall(bytes({size}))
    connection.close()
"""
RECEIVER = """
import socket, time
started = time.monotonic()
connection = socket.create_connection(("10.77.0.1", 9000), 10)
size = 0
while piece := connection.recv(65536):
    size += len(piece)
print(size, time.monotonic() - started)
"""


def test_folders_that_the_machine_lacks_are_there_inside(tmp_path):
    """libvirt's folders need not exist; making them inside does not make them outside."""
    own = {name: tmp_path / name for name in ("logs", "one", "two")}
    for folder in own.values():
        folder.mkdir()
    targets = [Path(f"/var/lib/sluice-lacks-{name}") for name in ("one", "two")]
    sandbox = Sandbox(tmp_path, dict(zip(targets, [own["one"], own["two"]], strict=True)))
    sandbox.open()
    try:
        sandbox.run(["touch", f"{targets[0]}/file", "/var/lib/sluice-lacks-file"])
        assert sandbox.path("/var/lib/sluice-lacks-file").exists()
    finally:
        sandbox.close()
    assert (own["one"] / "file").exists()
    assert not list(Path("/var/lib").glob("sluice-lacks-*"))


@pytest.fixture(scope="module")
def booted(testbed):
    """A guest of its own, whose boot is a real one each time."""
    media = FileDisk(paths.image("media-data.img"), readonly=True)
    guest = testbed.add_guest(GuestSpec("plain", disks=(media,), agent=False))
    guest.start()
    guest.wait_ready()
    yield guest
    guest.stop()


def test_guest_boots_and_obeys(booted):
    assert booted.ssh("hostname").stdout.strip() == "plain"
    assert booted.ssh("cat", input="through ssh").stdout == "through ssh"
    with pytest.raises(CommandFailed, match="ended with 3"):
        booted.ssh("exit 3")
    with pytest.raises(CommandFailed, match="still runs after"):
        booted.ssh("sleep 60", timeout_seconds=0.2)
    booted.spawn("while :; do sleep 1; done", unit="load")
    assert booted.ssh("systemctl is-active load").stdout.strip() == "active"
    booted.kill_unit("load")
    assert booted.ssh("systemctl is-active load", check=False).stdout.strip() == "inactive"


def test_disk_reads_are_counted_by_the_hosts_kernel(booted):
    """32 MiB read in the guest past its cache are 32 MiB read by QEMU."""
    before = booted.disk_counters().read_bytes
    booted.ssh("dd if=/srv/media/f01 of=/dev/null bs=1M count=32 iflag=direct")
    read = booted.disk_counters().read_bytes - before
    # Besides the data: the program, the file's extents, and whatever a
    # guest that has just booted still loads from its root disk.
    assert 32 * 2**20 <= read <= 48 * 2**20


def test_the_agent_disk_of_a_guest_that_is_kept_is_no_other_guest_s(testbed):
    """It is replaced when the guest goes on, and another one may run by then."""
    guests = [testbed.add_guest(GuestSpec(f"kept-{place}"), place=place) for place in (97, 98)]
    try:
        first, second = (guest.placement.agent_image for guest in guests)
        assert first != second
        assert first.exists() and second.exists()
    finally:
        for guest in guests:
            testbed.remove_guest(guest)


def test_what_is_kept_of_a_guest_does_not_need_the_checkout_that_kept_it(testbed, tmp_path):
    """libvirt looks for the emulator that it was saved with before it takes another."""
    link = tmp_path / "qemu-system-x86_64"
    link.symlink_to(paths.emulator().resolve())
    guest = testbed.add_guest(GuestSpec("linked", agent=False, emulator=link))
    try:
        emulator = ElementTree.fromstring(guest.domain.XMLDesc()).findtext("devices/emulator")
        assert emulator == str(paths.emulator().resolve())
    finally:
        testbed.remove_guest(guest)


def test_a_saved_guest_goes_on_as_it_was_each_time_and_under_another_definition(booted, tmp_path):
    booted.ssh("echo here >/run/in-memory; echo here >/root/on-disk; sync")
    booted.save(tmp_path / "saved")
    assert not booted.running()
    booted.restore(tmp_path / "saved")
    booted.wait_ready()
    booted.ssh("rm /run/in-memory /root/on-disk; sync")
    booted.stop()
    name = "<name>plain</name>"
    other = booted.domain.XMLDesc().replace(name, f"{name}<title>another</title>")
    booted.restore(tmp_path / "saved", other)
    booted.wait_ready()
    assert booted.ssh("cat /run/in-memory /root/on-disk").stdout.split() == ["here"] * 2
    assert "<title>another</title>" in booted.domain.XMLDesc()
    booted.kill()
    assert not booted.running()
    booted.kill()


def test_a_guest_that_dies_says_why(testbed):
    """With this word on its command line the guest powers itself off early."""
    guest = testbed.add_guest(GuestSpec("dies", agent=False, cmdline="sluice.probe"))
    guest.start()
    with pytest.raises(GuestError, match="dies has died") as caught:
        guest.wait_ready()
    assert "sluice-init: alive" in str(caught.value)


def test_probe_sees_life_and_its_absence():
    assert accelerator.boots("tcg", patience.seconds(60))[0]
    alive, said = accelerator.boots("no-such-accelerator", 60)
    assert not alive
    assert "no-such-accelerator" in said
    # Far too little time even to start: the limit holds.
    assert not accelerator.boots("tcg", 0.05)[0]


def test_uplink_has_the_rate_that_was_asked_for():
    """Two testbeds with the same addresses at once; each has its own link."""
    with Testbed("link-a", link_bps=LINK_BPS) as slow, Testbed("link-b") as fast:
        # Headers are 66 of each 1514 bytes; the burst of 128 KiB is 1 % of all.
        rates.at_limit(lambda: download_bps(slow), LINK_BPS)
        rates.reached(lambda: download_bps(fast), 3 * LINK_BPS)
        assert slow.link_counters().sent_bytes > DOWNLOAD_BYTES


def download_bps(host: Testbed) -> float:
    sender = host.sandbox.popen(
        ["python3", "-c", SENDER.format(size=DOWNLOAD_BYTES)],
        name="sender",
        log=host.logs / "sender.log",
    )
    wait_for_listener(host)
    size, seconds = host.client_run(["python3", "-c", RECEIVER]).stdout.split()
    assert int(size) == DOWNLOAD_BYTES
    assert sender.wait(patience.seconds(10)) == 0
    return int(size) / float(seconds)


@pytest.mark.parametrize("peer", [TcTbf(outbound=True), TcHtb(outbound=True)])
def test_uplink_has_its_rate_again_after_a_peer_had_its_place(peer):
    def queues(host: Testbed) -> list[tuple[str, dict]]:
        shown = host.sandbox.run(["tc", "-j", "qdisc", "show", "dev", network.UPLINK])
        return [(one["kind"], one.get("options")) for one in json.loads(shown.stdout)]

    with Testbed("uplink", link_bps=LINK_BPS) as host:
        before = queues(host)
        peer.open(host, None)
        peer.set_rate(LINK_BPS // 2)
        assert queues(host) != before
        peer.set_rate(None)
        peer.close()
        assert queues(host) == before


def wait_for_listener(host: Testbed) -> None:
    deadline = time.monotonic() + patience.seconds(10)
    while "9000" not in host.sandbox.run(["ss", "-Hltn", "sport = :9000"]).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_forwarder_reaches_into_the_namespace(testbed, tmp_path):
    (tmp_path / "page").write_text("inside")
    server = testbed.sandbox.popen(
        [
            "python3",
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            "--directory",
            str(tmp_path),
            "9001",
        ],
        name="http",
        log=testbed.logs / "http.log",
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.setblocking(False)
        forwarder = testbed.sandbox.popen(
            ["python3", "-I", str(FORWARD), str(listener.fileno()), "127.0.0.1", "9001"],
            name="forward",
            log=testbed.logs / "forward-test.log",
            pass_fds=[listener.fileno()],
        )
    try:
        deadline = time.monotonic() + patience.seconds(10)
        while True:
            try:
                url = f"http://127.0.0.1:{port}/page"
                assert urllib.request.urlopen(url, timeout=5).read() == b"inside"
                break
            except OSError:
                # The server inside may not listen yet.
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        forwarder.stop()
        server.stop()


def test_libvirt_inside_is_not_the_machines(testbed):
    uri = testbed.hypervisor.uri
    inside = testbed.sandbox.run(["virsh", "-c", uri, "list", "--all", "--name"]).stdout.split()
    assert set(inside) == {
        domain.name() for domain in testbed.hypervisor.connection.listAllDomains()
    }
    hostname = testbed.sandbox.run(["ip", "-j", "address", "show", network.BRIDGE]).stdout
    assert network.HOST_ADDRESS in hostname
