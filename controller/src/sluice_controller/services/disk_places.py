# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the images of running domains lie: as the operator says, else as the host sees it.

Threads look at images, one after the other. A look may hang, as that at a server which is away:
then another thread goes on with images of other folders. Nobody waits for a look for longer than
`PATIENCE_NS`. After that the device that was seen last counts, or the unknown one, and the place
says why.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from ..domain.places import named_by
from ..domain.tuner_types import SECOND
from .workers import SLOW_SECONDS, Pool

log = logging.getLogger(__name__)

# Of disks that lie nowhere known, as those of a network or of a folder that sluiced cannot see.
UNKNOWN_DEVICE = "unknown device"
PATIENCE_NS = 2 * SECOND
# An image that could not be looked at is tried again after so long.
LOOK_AGAIN_NS = 60 * SECOND
# Threads that look, or hang: the pool is for commands, too, and counts a thread for that long.
MOST_SWEEPS, MOST_YOUNG_SWEEPS = 8, 2
YOUNG_NS = round(SLOW_SECONDS * SECOND)
NO_END = "a look at it does not end"


class Devices(Protocol):
    def under(self, path: str) -> str:
        """The host's device under a path; OSError if it cannot be looked at."""
        ...


@dataclass(frozen=True)
class Place:
    """Of an image. `named_by`: the operator's setting that names the device, if one does;
    `because`: why the device is assumed, if it is."""

    image: str | None
    device: str
    named_by: str | None = None
    because: str | None = None


@dataclass
class _Known:
    """Of one image."""

    # Since when it should be looked at; None: it was.
    wanted_ns: int | None
    # The device that was seen last; why the last look told none; both as the log has them.
    device: str | None = None
    why: str | None = None
    said: tuple[str | None, str | None] = (None, None)
    again_ns: int = 0


class _Sweep:
    """Looks at images one by one, in a thread. `position` is the image at which it is."""

    def __init__(self, images: list[str], now_ns: int) -> None:
        self.images, self.began_ns = images, now_ns
        # (image, device, why there is none)
        self.found: deque[tuple[str, str | None, str | None]] = deque()
        self.position = 0
        self.running: Future[None] | None = None
        # As seen by the ticks.
        self._seen, self._since_ns = 0, now_ns

    def run(self, devices: Devices) -> None:
        for position, image in enumerate(self.images):
            self.position = position
            try:
                self.found.append((image, devices.under(image), None))
            except Exception as error:
                # An unforeseen fault of one image hides no other.
                self.found.append((image, None, str(error) or repr(error)))

    @property
    def has_ended(self) -> bool:
        return self.running is not None and self.running.done()

    def hangs_at(self, now_ns: int) -> str | None:
        if self.position != self._seen:
            self._seen, self._since_ns = self.position, now_ns
        return self.images[self._seen] if now_ns - self._since_ns >= PATIENCE_NS else None


class DiskPlaces:
    def __init__(self, devices: Devices, pool: Pool) -> None:
        self.devices, self.pool = devices, pool
        self._known: dict[str, _Known] = {}
        # The images that are to be looked at, or could not be.
        self._open: dict[str, _Known] = {}
        self._sweeps: list[_Sweep] = []

    def of(self, image: str | None, names: Mapping[str, str]) -> Place | None:
        """After `tend`. None while the image is looked at for the first time. `names`: the
        operator's, by the beginnings of paths."""
        prefix = named_by(image, names)
        if prefix is not None:
            return Place(image, names[prefix], named_by=prefix)
        if not _is_path(image):
            return Place(image, UNKNOWN_DEVICE, because="no path on this host leads there")
        known = self._known[image]
        if known.device is None and known.why is None:
            return None
        return Place(image, known.device or UNKNOWN_DEVICE, because=known.why)

    def refresh(self, images: Iterable[str | None], now_ns: int) -> None:
        """Looks anew: a domain that starts may have its images elsewhere."""
        for image in images:
            known = self._known.get(image or "")
            if known is not None and known.wanted_ns is None:
                known.wanted_ns = now_ns
                self._open[image] = known

    def use(self, images: Collection[str | None], now_ns: int) -> None:
        """From now on these are looked at, and no others."""
        paths = {image for image in images if _is_path(image)}
        for image in self._known.keys() - paths:
            del self._known[image]
            self._open.pop(image, None)
        for image in paths - self._known.keys():
            self._known[image] = self._open[image] = _Known(now_ns)

    def tend(self, now_ns: int) -> bool:
        """One tick; whether a place may have changed."""
        self._learn(now_ns)
        hanging = {sweep: sweep.hangs_at(now_ns) for sweep in self._sweeps}
        if None not in hanging.values():
            self._sweep(set(hanging.values()), now_ns)
            self._learn(now_ns)
        is_changed = False
        soon = {one for sweep, at in hanging.items() if at is None for one in sweep.images}
        for image, known in list(self._open.items()):
            if known.wanted_ns is None:
                if known.why is not None and now_ns >= known.again_ns:
                    known.wanted_ns = now_ns
            elif now_ns - known.wanted_ns >= PATIENCE_NS and image not in soon:
                known.why = NO_END
            is_changed |= _tell(image, known)
            if known.wanted_ns is None and known.why is None:
                del self._open[image]
        return is_changed

    def _sweep(self, hanging: set[str], now_ns: int) -> None:
        """Begins to look at what should be looked at, beside the folders that hang."""
        young = sum(now_ns - sweep.began_ns < YOUNG_NS for sweep in self._sweeps)
        if young >= MOST_YOUNG_SWEEPS or len(self._sweeps) >= MOST_SWEEPS:
            return
        folders = {os.path.dirname(image) for image in hanging}
        wanted = [
            image
            for image, known in self._open.items()
            if known.wanted_ns is not None and os.path.dirname(image) not in folders
        ]
        if wanted:
            sweep = _Sweep(wanted, now_ns)
            self._sweeps.append(sweep)
            sweep.running = self.pool.submit(sweep.run, self.devices)

    def _learn(self, now_ns: int) -> None:
        for sweep in list(self._sweeps):
            if sweep.has_ended:
                self._sweeps.remove(sweep)
            while sweep.found:
                image, device, why = sweep.found.popleft()
                known = self._known.get(image)
                if known is not None:
                    # Also of a thread that hung, when another one has told it already.
                    self._open[image] = known
                    known.device = device or known.device
                    known.why, known.wanted_ns = why, None
                    known.again_ns = now_ns + LOOK_AGAIN_NS


def _is_path(image: str | None) -> bool:
    return image is not None and image.startswith("/")


def _tell(image: str, known: _Known) -> bool:
    """A line for each change that is a fault or its end; whether there was a change."""
    now = known.device, known.why
    before, known.said = known.said, now
    if now == before:
        return False
    if known.why is not None:
        device = known.device or UNKNOWN_DEVICE
        log.warning("image %s is taken to lie on %s: %s", image, device, known.why)
    elif before[1] is not None:
        log.info("image %s lies on %s", image, known.device)
    return True
