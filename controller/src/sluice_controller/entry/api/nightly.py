# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/nightly: results of the nightly run."""

from flask_smorest import Blueprint

from . import schemas
from .common import row_count, services

blueprint = Blueprint("nightly", __name__, url_prefix="/v1/nightly", description="Nightly results")


@blueprint.get("")
@blueprint.arguments(schemas.CountQuery, location="query")
@blueprint.response(200, schemas.NightlySummarySchema(many=True))
def list_nightly(query):
    return services().nightly.list(row_count(query["limit"]))


@blueprint.post("")
@blueprint.arguments(schemas.NightlyBody)
@blueprint.response(201, schemas.NightlySummarySchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def add_nightly(body):
    return services().nightly.add(body)


@blueprint.get("/<int:row_id>")
@blueprint.response(200, schemas.NightlySchema)
@blueprint.alt_response(404, schema=schemas.ProblemSchema)
def get_nightly(row_id):
    return services().nightly.show(row_id)


@blueprint.get("/<int:row_id>/page")
@blueprint.response(200, schemas.NightlyPageSchema)
@blueprint.alt_response(404, schema=schemas.ProblemSchema)
def get_nightly_page(row_id):
    return services().nightly.page(row_id)
