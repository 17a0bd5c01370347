# SPDX-License-Identifier: GPL-2.0-or-later
"""What sluiced does not start with: what it says, and whether systemd is to try again."""

import errno
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from sluice_controller.domain.errors import SluiceError
from sluice_controller.entry import config as configuration
from sluice_controller.entry import daemon


@pytest.fixture(autouse=True)
def handlers():
    """A start sets its own."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def start(monkeypatch, tmp_path, capsys):
    """Starts sluiced, which must fail; status and what it said last."""

    def run(*options, file=""):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / "sluiced.toml").write_text(file)
        folders = [f"--{name}-dir={tmp_path / name}" for name in ("state", "run", "etc")]
        monkeypatch.setattr(sys, "argv", ["sluiced", *folders, *options])
        with pytest.raises(SystemExit) as ended:
            daemon.main()
        return ended.value.code, capsys.readouterr().err.splitlines()[-1]

    return run


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ('libvirt_url = "x"', "libvirt_url 'x' is not a setting: use state_dir, "),
        ("log_level = 7", "log_level 7 is not a string: give a string in quotes"),
        ('log_level = "loud"', "log_level 'loud' is not a level: use debug, "),
        ("=", "cannot be read"),
    ],
)
def test_settings_that_cannot_work_have_a_status_of_their_own(start, file, words):
    status, said = start(file=file)
    assert status == daemon.CANNOT_WORK
    assert said.startswith("sluiced: ") and words in said


def test_an_option_that_cannot_work_has_that_status_too(start, tmp_path):
    assert start("--colour=red")[0] == daemon.CANNOT_WORK
    assert start("--config", str(tmp_path / "none"))[0] == daemon.CANNOT_WORK
    (tmp_path / "file").touch()
    status, said = start(f"--state-dir={tmp_path / 'file' / 'sluice'}")
    assert status == daemon.CANNOT_WORK and "cannot be made (Not a directory)" in said


def test_room_on_a_disk_may_come(tmp_path, monkeypatch):
    def full(path, *_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    arguments = configuration.argument_parser().parse_args([f"--state-dir={tmp_path / 'state'}"])
    config = configuration.load(arguments)
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(SluiceError, match="cannot be made .No space left") as refusal:
        daemon.prepare_folders(config)
    assert daemon.exit_status(refusal.value) == daemon.FAILED_NOW


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://me:geheim@db.example/x", "database 'nosuch://me:***@db.example/x' cannot be"),
        ("geheim", "database '…' cannot be used"),
        ("sqlite+nonesuch:///geheim", "cannot be used"),
    ],
)
def test_a_database_that_is_none_cannot_work(start, url, words):
    status, said = start(f"--database={url}")
    assert status == daemon.CANNOT_WORK
    assert words in said and ":geheim" not in said


def test_a_file_that_is_no_database_cannot_work(start, tmp_path):
    (tmp_path / "no.db").write_text("no database at all, whatever it is called\n" * 50)
    status, said = start(f"--database=sqlite:///{tmp_path / 'no.db'}")
    assert status == daemon.CANNOT_WORK and "file is not a database" in said


def test_a_database_of_a_later_version_cannot_work(start, tmp_path):
    with sqlite3.connect(tmp_path / "later.db") as later:
        later.execute("create table alembic_version (version_num varchar(32) not null)")
        later.execute("insert into alembic_version values ('9999')")
    status, said = start(f"--database=sqlite:///{tmp_path / 'later.db'}")
    assert status == daemon.CANNOT_WORK
    assert "is of version 9999, which this sluiced does not know" in said


def test_a_database_that_is_not_there_now_may_come(start, tmp_path):
    """Its server starts, or its file system is mounted, later."""
    status, said = start(f"--database=sqlite:///{tmp_path / 'away' / 'x.db'}")
    assert status == daemon.FAILED_NOW and "unable to open database file" in said


def test_another_sluiced_may_end(start, tmp_path):
    (tmp_path / "run").mkdir()
    arguments = configuration.argument_parser().parse_args([f"--run-dir={tmp_path / 'run'}"])
    with daemon.take_lock(configuration.load(arguments)):
        status, said = start()
    assert status == daemon.FAILED_NOW and "is in use by another sluiced" in said
