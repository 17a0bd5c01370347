# SPDX-License-Identifier: GPL-2.0-or-later
"""Shares of the processors on a real libvirt: taken for a stream, and given back.

The guests are of one boot sector and always busy. Both are pinned to one processor: so
the stream's vCPU waits on any machine.
"""

import os
import time

import libvirt
import pytest

from integration.controller import button_guest
from testbed import Testbed, paths, patience

SECONDS = 60
LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
# jmp to itself.
BUSY = b"\xeb\xfe".ljust(button_guest.SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"

# Starts libvirtd at the root of a tree of control groups of its own, of either version.
IN_GROUPS = """
set -e
at=/sys/fs/cgroup name=$1
shift
mkdir -p $at
if grep -qw cpu /proc/self/cgroup; then
    mount -t tmpfs none $at
    mkdir -p $at/cpu
    at=$at/cpu kind="-t cgroup -o cpu"
else
    kind="-t cgroup2"
fi
mount $kind none $at
grep -qw cpu $at/cgroup.controllers 2>/dev/null && echo +cpu >$at/cgroup.subtree_control
mkdir -p $at/$name
echo $$ >$at/$name/cgroup.procs
export at kind
exec unshare --cgroup --mount sh -ec '
    umount $at
    mount $kind none $at
    mkdir -p $at/main
    echo $$ >$at/main/cgroup.procs
    exec "$@"
' sh "$@"
"""
REMOVE = 'find /sys/fs/cgroup /sys/fs/cgroup/cpu -depth -path "*/$1*" -type d -exec rmdir {} +'


def until(question, seconds=SECONDS):
    deadline = time.monotonic() + patience.seconds(seconds)
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return answer


def processor_map(number: int) -> tuple[bool, ...]:
    """This processor alone, as libvirt wants it."""
    return tuple(i == number for i in range(os.cpu_count() or 1))


class Host:
    """Two attached guests that run: `film` with a stream, and `other`."""

    def __init__(self, testbed: Testbed):
        self.testbed = testbed
        self.controller = testbed.start_controller()
        for name in ("film", "other"):
            disk = testbed.folder / "disks" / f"{name}.img"
            disk.write_bytes(BUSY.ljust(button_guest.DISK_BYTES, b"\0"))
            kind = "kvm" if testbed.accelerator.name == "kvm" else "qemu"
            console = testbed.logs / f"console-{name}.log"
            xml = button_guest.domain_xml(name, kind, paths.emulator(), disk, console)
            testbed.hypervisor.connection.defineXML(xml)
            until(lambda: self.attach(name))  # noqa: B023
            self.domain(name).create()
            self.domain(name).pinVcpu(0, processor_map(min(os.sched_getaffinity(0))))
        self.call("PUT", "/v1/classes/movie", {"is_stream": True})
        self.call("PUT", "/v1/domains/film/classes/movie", {})
        stream = {"domain": "film", "class": "movie", "nominal_bytes_per_second": 875_000}
        self.call("PUT", "/v1/streams/film", stream)

    def attach(self, name: str) -> bool:
        answer = self.controller.request("POST", f"/v1/domains/{name}/attach", {})
        return answer.status_code == 200

    def call(self, *arguments):
        return self.controller.call(*arguments)

    def domain(self, name: str) -> libvirt.virDomain:
        return self.testbed.hypervisor.connection.lookupByName(name)

    def shares(self) -> dict[str, int]:
        return self.domain("other").schedulerParametersFlags(LIVE)

    def said(self) -> list[str]:
        return [one["sentence"] for one in self.call("GET", "/v1/auto/log")]

    def is_starved(self) -> bool:
        (stream,) = self.call("GET", "/v1/streams")
        return (stream["processor_pressure"] or 0) > 1


@pytest.fixture
def testbed():
    with Testbed("processors") as testbed:
        yield testbed


@pytest.fixture
def with_groups(testbed):
    """A libvirt with control groups of processors."""
    hypervisor, name = testbed.hypervisor, f"sluice-test-{testbed.folder.name}"
    conf = testbed.folder / "libvirt" / "etc" / "qemu.conf"
    before = conf.read_text()
    conf.write_text(before.replace("cgroup_controllers = []", 'cgroup_controllers = ["cpu"]'))
    assert conf.read_text() != before
    hypervisor.stop()
    hypervisor.commands["libvirtd"] = ["sh", "-c", IN_GROUPS, "sh", name, "libvirtd"]
    hypervisor.start()
    yield testbed
    for domain in hypervisor.connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        domain.destroy()
    hypervisor.stop()
    testbed.sandbox.run(["sh", "-c", REMOVE, "sh", name], check=False)


def test_a_vm_gives_way_and_has_its_own_share_after_a_kill_after_off_and_at_the_end(with_groups):
    host = Host(with_groups)
    own = host.shares()
    until(host.is_starved)
    assert host.shares() == own

    host.call("PUT", "/v1/auto", {"enabled": True})
    until(lambda: host.shares()["cpu_shares"] <= own["cpu_shares"] / 8)
    assert any("other get 1/8 of their weight" in text for text in host.said())
    (eased,) = host.call("GET", "/v1/auto")["eased"]
    assert (eased["domain"], eased["own_weight"]) == ("other", own["cpu_shares"])

    # Nobody gives it back but the next sluiced, which finds the stream at ease.
    host.controller.kill()
    assert host.shares() != own
    host.domain("film").suspend()
    host.controller.start()
    until(lambda: host.shares() == own)

    host.domain("film").resume()
    until(lambda: host.shares() != own)
    host.call("PUT", "/v1/auto", {"enabled": False})
    until(lambda: host.shares() == own)

    host.call("PUT", "/v1/auto", {"enabled": True})
    until(lambda: host.shares() != own)
    host.controller.end()
    assert host.shares() == own


def test_a_libvirt_without_control_groups_is_said(testbed):
    host = Host(testbed)
    host.call("PUT", "/v1/auto", {"enabled": True})
    until(lambda: len(host.said()) >= 3)
    nobody, why, risk = host.said()[-3:]
    assert "Stall risk on film: film waits" in risk
    assert "processors of domain 'other' cannot be shared out" in why and "cgroup" in why
    assert "nothing was changed" in nobody
    assert host.call("GET", "/v1/auto")["eased"][0]["refused"]
