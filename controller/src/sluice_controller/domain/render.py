# SPDX-License-Identifier: GPL-2.0-or-later
"""The API's JSON form of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .guests import Guest
from .limits import RESOURCES, UNLIMITED, Limit, Resource, tighter
from .model import DEFAULT_CLASS, Grant, ShapingClass
from .models import answer_of, as_json, members
from .overload import Control, Controls, unreported
from .queues import AUTO, OFF, Queue
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


def effective_queues(grant: Grant, controls: Controls) -> dict[str, Queue]:
    """The operator's queues in the shaper's words: with the limit that overload control has set."""
    control = control_of(grant, controls)
    effective = dict(grant.queues)
    for resource, queue in grant.queues.items():
        if queue.overload == AUTO and control is not None:
            rate = control.connections_per_second
            effective[resource] = replace(queue, overload=OFF, connections_per_second=rate)
    return effective


def control_of(grant: Grant, controls: Controls) -> Control | None:
    """The limit of overload control, with its reason; None where it is off."""
    for queue in grant.queues.values():
        most = queue.connections_per_second
        if queue.overload == AUTO and most is not None:
            found = controls.get((grant.domain, grant.class_name))
            if found is None:
                return unreported(most)
            # The operator's limit may be a newer one.
            return replace(found, connections_per_second=min(most, found.connections_per_second))
    return None


@dataclass(frozen=True, kw_only=True)
class Granted(  # type: ignore[misc]
    answer_of(ShapingClass, "OfClass", "name", "title"), answer_of(Grant, "OfGrant", "domain")
):
    """A class as one domain has it."""

    # With the limits of auto-shaping.
    effective_limits: Mapping[Resource, Limit]
    # Of overload control, where it is on.
    overload: Control | None


def grant_json(
    grant: Grant, shaping_class: ShapingClass, caps: Caps, controls: Controls
) -> dict[str, Any]:
    """A `Granted`."""
    effective = {
        "effective_limits": effective_limits(grant, caps),
        "overload": control_of(grant, controls),
    }
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
