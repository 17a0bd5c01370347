# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which processes belong to which class. The same meaning as the agent's.

The agent refuses all rules of its guest because of one that it cannot read, so
an expression must be of its kind: linear, without backtracking. What passes here
means the same to three: to Python, which parses it first, to RE2, which searches
with it on this host (`adapters/linear_expressions.py`), and to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from .errors import BadValue
from .knobs import Model, Name, Text
from .model import Assignment, ClassName, Grant, Rule
from .models import parse

# In characters, and, as the agent counts, in bytes.
_LONGEST = {"exe": 4096, "cmdline": 1024, "user": 64, "unit": 256, "cgroup": 4096}
_LONGEST_BYTES = {"exe": 4096, "cmdline": 4096, "user": 128, "unit": 256, "cgroup": 4096}
MATCH_KEYS = tuple(_LONGEST)


def _condition(key: str, help: str, example: str) -> Name:
    def read(raw: Any, thing: str) -> str:
        return _parse_condition(key, raw, thing)

    return Name(".+", read, optional=True, help=help, example=example)


@dataclass(frozen=True)
class Match(Model):
    """Which processes: all conditions that are given hold. At least one is."""

    exe: Annotated[str | None, _condition("exe", "the executable's path", "/usr/bin/rsync")] = None
    cmdline: Annotated[
        str | None, _condition("cmdline", "expression found in the command line", "--backup")
    ] = None
    user: Annotated[str | None, _condition("user", "name or number", "www-data")] = None
    unit: Annotated[str | None, _condition("unit", "systemd unit", "nginx.service")] = None
    cgroup: Annotated[str | None, _condition("cgroup", "the cgroup, or one below", "/x.slice")] = (
        None
    )

    def check(self, thing: str) -> None:
        if not any(vars(self).values()):
            keys = ", ".join(MATCH_KEYS)
            raise BadValue(thing, {}, "holds no condition", f"give some of {keys}")


@dataclass(frozen=True)
class RuleBody(Model):
    """Puts processes that match into a class."""

    class_name: ClassName
    match: Match
    domain: Annotated[str | None, Text(255, optional=True, help="null: every domain")] = None


# What cannot be an operator: escaped characters and character classes.
_LITERALS = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.S)
# What Python's expressions have and the agent's have not: these linear ones know
# no backtracking, comments, or braces and brackets that mean themselves.
_PYTHON_ONLY = re.compile(r"\(\?(?:<?[=!]|>|\(|P=|#|[a-z]*a)|\\[1-9]|[*+?}]\+|\{(?!\d+(?:,\d*)?\})")
_ESCAPE = r"\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\."
_ESCAPE_OR_CLASS = re.compile(_ESCAPE + r"|\[\^?\]?(?P<members>(?:\\.|[^\]\\])*)\]", re.S)
# An agent's classes may hold others, and operators between them.
_ESCAPE_OR_SET = re.compile(_ESCAPE + r"|\[|&&|--|~~", re.S)
# Half of a pair, which is no character.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# What the agent takes, and far from what a person writes.
_DEEPEST = 50


def parse_match(raw: Any) -> dict[str, str]:
    """{key: condition} of those that are given."""
    found = parse(Match, raw, "match")
    return {key: value for key, value in vars(found).items() if value is not None}


def _parse_condition(key: str, value: Any, thing: str) -> str:
    if key == "user" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST[key] or "\0" in value:
        raise BadValue(
            thing, value, "is not usable text", f"give a string of 1 to {_LONGEST[key]} characters"
        )
    encoded = value.encode("utf-8", "replace")
    if len(encoded) > _LONGEST_BYTES[key] or encoded.decode() != value:
        raise BadValue(
            thing, value, "is not usable text", f"give up to {_LONGEST_BYTES[key]} bytes of UTF-8"
        )
    if key in ("exe", "cgroup") and not value.startswith("/"):
        raise BadValue(thing, value, "is not an absolute path", "begin it with /")
    if key == "unit" and ("/" in value or "." not in value):
        raise BadValue(
            thing, value, "is not a unit's name", "give it with its suffix, such as nginx.service"
        )
    if key == "cmdline":
        _check_expression(thing, value)
    return value


