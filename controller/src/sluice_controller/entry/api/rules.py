# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules, processes, assignments."""

from flask import Response
from flask_smorest import Blueprint

from . import schemas
from .common import services

blueprint = Blueprint("rules", __name__, url_prefix="/v1", description="Rules and assignments")


@blueprint.get("/rules")
@blueprint.arguments(schemas.DomainQuery, location="query")
@blueprint.response(200, schemas.RuleSchema(many=True))
def list_rules(query):
    return services().catalogue.rules(query["domain"])


@blueprint.post("/rules")
@blueprint.arguments(schemas.RuleBody)
@blueprint.response(201, schemas.RuleSchema)
@blueprint.alt_response(200, schema=schemas.RuleSchema, description="it was there already")
@blueprint.alt_response(422, schema=schemas.ProblemSchema)
def add_rule(body):
    rule, is_new = services().catalogue.add_rule(body)
    return rule, 201 if is_new else 200


@blueprint.post("/rules/preview")
@blueprint.arguments(schemas.RuleBody)
@blueprint.response(200, schemas.PreviewSchema)
def preview_rule(body):
    return services().catalogue.preview_rule(body)


@blueprint.delete("/rules/<int:rule_id>")
@blueprint.response(204)
def delete_rule(rule_id):
    services().catalogue.delete_rule(rule_id)


@blueprint.get("/domains/<string:domain>/processes")
@blueprint.response(200, schemas.ProcessesSchema)
@blueprint.alt_response(503, schema=schemas.ProblemSchema)
def list_processes(domain):
    # Not through the schema, which costs seconds of a large table.
    return Response(services().catalogue.processes(domain), mimetype="application/json")


@blueprint.get("/domains/<string:domain>/assignments")
@blueprint.response(200, schemas.AssignmentSchema(many=True))
def list_assignments(domain):
    return services().catalogue.assignments(domain)


@blueprint.put("/domains/<string:domain>/assignments/<int:pid>")
@blueprint.arguments(schemas.AssignBody)
@blueprint.response(200, schemas.AssignmentSchema)
def put_assignment(body, domain, pid):
    return services().catalogue.assign(domain, pid, body)


@blueprint.delete("/domains/<string:domain>/assignments/<int:pid>")
@blueprint.response(204)
def delete_assignment(domain, pid):
    services().catalogue.unassign(domain, pid)
