# SPDX-License-Identifier: GPL-2.0-or-later
"""Questions before something goes that is in use: its users and the effects. Pure."""

from dataclasses import dataclass

from .views import RESOURCE_TITLES, describe_match

NAMED_AT_MOST = 5
# The settings of a class on a VM for each resource.
SETTINGS = {"limits": "limit", "scheduling": "scheduling", "queues": "queue"}
UNLESS = "unless another rule matches"


@dataclass(frozen=True)
class Question:
    """Asked where ``uses`` says something; else nothing changes for anybody."""

    title: str
    uses: str
    effects: tuple[str, ...]
    verb: str

    @property
    def in_use(self) -> bool:
        """Whether somebody is to be asked."""
        return bool(self.uses)


def count(number: int, word: str) -> str:
    """``1 rule``, ``2 rules``, ``2 processes``."""
    plural = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number} {word}{plural}"


def listed(words: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _some(words: list[str]) -> str:
    more = len(words) - NAMED_AT_MOST
    return "; ".join(words[:NAMED_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def _told(things: list[str], word: str, what: str) -> list[str]:
    """``2 rules will be gone: …``, or nothing where there are none."""
    return [f"{count(len(things), word)} {what}: {_some(things)}."] if things else []


def take_away(
    domain: str, grant: dict, rules: list[dict], assignments: list[dict], processes: list | None
) -> Question:
    """Before a class is taken from a VM. ``processes`` is None while no agent answers."""
    name = grant["class"]
    own, shared = (_rules_into(name, of, rules) for of in (domain, None))
    by_hand = [f"pid {one['pid']}" for one in assignments if one["class"] == name]
    held = [f"{one['comm']} {one['pid']}" for one in processes or [] if one["class"] == name]
    marks = [str(mark) for mark in grant.get("dscp") or []]
    settings = _settings(grant)
    uses = f"{domain} has settings of its own for the class {name}." if settings else ""
    in_it = by_hand if processes is None else held
    if users := _counted({"rule": own + shared, "process": in_it, "DSCP mark": marks}):
        uses = f"{users} the class {name} on {domain}."
    effects = [
        *_told(own, "rule", "will be gone"),
        *_told(shared, "rule", f"for every VM will not hold on {domain} any more"),
        *_told(held, "process", f"will go back to the class default, {UNLESS}"),
        *_told(by_hand, "process", "put into it by hand will have to be put into a class again"),
        *_told(marks, "DSCP mark", "will count for the class default"),
        *_told(settings, "setting", "will be gone"),
    ]
    if users and processes is None:
        effects.append("Which processes are in it now is not known: no agent answers.")
    return Question(f"Take {name} from {domain}?", uses, tuple(effects), "Take away")


def _counted(users: dict[str, list]) -> str:
    """``3 rules and 1 process use``; empty where there is no use."""
    words = [count(len(found), word) for word, found in users.items() if found]
    alone = sum(map(len, users.values())) == 1
    return f"{listed(words)} {'uses' if alone else 'use'}" if words else ""


def _rules_into(name: str, domain: str | None, rules: list[dict]) -> list[str]:
    return [
        f"rule {rule['id']}, {describe_match(rule['match'])}"
        for rule in rules
        if (rule["domain"], rule["class"]) == (domain, name)
    ]


def _settings(grant: dict) -> list[str]:
    return [
        f"{word} of {RESOURCE_TITLES.get(resource, resource).lower()}"
        for kind, word in SETTINGS.items()
        for resource, value in (grant.get(kind) or {}).items()
        if value
    ]


def remove_rule(rule: dict, matched: list[dict] | None, silent: list[str]) -> Question:
    """Before a rule is removed; ``silent`` are VMs without an answering agent.

    ``matched`` is None where the rule cannot be tried.
    """
    uses = []
    if matched is None:
        uses.append("What it holds is not known: it cannot be tried now.")
    elif matched:
        verb = "matches" if len(matched) == 1 else "match"
        uses.append(f"{count(len(matched), 'process')} {verb} rule {rule['id']} now.")
    if silent:
        uses.append(f"What it holds on {listed(silent)} is not known: no agent answers there.")
    names = [f"{one['comm']} {one['pid']} on {one['domain']}" for one in matched or []]
    back = f"with children will go back to the class default, {UNLESS}"
    match, where = describe_match(rule["match"]), rule["domain"] or "every VM"
    effects = (
        f"It puts processes into the class {rule['class']}: {match}, on {where}.",
        *_told(names, "process", back),
    )
    return Question(f"Remove rule {rule['id']}?", " ".join(uses), effects, "Remove")


def new_password(name: str, own: bool) -> Question:
    """Before a password is replaced by a generated password."""
    who, has = ("yourself", "you have") if own else (name, f"{name} has")
    effects = (
        "The new one is made here and shown once, on the next page.",
        "You are signed out everywhere but here." if own else f"{name} is signed out everywhere.",
        f"API tokens of {'yours' if own else name} stay good.",
    )
    uses = f"The password that {has} will not be good any more."
    return Question(f"Give {who} a new password?", uses, effects, "Give a new one")


def remove_user(name: str, role: str, labels: list[str]) -> Question:
    """Before a user is removed; ``labels`` are of their tokens."""
    programs = f"programs that use {'it' if len(labels) == 1 else 'them'} stop working"
    effects = (
        f"{name} is signed out everywhere, and cannot sign in again.",
        *_told(labels, "API token", f"will be gone, and {programs}"),
    )
    return Question(f"Remove the user {name}?", f"{name} may sign in as {role}.", effects, "Remove")


def revoke_token(label: str, user: str) -> Question:
    """Before a token is revoked."""
    effects = ("Programs that use it stop working.",)
    return Question(f"Revoke the token {label}?", f"It speaks for {user}.", effects, "Revoke")


def taken(domain: str, name: str, answer: dict) -> str:
    """The rules and assignments that went with a class."""
    gone = [
        count(len(answer.get(kind) or []), word)
        for kind, word in (("rules", "rule"), ("assignments", "assignment"))
        if answer.get(kind)
    ]
    return f"{name} is taken from {domain}{', with ' if gone else ''}{listed(gone)}."
