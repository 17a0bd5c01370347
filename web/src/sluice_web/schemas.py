# SPDX-License-Identifier: GPL-2.0-or-later
"""Bodies of the REST API: what is checked on the way in, and described for readers."""

from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, validate

from .problems import Problem, bad_value

RESOURCES = ("blk-read", "blk-write", "net-tx", "net-rx")
GROUPED = (*RESOURCES, "blk", "net")
SHUTDOWN_SECONDS = (1, 900)
RATE_MIN, OPERATIONS_MIN, RATE_MAX, BURST_MAX = 1024, 1, 10**11, 2**40


class Number(fields.Float):
    """A JSON number; a string of digits is not one."""

    def _deserialize(self, value, attr, data, **kwargs):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValidationError("give a JSON number")
        return super()._deserialize(value, attr, data, **kwargs)


class Whole(fields.Integer):
    """A JSON number without a fraction."""

    def _deserialize(self, value, attr, data, **kwargs):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValidationError("give a whole JSON number")
        return super()._deserialize(value, attr, data, **kwargs)


class Flag(fields.Boolean):
    """JSON true or false, nothing that looks like it."""

    def _deserialize(self, value, attr, data, **kwargs):
        if not isinstance(value, bool):
            raise ValidationError("give true or false")
        return value


def _rate(
    minimum: int = RATE_MIN, unit: str = "bytes per second", maximum: int = RATE_MAX
) -> Number:
    return Number(
        allow_none=True,
        validate=validate.Range(
            minimum, maximum, error=f"give {minimum} to {maximum} {unit}, or null for unlimited"
        ),
        metadata={"description": unit},
    )


def _shutdown_seconds() -> Whole:
    least, most = SHUTDOWN_SECONDS
    return Whole(
        validate=validate.Range(least, most, error=f"give {least} to {most} seconds"),
        metadata={"description": "how long a restart waits for the guest; seconds"},
    )


class Body(Schema):
    """Base of all request bodies: an unknown member is an error."""

    class Meta:
        unknown = RAISE


class Limit(Body):
    """Absent or null: unlimited."""

    bytes_per_second = _rate()
    burst_bytes = _rate(1, "bytes", BURST_MAX)
    operations_per_second = _rate(OPERATIONS_MIN, "operations per second")
    burst_operations = _rate(1, "operations", BURST_MAX)


class GroupBody(Limit):
    """One resource, or both directions, and one rate, in bytes or in operations."""

    resource = fields.String(
        required=True,
        validate=validate.OneOf(GROUPED, error=f"use one of {', '.join(GROUPED)}"),
    )


class MemberBody(Body):
    """A VM's share of a group, beside those of the others."""

    weight = Whole(validate=validate.Range(1, 10_000, error="give a weight from 1 to 10000"))


def _limits(**kwargs: Any) -> fields.Dict:
    return fields.Dict(
        keys=fields.String(
            validate=validate.OneOf(RESOURCES, error=f"use one of {', '.join(RESOURCES)}")
        ),
        values=fields.Nested(Limit),
        **kwargs,
    )


class Settings(Body):
    history_seconds = Number()
    uplink = fields.String(allow_none=True)
    emulator = fields.String(allow_none=True)


class Attach(Body):
    restart = Flag()
    upgrade = Flag()
    disable_vhost = Flag()
    shutdown_seconds = _shutdown_seconds()


class Detach(Body):
    restart = Flag()
    shutdown_seconds = _shutdown_seconds()


class ClassBody(Body):
    title = fields.String(validate=validate.Length(max=100))
    priority = Whole(validate=validate.Range(0, 9, error="give 0 (first) to 9 (last)"))
    is_stream = Flag()
    weight = Whole(validate=validate.Range(1, 1000, error="give a weight from 1 to 1000"))
    unmanaged = Flag()


def _word(*words: str) -> fields.String:
    return fields.String(
        allow_none=True,
        validate=validate.OneOf(words, error=f"use one of {', '.join(words)}"),
    )


def _between(low: int, high: int, kind: type[fields.Field] = Whole) -> fields.Field:
    return kind(
        allow_none=True,
        validate=validate.Range(low, high, error=f"give {low} to {high}, or null for the default"),
    )


class WindowBody(Body):
    """A window constraint: bytes in each period, of which some may be late."""

    period_ns = Whole(
        required=True,
        validate=validate.Range(
            1000, 3600 * 10**9, error="give 1000 (1 µs) to 3600000000000 (1 h)"
        ),
    )
    bytes = Whole(
        required=True, validate=validate.Range(1, 2**32 - 1, error="give 1 to 4294967295 bytes")
    )
    may_miss = _between(0, 999)
    of = _between(1, 1000)


