# SPDX-License-Identifier: GPL-2.0-or-later
"""Classes, grants, limits, rules, assignments, settings, audit."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from ..domain import render
from ..domain.agent_protocol import Preview
from ..domain.cards import Card, MacAddress
from ..domain.errors import (
    BadValue,
    Conflict,
    Forbidden,
    NotFound,
    SluiceError,
    Unavailable,
    sluice,
)
from ..domain.events import HOST, Subject
from ..domain.guests import Guest
from ..domain.later import later
from ..domain.limits import Limit, parse_by_resource, parse_resource, unusual
from ..domain.model import (
    DEFAULT_CLASS,
    MAX_ASSIGNMENTS,
    MAX_RULES,
    AssignBody,
    Assignment,
    AuditEntry,
    Grant,
    GrantBody,
    Rule,
    Settings,
    ShapingClass,
    choose_colour,
    choose_tag,
    parse_class,
    parse_class_name,
    parse_dscp,
    parse_settings,
)
from ..domain.models import as_json, parse
from ..domain.queues import Queue
from ..domain.rules import RuleBody, agent_id, in_order, parse_match
from ..domain.scheduling import Scheduling, check_all_within
from ..domain.values import parse_integer
from .auto_limits import AutoLimits
from .names import settle
from .ports import USUAL_ROWS, Agents, Clock, Host, Store, Transaction, Uplinks

# The asker's role: a page's operator may not change a program that sluiced runs as root.
ADMIN = "admin"
current_role: ContextVar[str] = ContextVar("current_role", default=ADMIN)

# The wait for other questions to libvirt; the host itself bounds each question.
ASKING_SECONDS = 10.0

# Each keeps a thread of the API while guests answer.
MOST_PREVIEWS = 2

# The asker. The API sets it for each request, and takes it back after that.
NOBODY_ASKS = "sluiced"
current_actor: ContextVar[str] = ContextVar("current_actor", default=NOBODY_ASKS)


# Of each resource of a grant: the audit's word for a change, and its shape.
OF_RESOURCE = {
    "limits": ("limit", Limit),
    "scheduling": ("schedule", Scheduling),
    "queues": ("queue", Queue),
}


def audited(
    unit: Transaction,
    clock: Clock,
    action: str,
    thing: str,
    before: Any,
    after: Any,
    about: Subject = HOST,
) -> None:
    """`before` and `after` are objects or JSON; None: nothing."""
    values = as_json(before), as_json(after)
    unit.add_audit(AuditEntry(clock(), current_actor.get(), action, thing, *values), about)


def of_rule(rule: Rule) -> Subject:
    return Subject(() if rule.domain is None else (rule.domain,), rule.class_name)


def _check_emulator_right(before: Settings, after: Settings) -> None:
    """sluiced runs the emulator, as root, to find its abilities."""
    if after.emulator != before.emulator and current_role.get() != ADMIN:
        raise Forbidden(
            "emulator",
            after.emulator,
            f"may be changed by an admin only, not by the role {current_role.get()}",
            "sign in as an admin, or use 'sluice settings' on the host",
        )


def _shown(assignment: Assignment) -> dict[str, Any]:
    return {k: v for k, v in as_json(assignment).items() if k not in ("domain", "boot_id")}


def find_class(unit: Transaction, name: Any) -> ShapingClass:
    parse_class_name(name, "class")
    for shaping_class in unit.classes():
        if shaping_class.name == name:
            return shaping_class
    raise NotFound("class", name, "does not exist", f"create it: {sluice('class', 'set', name)}")


def find_grant(unit: Transaction, domain: str, name: Any) -> Grant:
    find_class(unit, name)
    for grant in render.with_default(domain, unit.grants(domain)):
        if grant.class_name == name:
            return grant
    raise Conflict(
        "class",
        name,
        f"is not granted to the domain {domain}",
        f"grant it: {sluice('grant', domain, name)}",
    )


def _same_rule(unit: Transaction, rule: Rule) -> Rule | None:
    wanted = (rule.domain, rule.class_name, rule.match)
    same = (r for r in unit.rules() if (r.domain, r.class_name, r.match) == wanted)
    return next(same, None)


def _holders(unit: Transaction, rule: Rule) -> list[str]:
    """The domains whose agents get the rule."""
    if rule.domain is not None:
        return [rule.domain]
    return sorted(g.domain for g in unit.grants() if g.class_name == rule.class_name)


def _with_refusals(rule: Rule, refused: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    found = [
        {"domain": domain, "why": own[agent_id(rule)]}
        for domain, own in sorted(refused.items())
        if agent_id(rule) in own
    ]
    return {**as_json(rule), "refused": found}


def _untaken(previews: Mapping[str, Preview]) -> list[dict[str, str]]:
    found = []
    for domain, one in previews.items():
        why = ": ".join(one.refused) if one.refused is not None else one.untold
        if why is not None:
            found.append({"domain": domain, "why": why})
    return found


@dataclass(eq=False)
class Catalogue:
    """`changed(domain)` is called after each change; None means every domain."""

    store: Store
    host: Host
    agents: Agents
    auto_limits: AutoLimits
    clock: Clock
    changed: Callable[[str | None], None]
    uplinks: Uplinks
    asking_seconds: float = ASKING_SECONDS

    def __post_init__(self) -> None:
        # Held from asking libvirt until the answer is stored: the last to ask has the newest.
        self._asking = threading.RLock()
        self._changing = threading.RLock()
        self._previews = threading.BoundedSemaphore(MOST_PREVIEWS)
        with self.store.transaction() as unit:
            if not any(c.name == DEFAULT_CLASS for c in unit.classes()):
                unit.put_class(ShapingClass(DEFAULT_CLASS, "Everything else"))

    @contextmanager
    def about(self, domain: str | None, *, or_gone: bool = False) -> Iterator[Transaction]:
        """A unit of work about a domain that libvirt has; None: about all of them.

        While libvirt cannot be asked, a domain it once had will do, and with `or_gone`
        always: the leftovers of a domain that is gone must be possible to remove.
        """
        if domain is None:
            with self.store.transaction() as unit:
                yield unit
            return
        # libvirt may take its time, and no other unit of work is to wait for it.
        with self.changing(domain):
            refusal = self._ask(domain)
            with self.store.transaction() as unit:
                is_gone = isinstance(refusal, NotFound) and not or_gone
                if refusal and (is_gone or not unit.known_domain(domain)):
                    raise refusal
                yield unit

    @contextmanager
    def about_all(self, places: Mapping[str, str], absent: bool = False) -> Iterator[Transaction]:
        """A unit of work about several domains: {name: where the asker named it}.

        A domain that libvirt has not is refused by its place, unless there is a policy of its
        name already, or `absent`: then the policy waits for the first domain of that name.
        """
        with ExitStack() as stack:
            for name in (None, next(iter(places), "")):
                stack.enter_context(self.changing(name))
            asked: dict[str, SluiceError | None] = {}
            away: SluiceError | None = None
            for name in places:
                asked[name] = refusal = away or self._ask(name)
                if isinstance(refusal, Unavailable) and refusal.thing == "libvirt":
                    # It would let each of them wait.
                    away = refusal
            unit = stack.enter_context(self.store.transaction())
            for name, refusal in asked.items():
                if refusal is None or unit.known_domain(name):
                    continue
                if isinstance(refusal, NotFound):
                    if absent:
                        unit.remember_domain(name, str(uuid.uuid4()))
                        continue
                    refusal.remedy += "; or store it for a domain to come: --absent, absent=true"
                refusal.thing = places[name]
                raise refusal
            yield unit

    def check_known(self, domain: str) -> None:
        """NotFound unless libvirt has the domain; a domain of the last poll is not asked for again.

        For frequent questions that change nothing: they are answered while libvirt is away.
        """
        try:
            if any(guest.name == domain for guest in self.host.guests()):
                return
        except Unavailable:
            pass
        with self.about(domain):
            pass

    def later(self, names: Iterable[str]) -> list[dict[str, str]]:
        """Those of the domains for which what was changed does not hold yet."""
        try:
            guests = {guest.name: guest for guest in self.host.guests()}
            answers = True
        except Unavailable:
            guests, answers = {}, False
        found = (later(name, guests.get(name), answers) for name in names)
        return as_json([one for one in found if one is not None])

    @contextmanager
    def changing(self, domain: str | None) -> Iterator[None]:
        """Keeps others from changing a domain's policy; None: the policy of no domain.

        Nested: the lock of no domain goes first. The lock of domains also keeps others from
        asking libvirt for a unit of work.
        """
        lock = self._changing if domain is None else self._asking
        if not lock.acquire(timeout=self.asking_seconds):
            waited = f"for {self.asking_seconds:g} s or longer"
            if domain is None:
                raise Unavailable(
                    "change",
                    current_actor.get(),
                    f"is not made: another change goes on {waited}",
                    "try again; 'sluice audit' shows the other when it is over",
                )
            raise Unavailable(
                "domain",
                domain,
                f"cannot be looked up: others have waited for libvirt {waited}",
                "try again; if that goes on, see what keeps libvirtd",
            )
        try:
            yield
        finally:
            lock.release()

    def _ask(self, domain: str) -> SluiceError | None:
        """Why there is no such domain; None if libvirt has it: then its policy has its name."""
        try:
            self.settle(self.host.guest(domain))
        except (NotFound, Unavailable) as error:
            return error
        return None

    def settle(self, guest: Guest) -> None:
        settle(self.store, self.host, self.clock, guest)

    # Classes

    def classes(self) -> list[dict[str, Any]]:
        with self.store.transaction() as unit:
            return as_json(unit.classes())

    def put_class(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self.store.transaction() as unit:
            existing = {c.name: c for c in unit.classes()}
            before = existing.get(name)
            colour = before.colour_index if before else choose_colour(existing.values())
            after = parse_class(name, body, colour)
            if before and before.is_stream and not after.is_stream:
                self._refuse_while_streaming(unit, name)
            unit.put_class(after)
            audited(unit, self.clock, "set class", name, before, after, Subject((), name))
        self.changed(None)
        return as_json(after)

    def _refuse_while_streaming(
        self, unit: Transaction, name: str, domain: str | None = None
    ) -> None:
        for stream in unit.streams():
            if stream.class_name == name and domain in (None, stream.domain):
                raise Conflict(
                    "class",
                    name,
                    f"belongs to the stream {stream.name}",
                    f"remove the stream first: {sluice('stream', 'remove', stream.name)}",
                )

    def delete_class(self, name: str) -> None:
        with self.store.transaction() as unit:
            before = find_class(unit, name)
            if name == DEFAULT_CLASS:
                raise Conflict(
                    "class", name, "always exists", "limit it instead: sluice limit DOMAIN default"
                )
            holders = [g.domain for g in unit.grants() if g.class_name == name]
            if holders:
                raise Conflict(
                    "class",
                    name,
                    f"is granted to {', '.join(holders)}",
                    f"revoke it first: {sluice('revoke', holders[0], name)}",
                )
            for rule in unit.rules():
                if rule.class_name == name:
                    raise Conflict(
                        "class",
                        name,
                        f"is used by rule {rule.id}",
                        f"remove the rule first: {sluice('rule', 'remove', rule.id)}",
                    )
            unit.delete_class(name)
            audited(unit, self.clock, "delete class", name, before, None, Subject((), name))

    # Grants

    def _grant_json(self, unit: Transaction, grant: Grant) -> dict[str, Any]:
        shaping_class = find_class(unit, grant.class_name)
        caps, controls = self.auto_limits.snapshot(), self.auto_limits.controls()
        return render.grant_json(grant, shaping_class, caps, controls)

    def of_domains(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """{"classes", "ceiling", "cards"} of each domain, from one unit of work for all."""
        caps, controls = self.auto_limits.snapshot(), self.auto_limits.controls()
        with self.store.transaction() as unit:
            classes = {c.name: c for c in unit.classes()}
            ceilings, grants = unit.ceilings(), unit.grants()
            cards = unit.all_cards()
        of_each: dict[str, list[Grant]] = {name: [] for name in names}
        for grant in grants:
            if grant.domain in of_each:
                of_each[grant.domain].append(grant)
        return {
            name: {
                "classes": [
                    render.grant_json(grant, classes[grant.class_name], caps, controls)
                    for grant in render.with_default(name, own)
                ],
                "ceiling": as_json(ceilings.get(name, {})),
                "cards": as_json(cards.get(name, {})),
            }
            for name, own in of_each.items()
        }

    def put_grant(self, domain: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        given = parse(GrantBody, body)
        given.grant(domain, name, 0, given.dscp)
        with self.about(domain) as unit:
            find_class(unit, name)
            present = render.with_default(domain, unit.grants(domain))
            others = [g for g in present if g.class_name != name]
            before = next((g for g in present if g.class_name == name), None)
            dscp = parse_dscp(given.dscp, others)
            tag = (
                before.tag
                if before
                else choose_tag(name, (g.tag for g in others), self.agents.max_tag(domain))
            )
            after = given.grant(domain, name, tag, dscp)
            unit.put_grant(after)
            shown = self._grant_json(unit, after)
            before_shown = self._grant_json(unit, before) if before else None
            about = Subject((domain,), name)
            audited(unit, self.clock, "grant", f"{domain}/{name}", before_shown, shown, about)
        self.changed(domain)
        return shown

    def set_resource(
        self, kind: str, domain: str, name: str, resource: str, body: Any
    ) -> dict[str, Any]:
        """Replaces an object of one resource in a grant's limits, scheduling or queues (`kind`);
        `body` None is the default."""
        parse_resource(resource)
        action, shape = OF_RESOURCE[kind]
        given = parse_by_resource({resource: body}, shape, kind)
        with self.about(domain) as unit:
            before = find_grant(unit, domain, name)
            present = getattr(before, kind)
            values = {**{r: own for r, own in present.items() if r != resource}, **given}
            after = replace(before, **{kind: values})
            check_all_within(after.limits, after.scheduling, Conflict)
            unit.put_grant(after)
            shown = self._grant_json(unit, after)
            values_of = present.get(resource), given.get(resource)
            about = Subject((domain,), name, resource)
            thing = f"{domain}/{name}/{resource}"
            audited(unit, self.clock, action, thing, *values_of, about)
        self.changed(domain)
        return shown

    def revoke(self, domain: str, name: str) -> dict[str, Any]:
        with self.about(domain, or_gone=True) as unit:
            before = find_grant(unit, domain, name)
            if name == DEFAULT_CLASS:
                raise Conflict(
                    "class",
                    name,
                    "cannot be revoked",
                    "lift its limits instead: "
                    + sluice("limit", domain, "default", "RESOURCE", "unlimited"),
                )
            self._refuse_while_streaming(unit, name, domain)
            rules = [r for r in unit.rules() if (r.domain, r.class_name) == (domain, name)]
            assignments = [a for a in unit.assignments(domain) if a.class_name == name]
            for rule in rules:
                unit.delete_rule(rule.id)
            for assignment in assignments:
                unit.delete_assignment(domain, assignment.pid)
            shown = self._grant_json(unit, before)
            unit.delete_grant(domain, name)
            about = Subject((domain,), name)
            audited(unit, self.clock, "revoke", f"{domain}/{name}", shown, None, about)
        self.auto_limits.forget(domain, name)
        self.changed(domain)
        return {
            "revoked": shown,
            "rules": as_json(rules),
            "assignments": [_shown(a) for a in assignments],
        }

    def put_ceiling(self, domain: str, body: Any, resource: str | None = None) -> dict[str, Any]:
        """The whole ceiling, or that on one resource; then `body` None lifts it."""
        if resource is not None:
            body = {parse_resource(resource): body}
        limits = parse_by_resource(body, Limit, "ceiling")
        with self.about(domain) as unit:
            before = unit.ceiling(domain)
            if resource is not None:
                others = {r: limit for r, limit in before.items() if r != resource}
                limits = {**others, **limits}
            unit.put_ceiling(domain, limits)
            audited(unit, self.clock, "ceiling", domain, before, limits, Subject((domain,)))
        self.changed(domain)
        return as_json(limits)

    def put_card(self, domain: str, mac: str, body: Any) -> dict[str, Any]:
        """Replaces a card's settings; returns those of all cards, by MAC address."""
        mac, given = parse(MacAddress, mac, "card"), parse(Card, body, "card")
        with self.about(domain) as unit:
            before = unit.cards(domain)
            after = unusual({**before, mac: given})
            unit.put_cards(domain, after)
            values_of = as_json(before.get(mac)), as_json(after.get(mac))
            audited(unit, self.clock, "card", f"{domain}/{mac}", *values_of, Subject((domain,)))
        self.changed(domain)
        return as_json(after)

    # Rules

    def rules(self, domain: str | None = None) -> list[dict[str, Any]]:
        with self.about(domain) as unit:
            rules = in_order(unit.rules())
        refused = self.agents.refused()
        return [
            _with_refusals(rule, refused)
            for rule in rules
            if domain is None or rule.domain in (None, domain)
        ]

    @contextmanager
    def _about_rule(self, body: Mapping[str, Any]) -> Iterator[tuple[Transaction, Rule]]:
        given = parse(RuleBody, body)
        match, domain, name = parse_match(given.match), given.domain, given.class_name
        with self.about(domain) as unit:
            if domain is None:
                find_class(unit, name)
            else:
                find_grant(unit, domain, name)
            if name == DEFAULT_CLASS:
                raise BadValue(
                    "class",
                    DEFAULT_CLASS,
                    "takes no rules",
                    "processes that no rule matches are in it already",
                )
            yield unit, Rule(0, domain, name, match, self.clock())

    def add_rule(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The rule, and whether it is new: an equal rule is not added again."""
        with self._about_rule(body) as (unit, rule):
            known = _same_rule(unit, rule)
            domains = _holders(unit, rule)
        previews = {} if known else self.try_rule(rule.match, domains)
        with self._about_rule(body) as (unit, rule):
            # A repeated request may follow an answer that was lost.
            known = _same_rule(unit, rule)
            if known is None:
                if len(unit.rules()) >= MAX_RULES:
                    raise Conflict(
                        "rules",
                        MAX_RULES,
                        "exist already",
                        "remove a rule that is no longer needed",
                    )
                added = unit.add_rule(rule)
                shown = as_json(added)
                audited(unit, self.clock, "add rule", str(shown["id"]), None, shown, of_rule(rule))
        if known is not None:
            return _with_refusals(known, self.agents.refused()), False
        self.changed(rule.domain)
        return {**shown, "refused": _untaken(previews)}, True

    def try_rule(self, match: Mapping[str, str], domains: Iterable[str]) -> Mapping[str, Preview]:
        """Has the agents that are connected try it; BadValue if it is for none of them."""
        previews = self.agents.preview(domains, match)
        refused = {d: one.refused for d, one in previews.items() if one.refused is not None}
        if refused and len(refused) == len(previews):
            domain, (field, why) = next(iter(refused.items()))
            value = match.get(field.removeprefix("match."), dict(match))
            others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            raise BadValue(field, value, f"is refused by the agent of {domain}{others}", why)
        return previews

    def preview_rule(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._about_rule(body) as (unit, rule):
            domains = _holders(unit, rule)
        if not self._previews.acquire(blocking=False):
            raise Conflict(
                "preview",
                rule.match,
                f"has to wait: {MOST_PREVIEWS} others are being tried",
                "try again in some seconds",
            )
        try:
            self.agents.refresh(domains)
            previews = self.try_rule(rule.match, domains)
        finally:
            self._previews.release()
        return {"processes": self._previewed(previews), "refused": _untaken(previews)}

    def _previewed(self, previews: Mapping[str, Preview]) -> list[dict[str, Any]]:
        """With the names that the tables have; a process may be younger than its table."""
        found = []
        for domain, preview in previews.items():
            table = self.agents.processes(domain) or {"processes": []}
            rows = {p["pid"]: p for p in table["processes"]}
            for pid in preview.pids or []:
                row = rows.get(pid, {"comm": "", "exe": ""})
                found.append({"domain": domain, "pid": pid, "comm": row["comm"], "exe": row["exe"]})
        return found

    def delete_rule(self, rule_id: int) -> None:
        with self.store.transaction() as unit:
            rule = next((r for r in unit.rules() if r.id == rule_id), None)
            if rule is None:
                raise NotFound("rule", rule_id, "does not exist", "see 'sluice rule list'")
            unit.delete_rule(rule_id)
            audited(unit, self.clock, "remove rule", str(rule_id), rule, None, of_rule(rule))
        self.changed(rule.domain)

    # Assignments

    def processes(self, domain: str) -> str:
        """The guest's processes now, as JSON: the agent's own, checked when it came."""
        self.check_known(domain)
        self.agents.refresh([domain])
        table = self._table(domain)
        head = {name: table[name] for name in ("at", "age_seconds", "truncated")}
        return f'{json.dumps(head)[:-1]}, "processes": {table["table"].text}}}'

    def _table(self, domain: str) -> Mapping[str, Any]:
        table = self.agents.processes(domain)
        if table is None:
            raise self._no_agent(domain)
        return table

    def _no_agent(self, domain: str) -> Unavailable:
        error = self.agents.status(domain).get("error") or "it has not answered yet"
        return Unavailable(
            "agent of domain",
            domain,
            f"is not connected ({error})",
            "see that sluice-agent runs in the guest and the domain is attached and running",
        )

    def assignments(self, domain: str) -> list[dict[str, Any]]:
        with self.about(domain) as unit:
            return [_shown(a) for a in unit.assignments(domain)]

    def assign(self, domain: str, pid: int, body: Mapping[str, Any]) -> dict[str, Any]:
        given = parse(AssignBody, body)
        name = given.class_name
        self.agents.refresh([domain])
        with self.about(domain) as unit:
            find_grant(unit, domain, name)
            if name == DEFAULT_CLASS:
                raise BadValue(
                    "class",
                    name,
                    "takes no assignments",
                    f"unassign the process instead: {sluice('unassign', domain, pid)}",
                )
            # Process 1 adopts every orphan: its class would be inherited by chance.
            parse_integer(pid, "pid", 2, 2**22)
            ticks = self._start_time(domain, pid, given.start_time_ticks)
            present = unit.assignments(domain)
            before = next((a for a in present if a.pid == pid), None)
            if before is None and len(present) >= MAX_ASSIGNMENTS:
                raise Conflict(
                    "assignments", MAX_ASSIGNMENTS, "exist already", "make a rule for them instead"
                )
            agent = self.agents.status(domain)
            if not agent["connected"]:
                # Its table may still be there; of which boot it is, is not known.
                raise self._no_agent(domain)
            boot_id = agent["boot_id"] or ""
            after = Assignment(domain, pid, ticks, name, self.clock(), boot_id)
            unit.put_assignment(after)
            shown = _shown(after)
            before_shown = _shown(before) if before else None
            about = Subject((domain,), name)
            audited(unit, self.clock, "assign", f"{domain}/{pid}", before_shown, shown, about)
        self.changed(domain)
        return shown

    def _start_time(self, domain: str, pid: int, wanted: int | None) -> int:
        """The process's present start time, checked against the caller's."""
        rows = self._table(domain)["processes"]
        row = next((p for p in rows if p["pid"] == pid), None)
        if row is None:
            raise NotFound(
                "process",
                pid,
                f"is not running in {domain}",
                f"see: {sluice('ps', domain)}",
            )
        ticks = row["start_time_ticks"]
        if wanted not in (None, ticks):
            raise Conflict(
                "start_time_ticks",
                wanted,
                f"is not that of process {pid}, which started at {ticks}",
                "the pid was reused: read the process table again",
            )
        return ticks

    def unassign(self, domain: str, pid: int) -> None:
        with self.about(domain) as unit:
            before = next((a for a in unit.assignments(domain) if a.pid == pid), None)
            if before is None:
                raise NotFound("assignment", pid, "does not exist", f"see: {sluice('ps', domain)}")
            unit.delete_assignment(domain, pid)
            about = Subject((domain,), before.class_name)
            audited(unit, self.clock, "unassign", f"{domain}/{pid}", _shown(before), None, about)
        self.changed(domain)

    # Settings and audit

    def settings(self) -> dict[str, Any]:
        with self.store.transaction() as unit:
            return as_json(unit.settings())

    def check_settings(self, before: Settings, after: Settings) -> None:
        """Raises SluiceError if the change is not this actor's, or can have no effect."""
        _check_emulator_right(before, after)
        if after.uplink not in (None, before.uplink):
            try:
                self.uplinks.ports(after.uplink)
            except ValueError as error:
                raise BadValue("uplink", after.uplink, "cannot be watched", str(error)) from error
            except OSError as error:
                raise Unavailable(
                    "uplink",
                    after.uplink,
                    f"cannot be asked the kernel for ({error})",
                    "try again; sluiced needs netlink: systemctl cat sluiced",
                ) from error

    def put_settings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self.store.transaction() as unit:
            before = unit.settings()
            after = parse_settings(body, before)
            self.check_settings(before, after)
            unit.put_settings(after)
            audited(unit, self.clock, "settings", "", before, after)
        self.changed(None)
        return as_json(after)

    def audit(self, limit: int = USUAL_ROWS) -> list[dict[str, Any]]:
        with self.store.transaction() as unit:
            return as_json(unit.audit(limit))
