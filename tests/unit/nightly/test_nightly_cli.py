# SPDX-License-Identifier: GPL-2.0-or-later
"""What the command says of what goes wrong, and how it ends."""

import errno
import os
import sys

import pytest

from sluice_nightly import cli


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs ``clean``, which fails with the given number of an error."""
    settings = tmp_path / "nightly.toml"
    settings.write_text(f'[paths]\nstate = "{tmp_path}/state"\n')
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli.paths, "use", lambda _: None)
    monkeypatch.setattr(cli.patience, "use", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["sluice-nightly", f"--config={settings}", "clean"])

    def run(number: int) -> int:
        def fail(*_: object) -> int:
            raise OSError(number, os.strerror(number), "/srv/night/running.tmp")

        monkeypatch.setitem(cli.COMMANDS, "clean", fail)
        return cli.main()

    return run


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses_is_no_failed_check(command, capsys, number):
    """Exit code 1 says that the host does not shape as it should."""
    assert command(number) == cli.EXIT["error"]
    said = capsys.readouterr().err
    assert said.startswith("sluice-nightly: ") and "/srv/night/running.tmp" in said


def test_check_says_that_the_folder_is_somebody_elses(command, tmp_path, capsys, monkeypatch):
    """And not that a run would start, which it would not."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "report.odt").touch()
    monkeypatch.setattr(sys, "argv", [*sys.argv[:-1], "check"])
    assert cli.main() == cli.EXIT["error"]
    assert "has report.odt, which no nightly run made" in capsys.readouterr().err
    assert (tmp_path / "state" / "report.odt").exists()


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("[run]\nreaders = 4\n", 0, "the configuration can work"),
        ("[run]\nreaders = 20\n", 2, "run.readers 20 is out of range; give 1 to 12"),
        ("run.link = 1\n", 2, "run.link is not a setting"),
    ],
)
def test_a_file_is_checked_without_a_run(tmp_path, capsys, monkeypatch, text, status, words):
    settings = tmp_path / "nightly.toml"
    settings.write_text(text)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli.paths, "use", lambda _: None)
    monkeypatch.setattr(cli.patience, "use", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["sluice-nightly", f"--config={settings}", "--check-config"])
    assert cli.main() == status
    answer = capsys.readouterr()
    assert words in answer.out + answer.err
    assert [p.name for p in tmp_path.iterdir()] == ["nightly.toml"]
