# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/state: all that operators declare, as one document."""

from flask import request
from flask_smorest import Blueprint

from ...domain.state import etag
from . import schemas
from .common import services

blueprint = Blueprint("state", __name__, url_prefix="/v1/state", description="The declared state")


@blueprint.get("")
@blueprint.response(200, schemas.StateBody)
def get_state():
    document = services().states.get()
    return document, 200, {"ETag": f'"{etag(document)}"'}


@blueprint.put("")
@blueprint.arguments(schemas.StateQuery, location="query")
@blueprint.arguments(schemas.StateBody)
@blueprint.response(200, schemas.AppliedSchema)
@blueprint.alt_response(412, schema=schemas.ProblemSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_state(query, body):
    done = services().states.put(body, **query, if_match=request.headers.get("If-Match"))
    return done, 200, {"ETag": f'"{done["etag"]}"'}
