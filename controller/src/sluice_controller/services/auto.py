# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping: the settings, the loop's hands and eyes, the log.

Ten times a second: observation from the sampler and the streams' reports, `decide` in the
domain, and its caps into the shared caps, from where the reconciler brings them to QEMU. With
`dry_run` decisions are logged only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..domain.auto_past import MOST_ROWS, Row, summed_up
from ..domain.auto_words import sentences
from ..domain.beyond import News as LinkNews
from ..domain.events import Subject, of_changes
from ..domain.gated import News
from ..domain.limits import BLK_READ, NET_TX
from ..domain.model import GATE, AutoSettings, Stream, parse_auto
from ..domain.nominal import allowed_bps
from ..domain.processors import BEARABLE_MS_PER_SECOND
from ..domain.shares import Load
from ..domain.tuner import decide
from ..domain.tuner_sense import network_pressure, pressures, values_of
from ..domain.tuner_types import (
    ARM_RESOURCES,
    BACKING_OFF,
    DISK,
    NETWORK,
    OFF,
    PROBING,
    SETTLED,
    UNEXPLAINED,
    WATCHING,
    Arm,
    Background,
    Decision,
    Observation,
    Policy,
    State,
    StreamView,
)
from ..domain.tuner_words import leading, sentence
from .auto_limits import AutoLimits, Key
from .beyond import Beyond
from .catalogue import audited
from .declared import Declaration, Declared
from .gates import REHEARSED, Gates, Tick
from .nominal import Nominals
from .ports import USUAL_ROWS, Clock, Store
from .records import Records
from .sampler import PageState, Sampler
from .streams import Streams

log = logging.getLogger(__name__)

SAVE_NS = 1_000_000_000
# A row of the past is kept so often.
PAST_NS = 1_000_000_000
DRY_RUN_REPEAT_NS = 10_000_000_000
# An unseen domain may go on as before for this long.
UNSEEN_NS = 30_000_000_000
# A pressure beside those of the arms.
PROCESSORS = "processors"
SET = "set"
GATED_RESOURCES = frozenset(ARM_RESOURCES[DISK])
HELD_RESOURCES = frozenset(r for resources in ARM_RESOURCES.values() for r in resources)


