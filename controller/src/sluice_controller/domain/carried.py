# SPDX-License-Identifier: GPL-2.0-or-later
"""What a domain is to have, as it takes it along to another host.

QEMU's migration moves the shaper's configuration, not what a catalogue knows. So a
domain carries that in its metadata: the classes it has, with what the operator
set for each; the ceiling; the rules and assignments of its processes. `owner`
is the sluiced that wrote it and `revision` how often it has changed, so that
each sluiced can tell what it has written itself from what is news to it.

Not carried: what auto-shaping has set, streams, and groups, which are of a host.

It is read as strictly as a request, because anybody who may edit a domain may
have written it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import BadValue
from .limits import Limit, parse_limits
from .model import (
    DEFAULT_CLASS,
    MAX_RULES,
    MAX_TAG,
    Assignment,
    Grant,
    Rule,
    ShapingClass,
    is_boot_id,
    parse_class,
    parse_dscp,
)
from .queues import parse_queues
from .render import with_default
from .rules import parse_match
from .scheduling import check_all_within, parse_schedulings
from .values import parse_integer, parse_members, parse_text

# More than a sluiced assigns: an earlier one took any number.
_ASSIGNMENTS_READ = 4096
_MEMBERS = ("uuid", "owner", "revision", "classes", "ceiling", "rules", "assignments")
_CLASS_MEMBERS = (
    *("class", "title", "priority", "is_stream", "weight", "unmanaged"),
    *("tag", "dscp", "limits", "scheduling", "queues"),
)
_RULE_MEMBERS = ("class", "match")
_ASSIGNMENT_MEMBERS = ("pid", "start_time_ticks", "class", "created_at", "boot_id")


@dataclass(frozen=True)
class Holding:
    """What one domain has. Rules are those that are its own; ids mean nothing here."""

    classes: Mapping[str, ShapingClass] = field(default_factory=dict)
    grants: tuple[Grant, ...] = ()
    ceiling: Mapping[str, Limit] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class Carried:
    uuid: str
    owner: str
    revision: int
    holding: Holding
    # Rules that are not in it, with the reason.
    left_out: tuple[str, ...] = ()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return value


def _by_resource(values: Mapping[str, Any]) -> dict[str, Any]:
    return {resource: _without_nulls(one.as_json()) for resource, one in values.items()}


def _class_json(grant: Grant, shaping_class: ShapingClass) -> dict[str, Any]:
    return {
        "class": grant.class_name,
        "title": shaping_class.title,
        "priority": shaping_class.priority,
        "is_stream": shaping_class.is_stream,
        "weight": shaping_class.weight,
        "unmanaged": shaping_class.unmanaged,
        "tag": grant.tag,
        "dscp": list(grant.dscp),
        "limits": _by_resource(grant.limits),
        "scheduling": _by_resource(grant.scheduling),
        "queues": _by_resource(grant.queues),
    }


def holding(
    domain: str,
    grants: Iterable[Grant],
    classes: Iterable[ShapingClass],
    ceiling: Mapping[str, Limit],
    rules: Iterable[Rule],
    assignments: Iterable[Assignment],
) -> Holding:
    """What a catalogue says of one domain; rules in the order in which they apply."""
    by_name = {c.name: c for c in classes}
    grants = tuple(with_default(domain, list(grants)))
    names = {grant.class_name for grant in grants}
    applicable = [r for r in rules if r.domain in (None, domain) and r.class_name in names]
    applicable.sort(key=lambda r: (r.domain is None, r.id))
    return Holding(
        {name: by_name.get(name, ShapingClass(name, name)) for name in names},
        grants,
        dict(ceiling),
        tuple(applicable),
        tuple(a for a in assignments if a.class_name in names),
    )


def content(held: Holding) -> dict[str, Any]:
    """The JSON of all that does not change with the host."""
    return {
        "classes": [_class_json(g, held.classes[g.class_name]) for g in held.grants],
        "ceiling": _by_resource(held.ceiling),
        "rules": [{"class": r.class_name, "match": dict(r.match)} for r in held.rules],
        "assignments": [
            {
                "pid": a.pid,
                "start_time_ticks": a.start_time_ticks,
                "class": a.class_name,
                "created_at": a.created_at,
                "boot_id": a.boot_id,
            }
            for a in held.assignments
        ],
    }


def as_text(carried: Carried) -> str:
    head = {"uuid": carried.uuid, "owner": carried.owner, "revision": carried.revision}
    return json.dumps({**head, **content(carried.holding)}, sort_keys=True)


# Reading


def parse(text: str, domain: str, now: float) -> Carried:
    """Refuses, with BadValue or Conflict, what no sluiced would have written."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadValue("carried", text[:60], f"is not JSON ({error})", "remove it") from error
    given = parse_members(raw, "carried", _MEMBERS)
    left_out: list[str] = []
    return Carried(
        parse_text(given.get("uuid"), "uuid", 64),
        parse_text(given.get("owner"), "owner", 64),
        parse_integer(given.get("revision"), "revision", 0, 2**53),
        _parse_holding(given, domain, now, left_out),
        tuple(left_out),
    )


