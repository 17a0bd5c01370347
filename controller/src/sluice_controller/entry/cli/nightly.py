# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice nightly: the findings of nightly runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.errors import NotFound, Unavailable
from ...domain.rates import format_rate
from .common import Answered, command
from .output import say, show, shown, when

group = typer.Typer(no_args_is_help=True, help="Nightly runs: the host proves itself.")


def _stalled(phase: dict[str, Any]) -> str:
    return f"{phase['verdict']}, {phase['stall_seconds']:.1f} s stalled"


def _background(figures: dict[str, Any]) -> str:
    ratio = figures["background_ratio"]
    return "" if ratio is None else f"{ratio:.0%}"


def _settled(figures: dict[str, Any]) -> str:
    seconds = figures["settled_after_s"]
    return "never" if seconds is None else f"{seconds:.1f} s"


def _figure(told: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], str]:
    """Of a night that was measured."""
    return lambda night: "" if night["figures"] is None else told(night["figures"])


@command(group, "list")
def list_nights(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="how many nights")] = 14,
) -> Answered:
    """List the nights, newest first, with their outcomes and reasons.

    Example: sluice nightly list --limit 30
    """
    columns = {
        "id": "id",
        "night": lambda night: when(night["started_at"]),
        "outcome": "outcome",
        "unshaped": _figure(lambda figures: _stalled(figures["unshaped"])),
        "shaped": _figure(lambda figures: _stalled(figures["auto"])),
        "background": _figure(_background),
        "settled": _figure(_settled),
        "reason": lambda night: "; ".join(r["sentence"] for r in night["reasons"]),
    }
    answer = context.obj.call("GET", "nightly", query={"limit": limit})
    empty = "no night yet; 'sluice-nightly check' says whether it would run now"
    return answer, shown(columns, right=("id", "background", "settled"), empty=empty)


def _newest(context: typer.Context) -> int:
    answer = context.obj.call("GET", "nightly", query={"limit": 1})
    if not answer:
        raise NotFound("nightly result", "newest", "does not exist", "run 'sluice-nightly run'")
    return answer[0]["id"]


def _phases(measured: dict[str, Any]) -> None:
    columns = {
        "phase": "name",
        "stream": lambda p: p["stream"]["verdict"],
        "stalls": lambda p: f"{p['stream']['stalls']:g} ({p['stream']['stall_seconds']:.1f} s)",
        "delivered": lambda p: f"{p['stream']['delivered_ratio']:.2%}",
        "http": lambda p: format_rate(p["background"]["http_bytes_per_s"]),
        "disk": lambda p: format_rate(p["background"]["disk_bytes_per_s"]),
        "processors": lambda p: f"{p['cpu_ratio']:.0%}",
    }
    rows = [{"name": name, **phase} for name, phase in measured["phases"].items()]
    show(rows, columns, right=list(columns)[2:])
    for check in measured["checks"]:
        say(f"{'holds' if check['holds'] else 'FAILS'}  {check['name']}: {check['figures']}")


def _say_night(answer: dict[str, Any]) -> None:
    result = answer["result"]
    night = f"night {answer['id']} on {answer['host']}, {when(answer['started_at'])}"
    say(f"{night}: {answer['outcome']}")
    for reason in answer["reasons"]:
        say(f"{reason['code']}: {reason['sentence']}")
    if result["accelerator"]:
        say(f"accelerator {result['accelerator']['name']}: {result['accelerator']['reason']}")
    say(", ".join(f"{name} {version}" for name, version in answer["software"].items()))
    if result["measured"] is not None:
        _phases(result["measured"])


@command(group, "show")
def show_night(
    context: typer.Context,
    night: Annotated[int | None, typer.Argument(metavar="[ID]", help="newest unless given")] = None,
    page: Annotated[
        Path | None, typer.Option(help="write the run's own page with its plots here")
    ] = None,
) -> Answered:
    """Show one night's result.

    Example: sluice nightly show 12 --page night.html
    """
    night = _newest(context) if night is None else night
    answer = context.obj.call("GET", "nightly", night)
    if page is not None:
        html = context.obj.call("GET", "nightly", night, "page")["html"]
        try:
            page.write_text(html)
        except OSError as error:
            raise Unavailable(
                "file", str(page), f"cannot be written ({error.strerror})", "give another path"
            ) from error

    def tell(answer: dict[str, Any]) -> None:
        _say_night(answer)
        if page is not None:
            say(f"wrote {page}")

    return answer, tell