@dataclass(eq=False)
class Auto:
    store: Store
    declared: Declared
    records: Records
    sampler: Sampler
    streams: Streams
    auto_limits: AutoLimits
    gates: Gates
    beyond: Beyond
    clock: Clock
    changed: Callable[[str | None], None]
    nominals: Nominals
    # The VMs that leave processors to a stream.
    eased: Callable[[], list[dict[str, Any]]] = list

    def __post_init__(self) -> None:
        # Each tick takes it, so it is never held during a call of the store.
        self._lock = threading.RLock()
        # Orders changes of the settings.
        self._setting = threading.Lock()
        self._reports_seen = self._reports_learnt = self.streams.reports_so_far()
        self._saved_ns = 0
        self._past: deque[Row] = deque(maxlen=MOST_ROWS)
        self._past_ns = -PAST_NS
        self._began_ns: int | None = None
        # Domains, and when something was last seen of them.
        self._seen_ns: dict[str, int] = {}
        self._dry_logged_ns = -DRY_RUN_REPEAT_NS
        self._dry_told_ns = -DRY_RUN_REPEAT_NS
        # How gates were treated at the last tick.
        self._gating = ""
        with self.store.transaction() as unit:
            self.settings = AutoSettings(**unit.value("auto", {}))
            self._saved = unit.value("auto-state", {})
        self.state = State()
        # The caps of each arm that the shared ones are made of, and the domains they hold.
        self._applied: list[Mapping[Key, float]] = [{} for _ in self.state.arms]
        self._held: frozenset[str] = frozenset()
        if self.settings.enabled and not self.settings.dry_run:
            # Shapers hold these still: go on from there, not from nothing.
            self.state = _restored(self._saved)
            self._share(self._arm_caps())

    # Settings

    def status(self) -> dict[str, Any]:
        with self._lock:
            settled_ns = self.state.settled_after_ns
            gates = self.gates.status(self.settings.device_names)
            if self.settings.method != GATE:
                # None is wanted.
                gates["without_gate"] = gates["assumed"] = []
            status = {
                **asdict(self.settings),
                "state": self._phase() if self.settings.enabled else OFF,
                "settled_after_seconds": None if settled_ns is None else settled_ns / 1e9,
                "limits": [
                    {"domain": d, "class": c, "resource": r, "bytes_per_second": value}
                    for (d, c, r), value in sorted(self.auto_limits.snapshot().items())
                ],
                **gates,
                "beyond": self.beyond.status(),
                "eased": self.eased(),
                "decided_at": self.records.decided_at,
            }
        return {**status, "sentences": sentences(status)}

    def without_gate(self) -> list[dict[str, str]]:
        """The domains that have no gate though gates are wanted, and why."""
        with self._lock:
            is_wanted = self._how_gates() == SET
            return self.gates.without_gate() if is_wanted else []

    def _phase(self) -> str:
        phases = {self.state.phase, self.gates.phase()}
        return next((one for one in (BACKING_OFF, PROBING, SETTLED) if one in phases), WATCHING)

    @contextmanager
    def changing(self) -> Iterator[AutoSettings]:
        """The settings; other changes wait for the end of this block."""
        with self._setting:
            yield self.settings

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self.changing() as before:
            after = parse_auto(body, before)
            with self.store.transaction() as unit:
                unit.put_value("auto", asdict(after))
                audited(unit, self.clock, "auto-shaping", "", asdict(before), asdict(after))
            self.adopt(after)
        return self.status()

    def adopt(self, after: AutoSettings) -> None:
        """Goes on with settings that are stored; only in a block of `changing`."""
        with self._lock:
            before, self.settings = self.settings, after
            in_force: dict[str, Any] = {
                "floors_bytes_per_second": {},
                "device_names": {},
                "round_trips": True,
            }
            if replace(after, **in_force) != replace(before, **in_force):
                self._restart()

    def _restart(self) -> None:
        self.state = State()
        self._dry_logged_ns = -DRY_RUN_REPEAT_NS
        self._reports_seen = self.streams.reports_so_far()
        self._apply()

    def _apply(self) -> None:
        # Most ticks leave the caps as they are, and there may be thousands.
        caps = self._arm_caps()
        if all(new is old for new, old in zip(caps, self._applied, strict=True)):
            return
        if self._share(caps):
            self.changed(None)

    def _arm_caps(self) -> list[Mapping[Key, float]]:
        return [arm.caps for arm in self.state.arms.values()]

    def _share(self, caps: list[Mapping[Key, float]]) -> bool:
        """Publishes the caps; whether any of them has changed."""
        self._applied = caps
        self._held = frozenset(domain for domain, _class, _resource in self.state.caps)
        return bool(self.auto_limits.replace(self.state.caps))

    def log(self, since: float = 0.0, limit: int = USUAL_ROWS) -> list[dict[str, Any]]:
        with self.store.transaction() as unit:
            return unit.decisions(since, self.clock(), limit)

    def past(self, since: float = 0.0, step: float = 1.0) -> dict[str, Any]:
        with self._lock:
            rows = list(self._past)
        return summed_up(rows, since, self.clock(), step)

    # One tick

    def tick(self, now_ns: int) -> None:
        with self._lock:
            policy = Policy(floors=self.settings.floors_bytes_per_second)
            pages, _uplink, _is_unseen = self.sampler.observed()
            self.gates.follow(pages, self.settings.device_names, now_ns)
            if self.nominals.is_due(now_ns):
                self._learn(policy, now_ns)
            if not self.settings.enabled:
                self.beyond.end()
                self._gate(Observation((), ()), self.state, policy, now_ns)
                return
            if self._began_ns is None:
                self._began_ns = now_ns
                self.state = _begun(self.state, now_ns)
            observation = self._with_link(self._observe(now_ns), policy, now_ns)
            state, decisions = decide(observation, self.state, policy, now_ns)
            self._gate(observation, state, policy, now_ns)
            self._remember(observation, policy, now_ns)
            decisions = tuple(
                one
                for one in decisions
                if one.kind != UNEXPLAINED or not self.gates.has_just_acted(one.stream, now_ns)
            )
            if self.settings.dry_run:
                self._rehearse(decisions, state.greedy_since_ns, now_ns)
                return
            self.state = state
            self._apply()
            self._log(decisions, dry_run=False)
            self._save(now_ns)

    def _learn(self, policy: Policy, now_ns: int) -> None:
        """A look at the rates of streams."""
        pages, uplink, _is_unseen = self.sampler.observed()
        before, self._reports_learnt = self._reports_learnt, self.streams.reports_so_far()
        last = self._reports_learnt

        def is_disturbed(stream: Stream, sends: bool) -> bool:
            wait = self.streams.waits(stream.domain)
            reports = self.streams.reports_between(stream.name, before, last)
            return (
                (sends and network_pressure(stream.name, uplink, policy).value > 1.0)
                or self.beyond.delays(stream.name)
                or (wait is not None and wait.ms_per_second > BEARABLE_MS_PER_SECOND)
                or any(report["stalls"] or report["stall_seconds"] for report in reports)
            )

        streams = self.declared.now.streams
        self.nominals.look(streams, pages, is_disturbed, self.gates.depth, now_ns)

    def _with_link(self, seen: Observation, policy: Policy, now_ns: int) -> Observation:
        """As the tuner of rates should see it: with the link beyond, if one is short."""
        if not self.settings.round_trips:
            self.beyond.end()
            return seen
        greedy_ns = self.state.greedy_since_ns
        if self.settings.dry_run:
            news = self.beyond.rehearse(seen, greedy_ns, policy, now_ns)
            if now_ns - self._dry_told_ns < DRY_RUN_REPEAT_NS:
                return seen
            self._dry_told_ns = now_ns if news else self._dry_told_ns
        else:
            news = self.beyond.tick(seen, greedy_ns, policy, now_ns)
        self._tell_of_link(news)
        return replace(seen, uplink=self.beyond.seen(seen.uplink))

    def _gate(self, observation: Observation, state: State, policy: Policy, now_ns: int) -> None:
        pages, _uplink, _is_unseen = self.sampler.observed()
        greedy_ns = state.greedy_since_ns
        declared, nominal = self.declared.now, self.nominals.now
        tick = Tick(pages, declared, observation.unseen, greedy_ns, policy, now_ns, nominal)
        before, self._gating = self._gating, self._how_gates()
        news = []
        # At the first tick gates are an earlier sluiced's, and may be wanted.
        if before not in ("", self._gating):
            news += self.gates.open(self._gating, tick)
        if self._gating in (SET, REHEARSED):
            news += self.gates.tick(tick, is_rehearsal=self._gating == REHEARSED)
        elif before == self._gating:
            self.gates.open(self._gating, tick)
        self._tell_of_gates(news)

    def _remember(self, observation: Observation, policy: Policy, now_ns: int) -> None:
        """Once a second, the pressure on the worst stream for each resource, and the targets."""
        if now_ns - self._past_ns < PAST_NS:
            return
        self._past_ns = now_ns
        felt = pressures(observation, policy)
        # The gate's own look tells more than the tuner's.
        disk = {**values_of(felt[DISK]), **self.gates.pressures()}
        network = {} if observation.uplink is None else values_of(felt[NETWORK])
        waits = [self.streams.waits(stream.domain) for stream in observation.streams]
        worst = {
            DISK: max(disk.values(), default=None),
            NETWORK: max(network.values(), default=None),
            PROCESSORS: max((one.pressure for one in waits if one), default=None),
        }
        self._past.append(Row(self.clock(), worst, self.gates.targets_ms()))

    def _how_gates(self) -> str:
        """SET, REHEARSED, or why there are none."""
        if not self.settings.enabled:
            return "auto-shaping is off"
        if self.settings.method != GATE:
            return "rates hold the disks now"
        return REHEARSED if self.settings.dry_run else SET

    def _tell_of_gates(self, news: Sequence[News]) -> None:
        for one in news:
            domains = tuple(self.gates.members.on(one.device))
            self._tell("gate", one, Subject(domains, device=one.device))

    def _tell_of_link(self, news: Sequence[LinkNews]) -> None:
        for one in news:
            self._tell("beyond", one, Subject(resource=NET_TX, stream=one.stream))

    def _tell(self, of: str, one: News | LinkNews, subject: Subject) -> None:
        dry_run = self.settings.dry_run
        log.info("%s%s", "(dry run) " if dry_run else "", one.sentence)
        entry = {
            "sentence": one.sentence,
            "stream": one.stream,
            "reason": f"{of} {one.kind}",
            "action": None,
            "dry_run": dry_run,
        }
        self.records.add_decision(self.clock(), entry, subject)

    def _rehearse(
        self,
        decisions: tuple[Decision, ...],
        greedy_since_ns: Mapping[str, int],
        now_ns: int,
    ) -> None:
        """Logs decisions without acting on them, so the next tick sees an unchanged world."""
        self.state = State(
            arms={name: Arm(risky_ticks=2, active_ns=now_ns) for name in self.state.arms},
            # Of a stream's own making, whatever is done.
            greedy_since_ns=greedy_since_ns,
        )
        if decisions and now_ns - self._dry_logged_ns >= DRY_RUN_REPEAT_NS:
            self._dry_logged_ns = now_ns
            self._log(decisions, dry_run=True)

    def _observe(self, now_ns: int) -> Observation:
        pages, uplink, uplink_unseen = self.sampler.observed()
        declaration = self.declared.now
        streams = declaration.streams
        reports = (self._reports_seen, self.streams.reports_so_far())
        self._reports_seen = reports[1]
        views = tuple(self._view(s, pages.get(s.domain), reports, now_ns) for s in streams)
        watched = {s.domain for s in streams} | self._held
        return Observation(
            views,
            Background(lambda: _others(pages, declaration, self._is_gated)),
            uplink,
            _unmanaged_net(pages, declaration),
            self._unseen(watched, pages, now_ns),
            uplink_unseen,
        )

    def _is_gated(self, domain: str) -> bool:
        return self.settings.method == GATE and self.gates.covers(domain)

    def _unseen(
        self, watched: set[str], pages: Mapping[str, PageState], now_ns: int
    ) -> frozenset[str]:
        """Of these domains, those whose page has not told anything for a short while."""
        # A single reading has no rates.
        seen = {d for d, p in pages.items() if p.error is None and len(p.window.readings) > 1}
        known = {domain: at for domain, at in self._seen_ns.items() if domain in watched}
        self._seen_ns = {**known, **dict.fromkeys(seen, now_ns)}
        since_ns = now_ns - UNSEEN_NS
        began_ns = now_ns if self._began_ns is None else self._began_ns
        return frozenset(d for d in watched - seen if self._seen_ns.get(d, began_ns) >= since_ns)

    def _view(
        self, stream: Stream, page: PageState | None, reports: tuple[int, int], now_ns: int
    ) -> StreamView:
        view = StreamView(
            stream.name,
            stream.domain,
            stream.class_name,
            self.nominals.now(stream).bytes_per_second,
            allowed_bytes_per_second=allowed_bps(stream),
        )
        if page is not None and page.error is None:
            span = page.window.span()
            disk, net = (
                span.sample((stream.class_name, resource))
                if (stream.class_name, resource) in page.keys
                else None
                for resource in (BLK_READ, NET_TX)
            )
            if disk is not None:
                requests = disk["requests_per_second"]
                view = replace(
                    view,
                    disk_bytes_per_second=disk["bytes_per_second"],
                    disk_request_bytes=disk["bytes_per_second"] / requests if requests else 0.0,
                    disk_requests=requests,
                    disk_mean_ms=disk["service_mean_ms"],
                    disk_latest_ms=page.window.latest_service_ms(stream.class_name, BLK_READ),
                    disk_worst_ms=page.window.worst_service_ms(stream.class_name, BLK_READ),
                )
            if net is not None:
                view = replace(view, net_bytes_per_second=net["bytes_per_second"])
        wait = self.streams.waits(stream.domain)
        view = replace(view, processor_wait_ms_per_second=wait.ms_per_second if wait else 0.0)
        return _with_faults(view, self.streams.reports_between(stream.name, *reports), now_ns)

    def _log(self, decisions: tuple[Decision, ...], dry_run: bool) -> None:
        at = self.clock()
        domain_of = {stream.name: stream.domain for stream in self.declared.now.streams}
        for decision in decisions:
            text = sentence(decision)
            log.info("%s%s", "(dry run) " if dry_run else "", text)
            about = of_changes(decision.changes, domain_of.get(decision.stream))
            self.records.add_decision(at, _decision_json(decision, text, dry_run), about)

    def _save(self, now_ns: int) -> None:
        """The levels, at most once a second, for the next start."""
        if now_ns - self._saved_ns < SAVE_NS:
            return
        self._saved_ns = now_ns
        self._keep()

    def keep(self) -> None:
        """Hands over the present caps for the next start: no tick comes after this."""
        with self._lock:
            self.nominals.keep()
            if self.settings.enabled and not self.settings.dry_run:
                self._keep()

    def _keep(self) -> None:
        saved = {
            name: {"level": arm.level, "caps": [[*key, cap] for key, cap in arm.caps.items()]}
            for name, arm in self.state.arms.items()
            if arm.level is not None
        }
        if saved == self._saved:
            return
        self.records.put_value("auto-state", saved)
        self._saved = saved


