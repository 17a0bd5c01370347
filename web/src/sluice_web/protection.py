# SPDX-License-Identifier: GPL-2.0-or-later
"""The protection of a stream from its neighbours, in one sentence. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import formatting as f
from .views import RESOURCE_TITLES, held

# So many limits are named; one more than that is named rather than counted.
NAMED = 2


@dataclass(frozen=True)
class Held:
    """A class that is held at a rate (bytes per second, or operations)."""

    domain: str
    class_name: str
    resource: str
    rate: float
    is_bytes: bool = True

    def __str__(self) -> str:
        rate = f.rate(self.rate) if self.is_bytes else f"{f.significant(self.rate)} ops/s"
        resource = RESOURCE_TITLES.get(self.resource, self.resource).lower()
        return f"{self.class_name} on {self.domain} at {rate} {resource}"


def protection(stream: dict, auto: dict, domains: list[dict], live: dict) -> str:
    """The limits that do most for a stream now, with their VMs, and how many more there are.

    ``auto``, ``domains`` and ``live`` are the controller's answers.
    """
    if auto.get("enabled") and auto.get("dry_run"):
        return "Auto-shaping watches only (dry run)"
    # A limit of the stream's own class does not protect it.
    itself = (stream.get("domain"), stream.get("class"))
    found = _held(auto) if auto.get("enabled") else _fixed(domains)
    others = [one for one in found if (one.domain, one.class_name) != itself]
    others.sort(key=lambda one: _matters(one, live), reverse=True)
    if auto.get("enabled"):
        return f"Auto-shaping holds {_listed(others)}" if others else "Auto-shaping is watching"
    if others:
        return f"Fixed limits: {_listed(others)}"
    return "Nothing: auto-shaping is off and no other class is limited"


def _held(auto: dict) -> Iterator[Held]:
    for one in held(auto):
        yield Held(one["domain"], one["class"], one["resource"], one["bytes_per_second"])


def _fixed(domains: list[dict]) -> Iterator[Held]:
    """The limits that operators have set, of VMs that are shaped."""
    grants = [
        (domain["name"], grant)
        for domain in domains
        if domain.get("active")
        for grant in domain.get("classes") or []
    ]
    for name, grant in grants:
        for resource, limit in (grant.get("limits") or {}).items():
            for unit in ("bytes", "operations"):
                rate = (limit or {}).get(f"{unit}_per_second")
                if rate:
                    yield Held(name, grant["class"], resource, rate, unit == "bytes")


def _matters(one: Held, live: dict) -> tuple[Any, ...]:
    """Larger for a class that waits for its limit, then by nearness to it, then by rate."""
    of_domain = (live.get("domains") or {}).get(one.domain) or {}
    sample = ((of_domain.get("classes") or {}).get(one.class_name) or {}).get(one.resource) or {}
    member = "bytes_per_second" if one.is_bytes else "requests_per_second"
    rate = sample.get(member) or 0.0
    return (sample.get("backlog_requests") or 0) > 0, min(rate / one.rate, 1.0), rate


def _listed(held: list[Held]) -> str:
    named = held if len(held) <= NAMED + 1 else held[:NAMED]
    more = len(held) - len(named)
    return ", ".join(map(str, named)) + (f", and {more} more" if more else "")
