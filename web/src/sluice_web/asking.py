# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks before something goes: a page of its own, and its part for the page's dialog."""

import json

from flask import Blueprint, current_app, flash, g, redirect, render_template, request

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
    """Where no script runs, the button leads here."""
    return _page(_about_grant(domain, name), f"/vm/{domain}")


@blueprint.get("/parts/vm/<domain>/classes/<name>/take-away")
@auth.require("operator")
def ask_take_away_part(domain: str, name: str):
    """The same for the dialog."""
    return render_template("parts/question.html", question=_about_grant(domain, name))


@blueprint.post("/vm/<domain>/classes/<name>/take-away")
@auth.require("operator")
def take_away(domain: str, name: str):
    """Take a class from a VM."""
    check_argument("domain", domain)
    check_argument("class", name)
    path = path_of("domains", domain, "classes", name)
    answer = controller().call("DELETE", path, actor=g.person.actor).json()
    flash(questions.taken(domain, name, answer))
    return redirect(_back(f"/vm/{domain}"), 303)


@blueprint.get("/rules/<int:rule>/remove")
@auth.require("operator")
def ask_remove_rule(rule: int):
    """Where no script runs, the button leads here."""
    return _page(_about_rule(rule), "/classes")


@blueprint.get("/parts/rules/<int:rule>/remove")
@auth.require("operator")
def ask_remove_rule_part(rule: int):
    """The same for the dialog."""
    return render_template("parts/question.html", question=_about_rule(rule))


@blueprint.post("/rules/<int:rule>/remove")
@auth.require("operator")
def remove_rule(rule: int):
    """Remove a rule."""
    controller().call("DELETE", path_of("rules", rule), actor=g.person.actor).json()
    flash(f"Rule {rule} is removed.")
    return redirect(_back("/classes"), 303)


# What the pages of users and tokens do themselves (pages.py) is asked here.


@blueprint.get("/users/<name>/password")
@blueprint.get("/parts/users/<name>/password")
@auth.require("viewer", by_token=False)
def ask_new_password(name: str):
    """Before somebody's password, or one's own, is replaced."""
    auth.check_own(name)
    user = _one_of(_store().users(), "user", "name", name)
    return _page_or_part(questions.new_password(user["name"], name == g.person.name))


@blueprint.get("/users/<name>/remove")
@blueprint.get("/parts/users/<name>/remove")
@auth.require("admin", by_token=False)
def ask_remove_user(name: str):
    """Before a user goes."""
    user = _one_of(_store().users(), "user", "name", name)
    labels = [token["label"] for token in _store().tokens() if token["user"] == name]
    return _page_or_part(questions.remove_user(user["name"], user["role"], labels))


@blueprint.get("/tokens/<int:token_id>/remove")
@blueprint.get("/parts/tokens/<int:token_id>/remove")
@auth.require("viewer", by_token=False)
def ask_remove_token(token_id: int):
    """Before a token is revoked."""
    token = _one_of(_store().tokens(), "token", "id", token_id)
    auth.check_own(token["user"])
    return _page_or_part(questions.revoke_token(token["label"], token["user"]))


def _page_or_part(question: Question):
    if request.path.startswith("/parts/"):
        return render_template("parts/question.html", question=question)
    return _page(question, "/users")


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
                detail=f"The class {name} of {domain} belongs to the stream {stream['name']};"
                " forget the stream first, on the page Streams.",
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
    """What matches a rule now, or None where that cannot be tried."""
    body = {key: rule[key] for key in ("domain", "class", "match")}
    try:
        answer = controller().call(
            "POST",
            "/v1/rules/preview",
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return answer.json()["processes"]
    except Problem as problem:
        # libvirt does not say; or an earlier sluiced took what this one refuses.
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
        detail=f"{what}; reload the page.",
        thing=thing,
        value=value,
        remedy="reload the page",
    )
