# SPDX-License-Identifier: GPL-2.0-or-later
"""The pages. Thin: ask the controller, hand it to a template."""

import re
import time
from typing import Any

from flask import (
    Blueprint,
    Response,
    current_app,
    flash,
    g,
    redirect,
    render_template,
    request,
    url_for,
)

from . import auth, nights, tokens, views
from .api import all_domains, check_argument, controller
from .auto_log import folded
from .controller import EVENTS_TYPE, path_of
from .forms import Document
from .live import LiveHub, events
from .problems import Problem, bad_value
from .protection import protection
from .store import ROLES, Store, new_password

blueprint = Blueprint("pages", __name__)
AUDIT_PAGE = 200
NIGHTS_PAGE = 90
DECISIONS = 300
# Entries of the log that are not folded away.
NEWEST = 8
# Streams with a strip on the time axis.
STRIPS = 6
# A run's own page has its style inside and runs no script.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; form-action 'none';"
    " frame-ancestors 'none'; base-uri 'none'"
)
# Offered on the page, beside no end.
TOKEN_DAYS = (7, 30, 90, 365)


def _store() -> Store:
    return current_app.extensions["sluice_store"]


def _document() -> Document:
    return Document(controller().get("/v1/openapi.json"))


def fetch(topic: tuple[str, str]) -> Any:
    """The controller's answer for a topic of the live poller."""
    kind, domain = topic
    get = controller().get
    if kind == "live":
        return get("/v1/live")
    if kind == "domain":
        return get(path_of("domains", domain))
    if kind == "told":
        return get(path_of("domains", domain, "streams"))
    if kind == "programs":
        return views.without_arguments(fetch(("processes", domain)))
    if kind == "processes":
        return {
            **get(path_of("domains", domain, "processes")),
            "assignments": get(path_of("domains", domain, "assignments")),
        }
    return get(path_of(kind))


@blueprint.get("/")
@auth.require("viewer")
def overview():
    """Streams first, then VMs, then the host."""
    domains, libvirt_problem = all_domains()
    live = controller().get("/v1/live")
    streams, auto = controller().get("/v1/streams"), controller().get("/v1/auto")
    sentence, since = views.headline(streams)
    return render_template(
        "overview.html",
        headline=sentence,
        since=since,
        streams=[
            {**stream, "protection": protection(stream, auto, domains, live)}
            for stream in views.sort_streams(streams)
        ],
        auto=auto,
        domains=views.sort_domains(domains, live),
        libvirt_problem=libvirt_problem,
        live=live,
        status=controller().get("/v1/status"),
    )


@blueprint.get("/vm/<domain>")
@auth.require("viewer")
def vm(domain: str):
    """Lanes, charts and processes of one VM."""
    check_argument("domain", domain)
    details = controller().get(path_of("domains", domain))
    classes = controller().get("/v1/classes")
    granted = {grant["class"] for grant in details["classes"]}
    grantable = [c for c in classes if c["name"] not in granted]
    document = _document()
    settings = {resource: document.of_a_class(resource) for resource in views.RESOURCE_TITLES}
    return render_template(
        "vm.html",
        domain=details,
        grantable=grantable,
        settings=settings,
        card_fields=document.body("/domains/{domain}/cards/{card}"),
        told=controller().get(path_of("domains", domain, "streams")),
    )


