# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice group: limits of the host that several domains share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.errors import NotFound
from ...domain.groups import PARTS, MemberBody
from .common import AsJson, Domain, completed, count, described, given, names_of
from .output import print_json, rate, say, show, yes

Name = Annotated[
    str,
    typer.Argument(help="name of a group", metavar="GROUP", autocompletion=names_of("groups")),
]

group = typer.Typer(
    no_args_is_help=True, help="Groups: one limit of the host for several domains, by weight."
)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="group")


def _rate_text(entry: dict[str, Any]) -> str:
    if entry["unit"] == "bytes":
        return rate(entry["rate_per_second"])
    return f"{entry['rate_per_second']} ops/s"


@group.command("list")
def list_groups(context: typer.Context, as_json: AsJson = False) -> None:
    """List the groups with their domains."""
    answer = context.obj.call("GET", "groups")
    if as_json:
        return print_json(answer)
    rows = [
        (
            g["name"],
            g["resource"],
            _rate_text(g),
            ", ".join(f"{d['domain']} ({d['weight']})" for d in g["domains"]),
        )
        for g in answer
    ]
    show(("group", "resource", "rate", "domains (weight)"), rows, empty="no groups")


@group.command("members")
def show_members(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show who uses a group right now, in all QEMU processes.

    Example: sluice group members disks
    """
    found = [g for g in context.obj.call("GET", "groups") if g["name"] == name]
    if not found:
        raise NotFound("group", name, "does not exist", "see 'sluice group list'")
    members = found[0]["members"]
    if as_json:
        return print_json(members)
    rows = [
        (m["label"], m["pid"], m["weight"], yes(m["waiting"]), m["requests"], m["units"])
        for m in members
    ]
    columns = ("member", "pid", "weight", "waiting", "requests", "units")
    show(columns, rows, right=columns[1:], empty="nobody")


@group.command("add")
def add_group(
    context: typer.Context,
    name: Name,
    resource: Annotated[
        str,
        typer.Option(help=f"one of {', '.join(PARTS)}", autocompletion=completed(PARTS)),
    ],
    rate_text: Annotated[str | None, typer.Option("--rate", help="for example 200MB/s")] = None,
    operations: Annotated[
        float | None, typer.Option("--ops", help="operations per second, instead of a rate")
    ] = None,
    burst: Annotated[
        str | None,
        typer.Option(help="for example 10MB, or a number of operations; 'none': 1/20 second"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a group, or change what is given; its members go on under it at once.

    blk is reads and writes together, net both directions of the NICs.

    Example: sluice group add disks --resource blk --rate 200MB/s
    """
    body = given(
        {
            "resource": resource,
            "bytes_per_second": rate_text,
            "operations_per_second": operations,
            "burst_bytes": burst if operations is None else None,
            "burst_operations": None if operations is None else count(burst, "burst"),
        }
    )
    answer = context.obj.call("PATCH", "groups", name, body=body)
    if as_json:
        return print_json(answer)
    say(f"group {name}: {_rate_text(answer)} of {resource}")


@group.command("remove")
def remove_group(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Remove a group that has no members."""
    context.obj.call("DELETE", "groups", name)
    if as_json:
        return print_json({"removed": name})
    say(f"group {name}: removed")


@group.command("member")
def put_member(
    context: typer.Context,
    name: Name,
    domain: Domain,
    weight: Annotated[int | None, described(MemberBody, "weight")] = None,
    as_json: AsJson = False,
) -> None:
    """Put a domain into a group, or change its weight.

    Example: sluice group member disks media --weight 300
    """
    path = ("groups", name, "members", domain)
    answer = context.obj.call("PATCH", *path, body=given({"weight": weight}))
    if as_json:
        return print_json(answer)
    weight = next(one["weight"] for one in answer["domains"] if one["domain"] == domain)
    say(f"{domain}: in the group {name} with weight {weight}")


@group.command("leave")
def delete_member(
    context: typer.Context, name: Name, domain: Domain, as_json: AsJson = False
) -> None:
    """Take a domain out of a group."""
    context.obj.call("DELETE", "groups", name, "members", domain)
    if as_json:
        return print_json({"left": name})
    say(f"{domain}: no longer in the group {name}")
