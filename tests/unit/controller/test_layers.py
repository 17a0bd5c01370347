# SPDX-License-Identifier: GPL-2.0-or-later
"""The direction of imports is an invariant: domain ← services ← adapters ← entry."""

import ast
import sys
from pathlib import Path

import pytest

import sluice_controller

ROOT = Path(sluice_controller.__file__).parent
LAYERS = ("domain", "services", "adapters", "entry")
MODULES = sorted(p for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0] in LAYERS)


def imports(path):
    """(top-level package or layer, is it ours) of each import of a module."""
    package = list(path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], False
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            parts = node.module.split(".")
            if parts[0] == "sluice_controller":
                yield parts[1], True
            else:
                yield parts[0], False
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            target = base + (node.module.split(".") if node.module else [])
            yield (target or [node.names[0].name])[0], True


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_from_inner_layers(path):
    layer = LAYERS.index(path.relative_to(ROOT).parts[0])
    for name, ours in imports(path):
        if ours and name in LAYERS:
            assert LAYERS.index(name) <= layer, f"{path}: imports {name}"


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if p.relative_to(ROOT).parts[0] in ("domain", "services")],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_domain_and_services_need_the_standard_library_and_the_models_pydantic(path):
    for name, ours in imports(path):
        known = {*sys.stdlib_module_names, "pydantic", "pydantic_core"}
        assert ours or name in known, f"{path}: imports {name}"


def test_domain_reads_no_clock():
    for path in (ROOT / "domain").glob("*.py"):
        for name, _ours in imports(path):
            assert name not in ("time", "datetime", "random"), f"{path}: imports {name}"
