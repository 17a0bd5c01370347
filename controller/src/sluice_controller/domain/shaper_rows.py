# SPDX-License-Identifier: GPL-2.0-or-later
"""Scheduling and queues in QMP's words, and back.

Both directions leave out what is as by default: a shaper of an earlier release
that still runs knows no such members, and query-shapers says defaults that
nobody asked for. So rows → domain → rows is the form in which what a shaper
holds can be compared with what it should hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from .limits import RESOURCES
from .queues import DEFAULT_QUEUE, Queue
from .scheduling import DEFAULT_SCHEDULING, Scheduling, Window, default_minimum_charge

Row = dict[str, Any]


def whole(value: float) -> int:
    """The shaper's rates are whole numbers of at least one."""
    return max(1, round(value))


def _qmp_name(attribute: str) -> str:
    return attribute.replace("_", "-")


def _qmp_value(value: Any) -> Any:
    return whole(value) if isinstance(value, float) else value


def _row(resource: str, one: Scheduling | Queue, default: Scheduling | Queue) -> Row:
    usual = asdict(default)
    row: Row = {"resource": resource}
    for attribute, value in asdict(one).items():
        if attribute == "window" and value is not None:
            row["window"] = {_qmp_name(key): part for key, part in value.items()}
        elif value != usual[attribute]:
            row[_qmp_name(attribute)] = _qmp_value(value)
    return row


def scheduling_rows(scheduling: Mapping[str, Scheduling]) -> list[Row]:
    """In the order of resources."""
    rows = []
    for resource in RESOURCES:
        if resource in scheduling:
            row = _row(resource, scheduling[resource], DEFAULT_SCHEDULING)
            if row.get("minimum-charge-bytes") == default_minimum_charge(resource):
                del row["minimum-charge-bytes"]
            if len(row) > 1:
                rows.append(row)
    return rows


def queue_rows(queues: Mapping[str, Queue]) -> list[Row]:
    """In the order of resources."""
    rows = [_row(r, queues[r], DEFAULT_QUEUE) for r in RESOURCES if r in queues]
    return [row for row in rows if len(row) > 1]


def _attributes(row: Mapping[str, Any], default: Scheduling | Queue) -> dict[str, Any]:
    return {
        attribute: row[_qmp_name(attribute)]
        for attribute in asdict(default)
        if _qmp_name(attribute) in row
    }


def scheduling_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Scheduling]:
    """What query-shapers says, or `scheduling_rows` made."""
    found = {}
    for row in rows:
        values = _attributes(row, DEFAULT_SCHEDULING)
        window = values.get("window")
        if window is not None:
            values["window"] = Window(
                window["period-ns"], window["bytes"], window.get("may-miss", 0), window.get("of", 1)
            )
        if values.get("minimum_charge_bytes") == default_minimum_charge(row["resource"]):
            del values["minimum_charge_bytes"]
        found[row["resource"]] = Scheduling(**values)
    return {resource: one for resource, one in found.items() if not one.is_default}


def queues_of(
    rows: Iterable[Mapping[str, Any]], asked: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Queue]:
    """The shaper reports bursts that were left to it; one that is not in `asked` is its own."""
    with_burst = {row["resource"] for row in asked if "burst-connections" in row}
    found = {}
    for row in rows:
        values = _attributes(row, DEFAULT_QUEUE)
        if row["resource"] not in with_burst:
            values.pop("burst_connections", None)
        found[row["resource"]] = Queue(**values)
    return {resource: one for resource, one in found.items() if not one.is_default}
