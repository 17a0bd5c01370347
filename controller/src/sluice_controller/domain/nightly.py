# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of a nightly run: its shape, its limits, and its part in the trend.

The run on the host measures one stream three times (alone, unshaped beside an overload,
auto-shaped beside that) and posts its findings; a night on which it did not run is posted too,
with the reason (docs/specs/nightly-result.md). A result is taken whole or refused whole.

Invariants of a result that was taken:
* a measured run (`passed`, `failed`) has `measured`, no other has;
* `passed` means that every check holds, `failed` that a check does not;
* every night without a measurement says why;
* the columns of a series are equally long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from .errors import BadValue
from .knobs import Model, Whole

VERSION = 1
MEASURED = ("passed", "failed")
UNMEASURED = ("refused", "aborted", "error")
OUTCOMES = (*MEASURED, *UNMEASURED)
PHASES = ("control", "unshaped", "auto")
VERDICTS = ("perfect", "good", "poor")

# Twice the longest plan that the demo takes, in half seconds.
MOST_POINTS = 5000
MOST_ROWS = 500
MOST_TEXT = 1000
MOST_PAGE_CHARACTERS = 700_000
# Later than any clock that is right: year 2100.
MOST_EPOCH_S = 4_102_444_800.0
MOST_SECONDS = 86_400.0
MOST_RATE = 1e12
KEEP_LEAST, KEEP_DEFAULT, KEEP_MOST = 1, 90, 1000

Check = Callable[[str, Any], Any]


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(
        type(value), str(value)[:60]
    )


