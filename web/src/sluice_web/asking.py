# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks before something goes: a page of its own, whose question the page's dialog takes."""

import json

from flask import Blueprint, current_app, flash, g, redirect, render_template, request, url_for

from . import auth, questions
from .api import all_domains, check_argument, controller
from .controller import path_of
from .problems import Problem
from .questions import Question
from .store import Store

blueprint = Blueprint("asking", __name__)


@blueprint.get("/vm/<domain>/classes/<name>/take-away")
@auth.require("operator")
def ask_take_away(domain: str, name: str):
    """Before a class is taken from a VM."""
    return _page(_about_grant(domain, name), url_for("pages.vm", domain=domain))


@blueprint.post("/vm/<domain>/classes/<name>/take-away")
@auth.require("operator")
def take_away(domain: str, name: str):
    """Take a class from a VM."""
    check_argument("domain", domain)
    check_argument("class", name)
    path = path_of("domains", domain, "classes", name)
    answer = controller().call("DELETE", path, actor=g.person.actor).json()
    flash(questions.taken(domain, name, answer))
    return redirect(_back(url_for("pages.vm", domain=domain)), 303)


@blueprint.get("/rules/<int:rule>/remove")
@auth.require("operator")
def ask_remove_rule(rule: int):
    """Before a rule is removed."""
    return _page(_about_rule(rule), url_for("pages.classes"))


@blueprint.post("/rules/<int:rule>/remove")
@auth.require("operator")
def remove_rule(rule: int):
    """Remove a rule."""
    controller().call("DELETE", path_of("rules", rule), actor=g.person.actor).json()
    flash(f"Rule {rule} is removed.")
    return redirect(_back(url_for("pages.classes")), 303)


# The pages of users and tokens (pages.py) do the work once a person has agreed.


@blueprint.get("/users/<name>/password")
@auth.require("viewer", by_token=False)
def ask_new_password(name: str):
    """Before the password of a user, or one's own, is replaced."""
    auth.check_own(name)
    user = _one_of(_store().users(), "user", "name", name)
    question = questions.new_password(user["name"], name == g.person.name)
    return _page(question, url_for("pages.users"))


@blueprint.get("/users/<name>/remove")
@auth.require("admin", by_token=False)
def ask_remove_user(name: str):
    """Before a user goes."""
    user = _one_of(_store().users(), "user", "name", name)
    labels = [token["label"] for token in _store().tokens() if token["user"] == name]
    question = questions.remove_user(user["name"], user["role"], labels)
    return _page(question, url_for("pages.users"))


@blueprint.get("/tokens/<int:token_id>/remove")
@auth.require("viewer", by_token=False)
def ask_remove_token(token_id: int):
    """Before a token is revoked."""
    token = _one_of(_store().tokens(), "token", "id", token_id)
    auth.check_own(token["user"])
    return _page(questions.revoke_token(token["label"], token["user"]), url_for("pages.users"))


def _store() -> Store:
    return current_app.extensions["sluice_store"]


def _one_of(things: list[dict], what: str, key: str, wanted: str | int) -> dict:
    found = next((one for one in things if one[key] == wanted), None)
    if found is None:
        raise _gone(what, str(wanted), f"There is no such {what} any more")
    return found


def _page(question: Question, usual: str):
    return render_template("question.html", question=question, back=_back(usual))


def _back(usual: str) -> str:
    return auth.local_target(request.values.get("next", usual))


def _about_grant(domain: str, name: str) -> Question:
    check_argument("domain", domain)
    check_argument("class", name)
    grants = controller().get(path_of("domains", domain))["classes"]
    grant = next((one for one in grants if one["class"] == name), None)
    if grant is None:
        raise _gone("class", name, f"{domain} does not have the class {name}")
    for stream in controller().get("/v1/streams"):
        if (stream["domain"], stream["class"]) == (domain, name):
            raise Problem(
                409,
                "in-use",
                "A stream needs the class",
                f"The class {name} of {domain} belongs to the stream {stream['name']}",
                thing="class",
                value=name,
                remedy="forget the stream first, on the page Streams",
            )
    rules = controller().get("/v1/rules")
    assignments = controller().get(path_of("domains", domain, "assignments"))
    return questions.take_away(domain, grant, rules, assignments, _processes(domain))


def _processes(domain: str) -> list[dict] | None:
    """A guest's processes, or None while it does not say."""
    try:
        return controller().get(path_of("domains", domain, "processes"))["processes"]
    except Problem as problem:
        if problem.status != 503:
            raise
        return None


def _about_rule(number: int) -> Question:
    rule = next((one for one in controller().get("/v1/rules") if one["id"] == number), None)
    if rule is None:
        raise _gone("rule", str(number), f"There is no rule {number} any more")
    domains, _ = all_domains()
    silent = [
        domain["name"]
        for domain in domains
        if rule["domain"] in (None, domain["name"])
        and rule["class"] in [grant["class"] for grant in domain["classes"]]
        and domain.get("active")
        and not (domain.get("agent") or {}).get("connected")
    ]
    return questions.remove_rule(rule, _matched(rule), silent)


def _matched(rule: dict) -> list[dict] | None:
    """The processes that match a rule now, or None where that cannot be tried."""
    body = {key: rule[key] for key in ("domain", "class", "match")}
    try:
        answer = controller().call(
            "POST",
            "/v1/rules/preview",
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        found = answer.json()
        # Where an agent gave no answer, nothing is not none.
        return found["processes"] or (None if found["refused"] else [])
    except Problem as problem:
        # libvirt does not answer; or an earlier sluiced took a rule that this sluiced refuses.
        if problem.status in (422, 503):
            return None
        # Its VM is gone.
        if problem.status not in (404, 409):
            raise
        return []


def _gone(thing: str, value: str, what: str) -> Problem:
    return Problem(
        404,
        f"no-such-{thing}",
        "It is gone already",
        what,
        thing=thing,
        value=value,
        remedy="reload the page",
    )
