# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice schedule, sluice queue: how a class uses a resource beside its limit."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.errors import BadValue
from ...domain.queues import DEFAULT_QUEUE, NO_AQM, Queue
from ...domain.scheduling import DEFAULT_SCHEDULING, MAX_OF, TOKEN_LEAKY, Scheduling
from .common import (
    AsJson,
    ClassName,
    Domain,
    Resource,
    change_resource,
    count,
    described,
    given,
    nothing,
)
from .output import print_json, queue_text, say, scheduling_text

Default = Annotated[bool, typer.Option("--default", help="take back all that is set here")]
# More than any number here can have; Python itself reads no more than 4300.
MOST_DIGITS = 18


def register(app: typer.Typer) -> None:
    app.command()(schedule)
    app.command()(queue)


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


def _refuse_beside_default(context: typer.Context) -> None:
    """What would be set cannot be taken back by the same command."""
    others = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.param_type_name == "option"
        and parameter.name not in ("default", "as_json")
        and context.params.get(parameter.name or "") is not None
    ]
    if others:
        raise typer.BadParameter(
            f"it takes back all that is set here and does not go with {', '.join(others)};"
            " leave out one or the other",
            context,
            param_hint="--default",
        )


def schedule(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    reserve: Annotated[
        str | None, described(Scheduling, "reservation_bytes_per_second", "--reserve")
    ] = None,
    policy: Annotated[str | None, described(Scheduling, "policy")] = None,
    peak: Annotated[str | None, described(Scheduling, "peak_bytes_per_second", "--peak")] = None,
    min_charge: Annotated[
        str | None, described(Scheduling, "minimum_charge_bytes", "--min-charge")
    ] = None,
    dynamic: Annotated[str | None, described(Scheduling, "dynamic")] = None,
    charge: Annotated[str | None, described(Scheduling, "charge")] = None,
    window: Annotated[
        str | None, typer.Option(help="SIZE/TIME to be served in each period; 'none'")
    ] = None,
    may_miss: Annotated[
        str | None, typer.Option(help="with a window: N/OF requests that may come late")
    ] = None,
    default: Default = False,
    as_json: AsJson = False,
) -> None:
    """Change how a class of a domain uses one resource, beside its limit.

    What is not given stays. Without options it is shown. A reservation has an
    effect under a ceiling or in a group.

    Examples: sluice schedule media movie blk-read --reserve 2MB/s;
    sluice schedule media batch net-tx --policy leaky-bucket;
    sluice schedule media call net-tx --window 16KiB/20ms --may-miss 1/10
    """
    if default:
        _refuse_beside_default(context)
    body = given(
        {
            "reservation_bytes_per_second": reserve,
            "policy": policy,
            "peak_bytes_per_second": peak,
            "minimum_charge_bytes": min_charge,
            "dynamic": dynamic,
            "charge": charge,
            "window": _window(window, may_miss),
        }
    )
    # A window and a reservation take each other's place, and a peak goes with its policy.
    if "window" in body:
        body.setdefault("reservation_bytes_per_second", None)
    elif nothing(window) or (reserve is not None and not nothing(reserve)):
        body["window"] = None
    if policy not in (None, TOKEN_LEAKY):
        body.setdefault("peak_bytes_per_second", None)
    path = ("domains", domain, "classes", name, "scheduling", resource)
    answer = change_resource(context, path, None if default else body)
    if as_json:
        return print_json(answer)
    one = answer.get("scheduling", {}).get(resource, DEFAULT_SCHEDULING.as_json())
    say(f"{domain}/{name} {resource}: {scheduling_text(one)}")


def queue(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    limit_bytes: Annotated[str | None, described(Queue, "limit_bytes", "--bytes")] = None,
    packets: Annotated[str | None, described(Queue, "limit_packets", "--packets")] = None,
    aqm: Annotated[str | None, described(Queue, "aqm")] = None,
    ecn: Annotated[bool | None, described(Queue, "ecn", "--ecn/--no-ecn")] = None,
    connections: Annotated[
        str | None, described(Queue, "connections_per_second", "--connections")
    ] = None,
    burst_connections: Annotated[str | None, described(Queue, "burst_connections")] = None,
    default: Default = False,
    as_json: AsJson = False,
) -> None:
    """Change what a class of a domain may queue of its frames (net-tx, net-rx).

    What is not given stays. Without options it is shown.

    Examples: sluice queue media web net-rx --aqm codel --ecn;
    sluice queue media web net-rx --connections 200
    """
    if default:
        _refuse_beside_default(context)
    body = given(
        {
            "limit_bytes": limit_bytes,
            "limit_packets": count(packets, "packets"),
            "aqm": aqm,
            "ecn": ecn,
            "connections_per_second": count(connections, "connections"),
            "burst_connections": count(burst_connections, "burst-connections"),
        }
    )
    if aqm == NO_AQM:
        body.setdefault("ecn", None)
    if nothing(connections):
        body.setdefault("burst_connections", None)
    path = ("domains", domain, "classes", name, "queues", resource)
    answer = change_resource(context, path, None if default else body)
    if as_json:
        return print_json(answer)
    one = answer.get("queues", {}).get(resource, DEFAULT_QUEUE.as_json())
    say(f"{domain}/{name} {resource}: {queue_text(one)}")
