# SPDX-License-Identifier: GPL-2.0-or-later
"""The command of ``make sim``."""

import argparse
import json
import sys

import pytest

from sim import __main__ as command
from sim.scenario import is_judged


@pytest.mark.parametrize(("text", "found"), [("7", [7]), ("0-2", [0, 1, 2])])
def test_seeds_are_one_or_a_range(text, found):
    assert list(command.seeds(text)) == found


@pytest.mark.parametrize(
    ("text", "words"), [("x", "write 7 or 0-19"), ("3-1", "the lowest first"), ("0-9999", "10000")]
)
def test_other_seeds_are_refused_with_a_remedy(text, words):
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        command.seeds(text)


def test_the_default_seeds_are_not_those_for_fitting():
    assert all(is_judged(seed) for seed in command.seeds(command.SEEDS))


def test_a_run_prints_the_table_and_keeps_all_figures(monkeypatch, tmp_path, capsys):
    out = tmp_path / "folder" / "report.json"
    options = ["--seeds", "1", "--kind", "sliced", "--jobs", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["sim", *options, "--policy", "none", "--policy", "rates"])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert "2 runs, of which 0 were no overload; seeds 1 to 1" in printed
    runs = {run["policy"]: run for run in json.loads(out.read_text())["runs"]}
    assert runs.keys() == {"none", "rates"}
    # An overload is felt by the stream.
    assert not runs["none"]["clean"]
    assert runs["rates"]["imperfect_half_seconds"] < runs["none"]["imperfect_half_seconds"]


def test_an_option_out_of_range_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sim", "--jobs", "0"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--jobs is 0; it must be 1 or more" in capsys.readouterr().err
