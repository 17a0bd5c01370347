# SPDX-License-Identifier: GPL-2.0-or-later
"""The record of attach's changes in a domain, as this host and the domain keep it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from lxml import etree

from ..domain.errors import BadValue
from ..domain.knobs import Flag, Model
from ..domain.models import as_json, parse
from . import domain_metadata


@dataclass
class Changes(Model):
    """The changes of attach, enough to undo them. Devices are named by their target."""

    emulator: str | None = None
    aliases: list[str] = field(default_factory=list)
    drivers_created: list[str] = field(default_factory=list)
    drivers_named: dict[str, str | None] = field(default_factory=dict)
    queue_sizes: list[str] = field(default_factory=list)
    disk_drivers_created: list[str] = field(default_factory=list)
    serial_controller_absent: Annotated[bool, Flag()] = False
    said: list[str] = field(default_factory=list)

    def as_carried(self) -> dict[str, Any]:
        """Without the lines that were said to the operator."""
        return {name: part for name, part in as_json(self).items() if name != "said"}


def carried_record(root: etree._Element, name: str) -> dict[str, Any] | None:
    """The record of attach in a domain's metadata; None without one, Conflict if it is broken."""
    kind = domain_metadata.ATTACHED
    record = domain_metadata.value(root, kind, name)
    if record is None:
        return None
    known = sorted(Changes().as_carried())
    if not isinstance(record, dict) or sorted(record) != known:
        raise domain_metadata.broken(name, kind, f"its members are not {', '.join(known)}")
    try:
        return parse(Changes, record).as_carried()
    except BadValue as error:
        raise domain_metadata.broken(name, kind, error.detail) from error
