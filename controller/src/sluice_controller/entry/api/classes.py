# SPDX-License-Identifier: GPL-2.0-or-later
"""/v1/classes, and what a domain has been granted."""

from flask_smorest import Blueprint

from . import class_schemas as shapes
from . import schemas
from .common import services

blueprint = Blueprint("classes", __name__, url_prefix="/v1", description="Classes and grants")


@blueprint.get("/classes")
@blueprint.response(200, shapes.ClassSchema(many=True))
def list_classes():
    return services().catalogue.classes()


@blueprint.put("/classes/<string:name>")
@blueprint.arguments(shapes.ClassBody)
@blueprint.response(200, shapes.ClassSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_class(body, name):
    return services().catalogue.put_class(name, body)


@blueprint.delete("/classes/<string:name>")
@blueprint.response(204)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
def delete_class(name):
    services().catalogue.delete_class(name)


@blueprint.put("/domains/<string:domain>/classes/<string:name>")
@blueprint.arguments(shapes.GrantBody)
@blueprint.response(200, shapes.GrantSchema)
@blueprint.alt_response(404, schema=schemas.ProblemSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_grant(body, domain, name):
    return services().catalogue.put_grant(domain, name, body)


@blueprint.delete("/domains/<string:domain>/classes/<string:name>")
@blueprint.response(200, schemas.RevokedSchema)
def delete_grant(domain, name):
    return services().catalogue.revoke(domain, name)


@blueprint.put("/domains/<string:domain>/classes/<string:name>/limits/<string:resource>")
@blueprint.arguments(shapes.LimitBody)
@blueprint.response(200, shapes.GrantSchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_limit(body, domain, name, resource):
    return services().catalogue.set_limit(domain, name, resource, body)


@blueprint.delete("/domains/<string:domain>/classes/<string:name>/limits/<string:resource>")
@blueprint.response(200, shapes.GrantSchema)
def delete_limit(domain, name, resource):
    return services().catalogue.set_limit(domain, name, resource, None)


@blueprint.put("/domains/<string:domain>/classes/<string:name>/scheduling/<string:resource>")
@blueprint.arguments(shapes.SchedulingBody)
@blueprint.response(200, shapes.GrantSchema)
@blueprint.alt_response(409, schema=schemas.ProblemSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_scheduling(body, domain, name, resource):
    return services().catalogue.set_scheduling(domain, name, resource, body)


@blueprint.delete("/domains/<string:domain>/classes/<string:name>/scheduling/<string:resource>")
@blueprint.response(200, shapes.GrantSchema)
def delete_scheduling(domain, name, resource):
    return services().catalogue.set_scheduling(domain, name, resource, None)


@blueprint.put("/domains/<string:domain>/classes/<string:name>/queues/<string:resource>")
@blueprint.arguments(shapes.QueueBody)
@blueprint.response(200, shapes.GrantSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_queue(body, domain, name, resource):
    return services().catalogue.set_queue(domain, name, resource, body)


@blueprint.delete("/domains/<string:domain>/classes/<string:name>/queues/<string:resource>")
@blueprint.response(200, shapes.GrantSchema)
def delete_queue(domain, name, resource):
    return services().catalogue.set_queue(domain, name, resource, None)


@blueprint.put("/domains/<string:domain>/ceiling")
@blueprint.arguments(schemas.Body(unknown="include"))
@blueprint.response(200, schemas.DomainSchema)
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def put_ceiling(body, domain):
    # First what may fail, or a ceiling that was set would look as if it were not.
    shown = services().domains.get(domain)
    return {**shown, "ceiling": services().catalogue.put_ceiling(domain, body)}
