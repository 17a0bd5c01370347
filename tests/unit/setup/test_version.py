# SPDX-License-Identifier: GPL-2.0-or-later
"""One version for everything: the file VERSION at the top."""

import re
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
VERSION = (TOP / "VERSION").read_text().strip()


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("controller/pyproject.toml", "project"),
        ("web/pyproject.toml", "project"),
        ("guest-agent/Cargo.toml", "package"),
    ],
)
def test_projects_have_the_version(path, table):
    assert tomllib.loads((TOP / path).read_text())[table]["version"] == VERSION


@pytest.mark.parametrize(
    "path",
    ["controller/src/sluice_controller/__init__.py", "web/src/sluice_web/__init__.py"],
)
def test_programs_say_the_version(path):
    assert f'__version__ = "{VERSION}"' in (TOP / path).read_text()


def test_it_is_a_version_that_packages_can_have():
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
