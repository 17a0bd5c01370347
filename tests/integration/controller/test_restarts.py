# SPDX-License-Identifier: GPL-2.0-or-later
"""Restarts on a real libvirt and QEMU: slow guests, daemons that end in between.

The guests are of one boot sector, and take as long to shut down as a test says.
"""

import threading
import time

import libvirt
import pytest

from integration.controller import button_guest
from testbed import Testbed, paths, patience

SECONDS = 120
# More than the second that such a guest is given.
SLOW_SECONDS = 5


def until(question, seconds=SECONDS):
    deadline = time.monotonic() + patience.seconds(seconds)
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return answer


class ButtonGuest:
    """A domain that runs, with its guest up."""

    def __init__(self, host: Testbed, name: str, shutdown_seconds: float):
        self.host, self.name = host, name
        disk = host.folder / "disks" / f"{name}.img"
        self.console = host.logs / f"console-{name}.log"
        button_guest.make_disk(disk, shutdown_seconds)
        kind = "kvm" if host.accelerator.name == "kvm" else "qemu"
        xml = button_guest.domain_xml(name, kind, paths.emulator(), disk, self.console)
        host.hypervisor.connection.defineXML(xml)
        self.domain.create()
        until(lambda: self.wrote() == "U")

    @property
    def domain(self) -> libvirt.virDomain:
        """Looked up anew: the daemon may have been restarted."""
        return self.host.hypervisor.connection.lookupByName(self.name)

    def wrote(self) -> str:
        """U each time it was up, D each time it was asked to shut down."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return "".join(letter for letter in text if letter in "UD")

    def definition(self) -> str:
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        return self.domain.XMLDesc(flags)

    def is_shaped(self) -> bool:
        return "shaper" in self.domain.XMLDesc()

    def post(self, action: str, **body):
        """(status, answer) of attach or detach."""
        path = f"/v1/domains/{self.name}/{action}"
        answer = self.host.controller.request("POST", path, body)
        return answer.status_code, answer.json()

    def posting(self, action: str, **body) -> tuple[threading.Thread, list]:
        """The same beside the test; the answer is in the list when the thread has ended."""
        answers: list = []

        def post():
            try:
                answers.append(self.post(action, **body))
            except Exception as error:
                answers.append((0, error))

        thread = threading.Thread(target=post)
        thread.start()
        return thread, answers


@pytest.fixture(scope="module")
def host():
    with Testbed("restarts") as host:
        host.start_controller()
        yield host


@pytest.fixture
def guest(host):
    """Makes a guest; none runs at the end."""
    made = []

    def make(name: str, shutdown_seconds: float) -> ButtonGuest:
        made.append(ButtonGuest(host, name, shutdown_seconds))
        return made[-1]

    yield make
    for one in made:
        if one.domain.isActive():
            one.domain.destroy()
        one.domain.undefine()


def audit(host, name):
    entries = host.controller.call("GET", "/v1/audit?limit=100")
    return [(e["actor"], e["action"]) for e in reversed(entries) if e["thing"] == name]


def test_a_guest_that_is_too_slow_is_left_as_it_was(host, guest):
    slow = guest("slow", SLOW_SECONDS)
    before = slow.definition()
    status, problem = slow.post("attach", restart=True, shutdown_seconds=1)
    assert status == 409 and "did not shut down within 1 s" in problem["detail"]
    assert slow.definition() == before and not audit(host, "slow")
    # As was said: it has been asked, and whoever wants it starts it.
    until(lambda: not slow.domain.isActive())
    assert slow.wrote() == "UD"


def test_libvirt_may_be_restarted_while_a_guest_shuts_down(host, guest):
    patient = guest("patient", SLOW_SECONDS)
    thread, answers = patient.posting("attach", restart=True, shutdown_seconds=900)
    until(lambda: patient.wrote() == "UD")
    # In between the second change is refused, at once.
    status, problem = patient.post("detach")
    assert status == 409 and "is being attached, detached or restarted" in problem["detail"]
    host.hypervisor.restart()
    thread.join(patience.seconds(SECONDS))
    ((status, answer),) = answers
    assert status == 200, answer
    assert answer["active"] and patient.is_shaped()
    until(lambda: patient.wrote().endswith("U"))


def test_a_sluiced_that_is_killed_leaves_the_new_definition(host, guest):
    orphan = guest("orphan", SLOW_SECONDS)
    before = orphan.definition()
    thread, _answers = orphan.posting("attach", restart=True, shutdown_seconds=900)
    until(lambda: orphan.wrote() == "UD")
    host.controller.kill()
    thread.join(patience.seconds(SECONDS))
    until(lambda: not orphan.domain.isActive())
    host.controller.start()
    orphan.domain.create()
    assert orphan.is_shaped()
    assert orphan.post("detach")[0] == 200
    assert orphan.definition() == before


def test_an_upgrade_is_made_in_one_step_or_not_at_all(host, guest):
    upgraded = guest("upgraded", SLOW_SECONDS)
    plain = upgraded.definition()
    newest = paths.emulator()
    older = host.folder / "older-qemu"
    older.write_text(f'#!/bin/sh\nexec {newest} "$@"\n')
    older.chmod(0o755)
    settings = host.controller.call("GET", "/v1/settings")
    host.controller.call("PUT", "/v1/settings", {**settings, "emulator": str(older)})
    try:
        assert upgraded.post("attach")[0] == 200
    finally:
        host.controller.call("PUT", "/v1/settings", settings)
    attached = upgraded.definition()
    assert str(older) in attached

    both = {"upgrade": True, "restart": True}
    assert upgraded.post("attach", **both, shutdown_seconds=1)[0] == 409
    assert upgraded.definition() == attached
    until(lambda: not upgraded.domain.isActive())
    upgraded.domain.create()
    until(lambda: upgraded.wrote().endswith("U"))
    assert upgraded.is_shaped() and str(older) in upgraded.domain.XMLDesc()

    status, answer = upgraded.post("attach", **both, shutdown_seconds=900)
    assert status == 200 and answer["active"], answer
    assert str(older) not in upgraded.definition() and upgraded.is_shaped()
    assert upgraded.post("attach", **both)[1]["changes"] == []
    assert upgraded.post("detach")[0] == 200
    assert upgraded.definition() == plain