def _list(raw: Any, thing: str, most: int) -> list[Any]:
    if not isinstance(raw, list) or len(raw) > most:
        raise BadValue(thing, raw, f"is not a list of at most {most}", "give such a list")
    return raw


def _parse_holding(
    given: Mapping[str, Any], domain: str, now: float, left_out: list[str]
) -> Holding:
    classes: dict[str, ShapingClass] = {}
    grants: list[Grant] = []
    for i, row in enumerate(_list(given.get("classes", []), "classes", MAX_TAG + 1)):
        shaping_class, grant = _parse_class(row, f"classes[{i}]", domain, grants)
        classes[shaping_class.name] = shaping_class
        grants.append(grant)
    rules = []
    for i, row in enumerate(_list(given.get("rules", []), "rules", MAX_RULES)):
        one = parse_members(row, f"rules[{i}]", _RULE_MEMBERS)
        name = _granted(one, f"rules[{i}]", classes)
        try:
            rules.append(Rule(i, domain, name, parse_match(one.get("match")), now))
        except BadValue as error:
            # Its sluiced took what this one refuses. Without classes and limits the whole
            # domain would be unshaped; without the rule, what it named is in `default`.
            left_out.append(f"a rule for {name} is left out: {error.detail}")
    raw = _list(given.get("assignments", []), "assignments", _ASSIGNMENTS_READ)
    assignments = [
        _parse_assignment(row, f"assignments[{i}]", domain, classes) for i, row in enumerate(raw)
    ]
    ceiling = parse_limits(given.get("ceiling", {}), "ceiling")
    return Holding(classes, tuple(grants), ceiling, tuple(rules), tuple(assignments))


def _granted(row: Mapping[str, Any], thing: str, classes: Mapping[str, ShapingClass]) -> str:
    name = row.get("class")
    if not isinstance(name, str) or name not in classes or name == DEFAULT_CLASS:
        raise BadValue(f"{thing}.class", name, "is not a class of the domain", "name one of them")
    return name


def _parse_class(
    row: Any, thing: str, domain: str, others: list[Grant]
) -> tuple[ShapingClass, Grant]:
    given = parse_members(row, thing, _CLASS_MEMBERS)
    shaping_class = parse_class(given.get("class"), given, 0)
    name = shaping_class.name
    low, high = (0, 0) if name == DEFAULT_CLASS else (1, MAX_TAG)
    tag = parse_integer(given.get("tag"), f"{thing}.tag", low, high)
    if any(name == other.class_name or tag == other.tag for other in others):
        raise BadValue(thing, name, f"or its tag {tag} comes twice", "name each class and tag once")
    limits = parse_limits(given.get("limits", {}), f"{thing}.limits")
    scheduling = parse_schedulings(given.get("scheduling", {}), f"{thing}.scheduling")
    check_all_within(limits, scheduling)
    return shaping_class, Grant(
        domain,
        name,
        tag,
        parse_dscp(given.get("dscp", []), others),
        limits,
        scheduling,
        parse_queues(given.get("queues", {}), f"{thing}.queues"),
    )


def _parse_assignment(
    row: Any, thing: str, domain: str, classes: Mapping[str, ShapingClass]
) -> Assignment:
    given = parse_members(row, thing, _ASSIGNMENT_MEMBERS)
    created = given.get("created_at", 0)
    if isinstance(created, bool) or not isinstance(created, int | float) or not 0 <= created < 1e12:
        raise BadValue(f"{thing}.created_at", created, "is not a time", "give seconds since 1970")
    boot_id = given.get("boot_id")
    if not isinstance(boot_id, str) or not is_boot_id(boot_id):
        # A guest said it, to a sluiced that took anything. Its limits do not hang on that:
        # the assignment is of no boot, and goes as soon as the agent is there.
        boot_id = ""
    return Assignment(
        domain,
        parse_integer(given.get("pid"), f"{thing}.pid", 2, 2**22),
        parse_integer(given.get("start_time_ticks"), f"{thing}.start_time_ticks", 0, 2**63 - 1),
        _granted(given, thing, classes),
        created,
        boot_id,
    )
