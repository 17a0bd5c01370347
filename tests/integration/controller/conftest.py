# SPDX-License-Identifier: GPL-2.0-or-later
"""A private sluiced in a folder of its own, on libvirt's built-in test driver.

The driver keeps its domains inside the process that connects, so each daemon
has its own domain "test", which cannot be shaped. What needs QEMU uses the
shared host of `tests/conftest.py` instead.
"""

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from testbed import patience

START_SECONDS = 30
BIN = Path(sys.executable).parent


class Daemon:
    def __init__(self, folder: Path, uri: str = "test:///default", options: tuple = ()):
        self.folder = folder
        self.socket = folder / "run" / "sluiced.sock"
        self.token_file = folder / "etc" / "api-token"
        self.log = folder / "log"
        self.command = [
            str(BIN / "sluiced"),
            f"--state-dir={folder / 'state'}",
            f"--run-dir={folder / 'run'}",
            f"--etc-dir={folder / 'etc'}",
            f"--libvirt-uri={uri}",
            "--group=root",
            "--qemu-group=root",
            *options,
        ]
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + patience.seconds(START_SECONDS)
        while True:
            try:
                if self.request("GET", "/v1/status").status_code == 200:
                    return self
            except (OSError, httpx.TransportError):
                pass
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def request(self, method, path, body=None, **options):
        options.setdefault("headers", {"Authorization": f"Bearer {self.token()}"})
        # Reading the certificates of all authorities would cost ten times the request.
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=False)
        with httpx.Client(
            transport=transport, base_url="http://sluiced", timeout=patience.seconds(30)
        ) as client:
            if body is not None:
                options["json"] = body
            return client.request(method, path, **options)

    def call(self, method, path, body=None):
        answer = self.request(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def token(self):
        return self.token_file.read_text().strip()

    def cli(self, *arguments):
        return subprocess.run(
            [str(BIN / "sluice"), *arguments],
            capture_output=True,
            text=True,
            timeout=patience.seconds(60),
            env={"SLUICE_SOCKET": str(self.socket), "SLUICE_TOKEN_FILE": str(self.token_file)},
        )

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process is None:
            return None
        self.process.terminate()
        code = self.process.wait(timeout=patience.seconds(20))
        self.process = None
        return code


@pytest.fixture
def make_daemon(tmp_path):
    made = []

    def make(**options):
        folder = tmp_path / f"d{len(made)}"
        folder.mkdir()
        daemon = Daemon(folder, **options)
        made.append(daemon)
        return daemon.start()

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("sluiced")).start()
    yield daemon
    daemon.stop()
