# SPDX-License-Identifier: GPL-2.0-or-later
"""The API's JSON form of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .guests import Guest
from .limits import RESOURCES, UNLIMITED, Limit, tighter
from .model import (
    DEFAULT_CLASS,
    Assignment,
    AuditEntry,
    Grant,
    Rule,
    Settings,
    ShapingClass,
)
from .queues import Queue
from .scheduling import DEFAULT_SCHEDULING, Scheduling
from .shaped import Shapes, devices_json, sentence

# What auto-shaping may let through at once. Small, so that one class's burst
# does not become another's wait.
AUTO_BURST_BYTES = 256 * 1024

# What auto-shaping has set: (domain, class, resource) → bytes per second.
Caps = Mapping[tuple[str, str, str], float]


def class_json(shaping_class: ShapingClass) -> dict[str, Any]:
    return asdict(shaping_class)


def by_resource_json(
    values: Mapping[str, Limit] | Mapping[str, Scheduling] | Mapping[str, Queue],
) -> dict[str, Any]:
    return {resource: value.as_json() for resource, value in values.items()}


def reserved(grant: Grant, resource: str) -> float:
    """Bytes per second that the operator promised the class, 0 without a promise."""
    return grant.scheduling.get(resource, DEFAULT_SCHEDULING).reserved_bytes_per_second


def effective_limits(grant: Grant, caps: Caps) -> dict[str, Limit]:
    """The operator's limits under what auto-shaping has set.

    A reservation or window is the operator's promise, and auto-shaping keeps it:
    a cap below it, from before it was given, holds the class to the promise.
    """
    effective = dict(grant.limits)
    for resource in RESOURCES:
        cap = caps.get((grant.domain, grant.class_name, resource))
        if cap is not None:
            own = grant.limits.get(resource, UNLIMITED)
            cap = max(cap, reserved(grant, resource))
            effective[resource] = tighter(own, cap, AUTO_BURST_BYTES)
    return effective


def grant_json(grant: Grant, shaping_class: ShapingClass, caps: Caps) -> dict[str, Any]:
    return {
        "class": grant.class_name,
        "tag": grant.tag,
        "priority": shaping_class.priority,
        "is_stream": shaping_class.is_stream,
        "colour_index": shaping_class.colour_index,
        "weight": shaping_class.weight,
        "unmanaged": shaping_class.unmanaged,
        "dscp": list(grant.dscp),
        "limits": by_resource_json(grant.limits),
        "effective_limits": by_resource_json(effective_limits(grant, caps)),
        "scheduling": by_resource_json(grant.scheduling),
        "queues": by_resource_json(grant.queues),
    }


def with_default(domain: str, grants: list[Grant]) -> list[Grant]:
    """Every domain has the default class, granted or not."""
    if any(grant.class_name == DEFAULT_CLASS for grant in grants):
        return grants
    return [Grant(domain, DEFAULT_CLASS, 0), *grants]


def rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "domain": rule.domain,
        "class": rule.class_name,
        "match": dict(rule.match),
        "created_at": rule.created_at,
    }


def assignment_json(assignment: Assignment) -> dict[str, Any]:
    return {
        "pid": assignment.pid,
        "start_time_ticks": assignment.start_time_ticks,
        "class": assignment.class_name,
        "created_at": assignment.created_at,
    }


def settings_json(settings: Settings) -> dict[str, Any]:
    return asdict(settings)


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    return asdict(entry)


def guest_json(guest: Guest, shapes: Shapes, emulator_problem: str | None) -> dict[str, Any]:
    devices = devices_json(guest, shapes, emulator_problem)
    return {
        "name": guest.name,
        "uuid": guest.uuid,
        "state": guest.state,
        "attached": guest.attached,
        "active": guest.active,
        "needs_restart": guest.needs_restart,
        "devices": devices,
        "shaped_count": sum(device["shaped"] for device in devices),
        "shaped_sentence": sentence(devices),
    }
