# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of the API's calls: routes and the OpenAPI document are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...domain import groups, model, quality, rules
from ...domain.cards import Card, mac_of
from ...domain.errors import BadValue, NotFound, sluice
from ...domain.events import Event
from ...domain.guests import AttachBody, DetachBody, InstallBody
from ...domain.limits import Limit, Resource
from ...domain.models import members, parse
from ...domain.nightly import NightlyBody
from ...domain.queues import Queue
from ...domain.render import Granted
from ...domain.scheduling import Scheduling
from ...domain.state import State, etag
from ...domain.stream_records import GuestStream
from . import answers
from .event_stream import MEDIA_TYPE, events
from .operations import Answer, Asked, Call, Operation, called

if TYPE_CHECKING:
    from ..wiring import Services

DEFAULT_HISTORY_SECONDS = 600
DOMAIN = "/domains/{domain}"
GRANT = f"{DOMAIN}/classes/{{class}}"
GROUP = "/groups/{group}"
MEMBER = f"{GROUP}/members/{{domain}}"
STREAM = "/streams/{stream}"
ASSIGNMENT = f"{DOMAIN}/assignments/{{pid}}"


def op(route: str, summary: str, call: Call | str, *types: Any, **more: Any) -> Operation:
    """`route` is method and path; `types` of the answer and of the body. `call` may be the
    name of a service's method, which gets the path's parts, the body and the query."""
    method, path = route.split()
    call = called(call) if isinstance(call, str) else call
    answer, *body = types or (None,)
    if method != "GET":
        answer = answers.CHANGED.get(answer, answer)
    return Operation(method, path, summary, call, answer, *body, **more)


def _one(found: list[dict[str, Any]], thing: str, value: Any, key: str = "name") -> dict[str, Any]:
    for one in found:
        if one[key] == value:
            return one
    listing = "group" if thing == "domain" else thing
    raise NotFound(thing, value, "does not exist", f"see: {sluice(listing, 'list')}")


