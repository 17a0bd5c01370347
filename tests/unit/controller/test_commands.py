# SPDX-License-Identifier: GPL-2.0-or-later
"""What the command refuses by itself: nothing answers at its socket here."""

import pytest
from typer.testing import CliRunner

from sluice_controller.domain.errors import Unavailable
from sluice_controller.entry.cli.main import app

SCHEDULE = ("schedule", "web1", "batch", "net-tx")
QUEUE = ("queue", "web1", "batch", "net-rx")


@pytest.fixture
def run(tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text("t")
    options = ["--socket", str(tmp_path / "nobody"), "--token-file", str(token_file)]
    return lambda *command: CliRunner().invoke(app, [*options, *command])


@pytest.mark.parametrize(
    ("command", "others", "named"),
    [
        (SCHEDULE, ("--reserve", "5MB/s"), "--reserve"),
        (SCHEDULE, ("--may-miss", "1/10"), "--may-miss"),
        (SCHEDULE, ("--policy", "leaky-bucket", "--peak", "1MB/s"), "--policy, --peak"),
        (QUEUE, ("--bytes", "1MB"), "--bytes"),
        (QUEUE, ("--no-ecn", "--aqm", "none"), "--aqm, --ecn"),
    ],
)
def test_default_beside_what_would_be_set_is_wrong_usage(run, command, others, named):
    done = run(*command, "--default", *others)
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "Invalid value for --default: it takes back all that is set here" in said
    assert f"does not go with {named}; leave out one or the other" in said


@pytest.mark.parametrize("command", [SCHEDULE, QUEUE])
def test_default_alone_is_asked_of_sluiced(run, command):
    for options in (("--default",), ("--default", "--json")):
        assert isinstance(run(*command, *options).exception, Unavailable)
