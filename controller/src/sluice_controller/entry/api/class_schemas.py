# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of classes, limits, scheduling, queues and grants."""

from __future__ import annotations

from typing import Any

from marshmallow import Schema, fields

from ...domain.queues import AQMS
from ...domain.scheduling import CHARGES, DYNAMICS, POLICIES
from .fields import Body, Flag, Integers, Number, Object, Text, Untouched, Whole

# Requests


class ClassBody(Body):
    title = Text()
    priority = Whole()
    is_stream = Flag()
    weight = Whole(metadata={"description": "1 to 1000, 100 unless given"})
    unmanaged = Flag(metadata={"description": "never held, charged to nothing"})


class LimitBody(Body):
    bytes_per_second = Number(allow_none=True)
    burst_bytes = Number(allow_none=True)
    operations_per_second = Number(allow_none=True)
    burst_operations = Number(allow_none=True)


class SchedulingBody(Body):
    """Null or absent: as by default."""

    reservation_bytes_per_second = Number(allow_none=True)
    policy = Text(allow_none=True, metadata={"enum": list(POLICIES)})
    peak_bytes_per_second = Number(allow_none=True)
    minimum_charge_bytes = Whole(allow_none=True)
    dynamic = Text(allow_none=True, metadata={"enum": list(DYNAMICS)})
    charge = Text(allow_none=True, metadata={"enum": list(CHARGES)})
    window = Object(allow_none=True, metadata={"description": "{period_ns, bytes, may_miss, of}"})


class QueueBody(Body):
    """Null or absent: as by default."""

    limit_bytes = Whole(allow_none=True)
    limit_packets = Whole(allow_none=True)
    aqm = Text(allow_none=True, metadata={"enum": list(AQMS)})
    ecn = Flag(allow_none=True)
    connections_per_second = Number(allow_none=True)
    burst_connections = Number(allow_none=True)


class ByResource(Untouched, fields.Dict):
    """{resource: body}"""

    def __init__(self, body: type[Body], **kwargs: Any) -> None:
        super().__init__(
            keys=fields.String(), values=fields.Nested(body, allow_none=True), **kwargs
        )


class GrantBody(Body):
    limits = ByResource(LimitBody)
    dscp = Integers()
    scheduling = ByResource(SchedulingBody)
    queues = ByResource(QueueBody)


# Answers


class ClassSchema(Schema):
    name = fields.String()
    title = fields.String()
    priority = fields.Integer()
    is_stream = fields.Boolean()
    colour_index = fields.Integer()
    weight = fields.Integer()
    unmanaged = fields.Boolean()


class LimitSchema(Schema):
    bytes_per_second = fields.Float(allow_none=True)
    burst_bytes = fields.Float(allow_none=True)
    operations_per_second = fields.Float(allow_none=True)
    burst_operations = fields.Float(allow_none=True)


class WindowSchema(Schema):
    period_ns = fields.Integer()
    bytes = fields.Integer()
    may_miss = fields.Integer()
    of = fields.Integer()


class SchedulingSchema(Schema):
    reservation_bytes_per_second = fields.Float(allow_none=True)
    policy = fields.String()
    peak_bytes_per_second = fields.Float(allow_none=True)
    minimum_charge_bytes = fields.Integer(allow_none=True)
    dynamic = fields.String()
    charge = fields.String()
    window = fields.Nested(WindowSchema, allow_none=True)


class QueueSchema(Schema):
    limit_bytes = fields.Integer(allow_none=True)
    limit_packets = fields.Integer(allow_none=True)
    aqm = fields.String()
    ecn = fields.Boolean()
    connections_per_second = fields.Float(allow_none=True)
    burst_connections = fields.Float(allow_none=True)


def by_resource(schema: type[Schema]) -> fields.Dict:
    return fields.Dict(keys=fields.String(), values=fields.Nested(schema))


class GrantSchema(Schema):
    class_ = fields.String(data_key="class", attribute="class")
    tag = fields.Integer()
    priority = fields.Integer()
    is_stream = fields.Boolean()
    colour_index = fields.Integer()
    dscp = fields.List(fields.Integer())
    limits = by_resource(LimitSchema)
    effective_limits = by_resource(LimitSchema)
    scheduling = by_resource(SchedulingSchema)
    queues = by_resource(QueueSchema)
    weight = fields.Integer()
    unmanaged = fields.Boolean()