@blueprint.get("/streams")
@auth.require("viewer")
def streams():
    """Quality, auto-shaping and its log."""
    domains, _ = all_domains()
    settings, document = controller().get("/v1/settings"), _document()
    found = controller().get("/v1/streams")
    entries = folded(controller().get("/v1/auto/log", {"limit": str(DECISIONS)}))
    uplinks = {*controller().get("/v1/status")["uplinks"], settings["uplink"]} - {None}
    return render_template(
        "streams.html",
        settings=settings,
        uplinks=sorted(uplinks),
        streams=found,
        strips=views.sort_streams(found)[:STRIPS],
        auto=controller().get("/v1/auto"),
        fields=document.body("/streams/{stream}"),
        method=next(one for one in document.body("/auto") if one.name == "method"),
        floor=document.values(document.schema("/auto"), "floors_bytes_per_second"),
        log=entries[:NEWEST],
        earlier=entries[NEWEST:],
        stream_classes=sorted(
            (
                (domain["name"], grant["class"])
                for domain in domains
                for grant in domain["classes"]
                # A VM without an agent has the class default only.
                if grant.get("is_stream") or grant["class"] == "default"
            ),
            key=lambda one: one[1] == "default",
        ),
    )


@blueprint.get("/classes")
@auth.require("viewer")
def classes():
    """Classes, which VM has which, and rules."""
    found, document = controller().get("/v1/classes"), _document()
    fields = document.body("/classes/{class}")
    return render_template(
        "classes.html",
        classes=found,
        bodies={one["name"]: {field.name: one[field.name] for field in fields} for one in found},
        fields=fields,
        conditions=document.inner(document.schema("/rules", "post"), "match"),
        domains=all_domains()[0],
        rules=controller().get("/v1/rules"),
    )


@blueprint.get("/groups")
@auth.require("viewer")
def groups():
    """Limits that VMs share, and their use now."""
    found = controller().get("/v1/groups")
    document = _document()
    return render_template(
        "groups.html",
        groups=found,
        domains=all_domains()[0],
        fields=document.body("/groups/{group}"),
        weight=document.body("/groups/{group}/members/{domain}")[0],
    )


@blueprint.get("/audit")
@auth.require("viewer")
def audit():
    """Changes and their authors, here and in the controller."""
    theirs = controller().get("/v1/audit", {"limit": str(AUDIT_PAGE)})
    rows = views.merge_audit(_store().events(AUDIT_PAGE), theirs, AUDIT_PAGE)
    return render_template("audit.html", rows=rows)


@blueprint.get("/nightly")
@auth.require("viewer")
def nightly():
    """The trend over the nights, and the list of them."""
    found = controller().get("/v1/nightly", {"limit": str(NIGHTS_PAGE)})
    sentence, at = nights.headline(found)
    return render_template(
        "nightly.html",
        nights=found,
        headline=sentence,
        at=at,
        gaps=nights.gaps(found),
        most=NIGHTS_PAGE,
    )


@blueprint.get("/nightly/<int:night>")
@auth.require("viewer")
def night(night: int):
    """One night: checks, phases, plots, decisions of auto-shaping."""
    return render_template("night.html", night=controller().get(path_of("nightly", night)))


@blueprint.get("/nightly/<int:night>/report")
@auth.require("viewer")
def night_report(night: int):
    """The run's own page, as it was when it was made."""
    html = controller().get(path_of("nightly", night, "page"))["html"]
    headers = {"Content-Security-Policy": REPORT_POLICY}
    return Response(html, content_type="text/html; charset=utf-8", headers=headers)


