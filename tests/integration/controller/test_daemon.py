# SPDX-License-Identifier: GPL-2.0-or-later
"""sluiced as a process: start, stop, token, configuration, libvirt that is away."""

import os
import stat
import subprocess

from testbed import patience


def test_it_ends_cleanly_on_sigterm_and_leaves_no_socket(make_daemon):
    daemon = make_daemon()
    assert daemon.stop() == 0
    assert not daemon.socket.exists()
    assert "Traceback" not in daemon.log.read_text()


def test_the_token_is_private_and_survives_a_restart(make_daemon):
    daemon = make_daemon()
    token = daemon.token()
    assert len(token) >= 32
    assert stat.S_IMODE(os.stat(daemon.token_file).st_mode) == 0o640
    assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o660
    daemon.stop()
    daemon.start()
    assert daemon.token() == token


def test_what_was_set_survives_a_kill(make_daemon):
    daemon = make_daemon()
    daemon.call("PUT", "/v1/classes/batch", {"title": "Batch", "priority": 7})
    limit = {"bytes_per_second": 2e6}
    daemon.call("PUT", "/v1/domains/test/classes/batch", {"limits": {"blk-read": limit}})
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()
    (grant,) = [
        g for g in daemon.call("GET", "/v1/domains/test")["classes"] if g["class"] == "batch"
    ]
    assert grant["limits"]["blk-read"]["bytes_per_second"] == 2e6
    assert grant["priority"] == 7


def test_a_second_daemon_on_the_same_folder_is_refused(make_daemon):
    daemon = make_daemon()
    second = subprocess.run(
        daemon.command, capture_output=True, text=True, timeout=patience.seconds(30)
    )
    assert second.returncode == 1
    assert "is in use by another sluiced" in second.stderr
    assert daemon.request("GET", "/v1/status").status_code == 200


def test_a_bad_configuration_file_is_refused_by_name(tmp_path, make_daemon):
    daemon = make_daemon()
    daemon.stop()
    for text, words in (
        ('libvirt_url = "x"', "libvirt_url"),
        ("log_level = 7", "log_level"),
        ('log_level = "loud"', "loud"),
        ("=", "cannot be read"),
    ):
        (daemon.folder / "etc" / "sluiced.toml").write_text(text)
        run = subprocess.run(
            daemon.command, capture_output=True, text=True, timeout=patience.seconds(30)
        )
        assert run.returncode == 2
        assert words in run.stderr
        assert "Traceback" not in run.stderr
    (daemon.folder / "etc" / "sluiced.toml").write_text('log_level = "debug"')
    daemon.start()


def refusal(daemon, *options: str, status: int = 2) -> str:
    """What sluiced says at a start that fails: one line."""
    command = [*daemon.command, *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=patience.seconds(30))
    assert run.returncode == status
    lines = [line for line in run.stderr.splitlines() if line.startswith("sluiced: ")]
    assert len(lines) == 1 and "Traceback" not in run.stderr, run.stderr
    return lines[0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path, make_daemon):
    daemon = make_daemon()
    daemon.stop()
    (tmp_path / "file").touch()
    for option, name in (("--state-dir", "state_dir"), ("--run-dir", "run_dir")):
        path = tmp_path / "file" / "sluice"
        said = refusal(daemon, f"{option}={path}")
        assert f"{name} '{path}' cannot be made (Not a directory): give a folder that" in said


def test_a_database_that_cannot_be_used_is_named_without_its_password(tmp_path, make_daemon):
    daemon = make_daemon()
    daemon.stop()
    (tmp_path / "no.db").write_text("no database at all, whatever it is called\n" * 50)
    for url, words, status in (
        (f"sqlite:///{tmp_path / 'no.db'}", "(sqlite3.DatabaseError) file is not a database", 2),
        (f"sqlite:///{tmp_path / 'away' / 'x.db'}", "unable to open database file", 1),
        ("nosuch://me:geheim@db.example/x", "database 'nosuch://me:***@db.example/x' cannot be", 2),
        ("geheim", "database '…' cannot be used", 2),
    ):
        said = refusal(daemon, f"--database={url}", status=status)
        assert words in said
        assert "geheim" not in said


def test_without_libvirt_the_api_answers_and_says_so(make_daemon, tmp_path):
    daemon = make_daemon(uri=f"qemu:///system?socket={tmp_path / 'none'}")
    status = daemon.call("GET", "/v1/status")
    assert status["libvirt"]["connected"] is False
    answer = daemon.request("GET", "/v1/domains")
    assert answer.status_code == 503
    problem = answer.json()
    assert problem["thing"] == "libvirt"
    assert "libvirtd" in problem["remedy"]
    daemon.call("PUT", "/v1/classes/batch", {})
    assert daemon.request("PUT", "/v1/domains/x/classes/batch", {}).status_code == 503
    listed = daemon.cli("list")
    assert (listed.returncode, listed.stderr.strip()) == (1, f"sluice: {problem['detail']}")


def test_the_command_says_when_there_is_no_daemon(make_daemon):
    daemon = make_daemon()
    daemon.stop()
    run = daemon.cli("status")
    assert run.returncode == 1
    assert "cannot be reached" in run.stderr
    daemon.token_file.unlink()
    assert "token file" in daemon.cli("status").stderr
