# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest with a channel changes its host, and nobody in it has to begin anew.

Two hosts, each with libvirt and sluiced, and a guest that has booted. The agent is stopped for the
time of the migration: an event waits for it, and on the target nobody but QEMU knows of its ports.
"""

import json
import time
from collections.abc import Callable, Iterator
from xml.etree import ElementTree as ET

import libvirt
import pytest

from measure.qmp import ask
from testbed import CLIENTS, Guest, GuestSpec, Testbed, patience, saved

CLASS = "moved"
PORT = 8080
LIMIT_BPS = 2_000_000
PAGE_BYTES = 200_000
HEARD, REFUSED = "/run/heard", "/run/refused"
SERVER = f"""
use IO::Socket::INET;
my $server = IO::Socket::INET->new(Listen => 20, LocalPort => {PORT}, ReuseAddr => 1) or die;
while (my $visit = $server->accept) {{
    print $visit "x" x {PAGE_BYTES};
    close $visit;
}}
"""
VISIT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT}), 60) as visit:
    while visit.recv(65536):
        pass
"""
FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    # The hosts share the disks; libvirt cannot know it of a folder.
    | libvirt.VIR_MIGRATE_UNSAFE
)


def await_that(explain: Callable[[], object], is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + patience.seconds(60)
    while not is_so():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.2)


@pytest.fixture
def hosts() -> Iterator[tuple[Testbed, Testbed]]:
    with Testbed("from") as source, Testbed("to") as target:
        source.start_controller()
        target.start_controller()
        yield source, target


@pytest.fixture
def guest(hosts: tuple[Testbed, Testbed]) -> Guest:
    """In it the user ``player`` has the class: a server, and one who listens to events."""
    source, _ = hosts
    guest = source.add_guest(GuestSpec("mover", vcpus=1), place=59)
    call = source.controller.call
    call("POST", f"/v1/domains/{guest.name}/attach", {})
    saved.start(guest)
    source.controller.wait_for_agent(guest.name)
    call("PUT", f"/v1/classes/{CLASS}", {"title": CLASS, "priority": 5})
    call("PUT", f"/v1/domains/{guest.name}/classes/{CLASS}", {"limits": {}})
    call("POST", "/v1/rules", {"domain": guest.name, "class": CLASS, "match": {"user": "player"}})
    guest.ssh("cat >/run/serve.pl", input=SERVER)
    guest.spawn("exec runuser -u player -- perl /run/serve.pl", unit="server")
    listen = f"runuser -u player -- sluice-agent events --class {CLASS} --json"
    guest.spawn(f"until {listen} >{HEARD} 2>{REFUSED}; do sleep 0.2; done", unit="listener")
    return guest


def channel(guest: Guest) -> dict:
    (shaper,) = ask(guest, "query-shapers")
    return ask(guest, "query-shaper-channel", id=shaper["id"])


def sent_bytes(guest: Guest) -> dict[str, int]:
    (shaper,) = ask(guest, "query-shapers")
    rows = [(one["class"], row) for one in shaper["classes"] for row in one["stats"]]
    return {name: row["bytes"] for name, row in rows if row["resource"] == "net-tx"}


def visit(host: Testbed, guest: Guest) -> dict[str, int]:
    """Bytes of each class that a visit from outside has moved."""
    before = sent_bytes(guest)
    host.sandbox.run(["python3", "-c", VISIT, guest.address], netns=CLIENTS)
    return {name: count - before.get(name, 0) for name, count in sent_bytes(guest).items()}


def heard(guest: Guest) -> list[dict]:
    lines = guest.ssh(f"cat {HEARD}", check=False).stdout.splitlines()
    return [json.loads(line) for line in lines]


def limit(host: Testbed, guest: Guest, limit_bps: int) -> None:
    path = f"/v1/domains/{guest.name}/classes/{CLASS}"
    limits = {"blk-write": {"bytes_per_second": limit_bps}}
    host.controller.call("PUT", path, {"limits": limits})


def report(guest: Guest, frames: int) -> None:
    what = f"--name film --rate 25 --class {CLASS} --frames {frames}"
    guest.ssh(f"sluice-agent report {what}")


def frames(guest: Guest) -> list[int]:
    return [one["frames"] for one in channel(guest)["streams"] if one["name"] == "film"]


def agent_pid(guest: Guest) -> str:
    return guest.ssh("systemctl show -p MainPID --value sluice-agent").stdout.strip()


def migrate(guest: Guest, source: Testbed, target: Testbed, definition: str | None = None) -> None:
    parameters = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{source.folder}/migration.sock"}
    if definition:
        parameters[libvirt.VIR_MIGRATE_PARAM_DEST_XML] = definition
    guest.domain.migrate3(target.hypervisor.connection, parameters, FLAGS)


def without_channel(guest: Guest) -> str:
    """The domain, without the device."""
    flags = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
    root = ET.fromstring(guest.domain.XMLDesc(flags))
    line = root.find("{http://libvirt.org/schemas/domain/qemu/1.0}commandline")
    values = [one.get("value", "") for one in line]
    at = next(at for at, value in enumerate(values) if "sluice-channel" in value)
    for argument in list(line)[at - 1 : at + 1]:
        line.remove(argument)
    return ET.tostring(root, encoding="unicode")


def prepare(guest: Guest, source: Testbed) -> None:
    """A port in the map, a record, and a subscription that has been served."""
    limit_bps = LIMIT_BPS

    def has_heard() -> bool:
        nonlocal limit_bps
        limit_bps -= 1
        limit(source, guest, limit_bps)
        return bool(heard(guest))

    log = f"cat {REFUSED}; journalctl --no-pager --lines=5 --unit=sluice-agent"
    await_that(lambda: guest.ssh(log).stdout, has_heard)
    await_that(lambda: channel(guest), lambda: channel(guest)["port-map"])
    await_that(lambda: "no server", lambda: str(PORT) in guest.ssh("ss -Htln").stdout)
    moved: dict[str, int] = {}

    def is_classed() -> bool:
        moved.update(visit(source, guest))
        return moved[CLASS] >= PAGE_BYTES

    await_that(lambda: moved, is_classed)
    report(guest, 100)
    await_that(lambda: channel(guest), lambda: frames(guest) == [100])


def test_a_channel_goes_on_where_it_was(hosts: tuple[Testbed, Testbed], guest: Guest):
    source, target = hosts
    prepare(guest, source)
    pid = agent_pid(guest)
    guest.ssh(f"kill -STOP {pid}")
    limit(source, guest, LIMIT_BPS + 1)
    time.sleep(1)
    assert LIMIT_BPS + 1 not in {one["datum"] for one in heard(guest)}

    with pytest.raises(libvirt.libvirtError) as refused:
        migrate(guest, source, target, without_channel(guest))
    print(f"to a host without the device: {refused.value}")
    assert guest.running()

    migrate(guest, source, target)
    there = target.take(guest)
    there.wait_ready()
    state = channel(there)
    assert state["driver"] == 1 and state["port-map"], state
    assert frames(there) == [100]
    moved = visit(target, there)
    print(f"before the agent goes on: {moved}")
    assert moved[CLASS] >= PAGE_BYTES

    there.ssh(f"kill -CONT {pid}")
    await_that(
        lambda: (heard(there), channel(there)),
        lambda: LIMIT_BPS + 1 in {one["datum"] for one in heard(there)},
    )
    report(there, 200)
    await_that(lambda: channel(there), lambda: frames(there) == [200])
    assert agent_pid(there) == pid
