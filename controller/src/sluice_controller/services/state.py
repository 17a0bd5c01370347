# SPDX-License-Identifier: GPL-2.0-or-later
"""The declared state as one document: read, compared, and replaced whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ..domain import state as documents
from ..domain.errors import BadValue, Changed, Conflict, within
from ..domain.groups import (
    WEIGHT_DEFAULT,
    Group,
    Membership,
    parse_group,
    parse_weight,
)
from ..domain.limits import parse_limits
from ..domain.model import (
    DEFAULT_CLASS,
    MAX_RULES,
    AutoSettings,
    Grant,
    Rule,
    ShapingClass,
    Stream,
    StreamBody,
    choose_colour,
    choose_tag,
    parse_auto,
    parse_class,
    parse_dscp,
    parse_settings,
)
from ..domain.models import parse
from ..domain.queues import parse_queues
from ..domain.scheduling import check_all_within, parse_schedulings
from .auto import Auto
from .catalogue import Catalogue, audited, check_emulator_right, check_pattern_room
from .groups import Groups, refuse_another_kind, refuse_second
from .ports import Clock, Store, Transaction
from .streams import Streams


class _Rehearsed(Exception):
    """Takes back a unit of work that was to be looked at only."""


def _places(given: Mapping[str, Any]) -> dict[str, str]:
    """{domain: where the document names it first}"""
    found: dict[str, str] = {}
    for name in given.get("domains") or ():
        found.setdefault(name, f"domains.{name}")
    for group, one in (given.get("groups") or {}).items():
        for name in one.get("members", ()):
            found.setdefault(name, f"groups.{group}.members.{name}")
    for i, rule in enumerate(given.get("rules") or ()):
        if rule.get("domain") is not None:
            found.setdefault(rule["domain"], f"rules[{i}].domain")
    for stream, one in (given.get("streams") or {}).items():
        found.setdefault(one["domain"], f"streams.{stream}.domain")
    return found


class _Change:
    """One document on its way into a unit of work."""

    def __init__(
        self,
        unit: Transaction,
        given: Mapping[str, Any],
        prune: bool,
        catalogue: Catalogue,
        clock: Clock,
    ) -> None:
        self.unit = unit
        self.given = given
        self.prune = prune
        self.catalogue = catalogue
        self.clock = clock
        # Facts that parts beyond the store have to know, once this is in force.
        self.gone_streams: list[str] = []
        self.gone_grants: list[tuple[str, str]] = []
        self.gone_groups: list[str] = []
        self.groups: list[Group] = []

    def make(self) -> None:
        """What is removed goes first: it may have what others are to get."""
        self._drop_streams()
        self._classes()
        self._domains()
        self._groups()
        self._rules()
        self._streams()
        self._drop_classes()
        self._check()

    def _unnamed(self, section: str, present: Any) -> list[Any]:
        """What is to go: pruning looks only at sections that the document has."""
        if not self.prune or section not in self.given:
            return []
        return [one for one in present if one not in self.given[section]]

    # Classes

    def _classes(self) -> None:
        present = {c.name: c for c in self.unit.classes()}
        for name, body in self.given.get("classes", {}).items():
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
        declared = dict(self.given.get("domains", {}))
        present: dict[str, dict[str, Grant]] = {}
        for grant in self.unit.grants():
            present.setdefault(grant.domain, {})[grant.class_name] = grant
        for name in self._unnamed("domains", {*present, *self.unit.ceilings()}):
            declared[name] = {}
        for name, body in declared.items():
            with within(f"domains.{name}"):
                members = body or {}
                self._ceiling(name, members.get("ceiling"))
                with within("classes"):
                    self._grants(name, members.get("classes", {}), present.get(name, {}))

    def _ceiling(self, domain: str, declared: Mapping[str, Any] | None) -> None:
        if declared is None and not self.prune:
            return
        after = parse_limits(declared or {}, "ceiling")
        if after != self.unit.ceiling(domain):
            self.unit.put_ceiling(domain, after)

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
        body: Any,
        kept: Mapping[str, Grant],
    ) -> Grant:
        before = kept.get(name)
        members = body or {}
        if name not in {c.name for c in self.unit.classes()}:
            raise BadValue("class", name, "does not exist", "declare it under classes")
        limits = parse_limits(members.get("limits", {}))
        scheduling = parse_schedulings(members.get("scheduling", {}))
        check_all_within(limits, scheduling)
        most = self.catalogue.agents.max_tag(domain)
        tag = before.tag if before else choose_tag(name, (g.tag for g in kept.values()), most)
        dscp = parse_dscp(members.get("dscp", []), ())
        queues = parse_queues(members.get("queues", {}))
        return Grant(domain, name, tag, dscp, limits, scheduling, queues)

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
        declared = self.given.get("groups", {})
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
                    after = Membership(name, domain, parse_weight(weight))
                    if memberships.get((name, domain)) != after:
                        self.unit.put_membership(after)

    def _put_group(self, name: str, body: Any, present: Mapping[str, Group]) -> dict[str, Any]:
        """The weights of its members, {domain: weight}."""
        with within(f"groups.{name}"):
            after = parse_group(name, {key: one for key, one in body.items() if key != "members"})
            refuse_another_kind(present.get(name), after)
            if present.get(name) != after:
                self.unit.put_group(after)
                self.groups.append(after)
            return {
                d: WEIGHT_DEFAULT if w is None else w for d, w in body.get("members", {}).items()
            }

    # Rules

    def _rules(self) -> None:
        if "rules" not in self.given:
            return
        wanted: dict[str | None, list[tuple[str, dict[str, str]]]] = {}
        for i, raw in enumerate(self.given["rules"]):
            with within(f"rules[{i}]"):
                domain, *rest = self._rule(raw)
                same = wanted.setdefault(domain, [])
                if tuple(rest) in same:
                    raise BadValue("match", rest[1], "is there twice", "leave one out")
                same.append(tuple(rest))
        present: dict[str | None, list[Rule]] = {}
        for rule in self.unit.rules():
            present.setdefault(rule.domain, []).append(rule)
        for domain in {**present, **wanted}:
            self._rules_of(domain, present.get(domain, []), wanted.get(domain, []))

    def _rule(self, raw: Any) -> tuple[str | None, str, dict[str, str]]:
        name = raw["class"]
        if name == DEFAULT_CLASS or name not in {c.name for c in self.unit.classes()}:
            raise BadValue("class", name, "is no class that takes rules", "name a declared class")
        return raw.get("domain"), name, self.catalogue.match_of(raw["match"])

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
        for name, body in self.given.get("streams", {}).items():
            after = Stream(name, **vars(parse(StreamBody, body)))
            if present.get(name) != after:
                self.unit.put_stream(after)

    # The whole

    def _check(self) -> None:
        """What must hold between the parts, whichever of them the document changed."""
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
        check_pattern_room(unit, sorted({domain for domain, _name in granted}))


def _check_stream(
    stream: Stream, classes: Mapping[str, ShapingClass], granted: set[tuple[str, str]]
) -> None:
    thing = f"streams.{stream.name}.class"
    if (stream.domain, stream.class_name) not in granted:
        raise BadValue(
            thing,
            stream.class_name,
            f"is not a class that {stream.domain} has",
            f"declare it under domains.{stream.domain}.classes",
        )
    if not classes[stream.class_name].is_stream:
        raise BadValue(
            thing,
            stream.class_name,
            "is not a stream class",
            f"declare is_stream: true under classes.{stream.class_name}",
        )


class States:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        groups: Groups,
        streams: Streams,
        auto: Auto,
        clock: Clock,
        changed: Callable[[str | None], None],
    ) -> None:
        self.store = store
        self.catalogue = catalogue
        self.groups = groups
        self.streams = streams
        self.auto = auto
        self.clock = clock
        self.changed = changed

    def get(self) -> documents.Document:
        with self.auto.changing() as auto, self.store.transaction() as unit:
            return _document(unit, auto)

    def put(
        self, raw: Any, prune: bool = False, dry_run: bool = False, if_match: str | None = None
    ) -> dict[str, Any]:
        """{"changed", "dry_run", "changes", "etag"}: what differs, and is in force unless
        `dry_run`. `prune` removes what a section of the document does not name;
        `if_match` refuses it where the present state has another ETag.
        """
        parse(documents.State, raw)
        given = {section: one for section, one in raw.items() if one is not None}
        found: list[dict[str, Any]] = []
        with self.auto.changing() as auto:
            try:
                with self.catalogue.about_all(_places(given)) as unit:
                    before = _document(unit, auto)
                    _check_etag(before, if_match)
                    change = _Change(unit, given, prune, self.catalogue, self.clock)
                    change.make()
                    new_auto = _values(unit, given, auto)
                    after = _document(unit, new_auto)
                    found = documents.changes(before, after)
                    if dry_run:
                        raise _Rehearsed
                    self._write(unit, change, found)
            except _Rehearsed:
                pass
            else:
                self._adopt(change, new_auto, bool(found))
        return {
            "changed": bool(found),
            "dry_run": dry_run,
            "changes": found,
            "etag": documents.etag(before if dry_run else after),
        }

    def _write(self, unit: Transaction, change: _Change, found: list[dict[str, Any]]) -> None:
        for one in found:
            audited(unit, self.clock, "apply", one["thing"], one["before"], one["after"])
        for group in change.groups:
            self.groups.pages.ensure(group.name, group.limit)

    def _adopt(self, change: _Change, auto: AutoSettings, is_changed: bool) -> None:
        """What is in force beyond the store."""
        if auto != self.auto.settings:
            self.auto.adopt(auto)
        for name in change.gone_streams:
            self.streams.forget(name)
        for domain, name in change.gone_grants:
            self.catalogue.auto_limits.forget(domain, name)
        for name in change.gone_groups:
            self.groups.pages.remove(name)
        if is_changed:
            self.changed(None)


def _document(unit: Transaction, auto: AutoSettings) -> documents.Document:
    return documents.document(
        documents.Declared(
            unit.classes(),
            unit.grants(),
            unit.ceilings(),
            unit.groups(),
            unit.memberships(),
            unit.rules(),
            unit.streams(),
            asdict(auto),
            unit.settings(),
        )
    )


def _values(unit: Transaction, given: Mapping[str, Any], auto: AutoSettings) -> AutoSettings:
    """Stores the settings; those of auto-shaping as they are then."""
    present = unit.settings()
    after = parse_settings(given.get("settings", {}), present)
    with within("settings"):
        check_emulator_right(present, after)
    if after != present:
        unit.put_settings(after)
    new = parse_auto(given.get("auto", {}), auto)
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
