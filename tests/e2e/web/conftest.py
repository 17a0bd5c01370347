# SPDX-License-Identifier: GPL-2.0-or-later
"""A real sluiced and a real sluice-web for page tests.

sluiced uses libvirt's built-in test driver: its one domain, `test`, has no
QEMU behind it, which is enough for everything but live data of a guest. Tests
with guests live beside the testbed.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

from e2e.browser import chromium, sign_in

BIN = Path(sys.executable).parent
START_SECONDS = 30


@dataclass
class Service:
    """sluiced and sluice-web in folders of their own."""

    folder: Path
    port: int
    password: str = ""
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_sluiced(self) -> None:
        folders = [f"--{name}-dir={self.folder / name}" for name in ("state", "run", "etc")]
        self._start("sluiced", [*folders, "--libvirt-uri=test:///default"])
        _until(lambda: self.controller("GET", "/v1/status").status_code == 200, "sluiced")

    def start_web(self) -> None:
        self._start(
            "sluice-web",
            [
                f"--bind=127.0.0.1:{self.port}",
                f"--controller-socket={self.folder / 'run' / 'sluiced.sock'}",
                f"--token-file={self.folder / 'etc' / 'api-token'}",
                f"--state-dir={self.folder / 'web'}",
            ],
        )
        _until(lambda: httpx.get(f"{self.address}/healthz").status_code == 200, "sluice-web")

    def controller(self, method: str, path: str, **kwargs) -> httpx.Response:
        """Ask sluiced itself, past the web."""
        token = (self.folder / "etc" / "api-token").read_text().strip()
        transport = httpx.HTTPTransport(uds=str(self.folder / "run" / "sluiced.sock"))
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(transport=transport, base_url="http://sluiced") as client:
            return client.request(method, path, headers=headers, **kwargs)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [BIN / name, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )


def _until(ready, name: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if ready():
                return
        except (httpx.HTTPError, FileNotFoundError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"{name} did not answer within {START_SECONDS} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    """Both daemons, up; the first admin's password read where an operator reads it."""
    made = Service(tmp_path_factory.mktemp("service"), _free_port())
    try:
        made.start_sluiced()
        made.start_web()
        shown = [line for line in made.log("sluice-web").splitlines() if "Password:" in line]
        made.password = shown[0].split()[1]
        yield made
    finally:
        for name in list(made.processes):
            made.stop(name)


@pytest.fixture
def batch(service):
    """The class `batch`, granted to the domain `test`, with nothing set."""
    assert service.controller("PUT", "/v1/classes/batch", json={"title": "Batch"}).is_success
    grant = service.controller("PUT", "/v1/domains/test/classes/batch", json={"limits": {}})
    assert grant.is_success, grant.text
    return "batch"


@pytest.fixture
def page(service, tmp_path) -> Iterator[Page]:
    """A signed-in page; what its console complains about fails the test."""
    with chromium(tmp_path / "profile") as context:
        opened = sign_in(context, service.address, "admin", service.password)
        complaints: list[str] = []
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on(
            "console",
            lambda message: (
                complaints.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        yield opened
        assert not complaints
