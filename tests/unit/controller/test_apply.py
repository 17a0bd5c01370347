# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of state at the command line: what is refused there, and where that is in the file."""

import pytest
import yaml

from sluice_controller.domain.errors import BadValue
from sluice_controller.entry.cli.files import line_of, load

TEXT = """\
classes:
  batch:
    weight: 50
domains:
  a:
    ceiling: {}
  a.b:
    classes:
      batch: {limits: {blk-read:
        {bytes_per_second: 1}}}
rules:
  - class: batch
    match: {exe: /bin/a}
  - {class: batch,
     match: {exe: b}}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("classes.batch.weight", 3),
        ("classes.batch.title", 2),
        ("domains.a.ceiling", 6),
        ("domains.a.b.classes.batch.limits.blk-read.bytes_per_second", 10),
        ("domains.a.b.classes.batch.limits.blk-read", 9),
        ("rules[0].match.exe", 13),
        ("rules[1].match.exe", 15),
        ("rules[7].match", 11),
        ("streams", 1),
        ("", 1),
    ],
)
def test_the_line_of_a_place(path, line):
    assert line_of(yaml.compose(TEXT), path) == line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("classes: {\n", "f.yaml:2 '' is not YAML"),
        ("classes:\n  a: {}\n  b: {}\n  a: {}\n", "f.yaml:4 'a' is there twice"),
        ("classes: {}\n---\nrules: []\n", "f.yaml:2 '' is not YAML"),
        ("a: \x07\n", "f.yaml '' is not YAML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_its_line(text, said):
    with pytest.raises(BadValue) as refused:
        load(text, "f.yaml")
    assert str(refused.value).startswith(said)


def test_a_date_is_text_and_a_name_may_be_a_number():
    document, _ = load("classes: {5: {title: 2026-11-28}}", "f.yaml")
    assert document == {"classes": {"5": {"title": "2026-11-28"}}}


@pytest.mark.parametrize("name", ["010", "1.10", "2026-01-01", "on", "null", "1_000", "0x10"])
def test_a_name_is_text_as_it_is_written(name):
    assert load(f"domains:\n  {name}: {{}}\n", "f.yaml")[0] == {"domains": {name: {}}}


def test_a_file_that_contains_itself_is_refused():
    with pytest.raises(BadValue, match="is not YAML"):
        load("classes: &a {b: *a}\n", "f.yaml")