@blueprint.get("/events")
@auth.require("viewer")
def event_stream():
    """Server-sent events: ``?topic=live`` and so on, ``&domain=NAME`` for a VM's page."""
    hub: LiveHub = current_app.extensions["sluice_hub"]
    domain = request.args.get("domain", "")
    if domain:
        check_argument("domain", domain)
    topics = set()
    for kind in request.args.getlist("topic"):
        if kind in ("streams", "auto", "domains", "groups"):
            topics.add((kind, ""))
        elif kind == "processes" and domain:
            topics.add((kind if g.person.may("operator") else "programs", domain))
        elif kind == "live" or (kind in ("domain", "told") and domain):
            topics.add((kind, domain))
    if request.method == "HEAD":
        return Response(content_type=EVENTS_TYPE)
    still_allowed = auth.still_held()
    subscription = hub.subscribe(frozenset(topics), g.person.name)
    # Told by waitress, which notices at once that a browser has left.
    is_gone = request.environ.get("waitress.client_disconnected", lambda: False)
    answer = Response(
        events(hub, subscription, still_allowed, is_gone),
        content_type=EVENTS_TYPE,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
    answer.call_on_close(lambda: hub.unsubscribe(subscription))
    return answer


@blueprint.get("/users")
@auth.require("viewer")
def users():
    """One's own password and tokens; for admins, everybody's."""
    return _users_page()


def _users_page(shown: dict | None = None, status: int = 200):
    everyone = g.person.may("admin")
    own = [t for t in _store().tokens() if everyone or t["user"] == g.person.name]
    page = render_template(
        "users.html",
        users=[u for u in _store().users() if everyone or u["name"] == g.person.name],
        tokens=own,
        shown=shown,
        roles=ROLES,
        scopes=tokens.SCOPES,
        streams=_stream_names(),
        days=TOKEN_DAYS,
        usual_days=tokens.USUAL_DAYS,
        now=time.time(),
    )
    return page, status


def _stream_names() -> list[str]:
    """The streams that a token may report of; none while sluiced does not say."""
    try:
        return sorted(stream["name"] for stream in controller().get("/v1/streams"))
    except Problem:
        return []


def _token_terms() -> tokens.TokenTerms:
    """The terms of a token, from the form."""
    form = request.form
    scope, days = form.get("scope", "viewer"), form.get("days", str(tokens.USUAL_DAYS))
    if days != "never" and not re.fullmatch("[0-9]{1,6}", days):
        raise bad_value("days", days, f"give 1 to {tokens.MOST_DAYS}, or never")
    return tokens.TokenTerms(
        scope,
        # The form has this field for every scope.
        form.get("stream") if scope == tokens.REPORTER else None,
        tokens.expiry(None if days == "never" else int(days), time.time()),
    )


@blueprint.post("/users")
@auth.require("admin", by_token=False)
def add_user():
    """Make a user; the generated password is on this answer and nowhere else."""
    name, password = request.form.get("name", "").strip(), new_password()
    _store().add_user(
        name, request.form.get("role", ""), password, now=time.time(), actor=g.person.actor
    )
    return _users_page({"what": f"Password of {name}", "secret": password}, 201)


@blueprint.post("/users/<name>/password")
@auth.require("viewer", by_token=False)
def reset_password(name: str):
    """A new password for somebody, or for oneself."""
    auth.check_own(name)
    password = new_password()
    _store().set_password(name, password, now=time.time(), actor=g.person.actor)
    if name == g.person.name:
        auth.sign_in_as(_store().person(name), time.time())
    return _users_page({"what": f"New password of {name}", "secret": password})


@blueprint.post("/users/<name>/remove")
@auth.require("admin", by_token=False)
def remove_user(name: str):
    """Remove a user and their tokens."""
    _store().remove_user(name, now=time.time(), actor=g.person.actor)
    flash(f"{name} is gone, with their tokens.")
    return redirect(url_for("pages.users"), 303)


@blueprint.post("/tokens")
@auth.require("viewer", by_token=False)
def add_token():
    """Make an API token, shown on this answer and nowhere else."""
    owner = request.form.get("user", g.person.name)
    auth.check_own(owner)
    label = request.form.get("label", "").strip()
    terms = _token_terms()
    token = _store().add_token(owner, label, terms, now=time.time(), actor=g.person.actor)
    return _users_page({"what": f"Token {owner}/{label}", "secret": token}, 201)


@blueprint.post("/tokens/<int:token_id>/remove")
@auth.require("viewer", by_token=False)
def remove_token(token_id: int):
    """Revoke a token."""
    for token in _store().tokens():
        if token["id"] == token_id:
            auth.check_own(token["user"])
    _store().remove_token(token_id, now=time.time(), actor=g.person.actor)
    flash("The token is revoked.")
    return redirect(url_for("pages.users"), 303)
