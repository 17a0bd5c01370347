# SPDX-License-Identifier: GPL-2.0-or-later
"""The API's JSON form of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .guests import Guest
from .limits import RESOURCES, UNLIMITED, Limit, Resource, tighter
from .model import DEFAULT_CLASS, Grant, ShapingClass
from .models import answer_of, as_json, members
from .scheduling import DEFAULT_SCHEDULING
from .shaped import Shapes, devices_json, sentence

# The burst of auto-shaping's limits. Small, so that one class's burst does not become another's
# wait.
AUTO_BURST_BYTES = 256 * 1024

# Limits of auto-shaping: (domain, class, resource) → bytes per second.
Caps = Mapping[tuple[str, str, str], float]


def reserved(grant: Grant, resource: str) -> float:
    """Bytes per second that the operator promised the class, 0 without a promise."""
    return grant.scheduling.get(resource, DEFAULT_SCHEDULING).reserved_bytes_per_second


def effective_limits(grant: Grant, caps: Caps) -> dict[str, Limit]:
    """The operator's limits, lowered to auto-shaping's.

    A reservation or window is the operator's promise, and auto-shaping keeps it: a cap of an
    earlier time below it is raised to it.
    """
    effective = dict(grant.limits)
    for resource in RESOURCES:
        cap = caps.get((grant.domain, grant.class_name, resource))
        if cap is not None:
            own = grant.limits.get(resource, UNLIMITED)
            cap = max(cap, reserved(grant, resource))
            effective[resource] = tighter(own, cap, AUTO_BURST_BYTES)
    return effective


@dataclass(frozen=True, kw_only=True)
class Granted(  # type: ignore[misc]
    answer_of(ShapingClass, "OfClass", "name", "title"), answer_of(Grant, "OfGrant", "domain")
):
    """A class as one domain has it."""

    # With the limits of auto-shaping.
    effective_limits: Mapping[Resource, Limit]


def grant_json(grant: Grant, shaping_class: ShapingClass, caps: Caps) -> dict[str, Any]:
    """A `Granted`."""
    effective = {"effective_limits": effective_limits(grant, caps)}
    found = {**as_json(shaping_class), **as_json(grant), **as_json(effective)}
    return {name: found[name] for name in members(Granted)}


def with_default(domain: str, grants: list[Grant]) -> list[Grant]:
    """Every domain has the default class, granted or not."""
    if any(grant.class_name == DEFAULT_CLASS for grant in grants):
        return grants
    return [Grant(domain, DEFAULT_CLASS, 0), *grants]


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
