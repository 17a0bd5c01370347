# SPDX-License-Identifier: GPL-2.0-or-later
"""What sluiced makes of its options and its file."""

import sys
from dataclasses import fields

import pytest

from sluice_controller.domain.model import Settings, parse_settings
from sluice_controller.entry import daemon
from sluice_controller.entry.config import Config, argument_parser, load


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
    for one in fields(Config):
        ending = f" (default: {one.default})" if one.default else ""
        assert f"{one.metadata['help']}{ending}" in said.replace("- ", "-")


def checked(folder, capsys, monkeypatch, text):
    """Status and words of ``sluiced --check-config`` with this file."""
    (folder / "sluiced.toml").write_text(text)
    words = ["sluiced", "--check-config", f"--etc-dir={folder}", f"--run-dir={folder / 'run'}"]
    monkeypatch.setattr(sys, "argv", words)
    try:
        daemon.main()
    except SystemExit as end:
        return end.code, capsys.readouterr().err
    return 0, capsys.readouterr().out


def test_a_configuration_that_can_work_is_said_to_and_nothing_is_made(
    tmp_path, capsys, monkeypatch
):
    state = tmp_path / "state"
    text = f'state_dir = "{state}"\nlog_level = "debug"\n'
    assert checked(tmp_path, capsys, monkeypatch, text) == (
        0,
        "sluiced: the configuration can work\n",
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sluiced.toml"]
    state.mkdir()
    for name in ("sluice.db", "sluice.db-wal", "lost+found"):
        (state / name).touch()
    assert checked(tmp_path, capsys, monkeypatch, text)[0] == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('log_level = "loud"', "log_level 'loud' is not a level"),
        ('database = "nonesuch://h/d"', "database 'nonesuch://h/d' cannot be used"),
        ('database = "postgresql+pg8001://u:word@h/d"', "database"),
        ('state_dir = "{folder}"', "has sluiced.toml, which is none of sluiced's"),
    ],
)
def test_a_configuration_that_cannot_work_is_named(tmp_path, capsys, monkeypatch, text, named):
    status, said = checked(tmp_path, capsys, monkeypatch, text.format(folder=tmp_path) + "\n")
    assert status == daemon.CANNOT_WORK
    assert named in said and said.count("\n") == 1
    assert "word" not in said
