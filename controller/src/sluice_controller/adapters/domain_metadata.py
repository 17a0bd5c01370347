# SPDX-License-Identifier: GPL-2.0-or-later
"""Sluice's elements in a domain's <metadata>, which travel with the domain.

libvirt keeps one element for each XML namespace and hands them on with a migration. There are
two, each with JSON as its text:

* `attached`: the changes of attach, written by attach and taken out by detach;
* `shaping`: the domain's shaping (`domain/carried.py`), maintained by the reconciler. Its
  attribute `tuned`, JSON too, names the shaper's limits that are auto-shaping's. Earlier
  releases read only the text, which takes no further members, and drop the attribute when they
  write.

The text may be anything: a user who may edit a domain may edit its metadata. The number in a
namespace changes when older releases could not read the text.
"""

from __future__ import annotations

import json
from typing import Any

from lxml import etree

from ..domain.errors import Conflict, command

PREFIX = "sluice"
ATTACHED = "attached"
SHAPING = "shaping"
TUNED = "tuned"
# Far more than all classes and rules that a domain can have take.
LONGEST_TEXT = 4 * 2**20


def uri(kind: str) -> str:
    return f"urn:sluice:{kind}:1"


def _element(root: etree._Element, kind: str) -> etree._Element | None:
    return root.find(f"metadata/{{{uri(kind)}}}{kind}")


def put(root: etree._Element, kind: str, value: Any) -> None:
    metadata = root.find("metadata")
    if metadata is None:
        metadata = etree.SubElement(root, "metadata")
    element = etree.SubElement(metadata, f"{{{uri(kind)}}}{kind}", nsmap={PREFIX: uri(kind)})
    element.text = json.dumps(value, sort_keys=True)


def text(root: etree._Element, kind: str) -> str | None:
    element = _element(root, kind)
    return None if element is None else element.text or ""


def attribute(root: etree._Element, kind: str, name: str) -> str | None:
    element = _element(root, kind)
    return None if element is None else element.get(name)


def remove(root: etree._Element, *kinds: str) -> None:
    """Takes elements out, and a <metadata> that holds nothing."""
    for kind in kinds:
        element = _element(root, kind)
        if element is not None:
            _remove(element)
    metadata = root.find("metadata")
    if metadata is not None and len(metadata) == 0:
        _remove(metadata)


def _remove(element: etree._Element) -> None:
    """Removes an element with the white space behind it."""
    previous, parent = element.getprevious(), element.getparent()
    if previous is None and element.getnext() is None:
        parent.text = None
    elif element.getnext() is None:
        previous.tail = element.tail
    parent.remove(element)


def remove_command(name: str, kind: str) -> str:
    line = command("virsh", "metadata", name, uri(kind), "--remove")
    return f"{line}, with --live, --config or both"


def broken(name: str, kind: str, why: str) -> Conflict:
    return Conflict(
        "domain",
        name,
        f"carries a record that cannot be used ({why})",
        f"remove it: {remove_command(name, kind)}",
    )


def value(root: etree._Element, kind: str, name: str) -> Any:
    """The JSON of the element; None without one."""
    found = text(root, kind)
    if found is None:
        return None
    if len(found) > LONGEST_TEXT:
        raise broken(name, kind, f"it has {len(found)} characters")
    try:
        return json.loads(found)
    except (ValueError, RecursionError) as error:
        raise broken(name, kind, f"it is not JSON: {error}") from error
