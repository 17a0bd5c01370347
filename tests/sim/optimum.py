# SPDX-License-Identifier: GPL-2.0-or-later
"""The best static rates of each epoch, by a search with full knowledge.

An epoch is simulated alone, under rates that hold from its beginning, for `LASTS_S`; the first
`SETTLES_S` do not count. Rates are tried in two shapes: equal parts, of which no class has more
than it asks for, and parts as the classes have without limits. Of each shape the highest total
without an imperfect half-second is searched from above, first on `LADDER`, then between its
rungs. Where disk and uplink are both shaped, the disk is searched first, beside a half-empty
uplink, then the uplink.

The best of these is taken for the optimum, so it is a lower bound of the true one: a ratio
above 1 is possible, and likely where the order of requests is worth more than their rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.run import Caps, Course, Static, Unshaped, run
from sim.scenario import EPOCH_S, EPOCHS, ONSET_S, Class, Scenario

SETTLES_S = 4
LASTS_S = 16
# Of the background's rate without limits.
LADDER = (1.0, 0.9, 0.78, 0.62, 0.45, 0.3, 0.18, 0.1, 0.05)
BISECTIONS = 2
# Rates at which streams have the host for themselves.
NOTHING = 4096.0
EQUAL, AS_BEFORE = "equal", "as-before"


@dataclass(frozen=True)
class Epoch:
    """`possible`: the streams are perfect when they are alone."""

    possible: bool
    # Without limits some stream is imperfect.
    overloaded: bool
    # Bytes per second of each class at the best static rates; without limits where those do.
    rates: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.rates)


class _Search:
    def __init__(self, scenario: Scenario, epoch: int) -> None:
        self.scenario, self.epoch = scenario, epoch
        # Credit of a volume lasts for a while, and its end belongs to the epoch.
        has_credit = scenario.disk is not None and scenario.disk.credit_bytes and epoch == 0
        self._lasts_s = EPOCH_S if has_credit else ONSET_S + LASTS_S
        active = scenario.steps[epoch].active
        self.active = [c for number, c in enumerate(scenario.classes) if number in active]
        self._index = {c: number for number, c in enumerate(scenario.classes)}
        self.unshaped = self._run(None)
        self._had = self._rates(self.unshaped)

    def _run(self, caps: Caps | None) -> Course:
        policy = Unshaped() if caps is None else Static(caps)
        return run(self.scenario, policy, self._lasts_s, self.epoch)

    def _rates(self, course: Course) -> list[float]:
        return course.rates(2 * (ONSET_S + SETTLES_S), 2 * self._lasts_s)

    def is_clean(self, course: Course) -> bool:
        return not any(course.bad[2 * (ONSET_S + SETTLES_S) : 2 * self._lasts_s])

    def found(self) -> Epoch:
        if self.is_clean(self.unshaped):
            return Epoch(True, False, tuple(self._had))
        nothing = {key(c): NOTHING for c in self.active}
        if not self.is_clean(self._run(nothing)):
            return Epoch(False, True, tuple(0.0 for _ in self.scenario.classes))
        best: list[float] = [0.0] * len(self.scenario.classes)
        for shape in (EQUAL, AS_BEFORE) if len(self.active) > 1 else (EQUAL,):
            rates = self._of_shape(shape)
            best = max(best, rates, key=sum)
        return Epoch(True, True, tuple(best))

    def _of_shape(self, shape: str) -> list[float]:
        """Rates of all classes at the highest clean totals of each resource."""
        parts = [[c for c in self.active if (c.resource == 2) == sends] for sends in (False, True)]
        caps: dict[tuple[int, int, int], float | None] = {}
        for classes in parts:
            caps.update(self._caps(classes, shape, 0.5))
        rates = [0.0] * len(self.scenario.classes)
        for classes in parts:
            if classes:
                level, found = self._highest(classes, shape, caps)
                caps.update(self._caps(classes, shape, level))
                rates = found
        return rates

    def _caps(self, classes: Sequence[Class], shape: str, level: float) -> Caps:
        if not classes:
            return {}
        had = [self._had[self._index[c]] for c in classes]
        total = level * sum(had)
        if shape == AS_BEFORE:
            shares = [level * rate for rate in had]
        else:
            shares = filled(total, [c.wants for c in classes])
        return {key(c): max(NOTHING, share) for c, share in zip(classes, shares, strict=True)}

    def _highest(
        self, classes: Sequence[Class], shape: str, others: Caps
    ) -> tuple[float, list[float]]:
        """(the highest clean level, each class's rate at it)"""

        def tried(level: float) -> list[float] | None:
            course = self._run({**others, **self._caps(classes, shape, level)})
            return self._rates(course) if self.is_clean(course) else None

        above = LADDER[0]
        for level in LADDER:
            rates = tried(level)
            if rates is not None:
                break
            above = level
        else:
            return 0.0, [0.0] * len(self.scenario.classes)
        for _ in range(BISECTIONS if level < above else 0):
            between = (level + above) / 2
            better = tried(between)
            if better is None:
                above = between
            else:
                level, rates = between, max(rates, better, key=sum)
        return level, rates


def key(entry: Class) -> tuple[int, int, int]:
    return entry.vm, entry.tag, entry.resource


def filled(total: float, wants: Sequence[float | None]) -> list[float]:
    """Equal parts of the total, none above its want; the rest goes to the others."""
    shares = [0.0] * len(wants)
    open_parts = sorted(
        range(len(wants)), key=lambda i: float("inf") if wants[i] is None else wants[i]
    )
    while open_parts:
        part = total / len(open_parts)
        index = open_parts.pop(0)
        want = wants[index]
        shares[index] = part if want is None else min(part, want)
        total -= shares[index]
    return shares


def optimum(scenario: Scenario) -> tuple[Epoch, ...]:
    return tuple(_Search(scenario, epoch).found() for epoch in range(EPOCHS))
