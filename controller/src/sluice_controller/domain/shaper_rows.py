# SPDX-License-Identifier: GPL-2.0-or-later
"""Scheduling and queues in QMP's words, and back.

Both directions leave defaults out: a running shaper of an earlier release does not know later
members, and query-shapers lists defaults. So rows → domain → rows is the form in which the
shaper's configuration can be compared with the due one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .limits import RESOURCES, unusual
from .queues import DEFAULT_QUEUE, Queue
from .scheduling import DEFAULT_SCHEDULING, Scheduling, Window, shapers_own

Row = dict[str, Any]


def whole(value: float) -> int:
    """The shaper's rates are whole numbers of at least one."""
    return max(1, round(value))


def _qmp_name(attribute: str) -> str:
    return attribute.replace("_", "-")


def _qmp_value(value: Any) -> Any:
    return whole(value) if isinstance(value, float) else value


def _members(value: Any, *usual: Any) -> Row:
    """An object's members in QMP's words, without members equal to one of `usual`."""
    row: Row = {}
    for name in (one.name for one in fields(value)):
        own = getattr(value, name)
        if not any(own == getattr(other, name) for other in usual):
            row[_qmp_name(name)] = _members(own) if is_dataclass(own) else _qmp_value(own)
    return row


def _rows(values: Mapping[str, Any], usual: Callable[[str], list[Any]]) -> list[Row]:
    """In the order of resources."""
    found = [(r, _members(values[r], *usual(r))) for r in RESOURCES if r in values]
    return [{"resource": resource, **members} for resource, members in found if members]


def scheduling_rows(scheduling: Mapping[str, Scheduling]) -> list[Row]:
    return _rows(scheduling, lambda resource: [DEFAULT_SCHEDULING, shapers_own(resource)])


def queue_rows(queues: Mapping[str, Queue]) -> list[Row]:
    return _rows(queues, lambda _resource: [DEFAULT_QUEUE])


def _attributes(row: Mapping[str, Any], shape: type) -> dict[str, Any]:
    names = {one.name: _qmp_name(one.name) for one in fields(shape)}
    return {attribute: row[name] for attribute, name in names.items() if name in row}


def scheduling_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Scheduling]:
    """Reads rows of query-shapers, or of `scheduling_rows`."""
    found = {}
    for row in rows:
        values = _attributes(row, Scheduling)
        window = values.get("window")
        if window is not None:
            values["window"] = Window(**_attributes(window, Window))
        usual = vars(shapers_own(row["resource"]))
        asked = {name: value for name, value in values.items() if value != usual[name]}
        found[row["resource"]] = Scheduling(**asked)
    return unusual(found)


def queues_of(
    rows: Iterable[Mapping[str, Any]], asked: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Queue]:
    """The shaper also reports bursts that it chose itself: those that are not in `asked`."""
    with_burst = {row["resource"] for row in asked if "burst-connections" in row}
    found = {}
    for row in rows:
        values = _attributes(row, Queue)
        if row["resource"] not in with_burst:
            values.pop("burst_connections", None)
        found[row["resource"]] = Queue(**values)
    return unusual(found)
