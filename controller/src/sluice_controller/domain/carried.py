# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain's shaping, as its metadata carries it to another host.

QEMU's migration moves the shaper's configuration, not the catalogue. So a domain carries its
part of the catalogue in its metadata: its classes with the operator's settings, the ceiling,
the rules and assignments of its processes. `owner` is the sluiced that wrote it and `revision`
the number of changes, so each sluiced can distinguish its own text from news.

Not carried: limits of auto-shaping, streams, and groups, which belong to a host. QEMU moves
limits of auto-shaping all the same, as the shaper's. `Tuned` names these and their host, in an
attribute of its own, so an earlier sluiced reads the rest.

The text is read as strictly as a request, because every user who may edit a domain may have
written it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import BadValue
from .limits import RESOURCES, Limit, parse_limits, parse_resource
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
from .models import body_of, given_of, members
from .queues import parse_queues
from .render import with_default
from .rules import parse_match
from .scheduling import check_all_within, parse_schedulings
from .values import parse_integer, parse_members, parse_text

# More than a sluiced assigns: an earlier one took any number.
_ASSIGNMENTS_READ = 4096
_MEMBERS = ("uuid", "owner", "revision", "classes", "ceiling", "rules", "assignments")
_GRANT_MEMBERS = ("class", "tag", "dscp", "limits", "scheduling", "queues")
_RULE_MEMBERS = ("class", "match")
_TUNED_MEMBERS = ("host", "limits")
_TUNED_LIMIT_MEMBERS = ("class", "resource")
_ASSIGNMENT_MEMBERS = ("pid", "start_time_ticks", "class", "created_at", "boot_id")


@dataclass(frozen=True)
class Holding:
    """The shaping of one domain, with its own rules; ids mean nothing here."""

    classes: Mapping[str, ShapingClass] = field(default_factory=dict)
    grants: tuple[Grant, ...] = ()
    ceiling: Mapping[str, Limit] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class Tuned:
    """Which of the shaper's limits are auto-shaping's: (class, resource), and the host's id."""

    host: str
    limits: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Carried:
    uuid: str
    owner: str
    revision: int
    holding: Holding
    tuned: Tuned | None = None
    # Items that are left out, with the reason.
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
        **given_of(shaping_class),
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
    """One domain's part of a catalogue; rules in the order in which they apply."""
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


def tuned_text(tuned: Tuned | None) -> str | None:
    if tuned is None:
        return None
    limits = [{"class": name, "resource": resource} for name, resource in sorted(tuned.limits)]
    return json.dumps({"host": tuned.host, "limits": limits})


# Reading


def parse(text: str, domain: str, now: float, tuned: str | None = None) -> Carried:
    """Refuses, with BadValue or Conflict, a text that no sluiced would have written."""
    given = parse_members(_json(text, "carried"), "carried", _MEMBERS)
    left_out: list[str] = []
    held = _parse_holding(given, domain, now, left_out)
    return Carried(
        parse_text(given.get("uuid"), "uuid", 64),
        parse_text(given.get("owner"), "owner", 64),
        parse_integer(given.get("revision"), "revision", 0, 2**53),
        held,
        _tuned_or_none(tuned, held, left_out),
        tuple(left_out),
    )


def _json(text: str, thing: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadValue(thing, text[:60], f"is not JSON ({error})", "remove it") from error


def _tuned_or_none(text: str | None, held: Holding, left_out: list[str]) -> Tuned | None:
    """Without it the shaper's limits hold, which are no looser."""
    if text is None:
        return None
    try:
        return _parse_tuned(_json(text, "tuned"), held.classes)
    except BadValue as error:
        left_out.append(f"which limits are auto-shaping's is left out: {error.detail}")
        return None


def _parse_tuned(raw: Any, classes: Mapping[str, ShapingClass]) -> Tuned:
    given = parse_members(raw, "tuned", _TUNED_MEMBERS)
    limits = set()
    most = (MAX_TAG + 1) * len(RESOURCES)
    for i, row in enumerate(_list(given.get("limits"), "tuned.limits", most)):
        one = parse_members(row, f"tuned.limits[{i}]", _TUNED_LIMIT_MEMBERS)
        name = _carried_class(one, f"tuned.limits[{i}]", classes)
        resource = parse_resource(one.get("resource"), f"tuned.limits[{i}].resource")
        limits.add((name, resource))
    return Tuned(parse_text(given.get("host"), "tuned.host", 64), frozenset(limits))


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
            # Its sluiced accepted a rule that this one refuses. Without classes and limits the
            # whole domain would be unshaped; without the rule, only its processes are in
            # `default`.
            left_out.append(f"a rule for {name} is left out: {error.detail}")
    raw = _list(given.get("assignments", []), "assignments", _ASSIGNMENTS_READ)
    assignments = [
        _parse_assignment(row, f"assignments[{i}]", domain, classes) for i, row in enumerate(raw)
    ]
    ceiling = parse_limits(given.get("ceiling", {}), "ceiling")
    return Holding(classes, tuple(grants), ceiling, tuple(rules), tuple(assignments))


def _carried_class(row: Mapping[str, Any], thing: str, classes: Collection[str]) -> str:
    name = row.get("class")
    if not isinstance(name, str) or name not in classes:
        raise BadValue(f"{thing}.class", name, "is not a class of the domain", "name one of them")
    return name


def _granted(row: Mapping[str, Any], thing: str, classes: Collection[str]) -> str:
    return _carried_class(row, thing, [name for name in classes if name != DEFAULT_CLASS])


def _parse_class(
    row: Any, thing: str, domain: str, others: list[Grant]
) -> tuple[ShapingClass, Grant]:
    of_class = members(body_of(ShapingClass))
    given = parse_members(row, thing, (*_GRANT_MEMBERS, *of_class))
    body = {name: given[name] for name in of_class if name in given}
    shaping_class = parse_class(given.get("class"), body, 0)
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
