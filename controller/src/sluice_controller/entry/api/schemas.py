# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of requests and answers, for the OpenAPI document.

Those of classes and grants are in `class_schemas`.
"""

from __future__ import annotations

from marshmallow import Schema, fields

from .class_schemas import GrantSchema, LimitBody, LimitSchema, by_resource
from .fields import Body, Flag, Match, Number, Numbers, Object, Objects, Text, Whole


class GroupBody(LimitBody):
    resource = Text()


class MemberBody(Body):
    weight = Whole()


class ProblemSchema(Schema):
    type = fields.String()
    title = fields.String()
    status = fields.Integer()
    detail = fields.String()
    thing = fields.String()
    value = fields.Raw()
    remedy = fields.String()


# Requests


class SettingsBody(Body):
    history_seconds = Whole()
    uplink = Text(allow_none=True)
    emulator = Text()


class RuleBody(Body):
    domain = Text(allow_none=True)
    class_ = Text(data_key="class", attribute="class")
    match = Match()


class AssignBody(Body):
    class_ = Text(data_key="class", attribute="class")
    start_time_ticks = Whole(allow_none=True)


class AttachBody(Body):
    restart = Flag()
    upgrade = Flag()
    disable_vhost = Flag()
    shutdown_seconds = Whole()


class DetachBody(Body):
    restart = Flag()
    shutdown_seconds = Whole()


class StreamBody(Body):
    domain = Text()
    class_ = Text(data_key="class", attribute="class")
    nominal_bytes_per_second = Number()


class ReportBody(Body):
    continuity_errors = Number()
    stalls = Number()
    stall_seconds = Number()
    lost_pictures = Number()
    received_bytes = Number()
    max_gap_ms = Number()
    window_ms = Number()


class AutoBody(Body):
    enabled = Flag()
    dry_run = Flag()
    floors_bytes_per_second = Numbers()


class StateBody(Body):
    """Sections of docs/reference/state.md; what is absent stays as it is."""

    classes = Object()
    domains = Object()
    groups = Object()
    rules = Objects()
    streams = Object()
    auto = Object()
    settings = Object()


class NightlyBody(Body):
    result = Object(metadata={"description": "docs/specs/nightly-result.md"})
    page = Text(allow_none=True, metadata={"description": "the run's own page, HTML"})
    keep = Whole(metadata={"description": "results that stay, this one included"})


# Queries


class DomainQuery(Schema):
    domain = fields.String(load_default=None)


class CountQuery(Schema):
    limit = fields.Integer(load_default=100)


class HistoryQuery(Schema):
    domain = fields.String(required=True)
    since = fields.Float(load_default=None, metadata={"description": "default: ten minutes ago"})
    step = fields.Float(load_default=1.0, metadata={"description": "seconds"})


class SinceQuery(Schema):
    since = fields.Float(load_default=0.0)


class LogQuery(Schema):
    since = fields.Float(load_default=0.0)
    limit = fields.Integer(load_default=100)


class StateQuery(Schema):
    prune = fields.Boolean(load_default=False, metadata={"description": "remove what is absent"})
    dry_run = fields.Boolean(load_default=False, metadata={"description": "change nothing"})


# Answers


class GroupDomainSchema(Schema):
    domain = fields.String()
    weight = fields.Integer()


class GroupMemberSchema(Schema):
    pid = fields.Integer()
    label = fields.String()
    weight = fields.Integer()
    waiting = fields.Boolean()
    requests = fields.Integer()
    units = fields.Integer()


class GroupSchema(Schema):
    name = fields.String()
    resource = fields.String()
    unit = fields.String()
    rate_per_second = fields.Integer()
    burst = fields.Integer()
    domains = fields.List(fields.Nested(GroupDomainSchema))
    members = fields.List(fields.Nested(GroupMemberSchema))


class LibvirtSchema(Schema):
    uri = fields.String()
    connected = fields.Boolean()
    error = fields.String(allow_none=True)


class HostSchema(Schema):
    name = fields.String()
    accelerator_note = fields.String()


class StatusSchema(Schema):
    version = fields.String()
    started_at = fields.Float()
    libvirt = fields.Nested(LibvirtSchema)
    sample_hz = fields.Integer()
    database = fields.String()
    host = fields.Nested(HostSchema)
    uplinks = fields.List(fields.String())


class SettingsSchema(Schema):
    history_seconds = fields.Integer()
    uplink = fields.String(allow_none=True)
    emulator = fields.String()


class AuditSchema(Schema):
    at = fields.Float()
    actor = fields.String()
    action = fields.String()
    thing = fields.String()
    before = fields.Raw(allow_none=True)
    after = fields.Raw(allow_none=True)


class AgentSchema(Schema):
    connected = fields.Boolean()
    agent_version = fields.String(allow_none=True)
    kernel = fields.String(allow_none=True)
    hostname = fields.String(allow_none=True)
    max_tag = fields.Integer(allow_none=True)
    error = fields.String(allow_none=True)


class DeviceSchema(Schema):
    kind = fields.String()
    alias = fields.String(allow_none=True)
    target = fields.String(allow_none=True)
    shapeable = fields.Boolean()
    reason = fields.String(allow_none=True)
    shaped = fields.Boolean()
    unshaped_because = fields.String(allow_none=True)


class DomainSchema(Schema):
    name = fields.String()
    uuid = fields.String()
    state = fields.String()
    attached = fields.Boolean()
    active = fields.Boolean()
    needs_restart = fields.Boolean()
    agent = fields.Nested(AgentSchema)
    devices = fields.List(fields.Nested(DeviceSchema))
    shaped_count = fields.Integer()
    shaped_sentence = fields.String()
    classes = fields.List(fields.Nested(GrantSchema))
    ceiling = by_resource(LimitSchema)
    changes = fields.List(fields.String(), metadata={"description": "attach: what was changed"})


class RuleSchema(Schema):
    id = fields.Integer()
    domain = fields.String(allow_none=True)
    class_ = fields.String(data_key="class", attribute="class")
    match = fields.Dict(keys=fields.String(), values=fields.String())
    created_at = fields.Float()


class AssignmentSchema(Schema):
    pid = fields.Integer()
    start_time_ticks = fields.Integer()
    class_ = fields.String(data_key="class", attribute="class")
    created_at = fields.Float()


class RevokedSchema(Schema):
    revoked = fields.Nested(GrantSchema)
    rules = fields.List(fields.Nested(RuleSchema))
    assignments = fields.List(fields.Nested(AssignmentSchema))


class PreviewRowSchema(Schema):
    domain = fields.String()
    pid = fields.Integer()
    comm = fields.String()
    exe = fields.String()


class PreviewSchema(Schema):
    processes = fields.List(fields.Nested(PreviewRowSchema))


class ProcessSchema(Schema):
    pid = fields.Integer()
    ppid = fields.Integer()
    start_time_ticks = fields.Integer()
    comm = fields.String()
    exe = fields.String()
    cmdline = fields.String()
    user = fields.String()
    unit = fields.String()
    cgroup = fields.String()
    class_ = fields.String(data_key="class", attribute="class", allow_none=True)
    rule = fields.String(allow_none=True)
    inherited = fields.Boolean()
    threads = fields.Integer()
    cpu_ratio = fields.Float()
    rss_bytes = fields.Integer()
    read_bps = fields.Float()
    write_bps = fields.Float()


class ProcessesSchema(Schema):
    at = fields.Float()
    age_seconds = fields.Float()
    truncated = fields.Boolean()
    processes = fields.List(fields.Nested(ProcessSchema))


class SampleSchema(Schema):
    bytes_per_second = fields.Float()
    requests_per_second = fields.Float()
    limit_bytes_per_second = fields.Float(allow_none=True)
    limit_operations_per_second = fields.Float(allow_none=True)
    burst_bytes = fields.Integer(allow_none=True)
    burst_operations = fields.Integer(allow_none=True)
    backlog_requests = fields.Integer()
    backlog_bytes = fields.Integer()
    held_p99_ms = fields.Float()
    held_mean_ms = fields.Float()
    service_mean_ms = fields.Float()
    in_flight = fields.Integer()
    dropped_per_second = fields.Float()
    drops_per_second = fields.Dict(
        keys=fields.String(),
        values=fields.Float(),
        allow_none=True,
        metadata={"description": "by reason: backlog, codel, connection, window, reset"},
    )
    marked_per_second = fields.Float(allow_none=True)
    buffered_bytes = fields.Integer(allow_none=True)
    buffer_bytes_max = fields.Integer(allow_none=True)
    tokens_bytes = fields.Integer(
        allow_none=True,
        metadata={"description": "what its limit lets pass at once; negative: what is owed"},
    )
    tokens_operations = fields.Integer(allow_none=True)


class LiveDomainSchema(Schema):
    at = fields.Float()
    page_ok = fields.Boolean()
    error = fields.String(allow_none=True)
    classes = fields.Dict(
        keys=fields.String(),
        values=fields.Dict(keys=fields.String(), values=fields.Nested(SampleSchema)),
    )


class UplinkSchema(Schema):
    name = fields.String()
    backlog_bytes = fields.Integer()
    dropped_per_second = fields.Float()
    bytes_per_second = fields.Float()
    link_bytes_per_second = fields.Float(allow_none=True)


class LiveSchema(Schema):
    at = fields.Float()
    domains = fields.Dict(keys=fields.String(), values=fields.Nested(LiveDomainSchema))
    uplink = fields.Nested(UplinkSchema, allow_none=True)


class HistorySchema(Schema):
    step = fields.Float()
    at = fields.List(fields.Float())
    series = fields.Dict(keys=fields.String(), values=fields.List(fields.Float(allow_none=True)))


class StreamSchema(Schema):
    name = fields.String()
    domain = fields.String()
    class_ = fields.String(data_key="class", attribute="class")
    nominal_bytes_per_second = fields.Float()
    verdict = fields.String()
    since = fields.Float()
    reason = fields.String()
    source = fields.String()
    last_report = fields.Dict(allow_none=True)


class VerdictSchema(Schema):
    verdict = fields.String()


class AutoLimitSchema(Schema):
    domain = fields.String()
    class_ = fields.String(data_key="class", attribute="class")
    resource = fields.String()
    bytes_per_second = fields.Float()


class AutoSchema(Schema):
    enabled = fields.Boolean()
    dry_run = fields.Boolean()
    state = fields.String()
    settled_after_seconds = fields.Float(allow_none=True)
    limits = fields.List(fields.Nested(AutoLimitSchema))
    floors_bytes_per_second = fields.Dict(keys=fields.String(), values=fields.Float())


class AutoActionSchema(Schema):
    domain = fields.String()
    class_ = fields.String(data_key="class", attribute="class")
    resource = fields.String()
    from_bytes_per_second = fields.Float(allow_none=True)
    to_bytes_per_second = fields.Float(allow_none=True)


class DecisionSchema(Schema):
    at = fields.Float()
    sentence = fields.String()
    stream = fields.String(allow_none=True)
    reason = fields.String()
    action = fields.Nested(AutoActionSchema, allow_none=True)
    dry_run = fields.Boolean()


class ChangeSchema(Schema):
    thing = fields.String()
    before = fields.Raw(allow_none=True)
    after = fields.Raw(allow_none=True)


class AppliedSchema(Schema):
    changed = fields.Boolean()
    dry_run = fields.Boolean()
    changes = fields.List(fields.Nested(ChangeSchema))
    etag = fields.String()


class NightlyReasonSchema(Schema):
    code = fields.String()
    sentence = fields.String()


class NightlySoftwareSchema(Schema):
    sluice = fields.String()
    qemu = fields.String()
    libvirt = fields.String()


class NightlyPhaseSchema(Schema):
    verdict = fields.String()
    stalls = fields.Float()
    stall_seconds = fields.Float()
    delivered_ratio = fields.Float()
    max_gap_ms = fields.Float()
    background_bytes_per_s = fields.Float()


class NightlyFiguresSchema(Schema):
    control = fields.Nested(NightlyPhaseSchema)
    unshaped = fields.Nested(NightlyPhaseSchema)
    auto = fields.Nested(NightlyPhaseSchema)
    background_ratio = fields.Float(allow_none=True)
    settled_after_s = fields.Float(allow_none=True)


class NightlySummarySchema(Schema):
    id = fields.Integer()
    run_id = fields.String()
    started_at = fields.Float()
    ended_at = fields.Float()
    outcome = fields.String()
    reasons = fields.List(fields.Nested(NightlyReasonSchema))
    host = fields.String()
    software = fields.Nested(NightlySoftwareSchema)
    accelerator = fields.String(allow_none=True)
    figures = fields.Nested(NightlyFiguresSchema, allow_none=True)


class NightlySchema(NightlySummarySchema):
    has_page = fields.Boolean()
    result = fields.Dict()


class NightlyPageSchema(Schema):
    html = fields.String()
