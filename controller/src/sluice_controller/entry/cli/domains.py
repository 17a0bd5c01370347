# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice list, attach, detach, ps, agent install."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...domain.cards import AUTO
from ...domain.guests import AttachBody, DetachBody, InstallBody
from ...domain.limits import NET_RX
from ...domain.rates import format_rate
from .client import Client
from .common import Answered, Domain, command, given_of
from .output import limits_text, say, show, waiting, yes
from .scheduling import TOLD

top = typer.Typer()
agent = typer.Typer(help="Sluice's agent in guests.", no_args_is_help=True)


def _agent_text(agent: dict[str, Any]) -> str:
    if agent["connected"]:
        return f"{agent['agent_version']} ({agent['kernel']})"
    return agent["error"] or "not connected"


def shaping_text(domain: dict[str, Any]) -> str:
    if domain["needs_restart"]:
        return "on after a restart" if domain["attached"] else "off after a restart"
    return "on" if domain["active"] else ("when it starts" if domain["attached"] else "off")


def _say_domains(answer: list[dict[str, Any]]) -> None:
    columns = {
        "domain": "name",
        "state": "state",
        "shaping": shaping_text,
        "shaped": lambda d: f"{d['shaped_count']} of {len(d['devices'])}",
        "agent": lambda d: _agent_text(d["agent"]) if d["active"] else "",
        "classes": lambda d: ", ".join(g["class"] for g in d["classes"]),
    }
    show(answer, columns, right=("shaped",), empty="no domains")
    for d in answer:
        # Of others the column "shaping" says why.
        if (d["attached"] or d["active"]) and d["shaped_count"] < len(d["devices"]):
            say(f"{d['name']}: {d['shaped_sentence']}")


@command(top, "list")
def list_domains(context: typer.Context) -> Answered:
    """List the domains of libvirt, and how many of their disks and cards are shaped.

    Below the table is why the others of an attached domain are not.
    """
    return context.obj.call("GET", "domains"), _say_domains


def _auto_text(grant: dict[str, Any]) -> str:
    effective = grant["effective_limits"]
    return limits_text(effective) if effective != grant["limits"] else ""


def _control_text(grant: dict[str, Any]) -> str:
    """The limit of new connections that is in force, with the reason."""
    control = grant["overload"]
    return f"{control['connections_per_second']:g} new connections/s: {control['reason']}"


def _say_domain(answer: dict[str, Any]) -> None:
    say(f"{answer['name']}: {answer['state']}, shaping {shaping_text(answer)}")
    say(f"agent: {_agent_text(answer['agent'])}")
    say(answer["channel"]["sentence"])
    say(f"ceiling: {limits_text(answer['ceiling'])}")
    columns = {
        "device": "kind",
        "target": "target",
        "alias": "alias",
        "DSCP counts": lambda d: d["mac"] and answer["cards"].get(d["mac"], {"dscp": AUTO})["dscp"],
        "shaped": lambda d: d["unshaped_because"] or "yes",
    }
    show(answer["devices"], columns, empty="no devices")
    columns = {
        "class": "class",
        "tag": "tag",
        "priority": "priority",
        "weight": "weight",
        "stream": lambda g: yes(g["is_stream"]),
        "unmanaged": lambda g: yes(g["unmanaged"]),
        "limits": lambda g: limits_text(g["limits"]),
        "auto-shaping holds it to": _auto_text,
    }
    show(answer["classes"], columns, right=("tag", "priority", "weight"))
    rows = [
        {"class": g["class"], "resource": resource, "what": kind, "set to": text(one)}
        for g in answer["classes"]
        for kind, text in TOLD.items()
        for resource, one in g[kind].items()
    ]
    rows += [
        {"class": g["class"], "resource": NET_RX, "what": "overload", "set to": _control_text(g)}
        for g in answer["classes"]
        if g["overload"]
    ]
    if rows:
        show(rows, {name: name for name in rows[0]})


@command(top, "show")
def show_domain(context: typer.Context, domain: Domain) -> Answered:
    """Show a domain's devices, classes, limits, scheduling and queues."""
    return context.obj.call("GET", "domains", domain), _say_domain


@command(top, "attach", options=AttachBody)
def attach(context: typer.Context, domain: Domain, **options: Any) -> Answered:
    """Rewrite a domain's XML so that its disks and interfaces are shaped.

    A guest that is not off in time runs on, and its definition is as before; if it shuts down
    later, it stays off.

    Example: sluice attach media --restart
    """

    def tell(answer: dict[str, Any]) -> None:
        for change in answer.get("changes", []):
            say(f"  {change}")
        say(f"{domain}: attached, shaping {shaping_text(answer)}")
        say(answer["shaped_sentence"])

    return _restarting(context.obj, domain, "attach", given_of(AttachBody, options)), tell


@command(top, "detach", options=DetachBody)
def detach(context: typer.Context, domain: Domain, **options: Any) -> Answered:
    """Give a domain its own XML back."""
    answer = _restarting(context.obj, domain, "detach", given_of(DetachBody, options))
    return answer, f"{domain}: detached, shaping {shaping_text(answer)}"


def _restarting(client: Client, domain: str, action: str, body: dict[str, Any]) -> Any:
    if not body.get("restart"):
        return client.call("POST", "domains", domain, action, body=body)
    seconds = body.get("shutdown_seconds", DetachBody.shutdown_seconds)
    with waiting(f"{domain}: it may take up to {seconds} s to shut down"):
        return client.call("POST", "domains", domain, action, body=body, may_take_seconds=seconds)


def _is_busy(process: dict[str, Any]) -> bool:
    moved = process["read_bps"] + process["write_bps"]
    return bool(process["class"]) or moved > 0 or process["cpu_ratio"] >= 0.005


@command(top, "ps")
def processes(
    context: typer.Context,
    domain: Domain,
    everything: Annotated[bool, typer.Option("--all", help="idle processes too")] = False,
) -> Answered:
    """List a guest's processes with their class and I/O, busiest first.

    Example: sluice ps media
    """

    def tell(answer: dict[str, Any]) -> None:
        rows = sorted(
            (p for p in answer["processes"] if everything or _is_busy(p)),
            key=lambda p: (p["read_bps"] + p["write_bps"], p["cpu_ratio"]),
            reverse=True,
        )
        columns = {
            "pid": "pid",
            "user": "user",
            "class": lambda p: p["class"] or "default",
            "read": lambda p: format_rate(p["read_bps"]),
            "write": lambda p: format_rate(p["write_bps"]),
            "cpu": lambda p: f"{p['cpu_ratio']:.0%}",
            "command": lambda p: p["cmdline"] or f"[{p['comm']}]",
        }
        empty = "no busy processes; --all shows the idle ones"
        show(rows, columns, right=("pid", "read", "write", "cpu"), empty=empty)
        if answer["truncated"]:
            say("the agent left out the least busy processes")

    return context.obj.call("GET", "domains", domain, "processes"), tell


@command(agent, "install", options=InstallBody)
def install_agent(context: typer.Context, domain: Domain, **options: Any) -> Answered:
    """Install or upgrade Sluice's agent in a running guest.

    The guest needs the QEMU guest agent with guest-exec allowed, and systemd. It needs no
    network. To take the agent away, run sluice-agent-uninstall in the guest.

    Example: sluice agent install media
    """
    body = given_of(InstallBody, options)
    seconds = body.get("seconds", InstallBody.seconds)
    with waiting(f"{domain}: the agent is copied and started"):
        answer = context.obj.call(
            "POST", "domains", domain, "agent", body=body, may_take_seconds=seconds
        )
    return answer, f"{domain}: {answer['said']}"