def number(least: float, most: float) -> Check:
    def check(thing: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadValue(thing, _kind(value), "is not a number", "give a JSON number")
        # No arithmetic: an integer of JSON may be larger than any float.
        if not least <= value <= most:
            raise BadValue(thing, value, "is out of range", f"give {least:g} to {most:g}")
        return value

    return check


def text(most: int = MOST_TEXT, least: int = 0) -> Check:
    def check(thing: str, value: Any) -> str:
        if not isinstance(value, str):
            raise BadValue(thing, _kind(value), "is not a string", "give a JSON string")
        if not least <= len(value) <= most:
            raise BadValue(
                thing, f"{len(value)} characters", "is out of range", f"give {least} to {most}"
            )
        if any(ord(c) < 32 and c not in "\n\t" for c in value):
            raise BadValue(thing, value, "has control characters", "leave them out")
        return value

    return check


def flag(thing: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadValue(thing, _kind(value), "is not true or false", "give true or false")
    return value


def one_of(*known: Any) -> Check:
    def check(thing: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value not in known:
            raise BadValue(
                thing, _kind(value) if isinstance(value, (dict, list)) else value,
                "is not known", f"use one of {', '.join(map(str, known))}",
            )  # fmt: skip
        return value

    return check


def pattern(expression: str, example: str) -> Check:
    compiled = re.compile(expression)

    def check(thing: str, value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            shown = value if isinstance(value, str) else _kind(value)
            raise BadValue(thing, shown, "has not the right form", f"write it like {example}")
        return value

    return check


def optional(inner: Check) -> Check:
    return lambda thing, value: None if value is None else inner(thing, value)


def record(**fields: Check) -> Check:
    """Exactly these members."""

    def check(thing: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise BadValue(thing or "result", _kind(value), "is not an object", "give an object")
        prefix = f"{thing}." if thing else ""
        for name in value:
            if name not in fields:
                raise BadValue(
                    f"{prefix}{name}", _kind(value[name]), "is not known", "leave it out"
                )
        for name in fields:
            if name not in value:
                raise BadValue(f"{prefix}{name}", "absent", "is missing", "give it")
        return {name: inner(f"{prefix}{name}", value[name]) for name, inner in fields.items()}

    return check


def rows(inner: Check, most: int = MOST_ROWS) -> Check:
    def check(thing: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise BadValue(thing, _kind(value), "is not a list", "give a list")
        if len(value) > most:
            raise BadValue(thing, f"{len(value)} entries", "is too long", f"give at most {most}")
        return [inner(f"{thing}[{index}]", entry) for index, entry in enumerate(value)]

    return check


def columns(**fields: Check) -> Check:
    """A table by columns, all of them equally long."""
    each = record(**{name: rows(inner, MOST_POINTS) for name, inner in fields.items()})

    def check(thing: str, value: Any) -> dict[str, list[Any]]:
        table = each(thing, value)
        lengths = {name: len(column) for name, column in table.items()}
        first = next(iter(lengths))
        for name, length in lengths.items():
            if length != lengths[first]:
                raise BadValue(
                    f"{thing}.{name}", f"{length} entries", f"is not as long as {first}",
                    f"give {lengths[first]}",
                )  # fmt: skip
        return table

    return check


_epoch = number(0, MOST_EPOCH_S)
_seconds = number(0, MOST_SECONDS)
_rate = number(0, MOST_RATE)
_count = number(0, 1e12)
_ratio = number(0, 1e3)
_share = number(0, 1)

_stream = record(
    verdict=one_of(*VERDICTS),
    continuity_errors=_count,
    stalls=_count,
    stall_seconds=_seconds,
    lost_pictures=_count,
    delivered_ratio=_share,
    max_gap_ms=_count,
)
_phase = record(
    start_s=_seconds,
    end_s=_seconds,
    stream=_stream,
    background=record(http_bytes_per_s=_rate, disk_bytes_per_s=_rate),
    cpu_ratio=_ratio,
    disk_busy_ratio=_ratio,
    disk_seeks_per_s=_rate,
)
_measured = record(
    plan=record(
        link_mbit=number(1, 1e6),
        readers=_count,
        wgets=_count,
        overload=_ratio,
        control_s=_seconds,
        unshaped_s=_seconds,
        auto_s=_seconds,
    ),
    link_bytes_per_s=_rate,
    disk_note=text(),
    note=text(),
    phases=record(**{name: _phase for name in PHASES}),
    auto_enabled_at_s=_seconds,
    settled_after_s=optional(_seconds),
    checks=rows(record(name=text(least=1), holds=flag, figures=text()), 50),
    auto_log=rows(record(at_s=number(-MOST_SECONDS, MOST_SECONDS), sentence=text(least=1))),
    windows=columns(
        start_s=_seconds,
        end_s=_seconds,
        received_bytes_per_s=_rate,
        max_gap_ms=_count,
        verdict=one_of(*VERDICTS),
    ),
    seconds=columns(
        at_s=_seconds,
        http_bytes_per_s=_rate,
        stream_bytes_per_s=_rate,
        readers_disk_bytes_per_s=_rate,
        web_disk_bytes_per_s=_rate,
        movie_disk_bytes_per_s=_rate,
        readers_disk_limit_bytes_per_s=optional(_rate),
        web_disk_limit_bytes_per_s=optional(_rate),
        web_net_limit_bytes_per_s=optional(_rate),
        cpu_ratio=_ratio,
    ),
)
_code = pattern(r"[a-z][a-z0-9-]{0,39}", "guests-busy")
_result = record(
    version=one_of(VERSION),
    run_id=pattern(r"[0-9a-f]{32}", "32 hexadecimal digits"),
    started_at=_epoch,
    ended_at=_epoch,
    outcome=one_of(*OUTCOMES),
    reasons=rows(record(code=_code, sentence=text(least=1)), 20),
    host=record(
        name=text(255, least=1), kernel=text(255), cpus=number(1, 1e5), memory_mib=number(1, 1e9)
    ),
    software=record(sluice=text(100), qemu=text(100), libvirt=text(100)),
    accelerator=optional(record(name=one_of("kvm", "tcg"), reason=text())),
    measured=optional(_measured),
)


def parse_result(raw: Any) -> dict[str, Any]:
    """Return the result with exactly the members that are known; raise BadValue."""
    if isinstance(raw, Mapping) and raw.get("version") != VERSION:
        # An older or newer run: its other members would be refused in odd words.
        one_of(VERSION)("version", raw.get("version"))
    result = _result("", raw)
    if result["ended_at"] < result["started_at"]:
        raise BadValue(
            "ended_at", result["ended_at"], "is before started_at", "give the times of one run"
        )
    outcome, measured = result["outcome"], result["measured"]
    if (outcome in MEASURED) != (measured is not None):
        wanted = "give what was measured" if outcome in MEASURED else "give null"
        shown = "absent" if measured is None else "present"
        raise BadValue("measured", shown, f"does not fit the outcome {outcome}", wanted)
    if outcome in UNMEASURED and not result["reasons"]:
        raise BadValue("reasons", "none", f"do not explain the outcome {outcome}", "give one")
    if measured is not None:
        holds = bool(measured["checks"]) and all(check["holds"] for check in measured["checks"])
        if holds != (outcome == "passed"):
            wanted = "passed" if holds else "failed"
            raise BadValue("outcome", outcome, "does not fit the checks", f"give {wanted}")
    return result


@dataclass(frozen=True)
class NightlyBody(Model):
    """A nightly run's result."""

    result: Mapping[str, Any]
    # The run's own page, HTML.
    page: str | None = None
    keep: Annotated[
        int | None,
        Whole(KEEP_LEAST, KEEP_MOST, optional=True, help="results that stay, this one included"),
    ] = None


def parse_page(raw: Any) -> str | None:
    """The run's own page as HTML text, or None."""
    return optional(text(MOST_PAGE_CHARACTERS, least=1))("page", raw)


def parse_keep(raw: Any) -> int:
    """How many results stay, this one included."""
    if raw is None:
        return KEEP_DEFAULT
    if isinstance(raw, bool) or not isinstance(raw, int) or not KEEP_LEAST <= raw <= KEEP_MOST:
        raise BadValue(
            "keep", raw, "is out of range", f"give a whole number from {KEEP_LEAST} to {KEEP_MOST}"
        )
    return raw


def background(phase: Mapping[str, Any]) -> float:
    """The background's rate in a phase, in bytes per second."""
    moved = phase["background"]
    return moved["http_bytes_per_s"] + moved["disk_bytes_per_s"]


def figures(measured: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one night in the trend."""
    phases = measured["phases"]
    found: dict[str, Any] = {
        name: {
            **{
                key: phase["stream"][key]
                for key in ("verdict", "stalls", "stall_seconds", "delivered_ratio", "max_gap_ms")
            },
            "background_bytes_per_s": background(phase),
        }
        for name, phase in phases.items()
    }
    before = background(phases["unshaped"])
    found["background_ratio"] = background(phases["auto"]) / before if before else None
    found["settled_after_s"] = measured["settled_after_s"]
    return found


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without its series, for the list and the trend."""
    measured = result["measured"]
    kept = ("run_id", "started_at", "ended_at", "outcome", "reasons", "software")
    return {
        **{key: result[key] for key in kept},
        "host": result["host"]["name"],
        "accelerator": result["accelerator"]["name"] if result["accelerator"] else None,
        "figures": None if measured is None else figures(measured),
    }
