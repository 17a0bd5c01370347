# SPDX-License-Identifier: GPL-2.0-or-later
"""A host with one domain, as far as attach and detach see it, in a time of its own.

It runs what its definition says when it is started. What happens by itself is
planned with `at`; libvirt may be away in between.
"""

from collections.abc import Iterable
from functools import partial

from sluice_controller.adapters import domain_xml
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Conflict, NotFound, Unavailable
from sluice_controller.domain.guests import Guest, Off, Seen
from sluice_controller.domain.models import as_json
from sluice_controller.domain.shaped import UNKNOWN
from sluice_controller.services.domains import Domains
from sluice_controller.services.locks import DomainLocks
from sluice_controller.services.names import settle
from sluice_controller.services.restarts import Restarts

NAME = "web1"
STOCK = "/usr/bin/qemu-system-x86_64"
PLAIN = (
    "<domain type='kvm'><name>web1</name><features><acpi/></features><devices>"
    f"<emulator>{STOCK}</emulator><disk type='file' device='disk'>"
    "<target dev='vda' bus='virtio'/></disk></devices></domain>"
)


class Killed(BaseException):
    """sluiced ends here, without a word."""


class Libvirt:
    """libvirt, the guest and the time. `takes`: seconds to shut down, None: it never does."""

    def __init__(self, xml: str = PLAIN, running: str | None = None, takes: float | None = 1):
        self.xml, self.running = xml, running
        self.emulator = "/opt/qemu-1"
        self.has_channel = False
        self.takes = takes
        self.now = 1000.0
        self.incarnation = 1
        self.off = None if running else Off.UNKNOWN
        self.away = False
        self.calls: list[str] = []
        self.plans: list[tuple[float, object]] = []
        # What libvirt refuses: words of its methods; what is not started: words of definitions.
        self.refuses: set[str] = set()
        self.does_not_start: set[str] = set()
        self.undefined = False
        self.transient = False
        self.pauses_until_killed = None

    # Time

    def at(self, seconds: float, what) -> None:
        self.plans.append((self.now + seconds, what))

    def pause(self, seconds: float) -> bool:
        if self.pauses_until_killed is not None:
            self.pauses_until_killed -= 1
            if self.pauses_until_killed < 0:
                raise Killed
        self.pass_time(seconds)
        return False

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for plan in [plan for plan in self.plans if plan[0] <= self.now]:
            self.plans.remove(plan)
            plan[1]()

    def monotonic(self) -> float:
        return self.now

    def clock(self) -> float:
        """The time of day."""
        return 1_790_000_000.0 + self.now

    # The guest

    def goes_off(self, off: Off = Off.SHUT_DOWN) -> None:
        if self.running is not None:
            self.running, self.off = None, off

    def goes_away(self, seconds: float) -> None:
        self.away = True
        self.at(seconds, lambda: setattr(self, "away", False))

    # libvirt

    def _answer(self, call: str) -> None:
        if self.away:
            raise Unavailable("libvirt", "qemu:///system", "cannot be reached", "start it")
        if self.undefined:
            raise NotFound("domain", NAME, "does not exist", "see 'virsh list --all'")
        if call in self.refuses:
            raise Conflict("domain", NAME, f"cannot be changed: refused to {call}", "try again")

    def guest(self, name: str) -> Guest:
        self._answer("look")
        live = None if self.running is None else domain_xml.describe(self.running)
        state = "shut off" if live is None else "running"
        incarnation = -1 if live is None else self.incarnation
        described = domain_xml.describe(self.xml)
        return Guest(name, "uuid-1", state, incarnation, described, live, transient=self.transient)

    def has(self, uuid: str) -> bool:
        return uuid == "uuid-1"

    def look(self, name: str) -> Seen:
        self._answer("look")
        return Seen("uuid-1", self.incarnation if self.running else -1, self.off)

    def persistent_xml(self, name: str) -> str:
        self._answer("read")
        return self.xml

    def define(self, xml: str) -> None:
        self._answer("define")
        self.calls.append("define")
        self.xml = xml

    def ask_to_shut_down(self, name: str) -> None:
        self._answer("shut down")
        self.calls.append("shut down")
        if self.takes is not None:
            asked = self.incarnation
            self.at(self.takes, lambda: self.incarnation == asked and self.goes_off())

    def start(self, name: str) -> None:
        self._answer("start")
        if self.running is not None:
            raise Conflict("domain", NAME, "cannot be changed: is running already", "nothing")
        if any(word in self.xml for word in self.does_not_start):
            self.off = Off.CRASHED
            raise Conflict("domain", NAME, "cannot be changed: refused to start", "correct it")
        self.calls.append("start")
        self.incarnation += 1
        self.running, self.off = self.xml, None

    # What attach makes of a definition

    def check_emulator(self, emulator: str) -> None:
        pass

    def emulator_problem(self, emulator: str) -> str | None:
        return None if emulator == self.emulator else f"emulator '{emulator}' shapes nothing"

    def attach(self, xml: str, *, emulator: str, name: str, disable_vhost: bool):
        changed, changes = domain_xml.attach(
            xml,
            emulator=self.emulator,
            page_path="/run/p/web1.page",
            name=name,
            disable_vhost=disable_vhost,
            has_channel=self.has_channel,
        )
        return changed, as_json(changes)

    detach = staticmethod(domain_xml.detach)
    attach_record = staticmethod(domain_xml.record_in)
    attached_alike = staticmethod(domain_xml.attached_alike)
    same = staticmethod(domain_xml.same)


def attached(xml: str = PLAIN, emulator: str = "/opt/qemu-1") -> str:
    return domain_xml.attach(xml, emulator=emulator, page_path="/run/p/web1.page", name=NAME)[0]


class Quiet:
    """What the answer asks of the agents and the catalogue."""

    def __init__(self, store: SqlStore, libvirt: Libvirt):
        self.settle = partial(settle, store, libvirt, libvirt.clock)

    def status(self, name: str) -> dict:
        return {}

    def of_domains(self, names: Iterable[str]) -> dict:
        return {name: {"classes": [], "ceiling": {}, "cards": {}} for name in names}


class Sluiced:
    """Attach, detach and restarts over a store; another one on the same store is its restart."""

    def __init__(self, libvirt: Libvirt, store: SqlStore):
        self.libvirt, self.store = libvirt, store
        self.restarts = Restarts(store, libvirt, libvirt.monotonic, libvirt.clock, libvirt.pause)
        self.shapes = UNKNOWN
        quiet = Quiet(store, libvirt)
        self.domains = Domains(
            store,
            libvirt,
            quiet,
            libvirt,
            quiet,
            lambda name: None,
            DomainLocks(seconds=0.0),
            self.restarts,
            lambda guest: self.shapes,
        )

    def attach(self, **body) -> dict:
        return self.domains.attach(NAME, body)

    def detach(self, **body) -> dict:
        return self.domains.detach(NAME, body)

    def audit(self) -> list[tuple]:
        """(actor, action, after), oldest first."""
        with self.store.transaction() as unit:
            return [(e.actor, e.action, e.after) for e in reversed(unit.audit(100))]

    def record(self) -> dict | None:
        with self.store.transaction() as unit:
            return unit.stored_xml(NAME)
