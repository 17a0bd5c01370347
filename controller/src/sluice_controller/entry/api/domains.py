# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/domains: what libvirt has, attach and detach."""

from flask_smorest import Blueprint

from . import schemas
from .common import services

blueprint = Blueprint("domains", __name__, url_prefix="/v1/domains", description="Domains")


@blueprint.get("")
@blueprint.response(200, schemas.DomainSchema(many=True))
@blueprint.alt_response(503, schema=schemas.ProblemSchema)
def list_domains():
    return services().domains.list()


@blueprint.get("/<string:domain>")
@blueprint.response(200, schemas.DomainSchema)
@blueprint.alt_response(404, schema=schemas.ProblemSchema)
def get_domain(domain):
    return services().domains.get(domain)


@blueprint.post("/<string:domain>/attach")
@blueprint.arguments(schemas.AttachBody)
@blueprint.response(200, schemas.DomainSchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
def attach_domain(body, domain):
    return services().domains.attach(domain, body)


@blueprint.post("/<string:domain>/detach")
@blueprint.arguments(schemas.DetachBody)
@blueprint.response(200, schemas.DomainSchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
def detach_domain(body, domain):
    return services().domains.detach(domain, body)
