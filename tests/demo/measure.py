# SPDX-License-Identifier: GPL-2.0-or-later
"""A few seconds in which the real guests show the cost of disk, link and stream here."""

import time
from dataclasses import dataclass, replace

from demo import plan as names
from demo.scale import FILMS_MBIT, READERS, Asked, Costs
from demo.scene import Scene
from testbed import clients, loads, processors

SPAN_SECONDS = 3.0
# A program that has just been started is still being loaded from its disk, and a link that
# is asked for too much has its crowd of waiting connections only after a while.
START_SECONDS = 2.0
CROWD_SECONDS = 4.0
# Sizes at which loads are tried out: those of a machine of which little is known.
DISK_BPS = 20_000_000
LINK_MBIT = 40
POLLING_SHARE = 0.1
TRIAL = replace(
    Asked(FILMS_MBIT[1], LINK_MBIT, DISK_BPS, READERS).scale(), polling_share=POLLING_SHARE
)
# The calmest of a few spans: a guest that has booted still has something to do at times.
CALM_SECONDS = 1.5
CALM_SPANS = 3
# Fewer say nothing of the cost of a byte.
LEAST_BYTES = 100_000


class NothingMoved(Exception):
    """A load that was tried out moved next to nothing; the text says which."""


@dataclass(frozen=True)
class Reading:
    """Running totals at a time; processor time in seconds."""

    at_s: float
    ours_s: float
    all: processors.Times
    guests_s: dict[str, dict[int, processors.Threads]]
    disk_bytes: int
    client_bytes: int


@dataclass(frozen=True)
class Use:
    """The use in a span: processor time per time, and bytes per second.

    ``guest_shares`` is the busiest thread of each guest's QEMU: its one processor.
    """

    ours_share: float
    others_share: float
    guest_shares: dict[str, float]
    waited_shares: dict[str, float]
    disk_bps: float
    link_bps: float


def read(scene: Scene) -> Reading:
    """Read the scene's counters of processor time and bytes."""
    guests = {name: guest.threads() for name, guest in scene.testbed.guests.items()}
    everything = processors.now()
    ours = scene.processors.used_s()
    return Reading(
        at_s=time.monotonic(),
        # Where the two cannot be told apart, others count as ours: on the safe side.
        ours_s=everything.busy_s if ours is None else ours,
        all=everything,
        guests_s=guests,
        disk_bytes=sum(volume.bytes for volume in scene.disk.counters().values()),
        client_bytes=clients.received_bytes(scene.testbed),
    )


def between(before: Reading, after: Reading) -> Use:
    """Return the rates between two readings."""
    seconds = after.at_s - before.at_s
    ours = (after.ours_s - before.ours_s) / seconds
    busy = (after.all.busy_s - before.all.busy_s) / seconds
    ran, waited = {}, {}
    zero = processors.Threads()
    for name, now in after.guests_s.items():
        then = before.guests_s.get(name, {})
        parts = [thread.since(then.get(number, zero)) for number, thread in now.items()]
        ran[name] = max((part.ran_s for part in parts), default=0.0) / seconds
        waited[name] = max((part.waited_s for part in parts), default=0.0) / seconds
    return Use(
        ours_share=ours,
        others_share=max(0.0, busy - ours),
        guest_shares=ran,
        waited_shares=waited,
        disk_bps=(after.disk_bytes - before.disk_bytes) / seconds,
        link_bps=(after.client_bytes - before.client_bytes) / seconds,
    )


class Trial:
    """Tries out loads one after the other on a scene that has none."""

    def __init__(self, scene: Scene):
        self._scene = scene

    def _span(self, seconds: float = SPAN_SECONDS) -> Use:
        before = read(self._scene)
        time.sleep(seconds)
        return between(before, read(self._scene))

    def _calm(self) -> Use:
        """Return the use without load."""
        spans = [self._span(CALM_SECONDS) for _number in range(CALM_SPANS)]
        return min(spans, key=lambda use: use.ours_share)

    def loads(self) -> tuple[Use, Use, Use]:
        """Return the use of processors without load, with readers, and with visitors."""
        scene, plan = self._scene, self._scene.plan
        scene.resize(TRIAL)
        idle = self._calm()
        loads.start_readers(scene.media, names.READERS_MOUNT, TRIAL.readers, 60)
        time.sleep(START_SECONDS)
        disk = self._span()
        loads.stop_readers(scene.media)
        visitors = clients.Visitors(scene.testbed, scene.web_guest.address, scene.polling)
        visitors.start(TRIAL.link_bytes_per_s, TRIAL.overload, plan.wgets, POLLING_SHARE, 60)
        time.sleep(CROWD_SECONDS)
        link = self._span()
        visitors.stop()
        for what, moved in (("readers", disk.disk_bps), ("visitors", link.link_bps)):
            if moved < LEAST_BYTES:
                raise NothingMoved(f"{what} that were tried out moved {moved:.0f} bytes/s only")
        return idle, disk, link

    def stream(self) -> Use:
        """Return the use of processors while only the stream runs."""
        return self._span()


def costs(idle: Use, disk: Use, link: Use, stream: Use, film_mbit: float) -> Costs:
    """Put the trials' figures together."""
    media, web = names.MEDIA, names.WEB

    def per_byte(more: float, less: float, bps: float) -> float:
        # A cost that is lost in the noise is next to nothing, and never less.
        return max(1e-3, more - less) / bps

    return Costs(
        processors=len(processors.allowed()),
        idle_share=idle.ours_share,
        others_share=idle.others_share,
        film_mbit=film_mbit,
        film_share=max(0.0, stream.ours_share - idle.ours_share),
        disk_s_per_byte=per_byte(disk.ours_share, idle.ours_share, disk.disk_bps),
        disk_guest_s_per_byte=per_byte(
            disk.guest_shares[media], idle.guest_shares[media], disk.disk_bps
        ),
        link_s_per_byte=per_byte(link.ours_share - POLLING_SHARE, idle.ours_share, link.link_bps),
        link_guest_s_per_byte=per_byte(
            link.guest_shares[web], idle.guest_shares[web], link.link_bps
        ),
    )
