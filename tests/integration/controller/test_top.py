# SPDX-License-Identifier: GPL-2.0-or-later
"""`sluice top` on a terminal, of a real sluiced."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pytest

from integration.controller.conftest import BIN
from testbed import patience

SECONDS = 60


class Terminal:
    """A pseudo-terminal of 80 columns and 24 lines with `sluice top` in it."""

    def __init__(self, daemon):
        self.end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {
            "SLUICE_SOCKET": str(daemon.socket),
            "SLUICE_TOKEN_FILE": str(daemon.token_file),
            "TERM": "xterm-256color",
        }
        files = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = subprocess.Popen([BIN / "sluice", "top"], env=environment, **files)
        os.close(theirs)
        self.drawn = ""

    def wait_for(self, text):
        """What is drawn from now on has the text."""
        deadline = time.monotonic() + patience.seconds(SECONDS)
        while text not in self.drawn:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.drawn!r}"
            if select.select([self.end], [], [], 0.1)[0]:
                self.drawn += os.read(self.end, 65536).decode(errors="replace")
        self.drawn = ""

    def type(self, keys):
        os.write(self.end, keys.encode())


@pytest.fixture
def terminal(daemon):
    daemon.call("PUT", "/v1/classes/batch", {"title": "Batch"})
    daemon.call("PUT", "/v1/domains/test/classes/batch", {"limits": {}, "dscp": []})
    made = Terminal(daemon)
    yield made
    made.process.kill()
    made.process.wait()
    os.close(made.end)
    daemon.call("DELETE", "/v1/domains/test/classes/batch")
    daemon.call("DELETE", "/v1/classes/batch")


def test_a_limit_is_set_on_the_screen(daemon, terminal):
    terminal.wait_for("batch")
    # By name the class batch is the first one of its domain.
    terminal.type("\x1b[B")
    terminal.wait_for("no figures")
    terminal.type("l")
    terminal.wait_for("RESOURCE RATE")
    terminal.type("blk-read 20MB/s\r")
    terminal.wait_for("/20M")
    grants = daemon.call("GET", "/v1/domains/test")["classes"]
    (limits,) = [grant["limits"] for grant in grants if grant["class"] == "batch"]
    assert limits["blk-read"]["bytes_per_second"] == 20e6
    terminal.type("q")
    assert terminal.process.wait(timeout=patience.seconds(SECONDS)) == 0


def test_into_a_pipe_it_is_text(daemon):
    done = daemon.cli("top", "--batch", "--iterations", "2", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("NAME") == 2 and done.stdout.count("test") >= 2
