# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice list, attach, detach, ps."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...services.domains import LONGEST_SHUTDOWN_SECONDS, SHUTDOWN_SECONDS
from .client import Client
from .common import AsJson, Domain
from .output import (
    limits_text,
    print_json,
    queue_text,
    rate,
    say,
    scheduling_text,
    show,
    waiting,
    yes,
)

Restart = Annotated[
    bool, typer.Option("--restart", help="shut the domain down and start it, if it runs")
]
ShutdownSeconds = Annotated[
    int,
    typer.Option(
        "--shutdown-seconds",
        min=1,
        max=LONGEST_SHUTDOWN_SECONDS,
        help="how long a restart waits for the guest to shut down",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("list")(list_domains)
    app.command("show")(show_domain)
    app.command()(attach)
    app.command()(detach)
    app.command("ps")(processes)


def _agent_text(agent: dict[str, Any]) -> str:
    if agent["connected"]:
        return f"{agent['agent_version']} ({agent['kernel']})"
    return agent["error"] or "not connected"


def _shaping_text(domain: dict[str, Any]) -> str:
    if domain["needs_restart"]:
        return "on after a restart" if domain["attached"] else "off after a restart"
    return "on" if domain["active"] else ("when it starts" if domain["attached"] else "off")


def list_domains(context: typer.Context, as_json: AsJson = False) -> None:
    """List the domains of libvirt, and how many of their disks and cards are shaped."""
    answer = context.obj.call("GET", "domains")
    if as_json:
        return print_json(answer)
    rows = [
        (
            d["name"],
            d["state"],
            _shaping_text(d),
            f"{d['shaped_count']} of {len(d['devices'])}",
            _agent_text(d["agent"]) if d["active"] else "",
            ", ".join(g["class"] for g in d["classes"]),
        )
        for d in answer
    ]
    columns = ("domain", "state", "shaping", "shaped", "agent", "classes")
    show(columns, rows, right=("shaped",), empty="no domains")
    for d in answer:
        # Of others the column "shaping" says why.
        if (d["attached"] or d["active"]) and d["shaped_count"] < len(d["devices"]):
            say(f"{d['name']}: {d['shaped_sentence']}")


def show_domain(context: typer.Context, domain: Domain, as_json: AsJson = False) -> None:
    """Show a domain's devices, classes, limits, scheduling and queues."""
    answer = context.obj.call("GET", "domains", domain)
    if as_json:
        return print_json(answer)
    say(f"{answer['name']}: {answer['state']}, shaping {_shaping_text(answer)}")
    say(f"agent: {_agent_text(answer['agent'])}")
    say(f"ceiling: {limits_text(answer['ceiling'])}")
    rows = [
        (d["kind"], d["target"], d["alias"], d["unshaped_because"] or "yes")
        for d in answer["devices"]
    ]
    show(("device", "target", "alias", "shaped"), rows, empty="no devices")
    rows = [
        (
            g["class"],
            g["tag"],
            g["priority"],
            g["weight"],
            yes(g["is_stream"]),
            yes(g["unmanaged"]),
            limits_text(g["limits"]),
            limits_text(g["effective_limits"]) if g["effective_limits"] != g["limits"] else "",
        )
        for g in answer["classes"]
    ]
    columns = ("class", "tag", "priority", "weight", "stream", "unmanaged", "limits")
    show((*columns, "auto-shaping holds it to"), rows, right=("tag", "priority", "weight"))
    rows = [
        (g["class"], resource, kind, text(one))
        for g in answer["classes"]
        for kind, text in (("scheduling", scheduling_text), ("queues", queue_text))
        for resource, one in g[kind].items()
    ]
    if rows:
        show(("class", "resource", "what", "set to"), rows)


def attach(
    context: typer.Context,
    domain: Domain,
    restart: Restart = False,
    disable_vhost: Annotated[
        bool, typer.Option("--disable-vhost", help="switch interfaces from vhost to QEMU")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="attach an attached domain anew, with today's QEMU")
    ] = False,
    shutdown_seconds: ShutdownSeconds = SHUTDOWN_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Rewrite a domain's XML so that its disks and interfaces are shaped.

    A guest that is not off in time runs on, and its definition is as before; if it shuts down
    later, it stays off.

    Example: sluice attach media --restart
    """
    body = {
        "restart": restart,
        "upgrade": upgrade,
        "disable_vhost": disable_vhost,
        "shutdown_seconds": shutdown_seconds,
    }
    answer = _restarting(context.obj, domain, "attach", body)
    if as_json:
        return print_json(answer)
    for change in answer.get("changes", []):
        say(f"  {change}")
    say(f"{domain}: attached, shaping {_shaping_text(answer)}")
    say(answer["shaped_sentence"])


def detach(
    context: typer.Context,
    domain: Domain,
    restart: Restart = False,
    shutdown_seconds: ShutdownSeconds = SHUTDOWN_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Give a domain its own XML back."""
    body = {"restart": restart, "shutdown_seconds": shutdown_seconds}
    answer = _restarting(context.obj, domain, "detach", body)
    if as_json:
        return print_json(answer)
    say(f"{domain}: detached, shaping {_shaping_text(answer)}")


def _restarting(client: Client, domain: str, action: str, body: dict[str, Any]) -> Any:
    if not body["restart"]:
        return client.call("POST", "domains", domain, action, body=body)
    seconds = body["shutdown_seconds"]
    with waiting(f"{domain}: it may take up to {seconds} s to shut down"):
        return client.call("POST", "domains", domain, action, body=body, may_take_seconds=seconds)


def processes(
    context: typer.Context,
    domain: Domain,
    everything: Annotated[bool, typer.Option("--all", help="idle processes too")] = False,
    as_json: AsJson = False,
) -> None:
    """List a guest's processes with their class and I/O, busiest first.

    Example: sluice ps media
    """
    answer = context.obj.call("GET", "domains", domain, "processes")
    if as_json:
        return print_json(answer)
    rows = sorted(
        answer["processes"],
        key=lambda p: (p["read_bps"] + p["write_bps"], p["cpu_ratio"]),
        reverse=True,
    )
    if not everything:
        rows = [
            p
            for p in rows
            if p["class"] or p["read_bps"] + p["write_bps"] > 0 or p["cpu_ratio"] >= 0.005
        ]
    show(
        ("pid", "user", "class", "read", "write", "cpu", "command"),
        [
            (
                p["pid"],
                p["user"],
                p["class"] or "default",
                rate(p["read_bps"]),
                rate(p["write_bps"]),
                f"{p['cpu_ratio']:.0%}",
                p["cmdline"] or f"[{p['comm']}]",
            )
            for p in rows
        ],
        right=("pid", "read", "write", "cpu"),
        empty="no busy processes; --all shows the idle ones",
    )
    if answer["truncated"]:
        say("the agent left out the least busy processes")
