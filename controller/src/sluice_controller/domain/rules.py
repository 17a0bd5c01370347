# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which processes belong to which class. The agents alone match them.

Conditions are checked here as far as their shape goes; the agent that is to follow a rule
says whether it can (`docs/specs/agent-protocol.md`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any

from .errors import BadValue
from .knobs import Knob, Model, Text
from .model import Assignment, ClassName, Grant, Rule
from .models import parse


@dataclass(frozen=True, kw_only=True)
class Condition(Knob):
    """Text that the agent compares with a fact about a process."""

    pattern: str = ".+"
    called: str = "usable text"
    longest_bytes: int
    optional: bool = True

    def read(self, raw: Any, thing: str) -> str:
        # A user may be a number.
        text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
        if (
            isinstance(text, str)
            and "\0" not in text
            # Half a pair of UTF-16 cannot be sent.
            and len(text.encode("utf-8", "surrogatepass")) <= self.longest_bytes
            and text == text.encode("utf-8", "replace").decode()
            and re.fullmatch(self.pattern, text, re.S)
        ):
            return text
        remedy = f"give {self.said} of at most {self.longest_bytes} bytes, such as {self.example}"
        raise BadValue(thing, raw, f"is not {self.called}", remedy)

    def schema(self, takes_text: bool) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


_PATH: dict[str, Any] = {"pattern": "/.*", "called": "an absolute path", "longest_bytes": 4096}
_UNIT: dict[str, Any] = {
    "pattern": r"[^/]*\.[^/]*",
    "called": "a unit's name with its suffix",
    "longest_bytes": 256,
}


@dataclass(frozen=True)
class Match(Model):
    """Which processes: all conditions that are given hold. At least one is."""

    exe: Annotated[
        str | None,
        Condition(**_PATH, help="path of the executable or a link to it", example="/usr/bin/rsync"),
    ] = None
    cmdline: Annotated[
        str | None,
        Condition(longest_bytes=4096, help="expression found in the command line", example="--all"),
    ] = None
    user: Annotated[
        str | None,
        Condition(
            pattern=r"[^\x00-\x1f\x7f-\x9f]+",
            longest_bytes=128,
            help="user name or numeric id",
            example="www-data",
        ),
    ] = None
    unit: Annotated[
        str | None, Condition(**_UNIT, help="systemd unit", example="nginx.service")
    ] = None
    cgroup: Annotated[
        str | None,
        Condition(
            **_PATH,
            help="path or one above, * for any part",
            example="/kubepods*.slice",
        ),
    ] = None
    container: Annotated[
        str | None,
        Condition(
            pattern="[0-9a-f]{12,64}",
            called="a container's id",
            longest_bytes=64,
            help="its id, or the first 12 digits",
            example="4b0f2f1a6c1e",
        ),
    ] = None
    pod: Annotated[
        str | None,
        Condition(
            pattern="[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}",
            called="a pod's UID",
            longest_bytes=36,
            help="UID of a Kubernetes pod",
            example="7f3c9b52-0d4e-4a1b-9c58-2f6e1d0a7b43",
        ),
    ] = None

    def check(self, thing: str) -> None:
        if not any(vars(self).values()):
            kinds = ", ".join(one.name for one in fields(self))
            raise BadValue(thing, {}, "holds no condition", f"give some of {kinds}")


@dataclass(frozen=True)
class RuleBody(Model):
    """Puts processes that match into a class."""

    class_name: ClassName
    match: Match
    domain: Annotated[str | None, Text(255, optional=True, help="null: every domain")] = None


def parse_match(raw: Any) -> dict[str, str]:
    """{kind: condition} of the given conditions."""
    found = parse(Match, raw, "match")
    return {key: value for key, value in vars(found).items() if value is not None}


def in_order(rules: Iterable[Rule]) -> list[Rule]:
    """As they are tried: a domain's own first, then those for every domain."""
    return sorted(rules, key=lambda rule: (rule.domain is None, rule.id))


def agent_id(rule: Rule) -> str:
    """The id of the rule to the agents."""
    return f"rule-{rule.id}"


def assignment_rule(assignment: Assignment) -> str:
    """The id of the rule that an assignment is to the agent."""
    return f"assignment-{assignment.pid}"


def agent_rules(
    domain: str,
    grants: Iterable[Grant],
    rules: Iterable[Rule],
    assignments: Iterable[Assignment],
) -> dict[str, Any]:
    """The `classes` and `rules` of a set_rules call for one domain.

    Assignments go first, then the domain's own rules, then those for every
    domain; a rule whose class the domain was not granted is left out.
    """
    tags = {grant.class_name: grant.tag for grant in grants if grant.tag > 0}
    wanted = [
        {
            "id": assignment_rule(a),
            "class": a.class_name,
            "match": {"pid": a.pid, "start_time_ticks": a.start_time_ticks},
        }
        for a in sorted(assignments, key=lambda a: a.pid)
        if a.class_name in tags
    ]
    for rule in in_order(rules):
        if rule.domain in (None, domain) and rule.class_name in tags:
            wanted.append(
                {"id": agent_id(rule), "class": rule.class_name, "match": dict(rule.match)}
            )
    classes = [{"name": name, "tag": tag} for name, tag in sorted(tags.items())]
    return {"classes": classes, "rules": wanted}
