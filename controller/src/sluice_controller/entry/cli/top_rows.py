# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of `sluice top`, made of answers of the API. Pure.

A row's path leads from a VM by a class to a process, as a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...domain.limits import RESOURCES
from ...domain.model import DEFAULT_CLASS
from ...domain.rates import format_rate
from .domains import shaping_text
from .output import limit_text, safe, uplink_line

Rates = Mapping[str, float | None]
VM, CLASS, PROCESS = 1, 2, 3
UNKNOWN = "-"


@dataclass(frozen=True)
class Row:
    """A VM, a class of it, or a process of that class; rates and limits in bytes per second.

    `note` is the reason for figures or limits that are missing, `detail` all that is known.
    """

    path: tuple[str, ...]
    name: str
    rates: Rates = field(default_factory=dict)
    limits: Rates = field(default_factory=dict)
    held_p99_ms: float | None = None
    tokens_bytes: int | None = None
    cpu_ratio: float | None = None
    backlog_requests: int | None = None
    lost_per_second: float | None = None
    note: str = ""
    detail: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """The user's choice of rows and of their order."""

    sort: str = "disk"
    ascending: bool = False
    tree: bool = True
    filter: str = ""
    folded: frozenset[tuple[str, ...]] = frozenset()
    processes: bool = True


# Figures


def short(value: float | None) -> str:
    """Three significant digits and a prefix, at most five characters: "1.23M"."""
    if value is None:
        return UNKNOWN
    sign, size = ("-" if value <= -0.5 else ""), abs(value)
    units = iter("kMGT")
    unit = ""
    while size >= 999.5 and (larger := next(units, None)):
        size, unit = size / 1000, larger
    if not unit or size >= 99.95:
        return f"{sign}{size:.0f}{unit}"
    return f"{sign}{size:.1f}{unit}" if size >= 9.995 else f"{sign}{size:.2f}{unit}"


def rate_of_limit(row: Row, resource: str) -> str:
    """ "1.23M/20M"; the rate alone if nothing limits it."""
    rate, limit = short(row.rates.get(resource)), row.limits.get(resource)
    if limit is None:
        return rate
    number, unit = short(limit), ""
    if number[-1].isalpha():
        number, unit = number[:-1], number[-1]
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{rate}/{number}{unit}"


def _milliseconds(value: float | None) -> str:
    """At most five characters; zero is blank, as most classes wait for nothing."""
    if not value:
        return UNKNOWN if value is None else ""
    if value < 1000:
        return f"{value:.0f}ms" if value >= 9.95 else f"{value:.1f}ms"
    return f"{short(value / 1000)}s"


def total(row: Row, *resources: str) -> float:
    """Bytes per second of these resources; -1 if none is known."""
    known = [rate for r in resources if (rate := row.rates.get(r)) is not None]
    return sum(known) if known else -1.0


def is_at_limit(row: Row, resource: str) -> bool:
    rate, limit = row.rates.get(resource), row.limits.get(resource)
    return rate is not None and limit is not None and rate >= 0.95 * limit


# Columns: heading, width in characters with the gap before it, and cell. The first is as wide as
# the screen leaves room for.
Cell = Callable[[Row], str]
COLUMNS: dict[str, tuple[int, Cell]] = {
    "READ": (12, lambda row: rate_of_limit(row, "blk-read")),
    "WRITE": (12, lambda row: rate_of_limit(row, "blk-write")),
    "NET IN": (12, lambda row: rate_of_limit(row, "net-rx")),
    "NET OUT": (12, lambda row: rate_of_limit(row, "net-tx")),
    "HELD": (6, lambda row: _milliseconds(row.held_p99_ms)),
    "TOKENS": (7, lambda row: short(row.tokens_bytes)),
}
RESOURCE_OF = dict(zip(COLUMNS, ("blk-read", "blk-write", "net-rx", "net-tx"), strict=False))
MORE: dict[str, tuple[int, Cell]] = {
    "WAIT": (7, lambda row: short(row.backlog_requests)),
    "LOST/s": (7, lambda row: short(row.lost_per_second)),
    "CPU": (6, lambda row: UNKNOWN if row.cpu_ratio is None else f"{row.cpu_ratio:.0%}"),
}
ROOM_FOR_MORE = 100


def columns_for(width: int) -> dict[str, tuple[int, Cell]]:
    """The columns after the name that a screen of `width` characters has room for."""
    return {**COLUMNS, **MORE} if width >= ROOM_FOR_MORE else COLUMNS


# Rows of answers


