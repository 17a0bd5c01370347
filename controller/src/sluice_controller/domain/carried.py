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
from typing import Annotated, Any

from . import models
from .errors import BadValue
from .knobs import Model, Number, Text, Whole
from .limits import RESOURCES, Limit, Resource, unusual
from .model import (
    DEFAULT_CLASS,
    MAX_RULES,
    MAX_TAG,
    Assignment,
    ClassBody,
    ClassName,
    Grant,
    GrantBody,
    Rule,
    ShapingClass,
    is_boot_id,
    parse_class,
    parse_dscp,
)
from .models import as_json, given_of, members
from .queues import OFF
from .render import with_default
from .rules import parse_match
from .values import parse_integer

# More than a sluiced assigns: an earlier one took any number.
_ASSIGNMENTS_READ = 4096
_Id = Annotated[str, Text(64)]


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


def _of_domain(value: Grant | Assignment) -> dict[str, Any]:
    """Of something that a domain has, all but the domain's name."""
    return {key: one for key, one in as_json(value).items() if key != "domain"}


def _class_json(grant: Grant, shaping_class: ShapingClass) -> dict[str, Any]:
    found = _without_nulls({**given_of(shaping_class), **_of_domain(grant)})
    for queue in found["queues"].values():
        # An earlier release refuses the member.
        if queue["overload"] == OFF:
            del queue["overload"]
    return found


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
        "ceiling": _without_nulls(as_json(held.ceiling)),
        "rules": [{"class": r.class_name, "match": dict(r.match)} for r in held.rules],
        "assignments": [_of_domain(a) for a in held.assignments],
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


@dataclass(frozen=True, kw_only=True)
class CarriedClass(ClassBody, GrantBody):  # type: ignore[misc,valid-type]
    """A class with its grant in the domain."""

    class_name: ClassName
    tag: Annotated[int, Whole(0, MAX_TAG)]


@dataclass(frozen=True)
class _Rule(Model):
    class_name: str
    # Read on its own: a refused rule keeps nothing else out.
    match: Any


@dataclass(frozen=True)
class _Assignment(Model):
    pid: Annotated[int, Whole(2, 2**22)]
    start_time_ticks: Annotated[int, Whole(0, 2**63 - 1)]
    class_name: str
    created_at: Annotated[float, Number(0, 1e12, "seconds since 1970")] = 0
    boot_id: Any = ""


@dataclass(frozen=True)
class _Document(Model):
    uuid: _Id
    owner: _Id
    revision: Annotated[int, Whole(0, 2**53)]
    classes: list[CarriedClass] = field(default_factory=list)
    ceiling: Mapping[Resource, Limit | None] = field(default_factory=dict)
    rules: list[_Rule] = field(default_factory=list)
    assignments: list[_Assignment] = field(default_factory=list)

    def check(self, thing: str) -> None:
        _check_length(self.classes, "classes", MAX_TAG + 1)
        _check_length(self.rules, "rules", MAX_RULES)
        _check_length(self.assignments, "assignments", _ASSIGNMENTS_READ)


@dataclass(frozen=True)
class _TunedLimit(Model):
    class_name: str
    resource: Resource


@dataclass(frozen=True)
class _Tuned(Model):
    host: _Id
    limits: list[_TunedLimit]

    def check(self, thing: str) -> None:
        _check_length(self.limits, f"{thing}.limits", (MAX_TAG + 1) * len(RESOURCES))


def _check_length(found: list[Any], thing: str, most: int) -> None:
    if len(found) > most:
        raise BadValue(thing, len(found), f"is not a list of at most {most}", "give such a list")


def parse(text: str, domain: str, now: float, tuned: str | None = None) -> Carried:
    """Refuses, with BadValue or Conflict, a text that no sluiced would have written."""
    given = models.parse(_Document, _json(text, "carried"))
    left_out: list[str] = []
    held = _holding(given, domain, now, left_out)
    own_tuned = _tuned_or_none(tuned, held, left_out)
    return Carried(given.uuid, given.owner, given.revision, held, own_tuned, tuple(left_out))


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
        given = models.parse(_Tuned, _json(text, "tuned"), "tuned")
        for i, one in enumerate(given.limits):
            _check_carried(one.class_name, f"tuned.limits[{i}]", held.classes)
        return Tuned(given.host, frozenset((one.class_name, one.resource) for one in given.limits))
    except BadValue as error:
        left_out.append(f"which limits are auto-shaping's is left out: {error.detail}")
        return None


def _holding(given: _Document, domain: str, now: float, left_out: list[str]) -> Holding:
    classes: dict[str, ShapingClass] = {}
    grants: list[Grant] = []
    for i, row in enumerate(given.classes):
        shaping_class, grant = class_and_grant(row, f"classes[{i}]", domain, grants)
        classes[shaping_class.name] = shaping_class
        grants.append(grant)
    granted = [name for name in classes if name != DEFAULT_CLASS]
    rules = []
    for i, one in enumerate(given.rules):
        _check_carried(one.class_name, f"rules[{i}]", granted)
        try:
            rules.append(Rule(i, domain, one.class_name, parse_match(one.match), now))
        except BadValue as error:
            # Its sluiced accepted a rule that this one refuses. Without classes and limits the
            # whole domain would be unshaped; without the rule, only its processes are in
            # `default`.
            left_out.append(f"a rule for {one.class_name} is left out: {error.detail}")
    assignments = []
    for i, row in enumerate(given.assignments):
        _check_carried(row.class_name, f"assignments[{i}]", granted)
        # A guest said its boot's id, to a sluiced that took anything. Its limits do not hang on
        # that: the assignment is of no boot, and goes as soon as the agent is there.
        is_usable = isinstance(row.boot_id, str) and is_boot_id(row.boot_id)
        values = {**vars(row), "boot_id": row.boot_id if is_usable else ""}
        assignments.append(Assignment(domain, **values))
    return Holding(classes, tuple(grants), unusual(given.ceiling), tuple(rules), tuple(assignments))


def _check_carried(name: str, thing: str, classes: Collection[str]) -> None:
    if name not in classes:
        raise BadValue(f"{thing}.class", name, "is not a class of the domain", "name one of them")


def class_and_grant(
    row: CarriedClass, thing: str, domain: str, others: list[Grant]
) -> tuple[ShapingClass, Grant]:
    """As a catalogue has them; `others` are the domain's grants that came before."""
    body = {name: getattr(row, name) for name in members(ClassBody)}
    shaping_class = parse_class(row.class_name, body, 0)
    name = shaping_class.name
    low, high = (0, 0) if name == DEFAULT_CLASS else (1, MAX_TAG)
    tag = parse_integer(row.tag, f"{thing}.tag", low, high)
    if any(name == other.class_name or tag == other.tag for other in others):
        raise BadValue(thing, name, f"or its tag {tag} comes twice", "name each class and tag once")
    return shaping_class, row.grant(domain, name, tag, parse_dscp(row.dscp, others))
