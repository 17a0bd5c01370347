# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice rule, assign, unassign."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.rules import Match
from .common import Answered, ClassName, Domain, command, names_of
from .output import say, shown

OnDomain = Annotated[
    str | None,
    typer.Option("--domain", help="every domain unless given", autocompletion=names_of("domains")),
]
Pid = Annotated[int, typer.Argument(help="process id in the guest", metavar="PID")]

group = typer.Typer(no_args_is_help=True, help="Rules: which processes belong to which class.")
top = typer.Typer()


def _body(domain: str | None, name: str, match: dict[str, str | None]) -> dict[str, Any]:
    given = {key: value for key, value in match.items() if value is not None}
    return {"domain": domain, "class": name, "match": given}


def _tell_refused(answer: dict[str, Any]) -> None:
    named = f"rule {answer['id']} is " if "id" in answer else ""
    for one in answer["refused"]:
        say(f"{named}not in force in {one['domain']}: {one['why']}")


def _match_text(match: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in match.items())


@command(group, "list")
def list_rules(context: typer.Context, domain: OnDomain = None) -> Answered:
    """List the rules, in the order in which they are tried.

    A domain's own go first, then those for every domain.
    """
    query = {} if domain is None else {"domain": domain}
    columns = {
        "id": "id",
        "domain": lambda r: r["domain"] or "(every)",
        "class": "class",
        "match": lambda r: _match_text(r["match"]),
    }
    answer = context.obj.call("GET", "rules", query=query)
    tell = shown(columns, right=("id",), empty="no rules")
    return answer, lambda rules: (tell(rules), *map(_tell_refused, rules))


@command(group, "add", options=Match)
def add_rule(
    context: typer.Context, name: ClassName, domain: OnDomain = None, **match: str | None
) -> Answered:
    """Put all processes that match into a class.

    A rule that is there already is not added again; it is printed, and that is no error.
    The agents that are connected try the rule first: it is refused if none of them can follow
    it, and printed with the domains where it is not in force.

    Example: sluice rule add batch --domain media --exe /usr/bin/cat
    """
    answer = context.obj.call("POST", "rules", body=_body(domain, name, match))
    added = f"rule {answer['id']}: {_match_text(answer['match'])} → {name}"
    return answer, lambda rule: (say(added), _tell_refused(rule))


@command(group, "preview", options=Match)
def preview_rule(
    context: typer.Context, name: ClassName, domain: OnDomain = None, **match: str | None
) -> Answered:
    """Show the processes that a rule would match now, and change nothing.

    Processes that would inherit the class are not shown. The agents answer; a domain whose
    agent refuses the rule, or does not answer within 5 s, is named.
    """
    columns = {"domain": "domain", "pid": "pid", "command": "comm", "executable": "exe"}
    tell = shown(columns, right=("pid",), empty="no process")
    answer = context.obj.call("POST", "rules", "preview", body=_body(domain, name, match))
    return answer, lambda found: (tell(found["processes"]), _tell_refused(found))


@command(group, "remove")
def remove_rule(
    context: typer.Context,
    rule_id: Annotated[int, typer.Argument(metavar="ID", help="as 'sluice rule list' shows it")],
) -> Answered:
    """Remove a rule."""
    context.obj.call("DELETE", "rules", rule_id)
    return {"removed": rule_id}, f"rule {rule_id}: removed"


@command(top, "assign")
def assign(context: typer.Context, domain: Domain, pid: Pid, name: ClassName) -> Answered:
    """Put one running process, and processes that it starts, into a class.

    Example: sluice assign media 812 batch
    """
    path = ("domains", domain, "assignments", pid)
    answer = context.obj.call("PUT", *path, body={"class": name})
    return answer, f"{domain}: process {pid} → {name}"


@command(top, "unassign")
def unassign(context: typer.Context, domain: Domain, pid: Pid) -> Answered:
    """Take an assignment back."""
    context.obj.call("DELETE", "domains", domain, "assignments", pid)
    return {"unassigned": pid}, f"{domain}: process {pid} is not assigned any more"