def taken(live: Any, domains: list[Any], processes: Mapping[str, Any]) -> dict[str, Any]:
    """One reading: the API's answers, of processes one by the name of each domain."""
    return {"live": live, "domains": domains, "processes": processes}


def rows_of(reading: Mapping[str, Any]) -> list[Row]:
    """Every VM, followed by its classes, each followed by its processes."""
    rows = []
    for name, domain in {one["name"]: one for one in reading["domains"]}.items():
        live = reading["live"]["domains"].get(name)
        table = reading["processes"].get(name, {})
        rows += _of_domain(domain, live, table)
    return rows


def _of_domain(domain: Mapping[str, Any], live: Any, table: Mapping[str, Any]) -> list[Row]:
    name = domain["name"]
    grants = {grant["class"]: grant for grant in domain["classes"]}
    samples = live["classes"] if live else {}
    processes: dict[str, list[Row]] = {}
    for process in table.get("processes", ()):
        of_class = process["class"] or DEFAULT_CLASS
        processes.setdefault(of_class, []).append(_of_process(name, of_class, process))
    rows = []
    for of_class in {**grants, **samples, **processes}:
        row = _of_class(name, of_class, grants.get(of_class, {}), samples.get(of_class, {}))
        rows += [row, *processes.get(of_class, ())]
    classes = [row for row in rows if len(row.path) == CLASS]
    return [_of_vm(domain, live, table, classes), *rows]


