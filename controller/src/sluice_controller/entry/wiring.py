# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts services and adapters together, and runs the daemon's threads."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..adapters.agent_hub import AgentHub
from ..adapters.block_devices import BlockDevices
from ..adapters.counters_page import CountersPages
from ..adapters.database import open_store
from ..adapters.gate_pages import GatePages
from ..adapters.group_pages import GroupPages
from ..adapters.guest_commands import GuestCommands
from ..adapters.libvirt_editor import LibvirtEditor
from ..adapters.libvirt_host import POLL_SECONDS, LibvirtHost
from ..adapters.libvirt_metadata import LibvirtMetadata
from ..adapters.libvirt_shares import LibvirtShares
from ..adapters.qemu_threads import QemuThreads
from ..adapters.qmp import QmpShapers
from ..adapters.uplink import LinuxUplinks
from ..adapters.uplink_queues import LinuxUplinkQueues
from ..domain.errors import SluiceError
from ..domain.models import as_json
from ..domain.overload import Server
from ..services.agent_install import AgentInstaller
from ..services.auto import Auto
from ..services.auto_limits import AutoLimits
from ..services.beyond import Beyond
from ..services.catalogue import Catalogue
from ..services.declared import Declared
from ..services.domains import Domains
from ..services.events import Events
from ..services.gates import WORKERS as GATE_WORKERS
from ..services.gates import Gates
from ..services.groups import Groups
from ..services.guest_streams import ROUND_SECONDS, GuestStreams
from ..services.locks import DomainLocks
from ..services.nightly import Nightly
from ..services.nominal import KEY as LEARNT_RATES
from ..services.nominal import Nominals
from ..services.overload import ROUND_SECONDS as OVERLOAD_SECONDS
from ..services.overload import Overload
from ..services.processors import ROUND_SECONDS as PROCESSORS_SECONDS
from ..services.processors import Processors
from ..services.reconcile import Reconciler
from ..services.records import Records
from ..services.restarts import Restarts
from ..services.sampler import SAMPLE_HZ, Sampler
from ..services.standings import ROUND_SECONDS as STANDINGS_SECONDS
from ..services.standings import Watch
from ..services.state import States
from ..services.streams import Streams
from ..services.takeover import TakeOver
from ..services.uplink_first import UplinkFirst
from ..services.why import Whys
from ..services.workers import Workers
from .config import Config

log = logging.getLogger(__name__)


@dataclass
class Loop:
    """A named thread that calls something at a steady rate."""

    name: str
    period_s: float
    body: Callable[[], None]