def _is_others_too(part: str, *, in_class: bool) -> bool:
    """Whether an escape means to all what it means to Python."""
    if part[0] != "\\" or _SURROGATE.match(part):
        return False
    # \< and \> are edges of words to the agent, and \b in a class is none to Python.
    unlike = "0123456789NZ<>" + ("b" if in_class else "")
    return " " <= part[1] <= "~" and part[1] not in unlike


def _unknown_to_agents(expression: str) -> str | None:
    """What of an expression only Python knows, or knows as something else."""
    for found in _ESCAPE_OR_CLASS.finditer(expression):
        in_class = found["members"] is not None
        within = found["members"] if in_class else found[0]
        for part in _ESCAPE_OR_SET.findall(within):
            if not _is_others_too(part, in_class=in_class):
                return part
    only = _PYTHON_ONLY.search(_LITERALS.sub("x", expression))
    return only[0] if only else None


def _depth(expression: str) -> int:
    """How deep its brackets go."""
    depth = deepest = 0
    for letter in _LITERALS.sub("x", expression):
        depth += (letter == "(") - (letter == ")")
        deepest = max(deepest, depth)
    return deepest


def _check_expression(thing: str, value: str) -> None:
    if _depth(value) > _DEEPEST:
        raise BadValue(
            thing, value, f"has brackets deeper than {_DEEPEST}", "give a simpler expression"
        )
    found = _unknown_to_agents(value)
    if found is not None:
        # The agent would refuse all rules because of this one.
        raise BadValue(
            thing,
            value,
            f"uses '{found}', which the agent's expressions do not have",
            "write it without look-around, back-references, possessive repeats and comments, and"
            " a brace, bracket or repeated & - ~ that means itself with \\ before it",
        )
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadValue(
            thing, value, f"is not a regular expression ({error})", "correct the expression"
        ) from error


def _below(path: str, prefix: str) -> bool:
    prefix = prefix.rstrip("/")
    return path == prefix or path.startswith(prefix + "/")


def matches(
    match: Mapping[str, str], process: Mapping[str, Any], is_found: Callable[[str, str], bool]
) -> bool:
    """Whether all conditions hold for a row of the process table.

    `is_found(expression, text)` searches; text is a guest's, so not with Python's own.
    """
    tests = {
        "exe": lambda want: process.get("exe") == want,
        "cmdline": lambda want: is_found(want, process.get("cmdline") or ""),
        "user": lambda want: process.get("user") == want,
        "unit": lambda want: want in (process.get("cgroup") or "").split("/"),
        "cgroup": lambda want: _below(process.get("cgroup") or "", want),
    }
    # Process 1 adopts every orphan: it never matches, and hands nothing down.
    return process.get("pid") != 1 and all(tests[key](want) for key, want in match.items())


def in_order(rules: Iterable[Rule]) -> list[Rule]:
    """As they are tried: a domain's own first, then those for every domain."""
    return sorted(rules, key=lambda rule: (rule.domain is None, rule.id))


def of_guest(domain: str, classes: Container[str], rules: Iterable[Rule]) -> list[Rule]:
    """The rules that a domain's agent gets: of classes that the domain was granted."""
    return [r for r in rules if r.domain in (None, domain) and r.class_name in classes]


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
    for rule in in_order(of_guest(domain, tags, rules)):
        wanted.append(
            {"id": f"rule-{rule.id}", "class": rule.class_name, "match": dict(rule.match)}
        )
    classes = [{"name": name, "tag": tag} for name, tag in sorted(tags.items())]
    return {"classes": classes, "rules": wanted}
