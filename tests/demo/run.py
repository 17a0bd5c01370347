# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's course: a trial of the machine, and then control, unshaped, auto-shaping.

Where processors were short and a bar does not hold, that proves nothing about disk and
link. The three phases are then played once more at about half the size.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from demo import judge, measure
from demo import plan as names
from demo.api import ApiError
from demo.judge import Phase
from demo.plan import Bars
from demo.sampler import Sample, Sampler
from demo.scale import FILMS_MBIT, Costs, Scale, choose, smaller
from demo.scene import Scene, SceneError
from testbed import FAILURES, clients, loads, patience
from testbed.network import CLIENT_ADDRESS
from testbed.stream import Window
from testbed.stream.verdict import verdict_of

STREAM_START_SECONDS = 45.0
# The player fills its buffer, and its decoder waits for the first whole picture.
STREAM_RAMP_SECONDS = 6.0
TAIL_SECONDS = 1.5
# That of the middle tells most about the other two.
TRIAL_FILM_MBIT = FILMS_MBIT[1]

Say = Callable[[str], None]


class RunError(Exception):
    """A phase could not be run; the text says why."""


# Faults of a run that are none of its code, reported in their own words.
KNOWN = (*FAILURES, ApiError, OSError, RunError, SceneError, httpx.HTTPError)


@dataclass(frozen=True)
class Attempt:
    """One course of the three phases; those after a shortage of processors are missing."""

    scale: Scale
    phases: dict[str, Phase]
    settled_after_s: float | None = None
    auto_from_s: float | None = None
    offered_connections_per_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """All that was measured. ``given_up`` is the attempt before this one, if there was one."""

    attempt: Attempt
    given_up: Attempt | None
    costs: Costs | None
    windows: list[Window]
    samples: list[Sample]
    auto_log: list[dict]
    httperf: clients.HttperfResult | None
    problem: str
    bars: Bars = Bars()

    @property
    def phases(self) -> dict[str, Phase]:
        return self.attempt.phases

    @property
    def shortage(self) -> str:
        """How processors were short, if that is why a bar does not hold; else empty."""
        attempt = self.attempt
        if judge.inconclusive(attempt.phases, attempt.settled_after_s, self.bars):
            return judge.shortage(attempt.phases)
        return ""


