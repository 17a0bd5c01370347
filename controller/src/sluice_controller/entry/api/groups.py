# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/groups: limits of the host that several domains share."""

from flask_smorest import Blueprint

from . import schemas
from .common import services

blueprint = Blueprint("groups", __name__, url_prefix="/v1/groups", description="Groups")


@blueprint.get("")
@blueprint.response(200, schemas.GroupSchema(many=True))
def list_groups():
    return services().groups.all()


@blueprint.put("/<string:name>")
@blueprint.arguments(schemas.GroupBody)
@blueprint.response(200, schemas.GroupSchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_group(body, name):
    return services().groups.put(name, body)


@blueprint.delete("/<string:name>")
@blueprint.response(204)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
def delete_group(name):
    services().groups.delete(name)


@blueprint.put("/<string:name>/members/<string:domain>")
@blueprint.arguments(schemas.MemberBody)
@blueprint.response(200, schemas.GroupSchema)
@blueprint.alt_response(404, schema=schemas.ProblemSchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
def put_member(body, name, domain):
    return services().groups.put_member(name, domain, body)


@blueprint.delete("/<string:name>/members/<string:domain>")
@blueprint.response(204)
@blueprint.alt_response(404, schema=schemas.ProblemSchema)
def delete_member(name, domain):
    services().groups.delete_member(name, domain)
