# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMU arguments that a domain's XML hands on: `<qemu:commandline>`, in pairs of an option
and its value."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lxml import etree

QEMU_NS = "http://libvirt.org/schemas/domain/qemu/1.0"
Q = f"{{{QEMU_NS}}}"


def _pairs(root: etree._Element) -> Iterator[tuple[etree._Element, etree._Element]]:
    arguments = root.findall(f"{Q}commandline/{Q}arg")
    yield from zip(arguments, arguments[1:], strict=False)


def found(root: etree._Element, option: str, driver: str | None = None) -> list[dict[str, str]]:
    """The properties of each `option` with that driver, or with any. The driver is under ''."""
    of_option = (
        _properties(value.get("value", ""))
        for name, value in _pairs(root)
        if name.get("value") == option
    )
    return [one for one in of_option if driver in (None, one[""])]


def _properties(text: str) -> dict[str, str]:
    """Splits at single commas; a doubled comma stands for one. A device may be in JSON."""
    if text.startswith("{"):
        return _of_json(text)
    driver, *parts = (part.replace("\0", ",") for part in text.replace(",,", "\0").split(","))
    return {"": driver, **dict(part.partition("=")[::2] for part in parts)}


def _of_json(text: str) -> dict[str, str]:
    """Nothing of a text that QEMU will refuse."""
    try:
        properties = json.loads(text)
    except (ValueError, RecursionError):
        properties = {}
    return {"": "", **{"" if k == "driver" else k: str(v) for k, v in properties.items()}}


def added(root: etree._Element, option: str, driver: str, **properties: str) -> str:
    """Adds them; returns the value."""
    line = root.find(f"{Q}commandline")
    if line is None:
        line = etree.SubElement(root, f"{Q}commandline")
    values = (f"{name}={value.replace(',', ',,')}" for name, value in properties.items())
    text = ",".join([driver, *values])
    for argument in (option, text):
        etree.SubElement(line, f"{Q}arg", value=argument)
    return text


def of(root: etree._Element, option: str, driver: str) -> list[etree._Element]:
    """The elements of the first `option` with that driver: name and value, or none."""
    for name, value in _pairs(root):
        text = value.get("value", "")
        if name.get("value") == option and _properties(text)[""] == driver:
            return [name, value]
    return []
