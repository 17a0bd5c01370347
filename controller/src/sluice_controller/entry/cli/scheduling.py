# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice schedule, sluice queue: how a class uses a resource beside its limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ...domain.errors import BadValue
from ...domain.models import of_json, told
from ...domain.queues import NO_AQM, Queue
from ...domain.scheduling import MAX_OF, TOKEN_LEAKY, Scheduling
from .common import (
    Answered,
    ClassName,
    Domain,
    Resource,
    change_resource,
    command,
    given_of,
    members_with_options,
    nothing,
    option_of,
)

Default = Annotated[bool, typer.Option("--default", help="take back all of these")]
# More than any number here can have; Python itself reads no more than 4300.
MOST_DIGITS = 18

top = typer.Typer()


# Words for a grant's scheduling and queue of a resource.
TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "scheduling": lambda one: told(of_json(Scheduling, one)),
    "queues": lambda one: told(of_json(Queue, one)),
}


def _window(text: str | None, may_miss: str | None) -> dict[str, Any] | None:
    """From "64KiB/20ms" and "1/10"; None without one."""
    if nothing(text) or (text is None and may_miss is None):
        return None
    window: dict[str, Any] = {}
    if text is not None:
        size, slash, period = text.partition("/")
        if not slash:
            remedy = "write SIZE/TIME, for example 64KiB/20ms"
            raise BadValue("window", text, "is not a window", remedy)
        window = {"bytes": size, "period_ns": period}
    if may_miss is not None:
        few, _, of = may_miss.partition("/")
        if not (few.isdecimal() and of.isdecimal()):
            raise BadValue("may-miss", may_miss, "is not a part", "write N/OF, for example 1/10")
        if max(len(few), len(of)) > MOST_DIGITS:
            raise BadValue("may-miss", may_miss, "is out of range", f"give OF up to {MAX_OF}")
        window |= {"may_miss": int(few), "of": int(of)}
    return window


def _refuse_beside_default(context: typer.Context, others: dict[str, Any]) -> None:
    """One command cannot set and take back."""
    given = [option for option, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"it takes back all that is set here and does not go with {', '.join(given)};"
            " leave out one or the other",
            context,
            param_hint="--default",
        )


def _changed(
    context: typer.Context, kind: str, place: tuple[str, str, str], body: dict[str, Any] | None
) -> Answered:
    """None is the default."""
    domain, name, resource = place
    path = ("domains", domain, "classes", name, kind, resource)
    answer = change_resource(context, path, body)
    one = answer[kind].get(resource)
    words = TOLD[kind](one) if one else "by default"
    return answer, f"{domain}/{name} {resource}: {words}"


def _by_option(shape: type, options: dict[str, Any]) -> dict[str, Any]:
    return {option_of(shape, name): options[name] for name in members_with_options(shape)}


@command(top, "schedule", options=Scheduling)
def schedule(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    window: Annotated[
        str | None, typer.Option(help="SIZE/TIME to be served in each period; 'none'")
    ] = None,
    may_miss: Annotated[
        str | None, typer.Option(help="with a window: N/OF requests that may come late")
    ] = None,
    default: Default = False,
    **options: Any,
) -> Answered:
    """Change how a class of a domain uses one resource, beside its limit.

    Other settings stay; without options the command shows all. A reservation has an effect
    under a ceiling or in a group. A reservation replaces a window and a window a reservation;
    a policy other than token-leaky removes the peak.

    Examples: sluice schedule media movie blk-read --reserve 2MB/s;
    sluice schedule media batch net-tx --policy leaky-bucket;
    sluice schedule media call net-tx --window 16KiB/20ms --may-miss 1/10
    """
    if default:
        beside = {"--window": window, "--may-miss": may_miss}
        _refuse_beside_default(context, {**_by_option(Scheduling, options), **beside})
    body = given_of(Scheduling, options)
    new_window = _window(window, may_miss)
    # A window and a reservation take each other's place, and a peak goes with its policy.
    reserve = body.get("reservation_bytes_per_second")
    if new_window is not None:
        body = {"reservation_bytes_per_second": None, **body, "window": new_window}
    elif nothing(window) or (reserve is not None and not nothing(reserve)):
        body["window"] = None
    if body.get("policy", TOKEN_LEAKY) != TOKEN_LEAKY:
        body.setdefault("peak_bytes_per_second", None)
    return _changed(context, "scheduling", (domain, name, resource), None if default else body)


@command(top, "queue", options=Queue)
def queue(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    default: Default = False,
    **options: Any,
) -> Answered:
    """Change the queue of a class of a domain for its frames (net-tx, net-rx).

    Other settings stay; without options the command shows all.

    Examples: sluice queue media web net-rx --aqm codel --ecn;
    sluice queue media web net-rx --connections 200 --overload auto
    """
    if default:
        _refuse_beside_default(context, _by_option(Queue, options))
    body = given_of(Queue, options)
    if body.get("aqm") == NO_AQM:
        body.setdefault("ecn", None)
    if nothing(body.get("connections_per_second")):
        body.setdefault("burst_connections", None)
        body.setdefault("overload", None)
    return _changed(context, "queues", (domain, name, resource), None if default else body)
