# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice rule, assign, unassign."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .common import AsJson, ClassName, Domain, names_of
from .output import print_json, say, show

Exe = Annotated[str | None, typer.Option(help="absolute path of the executable")]
Cmdline = Annotated[
    str | None, typer.Option(help="regular expression searched in the command line")
]
User = Annotated[str | None, typer.Option(help="user name or numeric id")]
Unit = Annotated[str | None, typer.Option(help="systemd unit, for example nginx.service")]
Cgroup = Annotated[str | None, typer.Option(help="path prefix in the cgroup tree")]
OnDomain = Annotated[
    str | None,
    typer.Option("--domain", help="every domain unless given", autocompletion=names_of("domains")),
]
Pid = Annotated[int, typer.Argument(help="process id in the guest", metavar="PID")]

group = typer.Typer(no_args_is_help=True, help="Rules: which processes belong to which class.")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="rule")
    app.command()(assign)
    app.command()(unassign)


def _body(domain: str | None, name: str, **match: str | None) -> dict[str, Any]:
    given = {key: value for key, value in match.items() if value is not None}
    return {"domain": domain, "class": name, "match": given}


def _match_text(match: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in match.items())


@group.command("list")
def list_rules(context: typer.Context, domain: OnDomain = None, as_json: AsJson = False) -> None:
    """List the rules, in the order in which they are tried."""
    query = {} if domain is None else {"domain": domain}
    answer = context.obj.call("GET", "rules", query=query)
    if as_json:
        return print_json(answer)
    rows = [
        (r["id"], r["domain"] or "(every)", r["class"], _match_text(r["match"])) for r in answer
    ]
    show(("id", "domain", "class", "match"), rows, right=("id",), empty="no rules")


@group.command("add")
def add_rule(
    context: typer.Context,
    name: ClassName,
    domain: OnDomain = None,
    exe: Exe = None,
    cmdline: Cmdline = None,
    user: User = None,
    unit: Unit = None,
    cgroup: Cgroup = None,
    as_json: AsJson = False,
) -> None:
    """Put all processes that match into a class.

    Example: sluice rule add batch --domain media --exe /usr/bin/cat
    """
    body = _body(domain, name, exe=exe, cmdline=cmdline, user=user, unit=unit, cgroup=cgroup)
    answer = context.obj.call("POST", "rules", body=body)
    if as_json:
        return print_json(answer)
    say(f"rule {answer['id']}: {_match_text(answer['match'])} → {name}")


@group.command("preview")
def preview_rule(
    context: typer.Context,
    name: ClassName,
    domain: OnDomain = None,
    exe: Exe = None,
    cmdline: Cmdline = None,
    user: User = None,
    unit: Unit = None,
    cgroup: Cgroup = None,
    as_json: AsJson = False,
) -> None:
    """Show which processes a rule would match now, and change nothing."""
    body = _body(domain, name, exe=exe, cmdline=cmdline, user=user, unit=unit, cgroup=cgroup)
    answer = context.obj.call("POST", "rules", "preview", body=body)
    if as_json:
        return print_json(answer)
    rows = [(p["domain"], p["pid"], p["comm"], p["exe"]) for p in answer["processes"]]
    show(("domain", "pid", "command", "executable"), rows, right=("pid",), empty="no process")


@group.command("remove")
def remove_rule(
    context: typer.Context,
    rule_id: Annotated[int, typer.Argument(metavar="ID", help="as 'sluice rule list' shows it")],
    as_json: AsJson = False,
) -> None:
    """Remove a rule."""
    context.obj.call("DELETE", "rules", rule_id)
    if as_json:
        return print_json({"removed": rule_id})
    say(f"rule {rule_id}: removed")


def assign(
    context: typer.Context,
    domain: Domain,
    pid: Pid,
    name: ClassName,
    as_json: AsJson = False,
) -> None:
    """Put one running process, and what it starts, into a class.

    Example: sluice assign media 812 batch
    """
    answer = context.obj.call("PUT", "domains", domain, "assignments", pid, body={"class": name})
    if as_json:
        return print_json(answer)
    say(f"{domain}: process {pid} → {name}")


def unassign(context: typer.Context, domain: Domain, pid: Pid, as_json: AsJson = False) -> None:
    """Take an assignment back."""
    context.obj.call("DELETE", "domains", domain, "assignments", pid)
    if as_json:
        return print_json({"unassigned": pid})
    say(f"{domain}: process {pid} is not assigned any more")