def _summed(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _of_vm(
    domain: Mapping[str, Any], live: Any, table: Mapping[str, Any], classes: list[Row]
) -> Row:
    ceiling = domain["ceiling"]
    reasons = why_not(domain, live, table)
    held = [row.held_p99_ms for row in classes if row.held_p99_ms is not None]
    waiting = _summed(row.backlog_requests for row in classes)
    return Row(
        (domain["name"],),
        domain["name"],
        {r: _summed(row.rates.get(r) for row in classes) for r in RESOURCES},
        {r: (ceiling.get(r) or {}).get("bytes_per_second") for r in RESOURCES},
        max(held, default=None),
        None,
        _summed(p["cpu_ratio"] for p in table["processes"]) if table.get("processes") else None,
        None if waiting is None else int(waiting),
        _summed(row.lost_per_second for row in classes),
        "; ".join(reasons),
        (
            f"{domain['name']}: {domain['state']}, shaping {shaping_text(domain)}",
            *(f"ceiling {r} {limit_text(one)}" for r, one in ceiling.items()),
            *reasons,
        ),
    )


def why_not(domain: Mapping[str, Any], live: Any, table: Mapping[str, Any]) -> list[str]:
    """The reasons for figures that are missing, and for limits that are not in force."""
    reasons = []
    if live and not live["page_ok"]:
        reasons.append(f"no figures: {live['error']}")
    if domain["attached"] and domain["needs_restart"]:
        reasons.append("limits are not in force before a restart")
    elif not domain["attached"] and domain["ceiling"] | _limits_of(domain):
        reasons.append("limits are not in force: the domain is not attached")
    elif domain["attached"] and domain["shaped_count"] < len(domain["devices"]):
        reasons.append(domain["shaped_sentence"])
    agent = domain["agent"]
    if table.get("error"):
        reasons.append(f"no processes: {table['error']}")
    elif domain["active"] and not agent["connected"]:
        reasons.append(f"no processes: {agent['error'] or 'its agent is not connected'}")
    elif table.get("truncated"):
        reasons.append("the agent left out the least busy processes")
    return reasons


def _limits_of(domain: Mapping[str, Any]) -> dict[str, Any]:
    return {r: one for grant in domain["classes"] for r, one in grant["limits"].items()}


def _of_class(domain: str, name: str, grant: Mapping[str, Any], samples: Mapping[str, Any]) -> Row:
    declared = grant.get("effective_limits", {})
    limits = {r: (declared.get(r) or {}).get("bytes_per_second") for r in RESOURCES}
    limits |= {r: one["limit_bytes_per_second"] for r, one in samples.items()}
    tokens = [one["tokens_bytes"] for one in samples.values() if one["tokens_bytes"] is not None]
    each = samples.values()
    return Row(
        (domain, name),
        name,
        {r: one["bytes_per_second"] for r, one in samples.items()},
        limits,
        max((one["held_p99_ms"] for one in each), default=None),
        min(tokens, default=None),
        None,
        sum(one["backlog_requests"] for one in each) if samples else None,
        sum(one["dropped_per_second"] for one in each) if samples else None,
        "",
        tuple(_resource_line(r, one) for r, one in samples.items())
        or tuple(f"{r}: limit {limit_text(one)}, no figures" for r, one in declared.items())
        or ("no figures",),
    )


def _resource_line(resource: str, sample: Mapping[str, Any]) -> str:
    """All figures of a class on one resource; those of nothing are left out."""
    rate, operations = sample["bytes_per_second"], sample["requests_per_second"]
    limit = {
        "bytes_per_second": sample["limit_bytes_per_second"],
        "operations_per_second": sample["limit_operations_per_second"],
    }
    drops = sample["drops_per_second"] or {"dropped": sample["dropped_per_second"]}
    parts = [
        f"{format_rate(rate)} and {operations:.0f}/s of {limit_text(limit)}",
        *(
            f"tokens {short(sample[f'tokens_{unit}'])} {said}"
            for unit, said in (("bytes", "B"), ("operations", "ops"))
            if sample[f"tokens_{unit}"] is not None
        ),
        *([f"held p99 {_milliseconds(sample['held_p99_ms'])}"] if sample["held_p99_ms"] else []),
        *([f"{sample['backlog_requests']} wait"] if sample["backlog_requests"] else []),
        *([f"{share:.0%} untagged"] if (share := sample["untagged_share"] or 0) >= 0.005 else []),
        *(f"{reason} {rate:.0f}/s" for reason, rate in drops.items() if rate > 0),
    ]
    return f"{resource}: {', '.join(parts)}"


def _of_process(domain: str, of_class: str, process: Mapping[str, Any]) -> Row:
    command = process["cmdline"] or f"[{process['comm']}]"
    origin = f"by rule {process['rule']}" if process["rule"] else "by no rule"
    return Row(
        (domain, of_class, str(process["pid"])),
        f"{process['pid']} {command}",
        {"blk-read": process["read_bps"], "blk-write": process["write_bps"]},
        cpu_ratio=process["cpu_ratio"],
        detail=(
            f"{process['pid']} of {process['user']}, class {of_class} {origin}",
            command,
            "agents report no network and no cached throughput of processes",
        ),
    )


# Choice and order of rows

SORTS: dict[str, Callable[[Row], Any]] = {
    "disk": lambda row: total(row, "blk-read", "blk-write"),
    "network": lambda row: total(row, "net-rx", "net-tx"),
    "held": lambda row: -1.0 if row.held_p99_ms is None else row.held_p99_ms,
    "cpu": lambda row: -1.0 if row.cpu_ratio is None else row.cpu_ratio,
    "name": lambda row: row.name.lower(),
}


def arranged(rows: Iterable[Row], view: View) -> list[Row]:
    """The rows to show, in their order: of a tree each row follows its parent."""
    kept = _filtered([r for r in rows if view.processes or len(r.path) < PROCESS], view.filter)
    # Names go up, figures down, unless they are turned round.
    backwards = (view.sort != "name") != view.ascending
    ordered = sorted(kept, key=lambda row: row.path)
    ordered.sort(key=SORTS[view.sort], reverse=backwards)
    if not view.tree:
        return ordered
    below: dict[tuple[str, ...], list[Row]] = {}
    for row in ordered:
        below.setdefault(row.path[:-1], []).append(row)
    found: list[Row] = []

    def add(parent: tuple[str, ...]) -> None:
        for row in below.get(parent, ()):
            found.append(row)
            if row.path not in view.folded:
                add(row.path)

    add(())
    return found


def _filtered(rows: list[Row], text: str) -> list[Row]:
    """Rows with the text in their names, with all that is above and below them."""
    text = text.lower()
    if not text:
        return rows
    hits = {row.path for row in rows if text in row.name.lower()}
    above = {path[:length] for path in hits for length in range(1, len(path))}
    return [
        row
        for row in rows
        if row.path in above
        or any(row.path[:length] in hits for length in range(1, len(row.path) + 1))
    ]


def labelled(row: Row, view: View) -> str:
    """The row's name: in a tree indented, else with the names above it."""
    if not view.tree:
        return safe("/".join((*row.path[:-1], row.name)))
    mark = "+ " if row.path in view.folded else "! " if row.note else ""
    return "  " * (len(row.path) - 1) + mark + safe(row.name)


def notes(reading: Mapping[str, Any], rows: Iterable[Row]) -> list[str]:
    """The uplink, and of each VM the reasons for what is missing."""
    found = []
    uplink = reading["live"]["uplink"]
    if uplink is not None:
        found.append(uplink_line(uplink))
    return found + [f"{row.name}: {row.note}" for row in rows if row.note]
