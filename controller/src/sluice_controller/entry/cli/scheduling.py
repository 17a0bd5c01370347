# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice schedule, sluice queue: how a class uses a resource beside its limit."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from ...domain.errors import BadValue, NotFound, sluice
from ...domain.knobs import NOTHING
from ...domain.queues import DEFAULT_QUEUE, NO_AQM, Queue
from ...domain.rates import parse_rate, parse_size, parse_time_ns
from ...domain.scheduling import DEFAULT_SCHEDULING, MAX_OF, TOKEN_LEAKY, Scheduling
from .common import AsJson, ClassName, Domain, Resource, described, grant_of
from .output import print_json, queue_text, say, scheduling_text

Default = Annotated[bool, typer.Option("--default", help="take back all that is set here")]
# More than any number here can have; Python itself reads no more than 4300.
MOST_DIGITS = 18


def register(app: typer.Typer) -> None:
    app.command()(schedule)
    app.command()(queue)


def _window(text: str, may_miss: str | None) -> dict[str, Any] | None:
    """From "64KiB/20ms" and "1/10"."""
    if text in NOTHING:
        return None
    size, slash, period = text.partition("/")
    if not slash:
        raise BadValue("window", text, "is not a window", "write SIZE/TIME, for example 64KiB/20ms")
    window = {"bytes": parse_size(size, "window"), "period_ns": parse_time_ns(period, "window")}
    return {**window, **_late(may_miss)}


def _late(may_miss: str | None) -> dict[str, int]:
    if may_miss is None:
        return {}
    few, _, of = may_miss.partition("/")
    if not (few.isdecimal() and of.isdecimal()):
        raise BadValue("may-miss", may_miss, "is not a part", "write N/OF, for example 1/10")
    if max(len(few), len(of)) > MOST_DIGITS:
        raise BadValue("may-miss", may_miss, "is out of range", f"give OF up to {MAX_OF}")
    return {"may_miss": int(few), "of": int(of)}


def _size(text: str, thing: str) -> float | None:
    return None if text in NOTHING else parse_size(text, thing)


def _count(text: str, thing: str) -> float | None:
    if text in NOTHING:
        return None
    remedy = "give a number, or 'default' for the shaper's own"
    try:
        value = float(text)
    except ValueError:
        raise BadValue(thing, text, "is not a number", remedy) from None
    if not math.isfinite(value):
        raise BadValue(thing, text, "is out of range", remedy)
    return int(text) if text.isdecimal() else value


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


def _put(
    context: typer.Context,
    path: tuple[str, ...],
    body: dict[str, Any] | None,
    present: dict[str, Any],
) -> dict[str, Any]:
    """Sends what changes; the grant as it is then."""
    if body is None:
        return context.obj.call("DELETE", *path)
    if body:
        return context.obj.call("PUT", *path, body=body)
    if not present:
        _, domain, _, name, *_ = path
        raise NotFound(
            "class",
            name,
            f"is not one of {domain}",
            f"grant it: {sluice('grant', domain, name)}",
        )
    return present


def _changed_scheduling(
    before: dict[str, Any], given: dict[str, Any], may_miss: str | None
) -> dict[str, Any]:
    """What is given over what there is; what no longer goes with it is left out."""
    after = {**before, **given}
    if after["policy"] != TOKEN_LEAKY and "peak_bytes_per_second" not in given:
        after["peak_bytes_per_second"] = None
    if given.get("window") and "reservation_bytes_per_second" not in given:
        after["reservation_bytes_per_second"] = None
    if given.get("reservation_bytes_per_second") and "window" not in given:
        after["window"] = None
    if may_miss is not None and "window" not in given:
        if after["window"] is None:
            raise BadValue("may-miss", may_miss, "has no window", "give --window with it")
        after["window"] = {**after["window"], **_late(may_miss)}
    return after


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
    present = grant_of(context, domain, name)
    given = {
        "reservation_bytes_per_second": reserve and [parse_rate(reserve, "reserve")],
        "policy": policy and [policy],
        "peak_bytes_per_second": peak and [parse_rate(peak, "peak")],
        "minimum_charge_bytes": min_charge and [_size(min_charge, "min-charge")],
        "dynamic": dynamic and [dynamic],
        "charge": charge and [charge],
        "window": window and [_window(window, may_miss)],
    }
    body: dict[str, Any] | None = {key: box[0] for key, box in given.items() if box}
    if body or may_miss is not None:
        before = present.get("scheduling", {}).get(resource, DEFAULT_SCHEDULING.as_json())
        body = _changed_scheduling(before, body or {}, may_miss)
    path = ("domains", domain, "classes", name, "scheduling", resource)
    answer = _put(context, path, None if default else body, present)
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
    present = grant_of(context, domain, name)
    given = {
        "limit_bytes": limit_bytes and [_size(limit_bytes, "bytes")],
        "limit_packets": packets and [_count(packets, "packets")],
        "aqm": aqm and [aqm],
        "ecn": None if ecn is None else [ecn],
        "connections_per_second": connections and [_count(connections, "connections")],
        "burst_connections": burst_connections and [_count(burst_connections, "burst-connections")],
    }
    body: dict[str, Any] | None = {key: box[0] for key, box in given.items() if box}
    if body:
        body = {**present.get("queues", {}).get(resource, DEFAULT_QUEUE.as_json()), **body}
        if aqm == NO_AQM and ecn is None:
            body["ecn"] = False
        if connections in NOTHING and burst_connections is None:
            body["burst_connections"] = None
    path = ("domains", domain, "classes", name, "queues", resource)
    answer = _put(context, path, None if default else body, present)
    if as_json:
        return print_json(answer)
    one = answer.get("queues", {}).get(resource, DEFAULT_QUEUE.as_json())
    say(f"{domain}/{name} {resource}: {queue_text(one)}")
