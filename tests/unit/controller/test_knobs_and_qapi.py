# SPDX-License-Identifier: GPL-2.0-or-later
"""QAPI, written by hand, beside the controller's models: the shaper takes what these have."""

import ast
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from sluice_controller.domain.knobs import Word, knob
from sluice_controller.domain.limits import RESOURCES, Limit
from sluice_controller.domain.model import ShapingClass
from sluice_controller.domain.models import body_of
from sluice_controller.domain.queues import Queue
from sluice_controller.domain.scheduling import Scheduling, Window

FILE = Path(__file__).parents[3] / "qemu-patches" / "src" / "qapi" / "sluice.json"
TEXT = re.sub(r"^\s*#.*$", "", FILE.read_text(), flags=re.MULTILINE)
BLOCKS = re.split(r"\n\s*\n", re.sub(r"\btrue\b", "True", TEXT))
DEFINED = [ast.literal_eval(block) for block in BLOCKS if block.strip()]
STRUCTS = {one["struct"]: one["data"] for one in DEFINED if "struct" in one}
ENUMS = {one["enum"]: one["data"] for one in DEFINED if "enum" in one}
# Members that say to what a struct belongs, or hold other structs.
BESIDE = {"resource", "class", "tag", "dscp", "limits", "scheduling", "queues"}
# The shaper's classes have no names for people, and play no film; overload control is sluiced's.
PEOPLES = {"title", "is-stream", "overload"}
PAIRS = [
    ("ShaperLimit", Limit),
    ("ShaperScheduling", Scheduling),
    ("ShaperWindow", Window),
    ("ShaperQueue", Queue),
    ("ShaperClassConfig", body_of(ShapingClass)),
]


def qmp(name):
    return name.replace("_", "-")


@pytest.mark.parametrize(("struct", "shape"), PAIRS)
def test_a_struct_has_the_members_of_the_model(struct, shape):
    theirs = {name: kind for name, kind in STRUCTS[struct].items() if name not in BESIDE}
    theirs = {name: kind for name, kind in theirs.items() if name.lstrip("*") not in BESIDE}
    ours = {qmp(one.name): one for one in fields(shape) if qmp(one.name) not in PEOPLES}
    assert {name.lstrip("*") for name in theirs} == set(ours)
    for name, kind in theirs.items():
        one = ours[name.lstrip("*")]
        is_optional = one.default is not MISSING or one.default_factory is not MISSING
        assert name.startswith("*") == is_optional, name
        if kind in ENUMS:
            described = knob(shape, one.name)
            assert isinstance(described, Word) and list(described.words) == ENUMS[kind], name


def test_the_resources_are_the_same():
    assert ENUMS["ShaperResource"] == list(RESOURCES)
