# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice class, grant, revoke, limit, ceiling, dscp."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.cards import Card
from ...domain.knobs import knob
from ...domain.limits import Limit
from ...domain.model import ClassBody
from ...domain.models import answer_of
from .common import (
    Answered,
    ClassName,
    Domain,
    Rate,
    Resource,
    change_resource,
    command,
    given_of,
    nothing,
)
from .output import limits_text, say, shown, yes

# Beside the rate, which is an argument.
OfLimit = answer_of(Limit, "OfLimit", "bytes_per_second")

group = typer.Typer(no_args_is_help=True, help="Classes: kinds of I/O, on any domain.")
top = typer.Typer()


@command(group, "list")
def list_classes(context: typer.Context) -> Answered:
    """List all classes."""
    columns = {
        "class": "name",
        "title": "title",
        "priority": "priority",
        "weight": "weight",
        "stream": lambda c: yes(c["is_stream"]),
        "unmanaged": lambda c: yes(c["unmanaged"]),
    }
    return context.obj.call("GET", "classes"), shown(columns, right=("priority", "weight"))


@command(group, "set", options=ClassBody)
def set_class(context: typer.Context, name: ClassName, **options: Any) -> Answered:
    """Create a class, or change the given settings.

    Examples: sluice class set movie --title "The movie" --priority 1 --stream;
    sluice class set batch --priority 7 --weight 300
    """
    answer = context.obj.call("PATCH", "classes", name, body=given_of(ClassBody, options))
    return answer, (
        f"class {name}: priority {answer['priority']}, weight {answer['weight']}, "
        f"stream {yes(answer['is_stream'])}, unmanaged {yes(answer['unmanaged'])}"
    )


@command(group, "remove")
def remove_class(context: typer.Context, name: ClassName) -> Answered:
    """Remove a class that no domain has and no rule names."""
    context.obj.call("DELETE", "classes", name)
    return {"removed": name}, f"class {name}: removed"


def _granted(domain: str, answer: dict[str, Any]) -> Answered:
    said = f"{domain}/{answer['class']}: tag {answer['tag']}, {limits_text(answer['limits'])}"
    return answer, said


@command(top, "grant")
def grant(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    dscp: Annotated[
        list[int] | None, typer.Option(help="DSCP value that selects the class; may be repeated")
    ] = None,
) -> Answered:
    """Allow a domain to use a class. Earlier settings of the class there stay.

    Example: sluice grant media batch
    """
    body = {} if dscp is None else {"dscp": dscp}
    answer = context.obj.call("PATCH", "domains", domain, "classes", name, body=body)
    return _granted(domain, answer)


@command(top, "revoke")
def revoke(context: typer.Context, domain: Domain, name: ClassName) -> Answered:
    """Take a class from a domain, with its rules and assignments there."""

    def tell(answer: dict[str, Any]) -> None:
        say(f"{domain}/{name}: revoked")
        for rule in answer["rules"]:
            say(f"  removed rule {rule['id']}")
        for assignment in answer["assignments"]:
            say(f"  removed the assignment of process {assignment['pid']}")

    return context.obj.call("DELETE", "domains", domain, "classes", name), tell


def _limit(rate: str | None, options: dict[str, Any]) -> dict[str, Any] | None:
    """None: no limit at all."""
    if nothing(rate) and not any(options.values()):
        return None
    body = given_of(Limit, {"bytes_per_second": rate, **options})
    # A burst goes with its rate.
    if nothing(rate):
        body.setdefault("burst_bytes", None)
    if nothing(options["operations_per_second"]):
        body.setdefault("burst_operations", None)
    return body


@command(top, "limit", options=OfLimit)
def limit(
    context: typer.Context,
    domain: Domain,
    name: ClassName,
    resource: Resource,
    rate: Rate = None,
    **options: Any,
) -> Answered:
    """Limit a class of a domain on one resource.

    Other parts stay; 'none' takes one part away, 'unlimited' alone the whole limit.

    Examples: sluice limit media batch blk-read 20MB/s --burst 256KiB;
    sluice limit media batch blk-read 30MB/s --ops none;
    sluice limit media batch blk-read unlimited
    """
    path = ("domains", domain, "classes", name, "limits", resource)
    return _granted(domain, change_resource(context, path, _limit(rate, options)))


@command(top, "ceiling", options=OfLimit)
def ceiling(
    context: typer.Context, domain: Domain, resource: Resource, rate: Rate = None, **options: Any
) -> Answered:
    """Limit a whole domain on one resource, all its classes together.

    Other parts stay; 'none' takes one part away, 'unlimited' alone all of it.

    Example: sluice ceiling media net-tx 400Mbit/s
    """
    path = ("domains", domain, "ceiling", resource)
    answer = change_resource(context, path, _limit(rate, options))
    return answer, f"{domain}: ceiling {limits_text(answer['ceiling'])}"


@command(top, "dscp")
def dscp(
    context: typer.Context,
    domain: Domain,
    card: Annotated[str, typer.Argument(help="its MAC address, target or alias")],
    frames: Annotated[str, typer.Argument(help=knob(Card, "dscp").said)],
) -> Answered:
    """Say for which frames of a network card the DSCP chooses the class.

    A process of the guest chooses the DSCP of what it sends, and a stranger that of what the guest
    receives. 'auto': of sent frames, while the guest has no port map in force.

    Example: sluice dscp media 52:54:00:12:34:56 both
    """
    answer = context.obj.call("PUT", "domains", domain, "cards", card, body={"dscp": frames})
    cards = ", ".join(f"{mac} {one['dscp']}" for mac, one in answer["cards"].items())
    return answer, f"{domain}: DSCP counts: {cards or 'auto on all cards'}"
