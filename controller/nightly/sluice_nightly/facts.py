# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's figures for the decisions, read from the host."""

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from sluice_nightly import images
from sluice_nightly.activity import Counters, activity, tells_disks
from sluice_nightly.config import Config
from sluice_nightly.decide import HostFacts
from sluice_nightly.host import Controller, HostError, guest_counters, playing_streams

PRESSURE = Path("/proc/pressure")
# systemd keeps all guests of libvirt below this.
GUESTS = Path("/sys/fs/cgroup/machine.slice")
MIB = 2**20
# As often as that, a look before the start waits for libvirt to tell of all guests' disks.
FIRST_LOOKS = 3


def parse_pressure(text: str, window: str) -> float | None:
    """Return the share of time in per cent in which some task waited."""
    found = re.search(rf"^some .*?\b{window}=([0-9.]+)", text, re.MULTILINE)
    return float(found[1]) if found else None


def pressures(folder: Path, suffix: str, window: str) -> dict[str, float]:
    """Read cpu, io and memory; a pressure that the kernel does not tell is absent."""
    found = {}
    for kind in ("cpu", "io", "memory"):
        try:
            value = parse_pressure((folder / f"{kind}{suffix}").read_text(), window)
        except OSError:
            continue
        if value is not None:
            found[kind] = value
    return found


def available_mib() -> float:
    """Memory that programs can have without swapping."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.M)
    return int(found[1]) / 1024


def free_mib(folder: Path) -> float:
    """Free space of the file system that ``folder`` is or will be on."""
    while not folder.exists():
        folder = folder.parent
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize / MIB


class Host:
    """Looks at the host; each look after the first covers the time since the one before."""

    def __init__(self, config: Config):
        self._config = config
        self._controller = Controller(config.paths.socket, config.paths.token_file)
        self._before: tuple[float, dict[str, Counters]] | None = None
        self._untold: frozenset[str] = frozenset()
        self.notes: list[str] = []

    def first(self) -> HostFacts:
        """Look twice, ``start.watch_s`` apart; more often if a guest's disks are not told of."""
        self._read_guests()
        for _ in range(FIRST_LOOKS):
            before = self._untold
            time.sleep(self._config.start.watch_s)
            facts = self.look()
            unknown = sorted(self._untold | before)
            if not unknown:
                break
        else:
            problem = f"it does not tell what the disks of {', '.join(unknown)} move"
            facts = replace(facts, guests=None, guests_problem=problem)
        return replace(facts, streams=self._streams())

    def _read_guests(self) -> tuple[float, dict[str, Counters]] | str:
        try:
            counters = guest_counters(self._config.paths.libvirt_uri)
        except HostError as problem:
            self._before, self._untold = None, frozenset()
            return str(problem)
        self._untold = frozenset(name for name in counters if not tells_disks(counters[name]))
        # A missing counter keeps its old value, so the whole difference counts when it is back.
        known = self._before[1] if self._before else {}
        counters = {name: {**known.get(name, {}), **counters[name]} for name in counters}
        self._before = (time.monotonic(), counters)
        return self._before

    def look(self) -> HostFacts:
        """Return the facts of now, without the streams: sluiced may keep one waiting."""
        before = self._before
        now = self._read_guests()
        guests, problem = None, ""
        if isinstance(now, str):
            problem = now
        elif before is None:
            problem = "it has only just begun to answer"
        else:
            guests = activity(before[1], now[1], now[0] - before[0])
        config = self._config
        return HostFacts(
            guests=guests,
            guests_problem=problem,
            pressure=pressures(PRESSURE, "", "avg60"),
            guests_pressure=pressures(GUESTS, ".pressure", "avg10"),
            load=os.getloadavg()[0],
            processors=os.cpu_count() or 1,
            memory_available_mib=available_mib(),
            disk_free_mib=free_mib(config.paths.state),
            disk_needed_mib=images.needed_mib(config) + images.RUN_MIB,
        )

    def _streams(self) -> tuple[str, ...]:
        self.notes = []
        try:
            streams = self._controller.call("GET", "/streams")
            return playing_streams(streams, self._controller.call("GET", "/live"))
        except HostError as problem:
            self.notes.append(f"streams are not known: {problem}")
            return ()
