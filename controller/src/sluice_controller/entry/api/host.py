# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/status, /v1/settings, /v1/audit."""

from flask_smorest import Blueprint

from . import schemas
from .common import row_count, services

blueprint = Blueprint("host", __name__, url_prefix="/v1", description="The host")


@blueprint.get("/status")
@blueprint.response(200, schemas.StatusSchema)
def get_status():
    return services().status()


@blueprint.get("/settings")
@blueprint.response(200, schemas.SettingsSchema)
def get_settings():
    return services().catalogue.settings()


@blueprint.put("/settings")
@blueprint.arguments(schemas.SettingsBody)
@blueprint.response(200, schemas.SettingsSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_settings(body):
    return services().catalogue.put_settings(body)


@blueprint.get("/audit")
@blueprint.arguments(schemas.CountQuery, location="query")
@blueprint.response(200, schemas.AuditSchema(many=True))
def get_audit(query):
    return services().catalogue.audit(row_count(query["limit"]))
