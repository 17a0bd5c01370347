# SPDX-License-Identifier: GPL-2.0-or-later
"""The record of attach's changes in a domain, as this host and the domain keep it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from lxml import etree

from . import domain_metadata


@dataclass
class Changes:
    """The changes of attach, enough to undo them. Devices are named by their target."""

    emulator: str | None = None
    aliases: list[str] = field(default_factory=list)
    drivers_created: list[str] = field(default_factory=list)
    drivers_named: dict[str, str | None] = field(default_factory=dict)
    queue_sizes: list[str] = field(default_factory=list)
    disk_drivers_created: list[str] = field(default_factory=list)
    serial_controller_absent: bool = False
    said: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_carried(self) -> dict[str, Any]:
        """Without the lines that were said to the operator."""
        return {name: part for name, part in self.as_json().items() if name != "said"}


def _has_type(part: Any, like: Any) -> bool:
    """Whether a member of a record is as attach would have written it."""
    if like is None:
        return part is None or isinstance(part, str)
    if isinstance(like, list):
        return isinstance(part, list) and all(isinstance(one, str) for one in part)
    if isinstance(like, dict):
        return isinstance(part, dict) and all(_has_type(one, None) for one in part.values())
    return isinstance(part, type(like))


def carried_record(root: etree._Element, name: str) -> dict[str, Any] | None:
    """The record of attach in a domain's metadata; None without one, Conflict if it is broken."""
    kind = domain_metadata.ATTACHED
    record = domain_metadata.value(root, kind, name)
    if record is None:
        return None
    usual = Changes()
    known = {part.name for part in fields(Changes)} - {"said"}
    if not isinstance(record, dict) or set(record) != known:
        raise domain_metadata.broken(name, kind, f"its members are not {', '.join(sorted(known))}")
    for part in sorted(known):
        if not _has_type(record[part], getattr(usual, part)):
            raise domain_metadata.broken(name, kind, f"{part} is {str(record[part])[:60]}")
    return record
