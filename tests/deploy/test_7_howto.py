# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/how-to/deploy.md, block by block, with a host that nothing was done to.

Each block is given to a shell as it stands in the page. Left out are only the
lines that prepare the control node itself, which whoever runs this has done:
they install packages and build ours, and the fleet's network reaches no
archive.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ansible_collection
from deploy.browser import browse_as
from deploy.conftest import hold_if_asked
from deploy.control import RunFailed
from deploy.fleet import Fleet, image
from deploy.guest import WEB1, NestedGuest
from deploy.howto import Reader, without
from deploy.machine import Machine, MachineSpec
from deploy.test_3_guest import EMULATOR
from testbed import paths

PAGE = paths.TOP / "docs/how-to/deploy.md"
HOST = "kvm1.example.net"
GUEST = "web1.example.net"
KVM1 = MachineSpec("kvm1", "10.78.0.14", "52:54:00:78:00:14")
# What the page takes for granted: names that resolve, and a key that leads in.
SSH_CONFIG = """\
Host *
    IdentityFile {key}
    IdentitiesOnly yes
    StrictHostKeyChecking accept-new
    UserKnownHostsFile {folder}/known_hosts
"""
STEP_SECONDS = 5400.0


class Operator:
    """A person with the page, in the checkout's top folder."""

    def __init__(self, fleet: Fleet):
        self._fleet = fleet
        self._reader = Reader(PAGE.read_text())
        self.folder = fleet.folder / "howto"
        self.folder.mkdir()
        for name in ("ansible", "build"):
            (self.folder / name).symlink_to(paths.TOP / name)
        # The control node is prepared: Debian's package ansible brings this collection.
        ansible_collection.provide_community(self.folder / "home/.ansible/collections")
        hosts = f"127.0.0.1 localhost\n{KVM1.address} {HOST}\n{WEB1.address} {GUEST}\n"
        self._cover("/etc/hosts", hosts)
        self._cover("/etc/ssh/ssh_config", SSH_CONFIG.format(key=fleet.key, folder=self.folder))

    def _cover(self, path: str, text: str) -> None:
        """Show another file in the fleet's own mounts."""
        file = self.folder / Path(path).name
        file.write_text(text)
        self._fleet.sandbox.run(["mount", "--bind", str(file), path])

    @property
    def password(self) -> str:
        return (self.folder / "sluice-passwords" / HOST).read_text()

    def type(self, heading: str, *left_out: str) -> str:
        """Type the next block under a heading; return what was printed. RunFailed on an error."""
        script = without(self._reader.take(heading), *left_out)
        shell = ["env", "-C", str(self.folder), "bash", "-euo", "pipefail", "-c", script]
        path = f"{paths.VENV_BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        environment = {"PATH": path, "HOME": str(self.folder / "home"), "ANSIBLE_NOCOLOR": "1"}
        done = self._fleet.run(shell, timeout_seconds=STEP_SECONDS, env=environment)
        with (self._fleet.logs / "howto.log").open("a") as log:
            log.write(f"## {heading}\n{script}---\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            raise RunFailed(f"{script}ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Its own, so that this chapter can run beside the others."""
    with Fleet("howto", (KVM1,)) as fleet:
        print(f"machine: {fleet.folder}")
        fleet.wait_ready()
        yield fleet
        fleet[KVM1.name].save_journal()
        hold_if_asked(request, fleet)


@pytest.fixture(scope="module")
def kvm1(fleet: Fleet) -> Machine:
    return fleet[KVM1.name]


@pytest.fixture(scope="module")
def operator(fleet: Fleet) -> Operator:
    return Operator(fleet)


@pytest.fixture(scope="module")
def web1(fleet: Fleet, kvm1: Machine) -> NestedGuest:
    return NestedGuest(fleet, kvm1, WEB1)


def test_from_nothing_to_a_page(operator: Operator, fleet: Fleet, kvm1: Machine) -> None:
    operator.type("1. Prepare the control node", "apt-get", "make deb")
    operator.type("2. Say which hosts")
    operator.type("3. Look before")
    operator.type("4. Install")
    assert operator.type("5. Sign in").strip() == operator.password.strip()
    text = browse_as(fleet, kvm1, f"https://{HOST}:8480", operator.password, "/", "howto-page.png")
    assert "kvm1" in text and "connected" in text


@pytest.mark.needs("from_nothing_to_a_page")
def test_a_guest_is_shaped(operator: Operator, web1: NestedGuest) -> None:
    web1.make_disks(image())
    web1.define(EMULATOR)
    web1.start()
    web1.wait_ready()
    assert web1.name in operator.type("6. Shape a guest")
    operator.type("6. Shape a guest")
    web1.wait_ready()
    assert "batch" in operator.type("6. Shape a guest")


@pytest.mark.needs("a_guest_is_shaped")
def test_the_guest_tells_its_processes_apart(operator: Operator, kvm1: Machine) -> None:
    operator.type("7. Let the guest tell its processes apart")
    assert '"connected": true' in kvm1.out(f"sluice show {WEB1.name} --json")


@pytest.mark.needs("a_guest_is_shaped")
def test_an_upgrade_to_what_is_there_is_none(operator: Operator, web1: NestedGuest) -> None:
    pid = web1.pid()
    operator.type("Upgrade", "git pull", "make deb")
    operator.type("Upgrade")
    assert web1.pid() == pid


@pytest.mark.needs("an_upgrade_to_what_is_there_is_none")
def test_it_goes_as_the_page_says(operator: Operator, kvm1: Machine, web1: NestedGuest) -> None:
    operator.type("Remove")
    assert web1.inside.ssh("dpkg-query -W sluice-agent", check=False).returncode
    kvm1.ssh(f"virsh destroy {web1.name}")
    operator.type("Remove")
    assert web1.definition() == web1.definition_of_operator()
    operator.type("Remove")
    assert not kvm1.out("dpkg-query -W -f '${Package}\\n' 'sluice*' || :")
