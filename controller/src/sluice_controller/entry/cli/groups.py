# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice group: limits of the host that several domains share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.errors import NotFound
from ...domain.groups import PARTS, MemberBody
from ...domain.rates import format_rate
from .common import Answered, Domain, command, completed, count, described, named
from .output import shown, yes

Name = named("GROUP", "name of a group", "groups")

group = typer.Typer(
    no_args_is_help=True, help="Groups: one limit of the host for several domains, by weight."
)


def _rate_text(entry: dict[str, Any]) -> str:
    if entry["unit"] == "bytes":
        return format_rate(entry["rate_per_second"])
    return f"{entry['rate_per_second']} ops/s"


@command(group, "list")
def list_groups(context: typer.Context) -> Answered:
    """List the groups with their domains."""
    columns = {
        "group": "name",
        "resource": "resource",
        "rate": _rate_text,
        "domains (weight)": lambda g: ", ".join(
            f"{d['domain']} ({d['weight']})" for d in g["domains"]
        ),
    }
    return context.obj.call("GET", "groups"), shown(columns, empty="no groups")


@command(group, "members")
def show_members(context: typer.Context, name: Name) -> Answered:
    """Show the present users of a group in all QEMU processes of the host.

    Example: sluice group members disks
    """
    found = [g for g in context.obj.call("GET", "groups") if g["name"] == name]
    if not found:
        raise NotFound("group", name, "does not exist", "see 'sluice group list'")
    columns = {
        "member": "label",
        "pid": "pid",
        "weight": "weight",
        "waiting": lambda m: yes(m["waiting"]),
        "requests": "requests",
        "units": "units",
    }
    return found[0]["members"], shown(columns, right=list(columns)[1:], empty="nobody")


@command(group, "add")
def add_group(
    context: typer.Context,
    name: Name,
    resource: Annotated[
        str, typer.Option(help=f"one of {', '.join(PARTS)}", autocompletion=completed(PARTS))
    ],
    rate_text: Annotated[str | None, typer.Option("--rate", help="for example 200MB/s")] = None,
    operations: Annotated[
        float | None, typer.Option("--ops", help="operations per second, instead of a rate")
    ] = None,
    burst: Annotated[
        str | None,
        typer.Option(help="for example 10MB, or a number of operations; 'none': 1/20 second"),
    ] = None,
) -> Answered:
    """Create a group, or change the given settings; its members go on under it at once.

    blk is reads and writes together, net both directions of the NICs.

    Example: sluice group add disks --resource blk --rate 200MB/s
    """
    of_bytes = operations is None
    given = {
        "resource": resource,
        "bytes_per_second": rate_text,
        "operations_per_second": operations,
        "burst_bytes": burst if of_bytes else None,
        "burst_operations": None if of_bytes else count(burst, "burst"),
    }
    body = {key: value for key, value in given.items() if value is not None}
    answer = context.obj.call("PATCH", "groups", name, body=body)
    return answer, f"group {name}: {_rate_text(answer)} of {resource}"


@command(group, "remove")
def remove_group(context: typer.Context, name: Name) -> Answered:
    """Remove a group that has no members."""
    context.obj.call("DELETE", "groups", name)
    return {"removed": name}, f"group {name}: removed"


@command(group, "member")
def put_member(
    context: typer.Context,
    name: Name,
    domain: Domain,
    weight: Annotated[int | None, described(MemberBody, "weight")] = None,
) -> Answered:
    """Put a domain into a group, or change its weight.

    A domain's resource is in one group at most.

    Example: sluice group member disks media --weight 300
    """
    body = {} if weight is None else {"weight": weight}
    answer = context.obj.call("PATCH", "groups", name, "members", domain, body=body)
    weights = {one["domain"]: one["weight"] for one in answer["domains"]}
    return answer, f"{domain}: in the group {name} with weight {weights.get(domain, weight)}"


@command(group, "leave")
def delete_member(context: typer.Context, name: Name, domain: Domain) -> Answered:
    """Take a domain out of a group."""
    context.obj.call("DELETE", "groups", name, "members", domain)
    return {"left": name}, f"{domain}: no longer in the group {name}"
