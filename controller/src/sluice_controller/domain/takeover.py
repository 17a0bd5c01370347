# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes over the configuration of a domain that another sluiced managed.

There are two sources: the domain's shaper, if it was configured before, and the domain's
metadata (`carried.py`). `merged` puts them together, `planned` fits the result into this host's
catalogue.

The rule of both is that nothing gets looser. If shaper and metadata differ about a class, the
shaper wins, because it is in force; a class or ceiling that only the metadata has is added. The
exception is a limit of another host's auto-shaping, which no tuner maintains here: it gives way
to the operator's. A class of equal name on this host keeps this host's title, priority and
weight, which belong to all its domains; limits, tags and all other settings of one domain come
with the domain. A configuration that would loosen a limit is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .carried import CarriedClass, Holding, class_and_grant
from .errors import BadValue, Conflict, sluice
from .limits import RESOURCES, Limit, parse_by_resource
from .model import DEFAULT_CLASS, Grant, Rule, ShapingClass, Stream, choose_colour
from .models import as_json, parse
from .queues import AUTO, QUEUE_RESOURCES
from .scheduling import check_all_within
from .shaper_config import CLASS_FIELDS, QMP_FIELDS
from .shaper_rows import queues_of, scheduling_of

# A burst that was left to the shaper is 1/20 second at the rate, and not below these.
BURST_TIME_DIVISOR = 20
LEAST_BURST = {"burst_bytes": 65536, "burst_operations": 1, "burst_connections": 1}
RATE_OF = {
    "burst_bytes": "bytes_per_second",
    "burst_operations": "operations_per_second",
    "burst_connections": "connections_per_second",
}


# The shaper's configuration