class Run:
    """Runs the phases on a scene. ``stop`` ends the loads in any case."""

    def __init__(self, scene: Scene, say: Say):
        self.scene = scene
        self._plan = scene.plan
        self._say = say
        self.sampler = Sampler(scene)
        self._viewer = clients.Viewer(scene.testbed, self.sampler.on_window)
        self.visitors = clients.Visitors(scene.testbed, scene.web_guest.address, scene.polling)
        self._phases: dict[str, Phase] = {}

    def start(self) -> None:
        """Start the viewer and the sampler, which takes its part of the machine, too."""
        self._viewer.start()
        self.sampler.start()

    def phases(self) -> Outcome:
        """Run all three, twice if processors were short; return the measurements."""
        self.start()
        costs, scale = self.fit()
        # Sizes that were all asked for are played to the end: nothing else would be told.
        attempt, given_up = self._attempt(scale, whole=costs is None), None
        less = smaller(scale, costs, self._plan.asked) if costs else None
        if less and judge.inconclusive(attempt.phases, attempt.settled_after_s, self._plan.bars):
            short = judge.shortage(attempt.phases)
            self._say(f"processors were short ({short}): once more, about half the size")
            self._calm_down()
            attempt, given_up = self._attempt(less, whole=False), attempt
        log = self.scene.api.call("GET", "/auto/log?limit=500")
        return Outcome(
            attempt=attempt,
            given_up=given_up,
            costs=costs,
            windows=self.sampler.windows(),
            samples=self.sampler.samples(),
            auto_log=list(reversed(log)),
            httperf=None,
            problem=self.sampler.problem,
            bars=self._plan.bars,
        )

    def stop_loads(self) -> clients.HttperfResult | None:
        """End the loads and the stream; return httperf's summary."""
        loads.stop_readers(self.scene.media)
        loads.stop_streamer(self.scene.media)
        return self.visitors.stop()

    def stop(self) -> None:
        self._viewer.stop()
        self.sampler.stop()

    def fit(self) -> tuple[Costs | None, Scale]:
        """Measure the costs here, and choose the sizes that were not given."""
        asked = self._plan.asked.scale()
        if asked:
            return None, asked
        self._say("a few seconds to see what guests, disk, link and stream take of this machine")
        trial = measure.Trial(self.scene)
        try:
            idle, disk, link = trial.loads()
        except measure.NothingMoved as problem:
            raise RunError(f"{problem}; see {self.scene.testbed.logs}") from None
        film_mbit = self._plan.film_mbit or TRIAL_FILM_MBIT
        self.start_stream(film_mbit)
        costs = measure.costs(idle, disk, link, trial.stream(), film_mbit)
        loads.stop_streamer(self.scene.media)
        return costs, choose(costs, self._plan.asked)

    def _attempt(self, scale: Scale, *, whole: bool) -> Attempt:
        """Play the phases; ``whole`` even if the first has shown that processors are short."""
        self._phases = {}
        self.scene.resize(scale)
        self._say(scale.words)
        self._say("control: the stream alone")
        self.start_stream(scale.film_mbit)
        self._control()
        if not whole and judge.inconclusive(self._phases, None, self._plan.bars):
            return Attempt(scale, self._phases)
        offered = self._start_loads(scale)
        self._unshaped()
        auto_from_s, settled = self._auto()
        return Attempt(scale, self._phases, settled, auto_from_s, offered)

    def _calm_down(self) -> None:
        """End the loads, and give every class its own limits back."""
        self.stop_loads()
        self.scene.api.call("PUT", "/auto", {"enabled": False})

    def start_stream(self, film_mbit: float) -> None:
        began_s = time.monotonic()
        loads.start_streamer(
            self.scene.media,
            names.movie_file(film_mbit),
            CLIENT_ADDRESS,
            clients.STREAM_PORT,
            86400 if not self._plan.once else self._plan.longest_s,
        )
        limit_seconds = patience.seconds(STREAM_START_SECONDS)
        while not any(
            window.received_bytes and window.start_s >= began_s for window in self.sampler.windows()
        ):
            if time.monotonic() > began_s + limit_seconds:
                raise RunError(
                    f"no stream arrived at the client in {limit_seconds:.0f} s; "
                    f"see {self.scene.testbed.logs}"
                )
            time.sleep(0.2)
        time.sleep(STREAM_RAMP_SECONDS)

    def _measure(self, name: str, start_s: float, end_s: float) -> Phase:
        windows, samples = self.sampler.windows(), self.sampler.samples()
        try:
            phase = judge.measure(name, start_s, end_s, windows, samples)
        except ValueError as problem:
            raise RunError(f"{problem}; {self.sampler.problem}".rstrip("; ")) from None
        self._phases[name] = phase
        stream, background = phase.stream, phase.background
        self._say(
            f"{name}: {judge.shown(phase)} "
            f"({stream.continuity_errors} continuity errors, {stream.stalls} stalls, "
            f"{stream.stall_seconds:.1f} s stalled, {stream.lost_pictures} pictures lost, "
            f"{stream.delivered_ratio:.1%} delivered); background "
            f"http {background.http_bytes_per_s / 1e6:.1f} MB/s, "
            f"disk {background.disk_bytes_per_s / 1e6:.1f} MB/s; processors "
            f"{phase.cpu_ratio:.0%} busy"
        )
        return phase

    def _span(self, seconds: float, words: str) -> tuple[float, float]:
        """Let time pass, saying every five seconds how it goes; return its span."""
        start_s = time.monotonic()
        end_s = start_s + seconds
        while (left := end_s - time.monotonic()) > 0:
            time.sleep(min(5.0, left))
            self._say_live(f"{words} {time.monotonic() - start_s:3.0f} s")
        # The window that ends the span has to arrive, and a sample after it.
        time.sleep(TAIL_SECONDS)
        return start_s, end_s

    def _say_live(self, words: str) -> None:
        samples, windows = self.sampler.samples(), self.sampler.windows()
        if len(samples) < 2 or not windows:
            return
        before, now = samples[-2], samples[-1]
        seconds = now.at_s - before.at_s
        disk = (now.disk_bytes["media"] - before.disk_bytes["media"]) / seconds / 1e6
        stream = now.stream_bytes - before.stream_bytes
        http = max(0, now.client_bytes - before.client_bytes - stream) / seconds / 1e6
        verdict = verdict_of(windows[-1])
        self._say(f"{words}: {verdict}, http {http:.1f} MB/s, disk {disk:.1f} MB/s")

    def _control(self) -> None:
        start_s, end_s = self._span(self._plan.control_s, "control")
        phase = self._measure("control", start_s, end_s)
        if phase.stream.received_bytes_per_s:
            self.scene.declare_stream(phase.stream.received_bytes_per_s)

    def _start_loads(self, scale: Scale) -> float:
        plan, seconds = self._plan, self._plan.longest_s
        if not plan.once:
            seconds = 86400
        self._say(f"unshaped: {scale.readers} cats, httperf, {plan.wgets} wgets")
        loads.start_readers(self.scene.media, names.READERS_MOUNT, scale.readers, seconds)
        offered = self.visitors.start(
            scale.link_bytes_per_s, scale.overload, plan.wgets, scale.polling_share, seconds
        )
        time.sleep(plan.ramp_s)
        return offered

    def _unshaped(self) -> None:
        start_s, end_s = self._span(self._plan.unshaped_s, "unshaped")
        self._measure("unshaped", start_s, end_s)

    def _auto(self) -> tuple[float, float | None]:
        """Switch auto-shaping on; end when the stream was perfect for long enough."""
        plan = self._plan
        self.scene.api.call("PUT", "/auto", {"enabled": True, "method": plan.method})
        enabled_s = time.monotonic()
        deadline = enabled_s + plan.settle_most_s + plan.auto_s
        self._say("auto-shaping is on")
        next_words = enabled_s + 5
        while True:
            time.sleep(0.25)
            now = time.monotonic()
            since = judge.perfect_since(self.sampler.windows(), enabled_s)
            if now >= next_words:
                next_words += 5
                state = self.scene.api.call("GET", "/auto")["state"]
                self._say_live(f"auto {now - enabled_s:3.0f} s, {state}")
            if since is not None and now - since >= plan.auto_s:
                break
            if now >= deadline:
                break
        time.sleep(TAIL_SECONDS)
        end_s = time.monotonic() - TAIL_SECONDS
        since = judge.perfect_since(
            judge.within(self.sampler.windows(), enabled_s, end_s), enabled_s
        )
        settled = None if since is None else since - enabled_s
        start_s = end_s - plan.auto_s if since is None else min(since, end_s - plan.auto_s)
        self._measure("auto", max(start_s, enabled_s), end_s)
        return enabled_s, settled
