# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice live: rates against limits, like top."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ...domain.rates import format_rate
from .common import AsJson, names_of
from .output import console, print_json, safe, table

COLUMNS = (
    "domain",
    "class",
    "resource",
    "rate",
    "limit",
    "requests/s",
    "waiting",
    "held p99",
    "service",
    "in flight",
    "dropped, marked",
)
NUMBERS = COLUMNS[3:-1]


def register(app: typer.Typer) -> None:
    app.command()(live)


def _milliseconds(value: float) -> str:
    return "" if not value else f"{value:.1f} ms"


def _is_quiet(sample: dict[str, Any]) -> bool:
    return not (
        sample["bytes_per_second"]
        or sample["backlog_requests"]
        or sample["in_flight"]
        or sample["limit_bytes_per_second"]
        or sample["limit_operations_per_second"]
        or sample["dropped_per_second"]
        or sample.get("marked_per_second")
    )


def _waiting(sample: dict[str, Any]) -> str:
    """Requests that wait, and for frames how much of them."""
    requests, size = sample["backlog_requests"], sample["backlog_bytes"]
    return f"{requests} ({format_rate(size).removesuffix('/s')})" if requests else "0"


def _lost(sample: dict[str, Any]) -> str:
    """Frames per second that were dropped, by reason, or marked."""
    reasons = sample.get("drops_per_second") or {"dropped": sample["dropped_per_second"]}
    rates = {**reasons, "ECN": sample.get("marked_per_second") or 0.0}
    return ", ".join(f"{reason} {rate:.0f}/s" for reason, rate in rates.items() if rate > 0)


def _row(domain: str, name: str, resource: str, sample: dict[str, Any]) -> list[Any]:
    limit, rate = sample["limit_bytes_per_second"], sample["bytes_per_second"]
    near = limit is not None and rate >= 0.95 * limit
    return [
        domain,
        name,
        resource,
        Text(format_rate(rate), style="yellow" if near else ""),
        format_rate(limit),
        f"{sample['requests_per_second']:.0f}",
        _waiting(sample),
        _milliseconds(sample["held_p99_ms"]),
        _milliseconds(sample["service_mean_ms"]),
        f"{sample['in_flight']}",
        _lost(sample),
    ]


def render(answer: dict[str, Any], everything: bool) -> Group:
    rows, notes = [], []
    for domain, state in sorted(answer["domains"].items()):
        if not state["page_ok"]:
            notes.append(Text(safe(f"{domain}: {state['error']}"), style="red"))
        for name, resources in sorted(state["classes"].items()):
            for resource, sample in resources.items():
                if everything or not _is_quiet(sample):
                    rows.append(_row(domain, name, resource, sample))
    uplink = answer["uplink"]
    if uplink is not None:
        link = uplink["link_bytes_per_second"]
        notes.append(
            Text(
                safe(
                    f"uplink {uplink['name']}: {format_rate(uplink['bytes_per_second'])}"
                    f" of {format_rate(link) if link else 'unknown'}, backlog "
                    f"{uplink['backlog_bytes']} B, {uplink['dropped_per_second']:.0f} drops/s"
                )
            )
        )
    head = Text(time.strftime("%H:%M:%S", time.localtime(answer["at"])))
    body = table(COLUMNS, rows, right=NUMBERS) if rows else Text("no shaped domain moves data")
    return Group(head, body, *notes)


def live(
    context: typer.Context,
    domain: Annotated[
        str | None,
        typer.Argument(
            metavar="[DOMAIN]", help="all unless given", autocompletion=names_of("domains")
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=60, help="seconds")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="print one table and end")] = False,
    everything: Annotated[bool, typer.Option("--all", help="quiet classes too")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch rates, limits and waiting of all classes; Ctrl-C ends it.

    Example: sluice live media
    """
    query = {} if domain is None else {"domain": domain}

    def ask() -> dict[str, Any]:
        return context.obj.call("GET", "live", query=query)

    if as_json:
        return print_json(ask())
    if once or not console.is_terminal:
        return console.print(render(ask(), everything))
    try:
        with Live(render(ask(), everything), console=console, screen=True) as screen:
            while True:
                time.sleep(interval)
                screen.update(render(ask(), everything), refresh=True)
    except KeyboardInterrupt:
        return None