def _restored(saved: Mapping[str, Any]) -> State:
    state = State()
    arms = dict(state.arms)
    for name, record in saved.items():
        if name in arms:
            caps = {(d, c, r): cap for d, c, r, cap in record["caps"]}
            arms[name] = Arm(phase=PROBING, level=record["level"], caps=caps)
    return State(arms=arms)


def _begun(state: State, now_ns: int) -> State:
    """The restored state with times of now: its own were those of an earlier sluiced."""
    return replace(
        state,
        arms={
            name: replace(arm, active_ns=now_ns, changed_ns=now_ns, split_at_ns=now_ns)
            for name, arm in state.arms.items()
        },
    )


def _others(
    pages: Mapping[str, PageState], declaration: Declaration, is_gated: Callable[[str], bool]
) -> list[Load]:
    """The classes of no stream that rates can hold, on the resources where they do."""
    left_out = declaration.unmanaged
    own_limits, promised = declaration.own_limits, declaration.reserved
    protected = {(s.domain, s.class_name) for s in declaration.streams}
    loads = []
    for domain, page in pages.items():
        if page.span() is None:
            continue
        resources = HELD_RESOURCES - GATED_RESOURCES if is_gated(domain) else HELD_RESOURCES
        keys = [
            key
            for key in page.keys
            if key[1] in resources and key[0] not in left_out and (domain, key[0]) not in protected
        ]
        for (name, resource), mean, recent, waiting in zip(
            keys, *page.window.rates(keys), strict=True
        ):
            whole = (domain, name, resource)
            own, reserved = own_limits.get(whole), promised.get(whole, 0.0)
            loads.append(Load(domain, name, resource, mean, recent, waiting, own, reserved))
    return loads


