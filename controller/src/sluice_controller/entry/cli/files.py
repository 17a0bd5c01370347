# SPDX-License-Identifier: GPL-2.0-or-later
"""A file of declared state: YAML or JSON, and the lines on which its parts are."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ...domain.errors import BadValue

_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_INDEX = re.compile(r"\[(\d+)\]")


def read(file: Path) -> tuple[str, str]:
    """The file's text, and its name in messages."""
    try:
        if str(file) == "-":
            return sys.stdin.read(), "standard input"
        return file.read_text("utf-8"), str(file)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadValue(
            "file", str(file), f"cannot be read ({why})", "name a file of YAML or JSON"
        ) from error


def load(text: str, shown: str) -> tuple[Any, yaml.Node | None]:
    """The document as JSON has it, and its nodes, which know their lines."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        _settle_names(root, shown)
        document = None if root is None else loader.construct_document(root)
        # A value that YAML takes for a date is text.
        return json.loads(json.dumps(document, default=str)), root
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{shown}:{mark.line + 1}" if mark else shown
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise BadValue(place, "", f"is not YAML ({problem})", "correct that line") from error


def _settle_names(node: yaml.Node | None, shown: str) -> None:
    """Names are text as it is written: 010 is no number, and 2026-01-01 no date.

    Of a name that comes twice only the last would count: it is refused.
    """
    for mapping in _mappings(node):
        seen: set[str] = set()
        for key, _value in mapping.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                key.tag = _TEXT
            if str(key.value) in seen:
                place = f"{shown}:{key.start_mark.line + 1}"
                raise BadValue(place, str(key.value), "is there twice", "leave one out")
            seen.add(str(key.value))


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _key, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _mappings(value)


def line_of(node: yaml.Node | None, path: str) -> int:
    """The line of `path`, or of the last of its parts that is in the file.

    Names may have dots themselves, so the longest that fits is taken.
    """
    line = 1
    while node is not None:
        path = path.removeprefix(".")
        found, index = None, _INDEX.match(path)
        if isinstance(node, yaml.SequenceNode) and index and int(index[1]) < len(node.value):
            found = (node.value[int(index[1])], path[index.end() :])
            line = found[0].start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            keys = [(str(k.value), k, v) for k, v in node.value if _begins(path, str(k.value))]
            if keys:
                name, key, value = max(keys, key=lambda one: len(one[0]))
                found, line = (value, path[len(name) :]), key.start_mark.line + 1
        node, path = found or (None, path)
    return line


def _begins(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}["))
