# SPDX-License-Identifier: GPL-2.0-or-later
"""The bytes that passed a shaper in each second, by its counters page.

The totals of a resource are in the slots of the VM's ceiling (docs/specs/counters-page.md).
They count on through changes of classes and tags, and without waiting or dropped frames.
"""

import struct
from dataclasses import dataclass, field

from sluice_controller.domain.counters import CEILING_SLOT, HEADER_BYTES, SLOT_BYTES
from sluice_controller.domain.limits import RESOURCES

BYTES_OFFSET = 48
SECONDS = 1.0


def totals(page: bytes) -> dict[str, int]:
    """Return how many bytes have passed, by resource."""
    found = {}
    for index, resource in enumerate(RESOURCES, CEILING_SLOT):
        offset = HEADER_BYTES + index * SLOT_BYTES + BYTES_OFFSET
        (found[resource],) = struct.unpack_from("<Q", page, offset)
    return found


@dataclass
class Meter:
    """Looks at totals now and then; a second ends with the first look after it.

    ``rates`` are bytes per second, of each second by resource.
    """

    at_seconds: float
    before: dict[str, int]
    rates: dict[str, list[float]] = field(default_factory=dict)

    def due(self, now_seconds: float) -> bool:
        return now_seconds >= self.at_seconds + SECONDS

    def look(self, now_seconds: float, now: dict[str, int]) -> None:
        """Note the bytes that passed since the look before."""
        for resource, bytes_ in now.items():
            rate = (bytes_ - self.before[resource]) / (now_seconds - self.at_seconds)
            self.rates.setdefault(resource, []).append(rate)
        self.at_seconds, self.before = now_seconds, now