def _unmanaged_net(pages: Mapping[str, PageState], declaration: Declaration) -> float:
    """The traffic of classes that no cap holds and that are no stream's."""
    protected = {(s.domain, s.class_name) for s in declaration.streams}
    sent = 0.0
    for domain, page in pages.items() if declaration.unmanaged else ():
        keys = [
            (name, resource)
            for name, resource in page.keys
            if resource == NET_TX
            and name in declaration.unmanaged
            and (domain, name) not in protected
        ]
        if keys and page.span() is not None:
            sent += sum(page.window.rates(keys).bytes_per_second)
    return sent


def _with_faults(view: StreamView, reports: list[dict[str, float]], now_ns: int) -> StreamView:
    """The client's reports since the last tick, and the begin of their window."""
    # Lost pictures alone say nothing of disk or network: a busy client drops them.
    stalled = any(r["stalls"] > 0 or r["stall_seconds"] > 0 for r in reports)
    lost = any(r["continuity_errors"] > 0 for r in reports)
    if not stalled and not lost:
        return view
    longest_ms = max(r["window_ms"] for r in reports)
    return replace(
        view, stalled=stalled, lost=lost, fault_began_ns=now_ns - round(longest_ms * 1e6)
    )


def _decision_json(decision: Decision, text: str, dry_run: bool) -> dict[str, Any]:
    change = leading(decision)
    action = None
    if change is not None:
        domain, class_name, resource = change.key
        action = {
            "domain": domain,
            "class": class_name,
            "resource": resource,
            "from_bytes_per_second": change.before,
            "to_bytes_per_second": change.after,
        }
    return {
        "sentence": text,
        "stream": decision.stream,
        "reason": f"{decision.arm or 'stream'} {decision.kind}",
        "action": action,
        "dry_run": dry_run,
    }