class SchedulingBody(Body):
    """How a class uses a resource beside its limit; null or absent: as by default."""

    reservation_bytes_per_second = _between(1, RATE_MAX, Number)
    policy = _word("token-bucket", "leaky-bucket", "token-leaky")
    peak_bytes_per_second = _between(1, 10**12, Number)
    minimum_charge_bytes = _between(0, 2**20)
    dynamic = _word("none", "latency", "throughput")
    charge = _word("all", "device")
    window = fields.Nested(WindowBody, allow_none=True)


class QueueBody(Body):
    """What a class may queue of its frames; null or absent: as by default."""

    limit_bytes = _between(1, 2**26)
    limit_packets = _between(1, 2**18)
    aqm = _word("none", "codel")
    ecn = Flag(allow_none=True)
    connections_per_second = _between(1, 10**12, Number)
    burst_connections = _between(1, 2**40, Number)


def _by_resource(body: type[Body]) -> fields.Dict:
    return fields.Dict(
        keys=fields.String(
            validate=validate.OneOf(RESOURCES, error=f"use one of {', '.join(RESOURCES)}")
        ),
        values=fields.Nested(body, allow_none=True),
    )


class GrantBody(Body):
    scheduling = _by_resource(SchedulingBody)
    queues = _by_resource(QueueBody)
    limits = _limits()
    dscp = fields.List(Whole(validate=validate.Range(0, 63, error="give 0 to 63")))


class Match(Body):
    exe = fields.String()
    cmdline = fields.String()
    user = fields.String()
    unit = fields.String()
    cgroup = fields.String()


class RuleBody(Body):
    domain = fields.String(allow_none=True)
    class_ = fields.String(data_key="class", required=True)
    match = fields.Nested(Match, required=True)


class AssignmentBody(Body):
    class_ = fields.String(data_key="class", required=True)
    start_time_ticks = Whole(validate=validate.Range(0, error="give 0 or more"))


class StreamBody(Body):
    domain = fields.String(required=True)
    class_ = fields.String(data_key="class", required=True)
    nominal_bytes_per_second = _rate()


class StreamReport(Body):
    continuity_errors = Number()
    stalls = Number()
    stall_seconds = Number()
    lost_pictures = Number()
    received_bytes = Number()
    max_gap_ms = Number()
    window_ms = Number(required=True)


class AutoBody(Body):
    enabled = Flag()
    dry_run = Flag()
    floors_bytes_per_second = fields.Dict(
        keys=fields.String(
            validate=validate.OneOf(RESOURCES, error=f"use one of {', '.join(RESOURCES)}")
        ),
        values=_rate(),
    )


class ProblemBody(Schema):
    """RFC 9457, with what the error is about and what to do."""

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String()
    thing = fields.String()
    value = fields.Raw(allow_none=True)
    remedy = fields.String()


def check_ceiling(data: Any) -> None:
    """The ceiling's body is a bare map of resource to limit."""
    check_body(_Ceiling(), {"limits": data})


class _Ceiling(Body):
    limits = _limits(required=True)


def check_body(schema: Schema, data: Any) -> None:
    """Raise Problem (422) that names the first member that is wrong."""
    if not isinstance(data, dict):
        raise bad_value("body", type(data).__name__, "send a JSON object")
    errors = schema.validate(data)
    if errors:
        path, message = _first_error(errors)
        raise bad_value(".".join(path), _dig(data, path), _as_remedy(message))


def nests_beyond(value: Any, most: int) -> bool:
    """True if lists and objects are inside each other more than ``most`` deep."""
    level = [value]
    for _ in range(most + 1):
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return False
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for children in inner for child in children]
    return True


def not_json(problem: str) -> Problem:
    """400: a body that cannot be read at all."""
    return Problem(
        400,
        "bad-json",
        "The body is not JSON",
        detail=f"The body cannot be read ({problem}); send a JSON object with Content-Type"
        " application/json.",
        thing="body",
        value=problem,
        remedy="send a JSON object with Content-Type application/json",
    )


def _first_error(errors: Any, path: tuple[str, ...] = ()) -> tuple[tuple[str, ...], str]:
    if isinstance(errors, dict):
        key = next(iter(errors))
        # marshmallow wraps the entries of a map in "key" and "value".
        deeper = path if key in ("key", "value", "_schema") else (*path, str(key))
        return _first_error(errors[key], deeper)
    return path or ("body",), str(errors[0] if isinstance(errors, list) else errors)


def _dig(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(data, list) and part.isdecimal() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, dict) and part in data:
            data = data[part]
        else:
            return None
    return data


def _as_remedy(message: str) -> str:
    known = {
        "Unknown field.": "leave this member out; it is not known",
        "Missing data for required field.": "give this member; it is required",
        "Field may not be null.": "give a value; null is not allowed here",
        "Not a valid string.": "give a string",
        "Number too large.": "give a smaller number",
        "Special numeric values (nan or infinity) are not permitted.": "give a finite number",
    }
    return known.get(message, message.rstrip("."))