class Services:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.clock = time.time
        self.started_at = self.clock()
        self.stopping = threading.Event()
        self.store = open_store(config.database_url)
        self.events = Events(self.clock)
        self.store.heard = self.events.add
        self._set_emulator()
        self.host = LibvirtHost(config.libvirt_uri, time.monotonic)
        # libvirtd answers five requests of a connection at a time (max_client_requests of
        # libvirtd.conf). Hanging QEMUs may keep five, so readers have a connection of their
        # own.
        self.qmp_host = LibvirtHost(config.libvirt_uri, time.monotonic)
        self.uplinks = LinuxUplinks()
        self.agents = AgentHub(self.clock, time.monotonic)
        self.auto_limits = AutoLimits()
        self.catalogue = Catalogue(
            self.store,
            self.host,
            self.agents,
            self.auto_limits,
            self.clock,
            self._changed,
            self.uplinks,
        )
        editing = DomainLocks()
        editor = LibvirtEditor(self.host, config.pages_dir)
        restarts = Restarts(self.store, editor, time.monotonic, self.clock, self.stopping.wait)
        self.domains = Domains(
            self.store,
            self.host,
            self.agents,
            editor,
            self.catalogue,
            self._changed,
            editing,
            restarts,
            lambda guest: self.reconciler.shapes(guest),
        )
        self.installer = AgentInstaller(
            self.store,
            self.host,
            GuestCommands(self.qmp_host),
            config.agent_archive,
            time.monotonic,
            self.clock,
            self.stopping.wait,
        )
        self.groups = Groups(
            self.store,
            GroupPages(config.groups_dir, config.qemu_group, time.monotonic_ns),
            self.catalogue.about,
            self.clock,
            self._changed,
        )
        self.groups.restore()
        self.declared = Declared(self.store)
        self.records = Records(
            self.store, self.declared, self.clock, time.monotonic, self.events.add
        )
        with self.store.transaction() as unit:
            self.nominals = Nominals(self.records, unit.value(LEARNT_RATES, {}))
        self.beyond = Beyond(
            self.declared, self.agents.round_trips, lambda: self.uplink_first.wake()
        )
        self.uplink_first = UplinkFirst(
            self.declared,
            self.host,
            self.uplinks,
            LinuxUplinkQueues(),
            time.monotonic,
            self.beyond.rate,
        )
        self.sampler = Sampler(
            self.declared,
            self.records,
            self.host,
            CountersPages(time.monotonic_ns),
            self.uplinks,
            self.clock,
            self.uplink_first.now,
        )
        self.nightly = Nightly(self.store, self.clock)
        shapers = QmpShapers(self.qmp_host)
        self.guest_streams = GuestStreams(
            self.host, shapers, self.declared, self.clock, time.monotonic
        )
        self.processors = Processors(
            self.host,
            QemuThreads(shapers.execute, time.monotonic),
            LibvirtShares(self.qmp_host),
            self.store,
            self.declared,
            self.records,
            lambda: self.auto.settings,
            self.clock,
            time.monotonic,
        )
        with self.store.transaction() as unit:
            kept = unit.value("overload-state", [])
        self.overload = Overload(
            self.declared,
            self._servers,
            self.auto_limits,
            lambda domain: self.reconciler.changed(domain),
            lambda lower: self.records.put_value("overload-state", lower),
            kept,
        )
        self.streams = Streams(
            self.store,
            self.declared,
            self.sampler,
            self.clock,
            self.catalogue.about,
            self.nominals.now,
            self.guest_streams.of,
            self.processors.wait,
        )
        self.whys = Whys(
            self.store,
            self.declared,
            self.host,
            self.sampler,
            self.auto_limits,
            self.groups.pages,
            self.clock,
            self.processors.wait,
            self.catalogue.check_known,
            self.beyond.seen,
        )
        devices = BlockDevices()
        self.auto = Auto(
            self.store,
            self.declared,
            self.records,
            self.sampler,
            self.streams,
            self.auto_limits,
            Gates(
                self.host,
                devices,
                shapers,
                Workers(GATE_WORKERS, "gates", time.monotonic),
                GatePages(config.gates_dir, config.qemu_group, time.monotonic_ns, devices.has_arm),
            ),
            self.beyond,
            self.clock,
            lambda domain: self.reconciler.changed(domain),
            self.nominals,
            self.processors.eased,
        )
        self.states = States(
            self.store,
            self.catalogue,
            self.groups,
            self.streams,
            self.auto,
            self.clock,
            self._changed,
        )
        self.reconciler = Reconciler(
            self.store,
            self.host,
            shapers,
            self.agents,
            self.auto_limits,
            self.sampler.generation,
            self.clock,
            time.monotonic,
            self.groups.wanted,
            TakeOver(self.store, shapers, LibvirtMetadata(self.qmp_host), editing, self.clock),
            self.groups.lost,
        )
        self.watch = Watch(
            self.events.add,
            self.clock,
            time.monotonic,
            self.host,
            self.reconciler,
            self.streams,
            self.auto,
            self.uplink_first,
            self.groups,
        )
        self._threads: list[threading.Thread] = []

    def _set_emulator(self) -> None:
        """The emulator given at start outranks the stored one."""
        if self.config.emulator is None:
            return
        with self.store.transaction() as unit:
            stored = unit.value("settings", {})
            unit.put_value("settings", {**stored, "emulator": self.config.emulator})

    def _changed(self, domain: str | None) -> None:
        self.records.wake()
        self.reconciler.changed(domain)

    # Answers that span services

    def status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "started_at": self.started_at,
            "libvirt": self.host.connection(),
            "sample_hz": SAMPLE_HZ,
            "database": self.store.engine.url.render_as_string(hide_password=True),
            "host": {"name": platform.node(), "accelerator_note": accelerator_note()},
            "uplinks": self._interfaces(),
        }

    def _interfaces(self) -> list[str]:
        try:
            return self.uplinks.names()
        except OSError as error:
            # The rest of the answer does not wait for netlink.
            log.warning("the kernel does not list its interfaces: %s", error)
            return []

    def live(self, domain: str | None = None) -> dict[str, Any]:
        if domain is not None:
            self.catalogue.check_known(domain)
        return self.sampler.live(domain)

    def history(self, domain: str, since: float, step: float) -> dict[str, Any]:
        self.catalogue.check_known(domain)
        return self.records.history(domain, since, step)

    def said(self, domain: str) -> list[dict[str, Any]]:
        self.catalogue.check_known(domain)
        return as_json(self.guest_streams.of(domain))

    def _servers(self, domain: str) -> list[Server] | None:
        """Records of an agent that is gone stay as they were: nobody empties them."""
        connected = self.agents.status(domain)["connected"]
        return self.guest_streams.servers(domain) if connected else None

    # Threads

    def _poll_libvirt(self) -> None:
        try:
            self.host.refresh()
        except SluiceError as error:
            log.debug("%s", error)

    def _sample(self) -> None:
        now_ns = time.monotonic_ns()
        self.sampler.tick(now_ns)
        self.auto.tick(now_ns)

    def _reconcile(self) -> None:
        self.reconciler.wait()
        self.reconciler.round()

    def _record(self) -> None:
        self.records.wait()
        self.records.round()

    def start(self) -> None:
        loops = [
            Loop("libvirt", POLL_SECONDS, self._poll_libvirt),
            Loop("reconciler", 0.0, self._reconcile),
            Loop("agents", 0.0, self.agents.round),
            Loop("sampler", 1 / SAMPLE_HZ, self._sample),
            Loop("records", 0.0, self._record),
            Loop("streams", ROUND_SECONDS, self.guest_streams.round),
            Loop("overload", OVERLOAD_SECONDS, self.overload.round),
            Loop("processors", PROCESSORS_SECONDS, self.processors.round),
            Loop("uplink", 0.0, self.uplink_first.turn),
            Loop("standings", STANDINGS_SECONDS, self.watch.round),
        ]
        for loop in loops:
            thread = threading.Thread(target=self._run, args=(loop,), name=loop.name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self, loop: Loop) -> None:
        due = time.monotonic()
        while not self.stopping.is_set():
            try:
                loop.body()
            except Exception:
                # One bad round must not end sampling or the watch over libvirt.
                log.exception("the %s loop failed; it goes on", loop.name)
                self.stopping.wait(1.0)
            due = max(due + loop.period_s, time.monotonic())
            self.stopping.wait(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self.stopping.set()
        self.events.close()
        self.reconciler.close()
        self.guest_streams.close()
        self.processors.close()
        self.auto.gates.close()
        self.agents.wake()
        self.records.wake()
        self.uplink_first.wake()
        for thread in self._threads:
            thread.join(timeout=5)
        self.uplink_first.stop()
        # Decisions since the threads last looked are written still.
        self.auto.keep()
        self.records.round()
        self.agents.close()
        for host in (self.host, self.qmp_host):
            host.close()
        self.uplinks.close()
        self.store.close()


def accelerator_note() -> str:
    if not Path("/dev/kvm").exists():
        return "no /dev/kvm: domains run under TCG"
    return "/dev/kvm exists; that a guest boots with it is proven only by booting one"
