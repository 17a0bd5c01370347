# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of REST operations. The proxy and the OpenAPI document are made from it."""

from dataclasses import dataclass

from marshmallow import Schema

from . import schemas as s


@dataclass(frozen=True)
class Operation:
    """One call of the controller's API that the web offers too."""

    method: str
    path: str
    summary: str
    body: type[Schema] | None = None
    query: tuple[str, ...] = ()
    takes_ceiling: bool = False
    # Members of the body that only an admin may give.
    admin_members: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """Looking needs less than changing; a preview, which costs, is none of looking."""
        return "viewer" if self.method == "GET" else "operator"

    @property
    def is_report(self) -> bool:
        """True of what a token of scope reporter may call, for its own stream."""
        return self.body is s.StreamReport

    @property
    def lists_processes(self) -> bool:
        """True of the answer whose command lines are an operator's to read."""
        return self.method == "GET" and self.path.endswith("/processes")

    @property
    def name(self) -> str:
        """A unique name, for routes and for operationId."""
        words = [part.strip("{}") for part in self.path.split("/") if part]
        return "_".join([self.method.lower(), *words]).replace("-", "_")


def _operations() -> list[Operation]:
    op = Operation
    domain, grant = "/domains/{domain}", "/domains/{domain}/classes/{class}"
    member = "/groups/{group}/members/{domain}"
    return [
        op("GET", "/status", "Version, libvirt, database and uplinks of the host"),
        op("GET", "/settings", "Settings of the controller"),
        # sluiced runs the emulator, as root, to see what it can.
        op("PUT", "/settings", "Change settings", s.Settings, admin_members=("emulator",)),
        op("GET", "/audit", "Who changed what, newest first", query=("limit",)),
        op("GET", "/domains", "All virtual machines of the host"),
        op("GET", domain, "One virtual machine with its classes and ceiling"),
        op("POST", f"{domain}/attach", "Put the VM's devices behind a shaper", s.Attach),
        op("POST", f"{domain}/detach", "Give the VM its former definition back", s.Detach),
        op("PUT", f"{domain}/ceiling", "Replace the VM's ceiling", takes_ceiling=True),
        op("GET", "/groups", "Limits that VMs of this host share"),
        op("PUT", "/groups/{group}", "Create a group, or change its rate", s.GroupBody),
        op("DELETE", "/groups/{group}", "Remove a group that no VM is in"),
        op("PUT", member, "Put a VM into a group", s.MemberBody),
        op("DELETE", member, "Take a VM out of a group"),
        op("GET", "/classes", "All classes"),
        op("PUT", "/classes/{class}", "Create or replace a class", s.ClassBody),
        op("DELETE", "/classes/{class}", "Remove a class that no VM has"),
        op("PUT", grant, "Grant a class to a VM, or replace its limits", s.GrantBody),
        op("DELETE", grant, "Take a class from a VM, with its rules and assignments"),
        op("PUT", f"{grant}/limits/{{resource}}", "Limit one resource", s.Limit),
        op("DELETE", f"{grant}/limits/{{resource}}", "Unlimit one resource"),
        op("PUT", f"{grant}/scheduling/{{resource}}", "Schedule one resource", s.SchedulingBody),
        op("DELETE", f"{grant}/scheduling/{{resource}}", "Schedule it as by default"),
        op("PUT", f"{grant}/queues/{{resource}}", "Set the queue of one resource", s.QueueBody),
        op("DELETE", f"{grant}/queues/{{resource}}", "Give it the default queue"),
        op("GET", "/rules", "Rules that put processes into classes", query=("domain",)),
        op("POST", "/rules", "Add a rule", s.RuleBody),
        op("POST", "/rules/preview", "What a rule would match now", s.RuleBody),
        op("DELETE", "/rules/{id}", "Remove a rule"),
        op(
            "GET",
            f"{domain}/processes",
            "The guest's processes, from its agent; to viewers without arguments",
        ),
        op("GET", f"{domain}/assignments", "Single processes put into a class by hand"),
        op("PUT", f"{domain}/assignments/{{pid}}", "Put one process in a class", s.AssignmentBody),
        op("DELETE", f"{domain}/assignments/{{pid}}", "Take a process out of its class"),
        op("GET", "/live", "Rates, limits, backlog and delay now", query=("domain",)),
        op("GET", "/history", "The same over time", query=("domain", "since", "step")),
        op("GET", "/streams", "Streams and how well they play"),
        op("PUT", "/streams/{stream}", "Declare a stream", s.StreamBody),
        op("DELETE", "/streams/{stream}", "Forget a stream"),
        op("POST", "/streams/{stream}/reports", "Report quality from a player", s.StreamReport),
        op("GET", "/streams/{stream}/history", "Quality over time", query=("since",)),
        op("GET", "/auto", "State of auto-shaping"),
        op("PUT", "/auto", "Switch auto-shaping", s.AutoBody),
        op("GET", "/nightly", "Nightly runs, newest first", query=("limit",)),
        op("GET", "/nightly/{night}", "One nightly run with all that it measured"),
        op("GET", "/nightly/{night}/page", "The run's own page as HTML text"),
        op("GET", "/auto/log", "What auto-shaping did and why", query=("since", "limit")),
    ]


OPERATIONS = _operations()
