# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/live and /v1/history."""

import math

from flask_smorest import Blueprint

from ...domain.errors import BadValue
from . import schemas
from .common import services

blueprint = Blueprint("live", __name__, url_prefix="/v1", description="Live values and history")

DEFAULT_HISTORY_SECONDS = 600


@blueprint.get("/live")
@blueprint.arguments(schemas.DomainQuery, location="query")
@blueprint.response(200, schemas.LiveSchema)
def get_live(query):
    return services().live(query["domain"])


@blueprint.get("/history")
@blueprint.arguments(schemas.HistoryQuery, location="query")
@blueprint.response(200, schemas.HistorySchema)
def get_history(query):
    step, since = query["step"], query["since"]
    if not math.isfinite(step) or not 1 <= step <= 86400:
        raise BadValue("step", step, "is out of range", "give seconds from 1 to 86400")
    if since is None:
        since = services().clock() - DEFAULT_HISTORY_SECONDS
    if not math.isfinite(since):
        raise BadValue("since", since, "is not a time", "give seconds since the epoch")
    return services().history(query["domain"], since, step)