def _without_chosen_bursts(values: dict[str, Any]) -> dict[str, Any]:
    """Without the bursts that the shaper chooses by itself."""

    def chosen(name: str, value: Any) -> bool:
        rate = values.get(RATE_OF.get(name, ""))
        return rate is not None and value == max(rate // BURST_TIME_DIVISOR, LEAST_BURST[name])

    return {name: value for name, value in values.items() if not chosen(name, value)}


def _limits(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    raw = {}
    for row in rows:
        values = {attribute: row[name] for name, attribute in QMP_FIELDS.items() if row.get(name)}
        raw[row["resource"]] = _without_chosen_bursts(values)
    return raw


def _queues(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    of_frames = [row for row in rows if row["resource"] in QUEUE_RESOURCES]
    found = queues_of(of_frames, of_frames)
    return {r: _without_chosen_bursts(as_json(queue)) for r, queue in found.items()}


def holding_of(domain: str, shaper: Mapping[str, Any]) -> Holding:
    """A query-shapers entry as a catalogue would say it; BadValue if no catalogue could."""
    classes: dict[str, ShapingClass] = {}
    grants: list[Grant] = []
    for row in shaper.get("classes", []):
        kept = ("class", "tag", *(name for name in CLASS_FIELDS if name in row))
        raw = {
            **{name: row.get(name) for name in kept},
            "dscp": sorted(row.get("dscp", [])),
            "limits": _limits(row.get("limits", [])),
            "scheduling": as_json(scheduling_of(row.get("scheduling", []))),
            "queues": _queues(row.get("queues", [])),
        }
        name = row["class"]
        shaping_class, grant = class_and_grant(parse(CarriedClass, raw, name), name, domain, grants)
        classes[name] = shaping_class
        grants.append(grant)
    ceiling = parse_by_resource(_limits(shaper.get("ceiling") or []), Limit, "ceiling")
    return Holding(classes, tuple(grants), ceiling)


# Together


def is_bare(grant: Grant) -> bool:
    """Whether it is the default class of an unconfigured shaper."""
    return grant.class_name == DEFAULT_CLASS and grant == Grant(grant.domain, DEFAULT_CLASS, 0)


def merged(
    shaper: Holding,
    carried: Holding | None,
    tuned: Collection[tuple[str, str]] = (),
) -> Holding:
    """The domain's configuration: the shaper's, and items that only the metadata has.

    `tuned` names the shaper's limits, as (class, resource), that another host's auto-shaping
    has set: these come from the metadata.
    """
    along = carried or Holding()
    own = {g.class_name: g for g in along.grants}
    there = {
        g.class_name: _uncontrolled(_untuned(g, own.get(g.class_name), tuned), own)
        for g in shaper.grants
        if not is_bare(g)
    }
    tags = {g.tag for g in there.values()}
    values = {value for g in there.values() for value in g.dscp}
    added = [
        replace(g, dscp=tuple(value for value in g.dscp if value not in values))
        for g in along.grants
        if g.class_name not in there and g.tag not in tags
    ]
    grants = tuple(sorted([*there.values(), *added], key=lambda g: g.tag))
    names = {DEFAULT_CLASS, *(g.class_name for g in grants)}
    classes = {name: _definition(name, name in there, shaper, along) for name in names}
    return Holding(
        {name: found for name, found in classes.items() if found},
        grants,
        shaper.ceiling or along.ceiling,
        tuple(r for r in along.rules if r.class_name in classes),
        tuple(a for a in along.assignments if a.class_name in classes),
    )


def _untuned(grant: Grant, own: Grant | None, tuned: Collection[tuple[str, str]]) -> Grant:
    """With the operator's limit where auto-shaping's is."""
    limits = dict(grant.limits)
    for resource in RESOURCES:
        if own is None or (grant.class_name, resource) not in tuned:
            continue
        limits.pop(resource, None)
        if resource in own.limits:
            limits[resource] = own.limits[resource]
    try:
        check_all_within(limits, grant.scheduling)
    except BadValue:
        # A reservation that is newer than the metadata: so may be the limit.
        return grant
    return replace(grant, limits=limits)


def _uncontrolled(grant: Grant, own: Mapping[str, Grant]) -> Grant:
    """With the operator's limit of new connections where the shaper has that of overload control,
    of which the shaper knows nothing."""
    queues = dict(grant.queues)
    carried = own[grant.class_name].queues if grant.class_name in own else {}
    for resource, queue in carried.items():
        there = queues.get(resource)
        most = queue.connections_per_second
        if there is None or queue.overload != AUTO or most is None:
            continue
        rate = there.connections_per_second
        if rate is not None and rate <= most:
            queues[resource] = replace(there, overload=AUTO, connections_per_second=most)
    return replace(grant, queues=queues)


def _definition(name: str, set_there: bool, shaper: Holding, along: Holding) -> ShapingClass | None:
    """The shaper knows neither titles nor streams."""
    there, came = shaper.classes.get(name), along.classes.get(name)
    if there and came and set_there:
        return replace(came, **{name: getattr(there, name) for name in CLASS_FIELDS})
    return came or there


# Into this host's catalogue


@dataclass(frozen=True)
class Plan:
    """The catalogue's new items; `notes` name the differences from the domain's own."""

    new_classes: tuple[ShapingClass, ...]
    holding: Holding
    notes: tuple[str, ...]


def planned(
    domain: str,
    held: Holding,
    own: Collection[ShapingClass],
    streams: Iterable[Stream],
    rules: Collection[Rule],
    most_rules: int,
) -> Plan:
    """Conflict if the domain would be held less than it is.

    `rules` are this host's rules for other domains and for all.
    """
    by_name = {c.name: c for c in own}
    new: list[ShapingClass] = []
    notes: list[str] = []
    for name, shaping_class in sorted(held.classes.items()):
        present = by_name.get(name)
        if present is None:
            colour = choose_colour([*own, *new])
            new.append(replace(shaping_class, colour_index=colour))
            continue
        if present.unmanaged and not shaping_class.unmanaged:
            raise Conflict(
                "class",
                name,
                f"is unmanaged on this host and holds the domain {domain} where it came from",
                f"manage it here: {sluice('class', 'set', name, '--managed')}",
            )
        notes += _differences(present, shaping_class)
    _refuse_streams(domain, held, streams)
    everywhere = {(r.class_name, tuple(sorted(r.match.items()))) for r in rules if not r.domain}
    own_rules = tuple(
        r for r in held.rules if (r.class_name, tuple(sorted(r.match.items()))) not in everywhere
    )
    if len(rules) + len(own_rules) > most_rules:
        raise Conflict(
            "rules",
            len(rules) + len(own_rules),
            f"would be more than {most_rules} with those of the domain {domain}",
            "remove rules that are no longer needed",
        )
    return Plan(tuple(new), replace(held, rules=own_rules), tuple(notes))


def _differences(present: ShapingClass, came: ShapingClass) -> list[str]:
    return [
        f"class {came.name} keeps this host's {name} {getattr(present, name)}"
        f" instead of {getattr(came, name)}"
        for name in (*CLASS_FIELDS, "is_stream")
        if getattr(present, name) != getattr(came, name)
    ]


def _refuse_streams(domain: str, held: Holding, streams: Iterable[Stream]) -> None:
    names = {DEFAULT_CLASS, *(g.class_name for g in held.grants)}
    for stream in streams:
        if stream.domain == domain and stream.class_name not in names:
            raise Conflict(
                "stream",
                stream.name,
                f"has the class {stream.class_name}, which the domain {domain} has no more",
                f"remove the stream: {sluice('stream', 'remove', stream.name)}",
            )
