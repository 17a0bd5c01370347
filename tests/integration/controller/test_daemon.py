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


def test_a_start_that_fails_is_told_in_one_line_and_by_its_status(tmp_path, make_daemon):
    """`tests/unit/controller/test_daemon_start.py` has all that a start may meet."""
    daemon = make_daemon()
    daemon.stop()
    file = daemon.folder / "etc" / "sluiced.toml"
    away = f"sqlite:///{tmp_path / 'away' / 'x.db'}"
    for text, words, status in (
        ('log_level = "loud"', "log_level 'loud' is not a level", 2),
        (f'database = "{away}"', "unable to open database file", 1),
    ):
        file.write_text(text)
        run = subprocess.run(
            daemon.command, capture_output=True, text=True, timeout=patience.seconds(30)
        )
        assert run.returncode == status
        (said,) = [line for line in run.stderr.splitlines() if line.startswith("sluiced: ")]
        assert words in said and "Traceback" not in run.stderr, run.stderr
    file.write_text('log_level = "debug"')
    daemon.start()


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
