# SPDX-License-Identifier: GPL-2.0-or-later
"""All that operators declare, as one document: its shape, and the differences of two.

Not in it: facts of running guests (tags, assignments of processes), whether a domain is
attached, and the limits of auto-shaping.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from .cards import Card, MacAddress
from .groups import WEIGHT_MAX, Group, GroupBody, Membership
from .knobs import Model, Text, Whole
from .limits import Limit, Resource
from .model import (
    DEFAULT_CLASS,
    AutoSettings,
    ClassBody,
    ClassName,
    Grant,
    GrantBody,
    Rule,
    Settings,
    ShapingClass,
    Stream,
    StreamBody,
    StreamName,
)
from .models import as_json, given_of
from .queues import Queue
from .rules import RuleBody, in_order
from .scheduling import Scheduling

Document = dict[str, Any]
DomainName = Annotated[str, Text(255, example="media")]


@dataclass(frozen=True)
class DomainState(Model):
    """The declarations for one domain."""

    classes: Mapping[ClassName, GrantBody | None] = field(default_factory=dict)
    ceiling: Mapping[Resource, Limit | None] | None = None
    cards: Mapping[MacAddress, Card | None] | None = None


@dataclass(frozen=True, kw_only=True)
class GroupState(GroupBody):
    """A group with its members: {domain: weight}."""

    members: Mapping[DomainName, Annotated[int | None, Whole(1, WEIGHT_MAX, optional=True)]] = (
        field(default_factory=dict)
    )


@dataclass(frozen=True)
class State(Model):
    """All that operators declare on a host. A section that is absent stays as it is."""

    classes: Mapping[ClassName, ClassBody | None] | None = None
    domains: Mapping[DomainName, DomainState | None] | None = None
    groups: Mapping[ClassName, GroupState] | None = None
    rules: tuple[RuleBody, ...] | None = None
    streams: Mapping[StreamName, StreamBody] | None = None
    auto: AutoSettings | None = None
    settings: Settings | None = None


@dataclass(frozen=True)
class Declared:
    """The content of the store."""

    classes: Sequence[ShapingClass]
    grants: Sequence[Grant]
    ceilings: Mapping[str, Mapping[str, Limit]]
    cards: Mapping[str, Mapping[str, Card]]
    groups: Sequence[Group]
    memberships: Sequence[Membership]
    rules: Sequence[Rule]
    streams: Sequence[Stream]
    auto: Mapping[str, Any]
    settings: Settings


def _filled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty and null members: absent members mean the same."""
    return {key: one for key, one in value.items() if one not in (None, {}, [], ())}


def _unusual(one: Limit | Scheduling | Queue | Card) -> dict[str, Any]:
    usual = as_json(type(one)())
    return {key: value for key, value in as_json(one).items() if value != usual[key]}


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _unusual(one) for name, one in sorted(values.items())}


def _grant_document(grant: Grant) -> Document:
    return _filled(
        {
            "dscp": list(grant.dscp),
            "limits": _by_name(grant.limits),
            "scheduling": _by_name(grant.scheduling),
            "queues": _by_name(grant.queues),
        }
    )


def _domains_document(
    grants: Iterable[Grant],
    ceilings: Mapping[str, Mapping[str, Limit]],
    cards: Mapping[str, Mapping[str, Card]],
) -> Document:
    domains: dict[str, Document] = {}
    for grant in sorted(grants, key=lambda g: (g.domain, g.tag)):
        one = _grant_document(grant)
        # Every domain has the default class, whether anything is set for it or not.
        if one or grant.class_name != DEFAULT_CLASS:
            domains.setdefault(grant.domain, {}).setdefault("classes", {})[grant.class_name] = one
    for domain, limits in ceilings.items():
        if limits:
            domains.setdefault(domain, {})["ceiling"] = _by_name(limits)
    for domain, of_domain in cards.items():
        if of_domain:
            domains.setdefault(domain, {})["cards"] = _by_name(of_domain)
    return dict(sorted(domains.items()))


def _group_document(group: Group, memberships: Iterable[Membership]) -> Document:
    unit = group.limit.unit
    return {
        "resource": group.resource,
        f"{unit}_per_second": group.limit.rate,
        f"burst_{unit}": group.limit.burst,
        "members": {
            m.domain: m.weight
            for m in sorted(memberships, key=lambda m: m.domain)
            if m.group == group.name
        },
    }


def rule_document(rule: Rule) -> Document:
    domain = {} if rule.domain is None else {"domain": rule.domain}
    return {**domain, "class": rule.class_name, "match": dict(rule.match)}


def document(declared: Declared) -> Document:
    """With every section; names in the order of the alphabet, rules in that of their trial."""
    return {
        "classes": {c.name: given_of(c) for c in declared.classes},
        "domains": _domains_document(declared.grants, declared.ceilings, declared.cards),
        "groups": {g.name: _group_document(g, declared.memberships) for g in declared.groups},
        "rules": [rule_document(rule) for rule in in_order(declared.rules)],
        "streams": {s.name: given_of(s) for s in declared.streams},
        "auto": dict(declared.auto),
        "settings": asdict(declared.settings),
    }


def etag(document: Document) -> str:
    """Changes with the document, and with nothing else."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]


def changes(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """[{"thing": path, "before", "after"}]: the smallest parts that differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found = []
        for key in [*before, *(key for key in after if key not in before)]:
            inner = f"{path}.{key}" if path else str(key)
            found += changes(before.get(key), after.get(key), inner)
        return found
    if path == "rules":
        return _rule_changes(before, after)
    return [] if before == after else [{"thing": path, "before": before, "after": after}]


def domains_of(before: Document, after: Document) -> list[str]:
    """The domains for which something differs."""

    def of(document: Document) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {name: [one] for name, one in document["domains"].items()}
        for name, group in document["groups"].items():
            for domain, weight in group["members"].items():
                found.setdefault(domain, []).append((name, {**group, "members": weight}))
        for one in [*document["rules"], *document["streams"].values()]:
            found.setdefault(one.get("domain"), []).append(one)
        return found

    old, new = of(before), of(after)
    return sorted(name for name in {*old, *new} if name and old.get(name) != new.get(name))


def domains_in(change: Mapping[str, Any], domains: Iterable[str]) -> tuple[str, ...]:
    """Of the given domains, those that one of the `changes` names."""
    path, named = f"{change['thing']}.", set()
    for part in (change["before"], change["after"]):
        if isinstance(part, Mapping):
            # Of a rule or stream, and of a whole group.
            named |= {part.get("domain"), *part.get("members", ())}
    has_names = path.startswith(("domains.", "groups."))
    return tuple(one for one in domains if one in named or (has_names and f".{one}." in path))


def _rule_changes(before: list[Any], after: list[Any]) -> list[dict[str, Any]]:
    """By rule; where only their order is another, all of them."""
    gone = [{"thing": "rules", "before": r, "after": None} for r in before if r not in after]
    new = [{"thing": "rules", "before": None, "after": r} for r in after if r not in before]
    if not gone and not new and before != after:
        return [{"thing": "rules", "before": before, "after": after}]
    return gone + new
