# SPDX-License-Identifier: GPL-2.0-or-later
"""The due configuration of a domain's shaper, and the QMP commands towards it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from .cards import AUTO
from .limits import RESOURCES, Limit
from .model import DEFAULT_CLASS, ClassBody, Grant, ShapingClass
from .models import members
from .overload import Controls
from .render import Caps, effective_limits, effective_queues, with_default
from .shaper_rows import queue_rows, queues_of, scheduling_of, scheduling_rows, whole

# QMP name → attribute of Limit
QMP_FIELDS = {one.name.replace("_", "-"): one.name for one in fields(Limit)}
# A class's own members in a shaper, beside those of its grant.
CLASS_FIELDS = tuple(name for name in members(ClassBody) if name not in ("title", "is_stream"))

# Of a network card; QEMU takes it at any time.
DSCP_PROPERTY = "shaper-dscp"

_USUAL = ShapingClass(DEFAULT_CLASS)

Config = dict[str, Any]
Command = tuple[str, dict[str, Any]]


def qmp_limits(limits: Mapping[str, Limit]) -> list[dict[str, Any]]:
    """Limits in the order of resources; rates as whole numbers."""
    rows = []
    for resource in RESOURCES:
        limit = limits.get(resource)
        if limit is None or limit.is_unlimited:
            continue
        row: dict[str, Any] = {"resource": resource}
        for name, attribute in QMP_FIELDS.items():
            value = getattr(limit, attribute)
            if value is not None:
                row[name] = whole(value)
        rows.append(row)
    return rows


def _class_row(
    name: str, tag: Any, dscp: Iterable[int], of_class: Mapping[str, Any], **lists: list[Any]
) -> Config:
    """Arguments of shaper-set-class: of later members only those that are not as by default,
    because older shapers refuse them."""
    beside = {key: of_class[key] for key in CLASS_FIELDS if of_class[key] != getattr(_USUAL, key)}
    beside.update({key: rows for key, rows in lists.items() if rows})
    always = {"priority": of_class["priority"], "limits": lists["limits"]}
    return {"class": name, "tag": tag, "dscp": sorted(dscp), **beside, **always}


def wanted(
    domain: str,
    grants: list[Grant],
    classes: Iterable[ShapingClass],
    ceiling: Mapping[str, Limit],
    caps: Caps,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    cards: Mapping[str, str] | None = None,
    controls: Controls | None = None,
) -> Config:
    """{"classes": {name: arguments of shaper-set-class}, "ceiling": [limit],
    "groups": {resource: {"group", "weight"}}, "objects": {group's object id: path},
    "cards": {QOM path: which DSCP counts, where that is not as by default}}

    `groups` is {resource: {"group": object id, "path", "weight"}}.
    """
    by_name = {c.name: c for c in classes}
    result = {}
    for grant in with_default(domain, grants):
        result[grant.class_name] = _class_row(
            grant.class_name,
            grant.tag,
            grant.dscp,
            vars(by_name.get(grant.class_name, _USUAL)),
            limits=qmp_limits(effective_limits(grant, caps)),
            scheduling=scheduling_rows(grant.scheduling),
            queues=queue_rows(effective_queues(grant, controls or {})),
        )
    groups = groups or {}
    return {
        "classes": result,
        "ceiling": qmp_limits(ceiling),
        "groups": {
            resource: {"group": g["group"], "weight": g["weight"]} for resource, g in groups.items()
        },
        "objects": {g["group"]: g["path"] for g in groups.values()},
        "cards": _unusual_cards(cards or {}),
    }


def _unusual_cards(cards: Mapping[str, str]) -> dict[str, str]:
    """An earlier QEMU refuses the property, also its default."""
    return {path: dscp for path, dscp in cards.items() if dscp != AUTO}


def _known_limits(rows: Iterable[Mapping[str, Any]], like: list[dict[str, Any]]) -> list[Any]:
    """The shaper's limits as `like` would say them.

    The shaper reports bursts that were left to it; where we did not ask for a
    burst, its choice is not a difference.
    """
    asked = {row["resource"]: row for row in like}
    known = []
    for row in rows:
        kept = {"resource": row.get("resource")}
        for name in QMP_FIELDS:
            value = row.get(name)
            is_burst = name.startswith("burst")
            if value and not (is_burst and name not in asked.get(row.get("resource"), {})):
                kept[name] = value
        if len(kept) > 1:
            known.append(kept)
    order = {resource: i for i, resource in enumerate(RESOURCES)}
    return sorted(known, key=lambda row: order.get(row["resource"], 99))


def actual(shaper: Mapping[str, Any], config: Config) -> Config:
    """A query-shapers entry in the form of `wanted`."""
    classes = {}
    for row in shaper.get("classes", []):
        name = row.get("class")
        like = config["classes"].get(name, {"limits": []})
        classes[name] = _class_row(
            name,
            row.get("tag"),
            row.get("dscp", []),
            {**vars(_USUAL), **row},
            limits=_known_limits(row.get("limits", []), like["limits"]),
            scheduling=scheduling_rows(scheduling_of(row.get("scheduling", []))),
            queues=queue_rows(queues_of(row.get("queues", []), like.get("queues", []))),
        )
    ceiling = _known_limits(shaper.get("ceiling") or [], config["ceiling"])
    groups = {
        row["resource"]: {"group": row["group"], "weight": row["weight"]}
        for row in shaper.get("groups", [])
    }
    objects = dict(shaper.get("group-objects", {}))
    return {
        "classes": classes,
        "ceiling": ceiling,
        "groups": groups,
        "objects": objects,
        "cards": _unusual_cards(shaper.get("cards", {})),
    }


def commands(shaper_id: str, have: Config, want: Config) -> list[Command]:
    """Only the differences, in an order in which no step collides with another.

    Tags and DSCP values are unique in a shaper: classes that are to go, or
    change their tag, go first; then DSCP values are given up; then the rest.
    """
    steps: list[Command] = []
    present = dict(have["classes"])
    for name, config in sorted(have["classes"].items()):
        target = want["classes"].get(name)
        gone = target is None or target["tag"] != config["tag"]
        if gone and name != DEFAULT_CLASS:
            steps.append(("shaper-remove-class", {"id": shaper_id, "class": name}))
            del present[name]
    for name, config in sorted(present.items()):
        target = want["classes"].get(name)
        if target is None:
            continue
        kept = [value for value in config["dscp"] if value in target["dscp"]]
        if kept != config["dscp"] and kept != target["dscp"]:
            steps.append(("shaper-set-class", {"id": shaper_id, **config, "dscp": kept}))
            present[name] = {**config, "dscp": kept}
    # Commands that only give values up come before commands that take some.
    changed = [c for name, c in want["classes"].items() if present.get(name) != c]
    changed.sort(
        key=lambda c: (
            bool(set(c["dscp"]) - set(present.get(c["class"], {"dscp": []})["dscp"])),
            c["tag"],
        )
    )
    for config in changed:
        steps.append(("shaper-set-class", {"id": shaper_id, **config}))
    if have["ceiling"] != want["ceiling"]:
        steps.append(("shaper-set-ceiling", {"id": shaper_id, "limits": want["ceiling"]}))
    return steps + _group_commands(shaper_id, have, want) + _card_commands(have, want)


def _card_commands(have: Config, want: Config) -> list[Command]:
    paths = sorted({*have["cards"], *want["cards"]})
    return [
        ("qom-set", {"path": path, "property": DSCP_PROPERTY, "value": due})
        for path in paths
        if (due := want["cards"].get(path, AUTO)) != have["cards"].get(path, AUTO)
    ]


def _group_commands(shaper_id: str, have: Config, want: Config) -> list[Command]:
    """A group is opened before it is joined, and closed when it has no member."""
    steps: list[Command] = []
    for object_id, path in sorted(want["objects"].items()):
        if object_id not in have["objects"]:
            arguments = {"qom-type": "shaper-group", "id": object_id, "path": path}
            steps.append(("object-add", arguments))
    for resource in RESOURCES:
        target = want["groups"].get(resource)
        if have["groups"].get(resource) != target:
            arguments = {"id": shaper_id, "resource": resource, **(target or {})}
            steps.append(("shaper-set-group", arguments))
    for object_id in sorted(set(have["objects"]) - set(want["objects"])):
        steps.append(("object-del", {"id": object_id}))
    return steps
