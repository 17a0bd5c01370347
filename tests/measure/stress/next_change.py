# SPDX-License-Identifier: GPL-2.0-or-later
"""Which change to make next: random, but valid beside the present settings.

Two classes and the ceiling change. After each change, a request of any class has a rate of at
least ``RATE_MIN_BPS``: no limit is below that, and under the ceiling, where the best priority
would leave nothing to the others, each class and the default one have that much reserved. A tag
is taken from any that the other class does not have, so that now and then one of the guest's
programs sends what no class is for, and the default class takes it.

On the network no class has less than ``NET_RATE_MIN_BPS`` in either direction. Its most is
little, since an emulated guest should have time for its disk, too. Queues are small, lest TCP
measure the round trip through a queue that was filled at another rate.
"""

import random
from dataclasses import dataclass, field
from typing import Any

SHAPER = "sluice0"
RATE_MIN_BPS = 1_000_000
RATE_MAX_BPS = 50_000_000
NET_RATE_MIN_BPS = 250_000
NET_RATE_MAX_BPS = 2_000_000
# Two classes and the default one must find their reservations under it.
CEILING_SHARE = 4
CEILING_MIN_BPS = CEILING_SHARE * RATE_MIN_BPS
NET_QUEUE_BYTES = 131_072
# The guest's programs carry the first two.
TAGS = (2, 3, 4)
BURSTS_BYTES = (1, 4096, 65536)
DISK = ("blk-read", "blk-write")
CARD = ("net-tx", "net-rx")
AQM = ("none", "codel")
# Of a thousand changes; the others are of a class's rates and priority.
CEILING, REMOVE, TAG = 100, 20, 180

Command = tuple[str, dict[str, Any]]


def range_bps(resource: str) -> tuple[int, int]:
    """Return the least and the highest rate of a resource."""
    return (
        (NET_RATE_MIN_BPS, NET_RATE_MAX_BPS) if resource in CARD else (RATE_MIN_BPS, RATE_MAX_BPS)
    )


def reserved(resource: str) -> dict[str, Any]:
    return {"resource": resource, "reservation-bytes-per-second": range_bps(resource)[0]}


RESERVED = [reserved(resource) for resource in ("blk-write", *CARD)]


def rate_bps(chance: random.Random, least_bps: int, most_bps: int) -> int:
    """Return a rate up to the highest, small ones as often as large ones."""
    return int(least_bps * (most_bps / least_bps) ** chance.random())


@dataclass
class NextChange:
    """The present classes, and the next change. ``made`` counts by kind."""

    chance: random.Random
    classes: dict[str, int]
    made: dict[str, int] = field(default_factory=dict)

    def first(self) -> list[Command]:
        """Return the commands that make the classes, once."""
        limits = [{"resource": each, "bytes-per-second": NET_RATE_MAX_BPS} for each in CARD]
        default = {"class_": "default", "tag": 0, "limits": limits, "scheduling": RESERVED}
        commands = [("shaper-set-class", {"id": SHAPER, **default})]
        return commands + [self._set(name) for name in self.classes]

    def next(self) -> list[Command]:
        """Return the commands of one change."""
        number = self.chance.randrange(1000)
        name = self.chance.choice(list(self.classes))
        if number < CEILING:
            return self._count("ceiling", [self._ceiling()])
        if number < CEILING + REMOVE:
            gone = ("shaper-remove-class", {"id": SHAPER, "class_": name})
            return self._count("removal", [gone, self._set(name)])
        if number < CEILING + REMOVE + TAG:
            taken = {*self.classes.values()}
            self.classes[name] = self.chance.choice([tag for tag in TAGS if tag not in taken])
            return self._count("tag", [self._set(name)])
        return self._count(f"rates of {name}", [self._set(name)])

    def _count(self, kind: str, commands: list[Command]) -> list[Command]:
        self.made[kind] = self.made.get(kind, 0) + 1
        return commands

    def _ceiling(self) -> Command:
        limits = []
        for resource in ("blk-write", *CARD):
            least_bps, most_bps = range_bps(resource)
            rate = rate_bps(self.chance, CEILING_SHARE * least_bps, most_bps)
            limits.append({"resource": resource, "bytes-per-second": rate})
        return "shaper-set-ceiling", {"id": SHAPER, "limits": limits}

    def _set(self, name: str) -> Command:
        chance = self.chance
        limits = [
            {
                "resource": resource,
                "bytes-per-second": rate_bps(chance, *range_bps(resource)),
                "burst-bytes": chance.choice(BURSTS_BYTES),
            }
            for resource in DISK + CARD
        ]
        queues = [
            {"resource": resource, "limit-bytes": NET_QUEUE_BYTES, "aqm": chance.choice(AQM)}
            for resource in CARD
        ]
        return "shaper-set-class", {
            "id": SHAPER,
            "class_": name,
            "tag": self.classes[name],
            "priority": chance.randrange(10),
            "weight": chance.randint(1, 1000),
            "limits": limits,
            "scheduling": RESERVED,
            "queues": queues,
        }