def merged(present: Any, patch: Any) -> Any:
    """As of RFC 7396: objects are merged, a null takes a member out."""
    if not isinstance(patch, Mapping):
        return patch
    after = dict(present) if isinstance(present, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


# One item of a list


def _class(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.catalogue.classes(), "class", a["class"])


def _of_domain(s: Services, a: Asked) -> dict[str, Any]:
    """Classes and ceiling."""
    s.catalogue.check_known(a["domain"])
    return s.catalogue.of_domains([a["domain"]])[a["domain"]]


def _grant(s: Services, a: Asked) -> dict[str, Any]:
    for grant in _of_domain(s, a)["classes"]:
        if grant["class"] == a["class"]:
            return grant
    grant_it = sluice("grant", a["domain"], a["class"])
    raise NotFound("class", a["class"], f"is not one of {a['domain']}", f"grant it: {grant_it}")


def _ceiling(s: Services, a: Asked) -> dict[str, Any]:
    return _of_domain(s, a)["ceiling"].get(a["resource"], {})


def _group(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.groups.all(), "group", a["group"])


def _group_given(s: Services, a: Asked) -> dict[str, Any]:
    return groups.given(s.groups.group(a["group"]))


def _member(s: Services, a: Asked) -> dict[str, Any]:
    return _one(_group(s, a)["domains"], "domain", a["domain"], "domain")


def _stream(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.streams.list_json(), "stream", a["stream"])


def _rule(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.catalogue.rules(), "rule", a["rule"], "id")


# Calls that take more than a line


def _put_ceiling(s: Services, a: Asked) -> dict[str, Any]:
    # The look goes first: its failure after the change would hide the change.
    shown = s.domains.get(a["domain"])
    resource = a.path.get("resource")
    return {**shown, "ceiling": s.catalogue.put_ceiling(a["domain"], a.body, resource)}


def _put_card(s: Services, a: Asked) -> dict[str, Any]:
    shown = s.domains.get(a["domain"])
    mac = mac_of(shown["devices"], a["card"], a["domain"])
    return {**shown, "cards": s.catalogue.put_card(a["domain"], mac, a.body)}


def _card(s: Services, a: Asked) -> dict[str, Any]:
    mac = mac_of(s.domains.get(a["domain"])["devices"], a["card"], a["domain"])
    return _of_domain(s, a)["cards"].get(mac, {})


def _add_rule(s: Services, a: Asked) -> Answer:
    rule, is_new = s.catalogue.add_rule(a.body)
    return Answer(rule, 201 if is_new else 200)


def _history(s: Services, a: Asked) -> dict[str, Any]:
    if "domain" not in a.query:
        raise BadValue("domain", None, "is missing", "give ?domain=NAME")
    since = a.query.get("since", s.clock() - DEFAULT_HISTORY_SECONDS)
    return s.history(a.query["domain"], since, a.query.get("step", 1))


def _get_state(s: Services, _a: Asked) -> Answer:
    document = s.states.get()
    return Answer(document, headers={"ETag": f'"{etag(document)}"'})


def _put_state(s: Services, a: Asked) -> Answer:
    done = s.states.put(a.raw, **a.query, if_match=a.headers.get("If-Match"))
    return Answer(done, headers={"ETag": f'"{done["etag"]}"'})


def _processes(s: Services, a: Asked) -> Answer:
    return Answer(None, text=s.catalogue.processes(a["domain"]))


def _changes(
    path: str,
    summary: str,
    put: Call | str,
    answer: Any,
    body: Any,
    present: Call,
    place: str = "",
) -> list[Operation]:
    """PUT and PATCH of one thing. `present` has its present members; it raises NotFound, or is
    empty, while the thing does not exist."""
    call = called(put) if isinstance(put, str) else put

    def patch(s: Services, a: Asked) -> Any:
        try:
            found = present(s, a)
        except NotFound:
            found = {}
        before = {name: found[name] for name in members(body) if name in found}
        # A null of an unknown member takes nothing out, and is refused as any other value.
        unknown = {name: a.body[name] for name in a.body if name not in members(body)}
        given = parse(body, {**merged(before, a.body), **unknown}, place.format(**a.path))
        return call(s, replace(a, body=given))

    patching = f"{summary}: of what is there only what is given; a null takes a member out"
    return [
        op(f"PUT {path}", summary, call, answer, body, errors=(409,), place=place),
        op(f"PATCH {path}", patching, patch, answer, Mapping[str, Any], errors=(409,)),
    ]


def _resource(
    path: str, summary: str, put: Call, answer: Any, body: type, present: Call, kind: str
) -> list[Operation]:
    """PUT, PATCH and DELETE of an object of one resource."""
    path = f"{path}/{{resource}}"
    take_back = f"Take back what {kind} say of one resource"
    return [
        *_changes(path, summary, put, answer, body, present, f"{kind}.{{resource}}"),
        op(f"DELETE {path}", take_back, put, answer, errors=(409,)),
    ]


def _of_resource(kind: str, body: type, summary: str) -> list[Operation]:
    def put(s: Services, a: Asked) -> Any:
        return s.catalogue.set_resource(kind, *a.path.values(), a.body)

    def present(s: Services, a: Asked) -> Any:
        return _grant(s, a)[kind].get(a["resource"], {})

    return _resource(f"{GRANT}/{kind}", summary, put, Granted, body, present, kind)


_HOST = [
    op(
        "GET /status",
        "Version, libvirt, database and uplinks of the host",
        "status",
        answers.Status,
    ),
    op("GET /settings", "Settings of the controller", "catalogue.settings", model.Settings),
    op(
        "PUT /settings",
        "Change the settings that are given; the emulator is an admin's to change",
        lambda s, a: s.catalogue.put_settings(a.raw),
        model.Settings,
        model.Settings,
        errors=(403,),
    ),
    op(
        "GET /audit",
        "Changes and their authors, newest first",
        "catalogue.audit",
        list[model.AuditEntry],
        query=("limit",),
    ),
    op("GET /state", "All that is declared, as one document", _get_state, State),
    op(
        "PUT /state",
        "Apply a document: all of it, or nothing",
        _put_state,
        answers.Applied,
        State,
        query=("prune", "dry_run", "absent"),
        errors=(403, 404, 409, 412),
    ),
]
_DOMAINS = [
    op("GET /domains", "All virtual machines of the host", "domains.list", list[answers.Domain]),
    op(
        f"GET {DOMAIN}",
        "One virtual machine with its classes and ceiling",
        "domains.get",
        answers.Domain,
    ),
    op(
        f"POST {DOMAIN}/attach",
        "Put the domain's devices behind a shaper",
        "domains.attach",
        answers.Domain,
        AttachBody,
        errors=(409,),
    ),
    op(
        f"POST {DOMAIN}/detach",
        "Give the domain its former definition back",
        "domains.detach",
        answers.Domain,
        DetachBody,
        errors=(409,),
    ),
    op(
        f"POST {DOMAIN}/agent",
        "Install Sluice's agent in the guest, through its QEMU guest agent",
        "installer.install",
        answers.Installed,
        InstallBody,
        errors=(409,),
    ),
    op(
        f"PUT {DOMAIN}/ceiling",
        "Replace the domain's ceiling",
        _put_ceiling,
        answers.Domain,
        Mapping[Resource, Limit | None],
        place="ceiling",
    ),
    *_resource(
        f"{DOMAIN}/ceiling",
        "Replace the domain's ceiling on one resource",
        _put_ceiling,
        answers.Domain,
        Limit,
        _ceiling,
        "ceiling",
    ),
    *_changes(
        f"{DOMAIN}/cards/{{card}}",
        "Replace the settings of a network card, named by its MAC address, target or alias",
        _put_card,
        answers.Domain,
        Card,
        _card,
        "card",
    ),
]
_CLASSES = [
    op("GET /classes", "All classes", "catalogue.classes", list[model.ShapingClass]),
    op("GET /classes/{class}", "One class", _class, model.ShapingClass),
    *_changes(
        "/classes/{class}",
        "Create or replace a class",
        "catalogue.put_class",
        model.ShapingClass,
        model.ClassBody,
        _class,
    ),
    op(
        "DELETE /classes/{class}",
        "Remove a class that no domain has",
        "catalogue.delete_class",
        errors=(409,),
    ),
    op(f"GET {GRANT}", "One class that a domain has", _grant, Granted),
    *_changes(
        GRANT,
        "Grant a class to a domain, or replace its settings there",
        "catalogue.put_grant",
        Granted,
        model.GrantBody,
        _grant,
    ),
    op(
        f"DELETE {GRANT}",
        "Take a class from a domain, with its rules and assignments",
        "catalogue.revoke",
        answers.Revoked,
        errors=(409,),
    ),
    *_of_resource("limits", Limit, "Limit one resource"),
    *_of_resource("scheduling", Scheduling, "Schedule one resource"),
    *_of_resource("queues", Queue, "Set the queue of one resource"),
]
_GROUPS = [
    op("GET /groups", "Limits that domains of this host share", "groups.all", list[answers.Group]),
    op(f"GET {GROUP}", "One group", _group, answers.Group),
    *_changes(
        GROUP,
        "Create or replace a group",
        "groups.put",
        answers.Group,
        groups.GroupBody,
        _group_given,
    ),
    op(f"DELETE {GROUP}", "Remove a group that no domain is in", "groups.delete", errors=(409,)),
    *_changes(
        MEMBER,
        "Put a domain into a group",
        "groups.put_member",
        answers.Group,
        groups.MemberBody,
        _member,
    ),
    op(f"DELETE {MEMBER}", "Take a domain out of a group", "groups.delete_member"),
]
_RULES = [
    op(
        "GET /rules",
        "Rules that put processes into classes, in the order in which they are tried",
        "catalogue.rules",
        list[answers.ListedRule],
        query=("domain",),
    ),
    op("GET /rules/{rule}", "One rule", _rule, answers.ListedRule),
    op(
        "POST /rules",
        "Add a rule; an existing rule is answered with 200 and not added again",
        _add_rule,
        answers.ListedRule,
        rules.RuleBody,
        statuses=(200, 201),
        errors=(404, 409),
    ),
    op(
        "POST /rules/preview",
        "Processes that a rule would match now",
        "catalogue.preview_rule",
        answers.Preview,
        rules.RuleBody,
        errors=(404, 409),
    ),
    op("DELETE /rules/{rule}", "Remove a rule", "catalogue.delete_rule"),
    op(
        f"GET {DOMAIN}/processes",
        "The guest's processes, from its agent; to viewers without arguments",
        _processes,
        answers.Processes,
    ),
    op(
        f"GET {DOMAIN}/assignments",
        "Single processes put into a class by hand",
        "catalogue.assignments",
        list[answers.Assignment],
    ),
    op(
        f"PUT {ASSIGNMENT}",
        "Put one process into a class",
        "catalogue.assign",
        answers.Assignment,
        model.AssignBody,
        errors=(409,),
        alone=False,
    ),
    op(f"DELETE {ASSIGNMENT}", "Take a process out of its class", "catalogue.unassign"),
]
_LIVE = [
    op(
        f"GET {GRANT}/why",
        "Why the class is as slow as it is: for each resource one reason, and a sentence",
        "whys.of",
        answers.Whys,
    ),
    op(
        "GET /live",
        "Rates, limits, backlog and delay now",
        "live",
        answers.Live,
        query=("domain",),
        errors=(404,),
    ),
    op(
        "GET /history",
        "The same over time",
        _history,
        answers.History,
        query=("domain", "since", "step"),
        errors=(404,),
    ),
]
_STREAMS = [
    op("GET /streams", "Streams and how well they play", "streams.list_json", list[answers.Stream]),
    op(f"GET {STREAM}", "One stream", _stream, answers.Stream),
    *_changes(
        STREAM,
        "Create or replace a stream",
        "streams.put",
        answers.Stream,
        model.StreamBody,
        _stream,
    ),
    op(f"DELETE {STREAM}", "Forget a stream", "streams.delete"),
    op(
        f"POST {STREAM}/reports",
        "Report quality from a player",
        "streams.report",
        answers.Verdict,
        quality.Report,
    ),
    op(
        f"GET {STREAM}/history",
        "Quality over time",
        "streams.history",
        list[answers.StreamReport],
        query=("since",),
    ),
    op(
        f"GET {DOMAIN}/streams",
        "What the guest says of its streams",
        "said",
        list[GuestStream],
    ),
    op("GET /auto", "State of auto-shaping", "auto.status", answers.Auto),
    op(
        "PUT /auto",
        "Change the settings of auto-shaping that are given",
        lambda s, a: s.auto.put(a.raw),
        answers.Auto,
        model.AutoSettings,
    ),
    op(
        "GET /auto/past",
        "Pressures and targets of the last minutes",
        "auto.past",
        answers.History,
        query=("since", "step"),
    ),
    op(
        "GET /auto/log",
        "Decisions of auto-shaping and their reasons",
        "auto.log",
        list[answers.Decision],
        query=("since", "limit"),
    ),
]
_EVENTS = [
    op(
        "GET /events",
        "What sluiced does and finds, as server-sent events",
        events,
        list[Event],
        query=("domain", "kind", "since", "after", "limit", "follow"),
        errors=(404,),
        streams=MEDIA_TYPE,
    ),
]
_NIGHTLY = [
    op(
        "GET /nightly",
        "Nightly runs, newest first",
        "nightly.list",
        list[answers.NightlySummary],
        query=("limit",),
    ),
    op(
        "POST /nightly",
        "Keep a result; the same one again is kept once",
        "nightly.add",
        answers.NightlySummary,
        NightlyBody,
        statuses=(201,),
        errors=(409,),
    ),
    op(
        "GET /nightly/{night}",
        "One nightly run with all that it measured",
        "nightly.show",
        answers.Night,
    ),
    op(
        "GET /nightly/{night}/page",
        "The run's own page as HTML text",
        "nightly.page",
        answers.NightPage,
    ),
]
OPERATIONS = [
    *_HOST,
    *_DOMAINS,
    *_CLASSES,
    *_GROUPS,
    *_RULES,
    *_LIVE,
    *_STREAMS,
    *_EVENTS,
    *_NIGHTLY,
]
