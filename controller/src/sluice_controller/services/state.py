# SPDX-License-Identifier: GPL-2.0-or-later
"""The declared state as one document: read, compared, and replaced whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..domain import state as documents
from ..domain.errors import BadValue, Changed, Conflict, within
from ..domain.events import Subject
from ..domain.groups import (
    WEIGHT_DEFAULT,
    Group,
    Membership,
    parse_group,
)
from ..domain.limits import unusual
from ..domain.model import (
    DEFAULT_CLASS,
    MAX_RULES,
    AutoSettings,
    Grant,
    GrantBody,
    Rule,
    Settings,
    ShapingClass,
    Stream,
    choose_colour,
    choose_tag,
    may_stream,
    parse_auto,
    parse_class,
    parse_dscp,
    parse_settings,
)
from ..domain.models import parse
from ..domain.rules import RuleBody, parse_match
from .auto import Auto
from .catalogue import Catalogue, audited
from .groups import Groups, refuse_another_kind, refuse_second
from .ports import Clock, Store, Transaction
from .streams import Streams

# Agents try the expressions of a document this long, and the last of them a little longer.
TRYING_SECONDS = 4.0


class _Rehearsed(Exception):
    """Takes back a unit of work that was to be looked at only."""


def _places(given: documents.State) -> dict[str, str]:
    """{domain: where the document names it first}"""
    found: dict[str, str] = {}
    for name in given.domains or ():
        found.setdefault(name, f"domains.{name}")
    for group, one in (given.groups or {}).items():
        for name in one.members:
            found.setdefault(name, f"groups.{group}.members.{name}")
    for i, rule in enumerate(given.rules or ()):
        if rule.domain is not None:
            found.setdefault(rule.domain, f"rules[{i}].domain")
    for stream, one in (given.streams or {}).items():
        found.setdefault(one.domain, f"streams.{stream}.domain")
    return found


@dataclass(eq=False)
class _Change:
    """One document on its way into a unit of work."""

    unit: Transaction
    given: documents.State
    prune: bool
    catalogue: Catalogue
    clock: Clock

    def __post_init__(self) -> None:
        # Facts that parts beyond the store have to know, once this is in force.
        self.gone_streams: list[str] = []
        self.gone_grants: list[tuple[str, str]] = []
        self.gone_groups: list[str] = []
        self.groups: list[Group] = []

    def make(self) -> None:
        """Removals go first: a removed class may have a tag that another gets."""
        self._drop_streams()
        self._classes()
        self._domains()
        self._groups()
        self._rules()
        self._streams()
        self._drop_classes()
        self._check()

    def _unnamed(self, section: str, present: Any) -> list[Any]:
        """Items to remove: pruning looks only at sections that the document has."""
        named = getattr(self.given, section)
        return (
            [one for one in present if one not in named] if self.prune and named is not None else []
        )

    # Classes

    def _classes(self) -> None:
        present = {c.name: c for c in self.unit.classes()}
        for name, body in (self.given.classes or {}).items():
            with within(f"classes.{name}"):
                before = present.get(name)
                colour = before.colour_index if before else choose_colour(present.values())
                after = parse_class(name, body or {}, colour)
                present[name] = after
                if after != before:
                    self.unit.put_class(after)

    def _drop_classes(self) -> None:
        used = {g.class_name: f"is granted to {g.domain}" for g in self.unit.grants()}
        used.update({r.class_name: "is used by a rule" for r in self.unit.rules()})
        for name in self._unnamed("classes", [c.name for c in self.unit.classes()]):
            if name == DEFAULT_CLASS:
                self.unit.put_class(ShapingClass(DEFAULT_CLASS, "Everything else"))
            elif name in used:
                raise Conflict(
                    f"classes.{name}", name, used[name], "keep the class, or name its users, too"
                )
            else:
                self.unit.delete_class(name)

    # Domains

    def _domains(self) -> None:
        declared = dict(self.given.domains or {})
        present: dict[str, dict[str, Grant]] = {}
        for grant in self.unit.grants():
            present.setdefault(grant.domain, {})[grant.class_name] = grant
        for name in self._unnamed(
            "domains", {*present, *self.unit.ceilings(), *self.unit.all_cards()}
        ):
            declared[name] = None
        for name, body in declared.items():
            of_domain = body or documents.DomainState()
            with within(f"domains.{name}"):
                self._ceiling(name, of_domain.ceiling)
                self._cards(name, of_domain.cards)
                with within("classes"):
                    self._grants(name, of_domain.classes, present.get(name, {}))

    def _ceiling(self, domain: str, declared: Mapping[str, Any] | None) -> None:
        if declared is None and not self.prune:
            return
        after = unusual(declared or {})
        if after != self.unit.ceiling(domain):
            self.unit.put_ceiling(domain, after)

    def _cards(self, domain: str, declared: Mapping[str, Any] | None) -> None:
        if declared is None and not self.prune:
            return
        after = unusual(declared or {})
        if after != self.unit.cards(domain):
            self.unit.put_cards(domain, after)

    def _grants(
        self, domain: str, declared: Mapping[str, Any], present: Mapping[str, Grant]
    ) -> None:
        kept = dict(present)
        for name in present:
            if self.prune and name not in declared:
                self._drop_grant(domain, name)
                del kept[name]
        for name, body in declared.items():
            with within(name):
                kept[name] = self._grant(domain, name, body, kept)
        self._put_grants(domain, declared, kept, present)

    def _grant(
        self,
        domain: str,
        name: str,
        body: GrantBody | None,
        kept: Mapping[str, Grant],
    ) -> Grant:
        before = kept.get(name)
        given = body or GrantBody()
        if name not in {c.name for c in self.unit.classes()}:
            raise BadValue("class", name, "does not exist", "declare it under classes")
        most = self.catalogue.agents.max_tag(domain)
        tag = before.tag if before else choose_tag(name, (g.tag for g in kept.values()), most)
        return given.grant(domain, name, tag, parse_dscp(given.dscp, ()))

    def _put_grants(
        self,
        domain: str,
        declared: Mapping[str, Any],
        kept: Mapping[str, Grant],
        present: Mapping[str, Grant],
    ) -> None:
        for name in declared:
            with within(name):
                others = [grant for grant in kept.values() if grant.class_name != name]
                parse_dscp(kept[name].dscp, others)
                if kept[name] != present.get(name, Grant(domain, DEFAULT_CLASS, 0)):
                    self.unit.put_grant(kept[name])

    def _drop_grant(self, domain: str, name: str) -> None:
        if name == DEFAULT_CLASS:
            self.unit.put_grant(Grant(domain, DEFAULT_CLASS, 0))
            return
        # As when a class is revoked; a rule that the document has is refused in the end.
        for rule in self.unit.rules():
            if (rule.domain, rule.class_name) == (domain, name):
                self.unit.delete_rule(rule.id)
        for assignment in self.unit.assignments(domain):
            if assignment.class_name == name:
                self.unit.delete_assignment(domain, assignment.pid)
        self.unit.delete_grant(domain, name)
        self.gone_grants.append((domain, name))

    # Groups

    def _groups(self) -> None:
        present = {g.name: g for g in self.unit.groups()}
        memberships = {(m.group, m.domain): m for m in self.unit.memberships()}
        declared = self.given.groups or {}
        members = {name: self._put_group(name, body, present) for name, body in declared.items()}
        gone = self._unnamed("groups", present)
        for group, domain in memberships:
            if group in gone or (self.prune and group in members and domain not in members[group]):
                self.unit.delete_membership(group, domain)
        for name in gone:
            self.unit.delete_group(name)
            self.gone_groups.append(name)
        for name, own in members.items():
            for domain, weight in own.items():
                with within(f"groups.{name}.members.{domain}"):
                    after = Membership(name, domain, WEIGHT_DEFAULT if weight is None else weight)
                    if memberships.get((name, domain)) != after:
                        self.unit.put_membership(after)

    def _put_group(
        self, name: str, body: documents.GroupState, present: Mapping[str, Group]
    ) -> Mapping[str, int | None]:
        """The weights of its members, {domain: weight}."""
        with within(f"groups.{name}"):
            after = parse_group(name, body)
            refuse_another_kind(present.get(name), after)
            if present.get(name) != after:
                self.unit.put_group(after)
                self.groups.append(after)
            return body.members

    # Rules

    def _rules(self) -> None:
        if self.given.rules is None:
            return
        wanted: dict[str | None, list[tuple[str, dict[str, str]]]] = {}
        for i, one in enumerate(self.given.rules):
            with within(f"rules[{i}]"):
                domain, *rest = self._rule(one)
                same = wanted.setdefault(domain, [])
                if tuple(rest) in same:
                    raise BadValue("match", rest[1], "is there twice", "leave one out")
                same.append(tuple(rest))
        present: dict[str | None, list[Rule]] = {}
        for rule in self.unit.rules():
            present.setdefault(rule.domain, []).append(rule)
        for domain in {**present, **wanted}:
            self._rules_of(domain, present.get(domain, []), wanted.get(domain, []))

    def _rule(self, given: RuleBody) -> tuple[str | None, str, dict[str, str]]:
        name = given.class_name
        if name == DEFAULT_CLASS or name not in {c.name for c in self.unit.classes()}:
            raise BadValue("class", name, "is no class that takes rules", "name a declared class")
        return given.domain, name, parse_match(given.match)

    def _rules_of(
        self, domain: str | None, present: list[Rule], wanted: list[tuple[str, dict[str, str]]]
    ) -> None:
        """Their order counts: where pruning finds another order, those behind are made anew."""
        have = [(rule.class_name, dict(rule.match)) for rule in present]
        if self.prune:
            same = next(
                (i for i, pair in enumerate(zip(have, wanted, strict=False)) if pair[0] != pair[1]),
                min(len(have), len(wanted)),
            )
            for rule in present[same:]:
                self.unit.delete_rule(rule.id)
            new = wanted[same:]
        else:
            new = [one for one in wanted if one not in have]
        for name, match in new:
            self.unit.add_rule(Rule(0, domain, name, match, self.clock()))

    # Streams

    def _drop_streams(self) -> None:
        for name in self._unnamed("streams", [s.name for s in self.unit.streams()]):
            self.unit.delete_stream(name)
            self.gone_streams.append(name)

    def _streams(self) -> None:
        present = {s.name: s for s in self.unit.streams()}
        for name, body in (self.given.streams or {}).items():
            after = Stream(name, **vars(body))
            if present.get(name) != after:
                self.unit.put_stream(after)

    # The whole

    def _check(self) -> None:
        """Checks the parts against each other, also unchanged ones."""
        unit = self.unit
        classes = {c.name: c for c in unit.classes()}
        granted = {(g.domain, g.class_name) for g in unit.grants()}
        for stream in unit.streams():
            _check_stream(stream, classes, granted)
        rules = unit.rules()
        for rule in rules:
            if rule.domain is not None and (rule.domain, rule.class_name) not in granted:
                raise BadValue(
                    "rules",
                    documents.rule_document(rule),
                    f"names a class that {rule.domain} has not",
                    f"declare it under domains.{rule.domain}.classes, or leave the rule out",
                )
        if len(rules) > MAX_RULES:
            raise Conflict("rules", len(rules), "are too many", f"declare at most {MAX_RULES}")
        groups = {g.name: g for g in unit.groups()}
        for membership in unit.memberships():
            with within(f"groups.{membership.group}.members"):
                refuse_second(unit, groups[membership.group], membership.domain)


def _check_stream(
    stream: Stream, classes: Mapping[str, ShapingClass], granted: set[tuple[str, str]]
) -> None:
    thing = f"streams.{stream.name}.class"
    has_class = stream.class_name == DEFAULT_CLASS or (stream.domain, stream.class_name) in granted
    if not has_class:
        raise BadValue(
            thing,
            stream.class_name,
            f"is not a class that {stream.domain} has",
            f"declare it under domains.{stream.domain}.classes",
        )
    if not may_stream(classes[stream.class_name]):
        raise BadValue(
            thing,
            stream.class_name,
            "is not a stream class",
            f"declare is_stream: true under classes.{stream.class_name}",
        )


@dataclass(eq=False)
class States:
    store: Store
    catalogue: Catalogue
    groups: Groups
    streams: Streams
    auto: Auto
    clock: Clock
    changed: Callable[[str | None], None]
    monotonic: Callable[[], float] = time.monotonic

    def get(self) -> documents.Document:
        with self.auto.changing() as auto, self.store.transaction() as unit:
            return _document(unit, auto)

    def put(
        self,
        raw: Any,
        prune: bool = False,
        dry_run: bool = False,
        absent: bool = False,
        if_match: str | None = None,
    ) -> dict[str, Any]:
        """{"changed", "dry_run", "changes", "of_domains", "etag"}: what differs, and for which
        domains; it is in force unless `dry_run`. `prune` removes what a section of the document
        does not name. `absent` stores what is declared for domains that libvirt has not.
        `if_match` refuses it where the present state has another ETag.
        """
        given = parse(documents.State, raw)
        self._try_expressions(given)
        found: list[dict[str, Any]] = []
        with self.auto.changing() as auto:
            try:
                about_all = self.catalogue.about_all(_places(given), absent)
                with self.groups.as_stored(), about_all as unit:
                    before = _document(unit, auto)
                    _check_etag(before, if_match)
                    change = _Change(unit, given, prune, self.catalogue, self.clock)
                    change.make()
                    new_auto = _values(unit, raw, auto, self.catalogue.check_settings)
                    after = _document(unit, new_auto)
                    found = documents.changes(before, after)
                    if dry_run:
                        raise _Rehearsed
                    self._write(unit, change, found, documents.domains_of(before, after))
            except _Rehearsed:
                pass
            else:
                self._adopt(change, new_auto, bool(found))
        return {
            "changed": bool(found),
            "dry_run": dry_run,
            "changes": found,
            "of_domains": documents.domains_of(before, after),
            "etag": documents.etag(before if dry_run else after),
        }

    def _try_expressions(self, given: documents.State) -> None:
        """Has agents try the expressions of new rules: of them a model cannot judge. The
        answers may take seconds, and no unit of work is to wait for them.

        Other changes wait meanwhile, and guests choose when they answer: the first seconds are
        all that they get, and untried expressions are stored as those of silent agents.
        """
        with self.store.transaction() as unit:
            known = [(r.domain, dict(r.match)) for r in unit.rules()]
            every = {grant.domain for grant in unit.grants()}
        silent: set[str] = set()
        until = self.monotonic() + TRYING_SECONDS
        for i, rule in enumerate(given.rules or ()):
            with within(f"rules[{i}]"):
                domain, match = rule.domain, parse_match(rule.match)
                is_new = "cmdline" in match and (domain, match) not in known
                if is_new and self.monotonic() < until:
                    asked = (every if domain is None else {domain}) - silent
                    previews = self.catalogue.try_rule(match, asked)
                    silent |= {d for d, one in previews.items() if one.untold is not None}

    def _write(
        self,
        unit: Transaction,
        change: _Change,
        found: list[dict[str, Any]],
        domains: list[str],
    ) -> None:
        for one in found:
            values = one["thing"], one["before"], one["after"]
            about = Subject(documents.domains_in(one, domains))
            audited(unit, self.clock, "apply", *values, about)
        for group in change.groups:
            self.groups.pages.ensure(group.name, group.limit)

    def _adopt(self, change: _Change, auto: AutoSettings, is_changed: bool) -> None:
        """Brings changes to the parts beyond the store."""
        if auto != self.auto.settings:
            self.auto.adopt(auto)
        for name in change.gone_streams:
            self.streams.forget(name)
        for domain, name in change.gone_grants:
            self.catalogue.auto_limits.forget(domain, name)
        for name in change.gone_groups:
            self.groups.remove_page(name)
        if is_changed:
            self.changed(None)


def _document(unit: Transaction, auto: AutoSettings) -> documents.Document:
    return documents.document(
        documents.Declared(
            unit.classes(),
            unit.grants(),
            unit.ceilings(),
            unit.all_cards(),
            unit.groups(),
            unit.memberships(),
            unit.rules(),
            unit.streams(),
            asdict(auto),
            unit.settings(),
        )
    )


def _values(
    unit: Transaction,
    raw: Mapping[str, Any],
    auto: AutoSettings,
    check: Callable[[Settings, Settings], None],
) -> AutoSettings:
    """Stores the settings; those of auto-shaping as they are then."""
    present = unit.settings()
    after = parse_settings(raw.get("settings") or {}, present)
    with within("settings"):
        check(present, after)
    if after != present:
        unit.put_settings(after)
    new = parse_auto(raw.get("auto") or {}, auto)
    if new != auto:
        unit.put_value("auto", asdict(new))
    return new


def _check_etag(document: documents.Document, if_match: str | None) -> None:
    present = documents.etag(document)
    if if_match is not None and if_match.strip().removeprefix("W/").strip('"') not in (
        present,
        "*",
    ):
        raise Changed(
            "If-Match",
            if_match,
            f"is not the ETag of the present state, which is {present}",
            "read the state again, and apply what you want to it as it is now",
        )
