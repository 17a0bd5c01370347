# SPDX-License-Identifier: GPL-2.0-or-later
"""E10: auto-shaping beside the best limit that a search finds (SCS, section 5.5.3, Figure 7).

The guests, the film, its viewer and the loads are those of the demo, at sizes that fit the
machine. A part is the resource that is overloaded: the disk, the network, or both. Each run has
these phases:

* *unshaped*: half of the loads, no limit. The stream must be disturbed, or nothing is to be told;
* *search*: the background's classes get a share of what they moved unshaped as a limit. The share
  is halved in until it is known to a sixteenth: the largest share with which no half-second
  of the stream is disturbed is the optimum. Where both resources are short, they get one share;
* *auto*, once with each method: auto-shaping is switched on, and must find its way from nothing.
  When the stream was perfect for a while, the other half of the loads begins: the step.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from demo import judge
from demo import plan as names
from demo.judge import Phase
from demo.plan import Plan
from demo.run import Run
from demo.scale import Scale
from demo.scene import Scene
from measure.experiments.choice import Choice
from measure.experiments.rows import Rows
from measure.experiments.spread import spreads
from testbed import clients, loads, patience
from testbed.processors import Group
from testbed.stream.meter import Window
from testbed.stream.verdict import verdict_of

TITLE = "auto-shaping beside the best limit that a search finds"
REPEATS = 3
PARTS = {"disk": (True, False), "network": (False, True), "disk and network": (True, True)}
METHODS = ("gate", "rates")
UNSHAPED_SECONDS = 15.0
PROBE_SECONDS = 10.0
PROBES = 2
# Of a new limit's effect on what is under way: queues drain, and the player's buffer fills.
DRAIN_SECONDS = 4.0
PERFECT_SECONDS = 15.0
SEARCH_STEPS = 4
LONGEST_SECONDS = 60.0
TAIL_SECONDS = 1.5
# The loads end by themselves, should nobody end them.
LOAD_SECONDS = 1800
WGETS = 3
MORE_READERS = "more-readers"
READERS_LIMIT = (names.MEDIA, names.READERS_CLASS, "blk-read")
WEB_LIMIT = (names.WEB, "default", "net-tx")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Best:
    """The optimum of a search: the share of the unshaped rates, and the background's bytes/s."""

    share: float
    bps: float
    unshaped_bps: float


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; return the wanted rows."""
    rows = Rows(say, choice)
    with (
        Group("perf-e10") as group,
        Scene(Plan(once=False), say, label="perf-e10", with_web=False, processors=group) as scene,
    ):
        course = Course(scene, say)
        try:
            course.start()
            for part in PARTS:
                methods = [method for method in METHODS if choice.has(part, method)]
                if methods:
                    rows.guard(
                        part, "all", lambda p=part, m=methods: course.part(p, m, repeats, rows)
                    )
        finally:
            course.stop()
        return {
            "experiment": "E10",
            "title": TITLE,
            "accelerator": scene.testbed.accelerator.name,
            "repeats": repeats,
            "note": f"Sizes: {course.scale.words}. The background is the sum of the readers' and"
            " the web clients' bytes per second. The optimum is the best share of the unshaped"
            f" rates that a search finds, to {1 / 2**SEARCH_STEPS:.3f}.",
            **rows.as_dict(),
        }


def best_share(probe: Callable[[float], float | None]) -> tuple[float, float]:
    """Return the largest share for which ``probe`` gives a rate, to a sixteenth, and that rate.

    1 is known to be too much. Raises ValueError if the least share is too much, too.
    """
    low, high, best_bps = 0.0, 1.0, 0.0
    for _step in range(SEARCH_STEPS):
        share = (low + high) / 2
        bps = probe(share)
        if bps is None:
            high = share
        else:
            low, best_bps = share, bps
    if not low:
        raise ValueError(
            f"the stream was not perfect with {high:.0%} of the unshaped rates either; see"
            " whether processors are short, and whether the film plays alone"
        )
    return low, best_bps


def perfect_from(windows: Sequence[Window], since_s: float, now_s: float) -> float | None:
    """Return since when the stream has been perfect; None if not for `PERFECT_SECONDS` until now,
    or if its meter has fallen silent meanwhile."""
    start_s = judge.perfect_since(windows, since_s)
    if start_s is None or now_s - start_s < PERFECT_SECONDS:
        return None
    return start_s if _tells(judge.within(windows, start_s, now_s), now_s - start_s) else None


def _tells(windows: Sequence[Window], seconds: float) -> bool:
    """Whether windows tell of a span of time but for one that is cut off at each edge."""
    return sum(window.window_ms for window in windows) / 1000 >= seconds - 2 * TAIL_SECONDS


class Course:
    """Plays the phases on the demo's scene."""

    def __init__(self, scene: Scene, say: Say):
        self.scale: Scale | None = None
        self._scene = scene
        self._say = say
        self._run = Run(scene, say)
        self._more = clients.Visitors(scene.testbed, scene.web_guest.address, scene.polling)

    def start(self) -> None:
        self._run.start()
        _costs, self.scale = self._run.fit()
        self._scene.resize(self.scale)
        self._say(self.scale.words)
        self._run.start_stream(self.scale.film_mbit)

    def stop(self) -> None:
        self._calm_down()
        loads.stop_streamer(self._scene.media)
        self._run.stop()

    def part(self, part: str, methods: list[str], repeats: int, rows: Rows) -> None:
        """Measure the rows of a part: one for each method."""
        disk, network = PARTS[part]
        measured: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
        for number in range(repeats):
            # The methods take turns in being first.
            order = methods if number % 2 == 0 else methods[::-1]
            for method, figures in self._repeat(disk, network, order).items():
                measured[method].append(figures)
                shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
                self._say(f"{part}, {method}, run {number + 1}: {shown}")
        for method, all_figures in measured.items():
            row = {"part": part, "subject": method, "runs": repeats, **spreads(all_figures)}
            rows.rows.append(row)

    def _repeat(self, disk: bool, network: bool, methods: list[str]) -> dict[str, dict[str, float]]:
        try:
            self._begin(disk, network)
            best = self._search(disk, network)
            found = {}
            for method in methods:
                self._calm_down()
                self._begin(disk, network)
                found[method] = self._auto(method, best, disk, network)
            return found
        finally:
            self._calm_down()

    def _calm_down(self) -> None:
        """End the loads and all shaping."""
        loads.stop_readers(self._scene.media)
        loads.stop_readers(self._scene.media, unit=MORE_READERS)
        self._run.visitors.stop()
        self._more.stop()
        self._scene.api.call("PUT", "/auto", {"enabled": False})
        for limit in (READERS_LIMIT, WEB_LIMIT):
            self._limit(limit, None)

    def _begin(self, disk: bool, network: bool) -> None:
        half = max(1, self.scale.readers // 2)
        if disk:
            loads.start_readers(self._scene.media, names.READERS_MOUNT, half, LOAD_SECONDS)
        if network:
            self._visit(self._run.visitors)
        time.sleep(DRAIN_SECONDS)

    def _step(self, disk: bool, network: bool) -> float:
        """Begin the other half of the loads; return when."""
        at_s = time.monotonic()
        rest = range(max(1, self.scale.readers // 2) + 1, self.scale.readers + 1)
        if disk and rest:
            media = self._scene.media
            loads.start_readers(
                media, names.READERS_MOUNT, len(rest), LOAD_SECONDS, rest[0], MORE_READERS
            )
        if network:
            self._visit(self._more)
        return at_s

    def _visit(self, visitors: clients.Visitors) -> None:
        scale = self.scale
        visitors.start(
            scale.link_bytes_per_s,
            scale.overload / 2,
            WGETS,
            scale.polling_share / 2,
            LOAD_SECONDS,
        )

    def _search(self, disk: bool, network: bool) -> Best:
        """Return the largest share of the unshaped rates that leaves the stream perfect."""
        unshaped = self._span("unshaped", UNSHAPED_SECONDS)
        if self._is_perfect(unshaped):
            raise ValueError(
                "the stream was perfect without shaping: nothing is overloaded, so nothing is to"
                " be told; a machine with more to spare needs a larger load"
            )
        rates = {
            READERS_LIMIT: unshaped.background.disk_bytes_per_s if disk else None,
            WEB_LIMIT: unshaped.background.http_bytes_per_s if network else None,
        }
        share, bps = best_share(lambda share: self._probe(share, rates))
        return Best(share, bps, unshaped.background.total)

    def _probe(self, share: float, rates: dict[tuple[str, str, str], float | None]) -> float | None:
        """Return the background's bytes/s at a share of its rates; None if the stream suffers."""
        for limit, rate in rates.items():
            self._limit(limit, None if rate is None else share * rate)
        time.sleep(DRAIN_SECONDS)
        # Faults of what came before, or of the machine, are no fault of the share.
        for _attempt in range(PROBES):
            phase = self._span(f"{share:.0%} of the unshaped rates", PROBE_SECONDS)
            if self._is_perfect(phase):
                return phase.background.total
        return None

    def _auto(self, method: str, best: Best, disk: bool, network: bool) -> dict[str, float]:
        self._scene.api.call("PUT", "/auto", {"enabled": True, "method": method})
        phase, perfect_s = self._until_perfect(method, time.monotonic())
        _phase, step_s = self._until_perfect(f"{method}, step", self._step(disk, network))
        cpu = phase.cpu_ours_ratio
        # The background of a stream that is disturbed is no yield.
        yielded_bps = phase.background.total if math.isfinite(perfect_s) else 0.0
        return {
            "perfect_s": perfect_s,
            "step_s": step_s,
            "optimum_ratio": yielded_bps / best.bps,
            "unshaped_ratio": phase.background.total / best.unshaped_bps,
            "searched_share": best.bps / best.unshaped_bps,
            "cpu_share": phase.cpu_ratio if cpu is None else cpu,
        }

    def _until_perfect(self, words: str, since_s: float) -> tuple[Phase, float]:
        """Return the phase in which the stream was perfect without a break, and how long it took
        until then; infinity if it never was."""
        deadline_s = since_s + patience.seconds(LONGEST_SECONDS)
        while True:
            time.sleep(0.5)
            now_s = time.monotonic()
            perfect_s = perfect_from(self._run.sampler.windows(), since_s, now_s)
            if perfect_s is not None or now_s >= deadline_s:
                break
        time.sleep(TAIL_SECONDS)
        end_s = time.monotonic() - TAIL_SECONDS
        start_s = max(since_s, end_s - PERFECT_SECONDS) if perfect_s is None else perfect_s
        phase = self._measure(words, start_s, end_s)
        return phase, math.inf if perfect_s is None else perfect_s - since_s

    def _span(self, words: str, seconds: float) -> Phase:
        start_s = time.monotonic()
        time.sleep(seconds + TAIL_SECONDS)
        return self._measure(words, start_s, start_s + seconds)

    def _measure(self, words: str, start_s: float, end_s: float) -> Phase:
        sampler = self._run.sampler
        phase = judge.measure(words, start_s, end_s, sampler.windows(), sampler.samples())
        self._say(
            f"{words}: {phase.stream.verdict}, background http"
            f" {phase.background.http_bytes_per_s / 1e6:.1f}, disk"
            f" {phase.background.disk_bytes_per_s / 1e6:.1f} MB/s, processors"
            f" {phase.cpu_ratio:.0%} busy"
        )
        return phase

    def _is_perfect(self, phase: Phase) -> bool:
        windows = judge.within(self._run.sampler.windows(), phase.start_s, phase.end_s)
        return _tells(windows, phase.end_s - phase.start_s) and all(
            verdict_of(window) == "perfect" for window in windows
        )

    def _limit(self, limit: tuple[str, str, str], bps: float | None) -> None:
        domain, name, resource = limit
        limits = {} if bps is None else {resource: {"bytes_per_second": round(bps)}}
        self._scene.api.call("PUT", f"/domains/{domain}/classes/{name}", {"limits": limits})
