# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice live: rates against limits, like top."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...domain.rates import format_rate
from .common import Answered, AnyDomain, Interval, command
from .output import Columns, console, safe, table, uplink_line

if TYPE_CHECKING:
    from rich.console import Group

top = typer.Typer()


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


def _rate(sample: dict[str, Any]) -> Any:
    from rich.text import Text

    limit, rate = sample["limit_bytes_per_second"], sample["bytes_per_second"]
    near = limit is not None and rate >= 0.95 * limit
    return Text(format_rate(rate), style="yellow" if near else "")


COLUMNS: Columns = {
    "domain": "domain",
    "class": "class",
    "resource": "resource",
    "rate": _rate,
    "limit": lambda s: format_rate(s["limit_bytes_per_second"]),
    "requests/s": lambda s: f"{s['requests_per_second']:.0f}",
    "waiting": _waiting,
    "held p99": lambda s: _milliseconds(s["held_p99_ms"]),
    "service": lambda s: _milliseconds(s["service_mean_ms"]),
    "in flight": "in_flight",
    "untagged": lambda s: "–" if s["untagged_share"] is None else f"{s['untagged_share']:.0%}",
    "dropped, marked": _lost,
}
NUMBERS = list(COLUMNS)[3:-1]


def render(answer: dict[str, Any], everything: bool) -> Group:
    from rich.console import Group
    from rich.text import Text

    rows, notes = [], []
    for domain, state in sorted(answer["domains"].items()):
        if not state["page_ok"]:
            notes.append(Text(safe(f"{domain}: {state['error']}"), style="red"))
        for name, resources in sorted(state["classes"].items()):
            for resource, sample in resources.items():
                if everything or not _is_quiet(sample):
                    place = {"domain": domain, "class": name, "resource": resource}
                    rows.append({**place, **sample})
    uplink = answer["uplink"]
    if uplink is not None:
        notes.append(Text(safe(uplink_line(uplink))))
    head = Text(time.strftime("%H:%M:%S", time.localtime(answer["at"])))
    body = table(rows, COLUMNS, NUMBERS) if rows else Text("no shaped domain moves data")
    return Group(head, body, *notes)


@command(top, "live")
def live(
    context: typer.Context,
    domain: AnyDomain = None,
    interval: Interval = 1.0,
    once: Annotated[bool, typer.Option("--once", help="print one table and end")] = False,
    everything: Annotated[bool, typer.Option("--all", help="quiet classes too")] = False,
) -> Answered:
    """Watch rates, limits and waiting of all classes; Ctrl-C ends it.

    The last column has the frames per second that were dropped, by reason (backlog: the queue
    was full, codel: it stood, connection: one new connection too many, window: too late,
    reset), and marked (ECN).

    Example: sluice live media
    """
    query = {} if domain is None else {"domain": domain}

    def ask() -> dict[str, Any]:
        return context.obj.call("GET", "live", query=query)

    def watch(answer: dict[str, Any]) -> None:
        if once or not console().is_terminal:
            return console().print(render(answer, everything))
        from rich.live import Live

        try:
            with Live(render(answer, everything), console=console(), screen=True) as screen:
                while True:
                    time.sleep(interval)
                    screen.update(render(ask(), everything), refresh=True)
        except KeyboardInterrupt:
            return None

    return ask(), watch
