# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice nightly: what the nightly runs found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...domain.errors import NotFound, Unavailable
from ...domain.rates import format_rate
from .common import AsJson
from .output import print_json, say, show, when

group = typer.Typer(no_args_is_help=True, help="Nightly runs: the host proves itself.")

COLUMNS = ("id", "night", "outcome", "unshaped", "shaped", "background", "settled", "reason")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="nightly")


def _stalled(phase: dict[str, Any]) -> str:
    return f"{phase['verdict']}, {phase['stall_seconds']:.1f} s stalled"


def _settled(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


def _row(night: dict[str, Any]) -> list[Any]:
    figures = night["figures"]
    reason = "; ".join(r["sentence"] for r in night["reasons"])
    if figures is None:
        return [night["id"], when(night["started_at"]), night["outcome"], "", "", "", "", reason]
    ratio = figures["background_ratio"]
    return [
        night["id"],
        when(night["started_at"]),
        night["outcome"],
        _stalled(figures["unshaped"]),
        _stalled(figures["auto"]),
        "" if ratio is None else f"{ratio:.0%}",
        _settled(figures["settled_after_s"]),
        reason,
    ]


@group.command("list")
def list_nights(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="how many nights")] = 14,
    as_json: AsJson = False,
) -> None:
    """List the nights, newest first: what ran, what did not and why.

    Example: sluice nightly list --limit 30
    """
    answer = context.obj.call("GET", "nightly", query={"limit": limit})
    if as_json:
        return print_json(answer)
    empty = "no night yet; 'sluice-nightly check' says whether it would run now"
    show(COLUMNS, [_row(n) for n in answer], right=("id", "background", "settled"), empty=empty)


def _newest(context: typer.Context) -> int:
    answer = context.obj.call("GET", "nightly", query={"limit": 1})
    if not answer:
        raise NotFound("nightly result", "newest", "does not exist", "run 'sluice-nightly run'")
    return answer[0]["id"]


def _phases(measured: dict[str, Any]) -> None:
    rows = []
    for name, phase in measured["phases"].items():
        stream, moved = phase["stream"], phase["background"]
        rows.append(
            (
                name,
                stream["verdict"],
                f"{stream['stalls']:g} ({stream['stall_seconds']:.1f} s)",
                f"{stream['delivered_ratio']:.2%}",
                format_rate(moved["http_bytes_per_s"]),
                format_rate(moved["disk_bytes_per_s"]),
                f"{phase['cpu_ratio']:.0%}",
            )
        )
    columns = ("phase", "stream", "stalls", "delivered", "http", "disk", "processors")
    show(columns, rows, right=columns[2:])
    for check in measured["checks"]:
        say(f"{'holds' if check['holds'] else 'FAILS'}  {check['name']}: {check['figures']}")


@group.command("show")
def show_night(
    context: typer.Context,
    night: Annotated[int | None, typer.Argument(metavar="[ID]", help="newest unless given")] = None,
    page: Annotated[
        Path | None, typer.Option(help="write the run's own page with its plots here")
    ] = None,
    as_json: AsJson = False,
) -> None:
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
    if as_json:
        return print_json(answer)
    result = answer["result"]
    say(f"night {answer['id']} on {answer['host']}, {when(answer['started_at'])}: "
        f"{answer['outcome']}")  # fmt: skip
    for reason in answer["reasons"]:
        say(f"{reason['code']}: {reason['sentence']}")
    if result["accelerator"]:
        say(f"accelerator {result['accelerator']['name']}: {result['accelerator']['reason']}")
    software = ", ".join(f"{name} {version}" for name, version in answer["software"].items())
    say(software)
    if result["measured"] is not None:
        _phases(result["measured"])
    if page is not None:
        say(f"wrote {page}")
