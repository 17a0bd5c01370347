# SPDX-License-Identifier: GPL-2.0-or-later
"""What Ansible makes of the expressions in roles and playbooks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import paths

COLLECTION = paths.TOP / "ansible"
FILES = sorted((*COLLECTION.glob("roles/*/*/*.yml"), *COLLECTION.glob("playbooks/*.yml")))


def strings(node: Any) -> Iterator[str]:
    """Yield all strings of a document."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for one in node.values():
            yield from strings(one)
    elif isinstance(node, list):
        for one in node:
            yield from strings(one)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(COLLECTION)))
def test_expressions_have_single_backslashes(path: Path):
    # Ansible doubles those of an expression itself: two in the file would match a backslash.
    for document in yaml.safe_load_all(path.read_text()):
        for text in strings(document):
            for expression in re.findall(r"{{.*?}}", text, re.DOTALL):
                assert "\\\\" not in expression
