# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/streams."""

from flask_smorest import Blueprint

from . import schemas
from .common import services

blueprint = Blueprint("streams", __name__, url_prefix="/v1/streams", description="Streams")


@blueprint.get("")
@blueprint.response(200, schemas.StreamSchema(many=True))
def list_streams():
    return services().streams.list_json()


@blueprint.put("/<string:name>")
@blueprint.arguments(schemas.StreamBody)
@blueprint.response(200, schemas.StreamSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_stream(body, name):
    return services().streams.put(name, body)


@blueprint.delete("/<string:name>")
@blueprint.response(204)
def delete_stream(name):
    services().streams.delete(name)


@blueprint.post("/<string:name>/reports")
@blueprint.arguments(schemas.ReportBody)
@blueprint.response(200, schemas.VerdictSchema)
def add_report(body, name):
    return services().streams.report(name, body)


@blueprint.get("/<string:name>/history")
@blueprint.arguments(schemas.SinceQuery, location="query")
@blueprint.response(200)
def get_stream_history(query, name):
    return services().streams.history(name, query["since"])
