# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""An APT source line, read. Pure.

The roles write it as deb822 does, with all its options, and a removal finds the
lists that apt has of it.
"""

from __future__ import annotations

import re

_LINE = re.compile(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)(.*)", re.DOTALL)
# Options whose values are lists: with commas on a line, with spaces in a field.
_LISTS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
_MORE = {"": "", "+": "-Add", "-": "-Remove"}
# What apt writes otherwise in the names of its lists, beside all that is no plain character.
_QUOTED = re.compile(r"[^!-~]|[\\|{}\[\]<>\"^~_=!@#$%&*]")


def read_source(line: str) -> dict:
    """``uri``, ``suite``, ``components``, and the options as ``fields``. The line is sound."""
    options, uri, suite, components = _LINE.fullmatch(line).groups()
    fields = {}
    for name, more, value in re.findall(r"([\w-]+?)([+-]?)=(\S*)", options or ""):
        if name in _LISTS:
            fields[_LISTS[name] + _MORE[more]] = value.replace(",", " ")
        else:
            fields[name.title()] = value
    return {"uri": uri, "suite": suite, "components": components.split(), "fields": fields}


def list_patterns(line: str) -> list[str]:
    """Names, with an asterisk, of the files below /var/lib/apt/lists; none without a line."""
    if not line:
        return []
    source = read_source(line)
    access, _colon, place = source["uri"].partition(":")
    if place.startswith("//"):
        host, slash, path = place[2:].partition("/")
        # Names and passwords of users are left out, and an address loses its brackets.
        place = f"{host.rpartition('@')[2].replace('[', '').replace(']', '')}{slash}{path}"
    suite = source["suite"]
    folder = suite.removeprefix("/") if suite.endswith("/") else f"dists/{suite}/"
    whole = f"{place.rstrip('/')}/{folder}"
    quoted = _QUOTED.sub(lambda found: f"%{ord(found[0]):02x}", whole)
    return [f"{quoted.replace('/', '_')}*"]
