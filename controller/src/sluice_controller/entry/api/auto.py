# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/auto."""

from flask_smorest import Blueprint

from . import schemas
from .common import row_count, services

blueprint = Blueprint("auto", __name__, url_prefix="/v1/auto", description="Auto-shaping")


@blueprint.get("")
@blueprint.response(200, schemas.AutoSchema)
def get_auto():
    return services().auto.status()


@blueprint.put("")
@blueprint.arguments(schemas.AutoBody)
@blueprint.response(200, schemas.AutoSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_auto(body):
    return services().auto.put(body)


@blueprint.get("/log")
@blueprint.arguments(schemas.LogQuery, location="query")
@blueprint.response(200, schemas.DecisionSchema(many=True))
def get_log(query):
    return services().auto.log(query["since"], row_count(query["limit"]))
