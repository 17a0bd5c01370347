# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of the API's calls: routes and the OpenAPI document are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...domain import groups, model, quality, rules
from ...domain.errors import BadValue, NotFound, sluice
from ...domain.limits import Limit, Resource
from ...domain.models import members, parse, without_nulls
from ...domain.nightly import NightlyBody
from ...domain.queues import Queue
from ...domain.scheduling import Scheduling
from ...domain.state import State, etag
from ...services.domains import AttachBody, DetachBody
from . import answers
from .operations import Answer, Asked, Operation

if TYPE_CHECKING:
    from ..wiring import Services

DEFAULT_HISTORY_SECONDS = 600
DEFAULT_ROWS = 100
DOMAIN = "/domains/{domain}"
GRANT = f"{DOMAIN}/classes/{{class}}"
GROUP = "/groups/{group}"
MEMBER = f"{GROUP}/members/{{domain}}"
STREAM = "/streams/{stream}"


def _one(found: list[dict[str, Any]], thing: str, value: Any, key: str = "name") -> dict[str, Any]:
    for one in found:
        if one[key] == value:
            return one
    raise NotFound(thing, value, "does not exist", f"see the list of what there is: GET {thing}")


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


def _given(shape: type, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is shown, what a request gives."""
    return {name: shown[name] for name in members(shape)}


# One item of what is listed


def _class(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.catalogue.classes(), "class", a["class"])


def _grant(s: Services, a: Asked) -> dict[str, Any]:
    s.catalogue.check_known(a["domain"])
    for grant in s.catalogue.grants(a["domain"]):
        if grant["class"] == a["class"]:
            return grant
    grant_it = sluice("grant", a["domain"], a["class"])
    raise NotFound("class", a["class"], f"is not one of {a['domain']}", f"grant it: {grant_it}")


def _group(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.groups.all(), "group", a["group"])


def _group_given(s: Services, a: Asked) -> dict[str, Any]:
    return groups.given(s.groups.group(a["group"]))


def _member_given(s: Services, a: Asked) -> dict[str, Any]:
    member = _one(_group(s, a)["domains"], "domain", a["domain"], "domain")
    return _given(groups.MemberBody, member)


def _stream(s: Services, a: Asked) -> dict[str, Any]:
    return _one(s.streams.list_json(), "stream", a["stream"])


# Calls that take more than a line


def _put_ceiling(s: Services, a: Asked) -> dict[str, Any]:
    # First what may fail, or a ceiling that was set would look as if it were not.
    shown = s.domains.get(a["domain"])
    resource = a.path.get("resource")
    return {**shown, "ceiling": s.catalogue.put_ceiling(a["domain"], a.body, resource)}


def _ceiling(s: Services, a: Asked) -> Mapping[str, Any]:
    return s.catalogue.ceiling(a["domain"]).get(a["resource"], {})


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
    done = s.states.put(a.body, **a.query, if_match=a.headers.get("If-Match"))
    return Answer(done, headers={"ETag": f'"{done["etag"]}"'})


def _rows(a: Asked) -> int:
    return a.query.get("limit", DEFAULT_ROWS)


def _host() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/status",
            "Version, libvirt, database and uplinks of the host",
            lambda s, a: s.status(),
            answers.Status,
        ),
        op(
            "GET",
            "/settings",
            "Settings of the controller",
            lambda s, a: s.catalogue.settings(),
            model.Settings,
        ),
        op(
            "PUT",
            "/settings",
            "Change the settings that are given; the emulator is an admin's to change",
            lambda s, a: s.catalogue.put_settings(a.body),
            model.Settings,
            model.Settings,
            errors=(403,),
        ),
        op(
            "GET",
            "/audit",
            "Who changed what, newest first",
            lambda s, a: s.catalogue.audit(_rows(a)),
            list[answers.AuditEntry],
            query=("limit",),
        ),
        op("GET", "/state", "All that is declared, as one document", _get_state, State),
        op(
            "PUT",
            "/state",
            "Apply a document: all of it, or nothing",
            _put_state,
            answers.Applied,
            State,
            query=("prune", "dry_run"),
            errors=(403, 404, 409, 412),
        ),
    ]


def _domains() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/domains",
            "All virtual machines of the host",
            lambda s, a: s.domains.list(),
            list[answers.Domain],
        ),
        op(
            "GET",
            DOMAIN,
            "One virtual machine with its classes and ceiling",
            lambda s, a: s.domains.get(a["domain"]),
            answers.Domain,
        ),
        op(
            "POST",
            f"{DOMAIN}/attach",
            "Put the domain's devices behind a shaper",
            lambda s, a: s.domains.attach(a["domain"], a.body),
            answers.Domain,
            AttachBody,
            errors=(409,),
        ),
        op(
            "POST",
            f"{DOMAIN}/detach",
            "Give the domain its former definition back",
            lambda s, a: s.domains.detach(a["domain"], a.body),
            answers.Domain,
            DetachBody,
            errors=(409,),
        ),
        op(
            "PUT",
            f"{DOMAIN}/ceiling",
            "Replace the domain's ceiling",
            _put_ceiling,
            answers.Domain,
            Mapping[Resource, Limit],
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
    ]


def _patched(
    body: Any,
    put: Callable[[Services, Asked], Any],
    present: Callable[[Services, Asked], Mapping[str, Any]],
    place: str = "",
) -> Callable[[Services, Asked], Any]:
    """`put` of what is there (`present`) with what is given; of a new thing, what is given."""

    def patch(s: Services, a: Asked) -> Any:
        try:
            before = present(s, a)
        except NotFound:
            before = {}
        after = merged(before, a.body)
        parse(body, without_nulls(after), place.format(**a.path))
        return put(s, Asked(a.path, a.query, after, a.headers))

    return patch


def _changes(
    path: str,
    summary: str,
    put: Callable[[Services, Asked], Any],
    answer: Any,
    body: Any,
    present: Callable[[Services, Asked], Mapping[str, Any]],
    place: str = "",
) -> list[Operation]:
    """PUT and PATCH of one thing; `present` is what a PUT would give of it as it is."""
    patch = _patched(body, put, present, place)
    patching = f"{summary}: of what is there only what is given; a null takes a member out"
    op = Operation
    return [
        op("PUT", path, summary, put, answer, body, errors=(409,), place=place),
        op("PATCH", path, patching, patch, answer, Mapping[str, Any], errors=(409,)),
    ]


def _classes() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/classes",
            "All classes",
            lambda s, a: s.catalogue.classes(),
            list[model.ShapingClass],
        ),
        op("GET", "/classes/{class}", "One class", _class, model.ShapingClass),
        *_changes(
            "/classes/{class}",
            "Create or replace a class",
            lambda s, a: s.catalogue.put_class(a["class"], a.body),
            model.ShapingClass,
            model.ClassBody,
            lambda s, a: _given(model.ClassBody, _class(s, a)),
        ),
        op(
            "DELETE",
            "/classes/{class}",
            "Remove a class that no domain has",
            lambda s, a: s.catalogue.delete_class(a["class"]),
            errors=(409,),
        ),
        op("GET", GRANT, "One class that a domain has", _grant, answers.Grant),
        *_changes(
            GRANT,
            "Grant a class to a domain, or replace what the domain has of it",
            lambda s, a: s.catalogue.put_grant(a["domain"], a["class"], a.body),
            answers.Grant,
            model.GrantBody,
            lambda s, a: _given(model.GrantBody, _grant(s, a)),
        ),
        op(
            "DELETE",
            GRANT,
            "Take a class from a domain, with its rules and assignments",
            lambda s, a: s.catalogue.revoke(a["domain"], a["class"]),
            answers.Revoked,
            errors=(409,),
        ),
        *_of_resource("limits", Limit, "Limit one resource", "set_limit"),
        *_of_resource("scheduling", Scheduling, "Schedule one resource", "set_scheduling"),
        *_of_resource("queues", Queue, "Set the queue of one resource", "set_queue"),
    ]


def _of_resource(kind: str, body: type, summary: str, method: str) -> list[Operation]:
    def put(s: Services, a: Asked) -> Any:
        call = getattr(s.catalogue, method)
        return call(a["domain"], a["class"], a["resource"], a.body)

    return _resource(
        f"{GRANT}/{kind}",
        summary,
        put,
        answers.Grant,
        body,
        lambda s, a: _grant(s, a)[kind].get(a["resource"], {}),
        kind,
    )


def _resource(
    path: str,
    summary: str,
    put: Callable[[Services, Asked], Any],
    answer: Any,
    body: type,
    present: Callable[[Services, Asked], Mapping[str, Any]],
    kind: str,
) -> list[Operation]:
    """What is said of one resource."""
    path = f"{path}/{{resource}}"
    taken_back = f"Take back what {kind} say of one resource"
    return [
        *_changes(path, summary, put, answer, body, present, f"{kind}.{{resource}}"),
        Operation("DELETE", path, taken_back, put, answer, errors=(409,)),
    ]


def _groups() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/groups",
            "Limits that domains of this host share",
            lambda s, a: s.groups.all(),
            list[answers.Group],
        ),
        op("GET", GROUP, "One group", _group, answers.Group),
        *_changes(
            GROUP,
            "Create or replace a group",
            lambda s, a: s.groups.put(a["group"], a.body),
            answers.Group,
            groups.GroupBody,
            _group_given,
        ),
        op(
            "DELETE",
            GROUP,
            "Remove a group that no domain is in",
            lambda s, a: s.groups.delete(a["group"]),
            errors=(409,),
        ),
        *_changes(
            MEMBER,
            "Put a domain into a group",
            lambda s, a: s.groups.put_member(a["group"], a["domain"], a.body),
            answers.Group,
            groups.MemberBody,
            _member_given,
        ),
        op(
            "DELETE",
            MEMBER,
            "Take a domain out of a group",
            lambda s, a: s.groups.delete_member(a["group"], a["domain"]),
        ),
    ]


def _rules() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/rules",
            "Rules that put processes into classes, in the order in which they are tried",
            lambda s, a: s.catalogue.rules(a.query.get("domain")),
            list[answers.Rule],
            query=("domain",),
        ),
        op(
            "GET",
            "/rules/{rule}",
            "One rule",
            lambda s, a: _one(s.catalogue.rules(None), "rule", a["rule"], "id"),
            answers.Rule,
        ),
        op(
            "POST",
            "/rules",
            "Add a rule; one that is there already is answered with 200 and not added again",
            _add_rule,
            answers.Rule,
            rules.RuleBody,
            statuses=(200, 201),
            errors=(404, 409),
        ),
        op(
            "POST",
            "/rules/preview",
            "What a rule would match now",
            lambda s, a: s.catalogue.preview_rule(a.body),
            answers.Preview,
            rules.RuleBody,
            errors=(404, 409),
        ),
        op(
            "DELETE",
            "/rules/{rule}",
            "Remove a rule",
            lambda s, a: s.catalogue.delete_rule(a["rule"]),
        ),
        op(
            "GET",
            f"{DOMAIN}/processes",
            "The guest's processes, from its agent; to viewers without arguments",
            lambda s, a: Answer(None, text=s.catalogue.processes(a["domain"])),
            answers.Processes,
        ),
        op(
            "GET",
            f"{DOMAIN}/assignments",
            "Single processes put into a class by hand",
            lambda s, a: s.catalogue.assignments(a["domain"]),
            list[answers.Assignment],
        ),
        op(
            "PUT",
            f"{DOMAIN}/assignments/{{pid}}",
            "Put one process into a class",
            lambda s, a: s.catalogue.assign(a["domain"], a["pid"], a.body),
            answers.Assignment,
            model.AssignBody,
            errors=(409,),
            # It waits for the guest's agent.
            alone=False,
        ),
        op(
            "DELETE",
            f"{DOMAIN}/assignments/{{pid}}",
            "Take a process out of its class",
            lambda s, a: s.catalogue.unassign(a["domain"], a["pid"]),
        ),
    ]


def _live() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/live",
            "Rates, limits, backlog and delay now",
            lambda s, a: s.live(a.query.get("domain")),
            answers.Live,
            query=("domain",),
            errors=(404,),
        ),
        op(
            "GET",
            "/history",
            "The same over time",
            _history,
            answers.History,
            query=("domain", "since", "step"),
            errors=(404,),
        ),
    ]


def _streams() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/streams",
            "Streams and how well they play",
            lambda s, a: s.streams.list_json(),
            list[answers.Stream],
        ),
        op("GET", STREAM, "One stream", _stream, answers.Stream),
        *_changes(
            STREAM,
            "Create or replace a stream",
            lambda s, a: s.streams.put(a["stream"], a.body),
            answers.Stream,
            model.StreamBody,
            lambda s, a: _given(model.StreamBody, _stream(s, a)),
        ),
        op(
            "DELETE",
            STREAM,
            "Forget a stream",
            lambda s, a: s.streams.delete(a["stream"]),
        ),
        op(
            "POST",
            f"{STREAM}/reports",
            "Report quality from a player",
            lambda s, a: s.streams.report(a["stream"], a.body),
            answers.Verdict,
            quality.Report,
        ),
        op(
            "GET",
            f"{STREAM}/history",
            "Quality over time",
            lambda s, a: s.streams.history(a["stream"], a.query.get("since", 0.0)),
            list[answers.StreamReport],
            query=("since",),
        ),
        op("GET", "/auto", "State of auto-shaping", lambda s, a: s.auto.status(), answers.Auto),
        op(
            "PUT",
            "/auto",
            "Change the settings of auto-shaping that are given",
            lambda s, a: s.auto.put(a.body),
            answers.Auto,
            model.AutoSettings,
        ),
        op(
            "GET",
            "/auto/log",
            "What auto-shaping did and why",
            lambda s, a: s.auto.log(a.query.get("since", 0.0), _rows(a)),
            list[answers.Decision],
            query=("since", "limit"),
        ),
    ]


def _nightly() -> list[Operation]:
    op = Operation
    return [
        op(
            "GET",
            "/nightly",
            "Nightly runs, newest first",
            lambda s, a: s.nightly.list(_rows(a)),
            list[answers.NightlySummary],
            query=("limit",),
        ),
        op(
            "POST",
            "/nightly",
            "Keep a result; the same one again is kept once",
            lambda s, a: s.nightly.add(a.body),
            answers.NightlySummary,
            NightlyBody,
            statuses=(201,),
            errors=(409,),
        ),
        op(
            "GET",
            "/nightly/{night}",
            "One nightly run with all that it measured",
            lambda s, a: s.nightly.show(a["night"]),
            answers.Night,
        ),
        op(
            "GET",
            "/nightly/{night}/page",
            "The run's own page as HTML text",
            lambda s, a: s.nightly.page(a["night"]),
            answers.NightPage,
        ),
    ]


OPERATIONS = [
    *_host(),
    *_domains(),
    *_classes(),
    *_groups(),
    *_rules(),
    *_live(),
    *_streams(),
    *_nightly(),
]
