# SPDX-License-Identifier: GPL-2.0-or-later
"""What sluiced makes of its options and its file."""

import pytest

from sluice_controller.domain.model import Settings, parse_settings
from sluice_controller.entry.config import DEFAULTS, MEANINGS, argument_parser, load


@pytest.mark.parametrize("given", ["option", "file"])
def test_the_emulator_is_kept_with_its_whole_path(given, monkeypatch, tmp_path):
    """As a setting it outlives the folder in which sluiced was started."""
    monkeypatch.chdir(tmp_path)
    words = [f"--etc-dir={tmp_path}"]
    if given == "option":
        words.append("--emulator=build/qemu-system-x86_64")
    else:
        (tmp_path / "sluiced.toml").write_text('emulator = "build/qemu-system-x86_64"\n')
    emulator = load(argument_parser().parse_args(words)).emulator
    assert emulator == str(tmp_path / "build" / "qemu-system-x86_64")
    # Such a setting is taken; another one could not be changed beside it.
    assert parse_settings({"uplink": "eno1"}, Settings(emulator=emulator)).uplink == "eno1"


def test_the_help_says_what_each_option_is():
    said = " ".join(argument_parser().format_help().split())
    assert "None" not in said
    for name, default in DEFAULTS.items():
        ending = f" (default: {default})" if default else ""
        assert f"{MEANINGS[name]}{ending}" in said.replace("- ", "-")
