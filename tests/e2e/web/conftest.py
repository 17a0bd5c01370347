# SPDX-License-Identifier: GPL-2.0-or-later
"""A real sluiced and a real sluice-web for page tests.

sluiced uses libvirt's built-in test driver: its one domain, `test`, has no
QEMU behind it, which is enough for everything but live data of a guest. Tests
with guests live beside the testbed.

Daemons, browser and the admin's session are the run's; each test begins with
sluiced's state as it is after the first start, and with a context of its own.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, StorageState

from e2e.browser import chromium, context, sign_in
from testbed import patience

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
        until(lambda: self.controller("GET", "/v1/status").status_code == 200, "sluiced")

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
        until(
            lambda: httpx.get(f"{self.address}/healthz", verify=False).status_code == 200,
            "sluice-web",
        )

    def controller(self, method: str, path: str, **kwargs) -> httpx.Response:
        """Ask sluiced itself, past the web."""
        token = (self.folder / "etc" / "api-token").read_text().strip()
        # Reading the certificates of all authorities would cost ten times the request.
        transport = httpx.HTTPTransport(uds=str(self.folder / "run" / "sluiced.sock"), verify=False)
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(
            transport=transport, base_url="http://sluiced", timeout=patience.seconds(10)
        ) as client:
            return client.request(method, path, headers=headers, **kwargs)

    def clear(self) -> None:
        """Take away all that a test has made in sluiced, except nights."""
        for stream in self._get("/v1/streams"):
            self._change("DELETE", f"/v1/streams/{stream['name']}")
        for rule in self._get("/v1/rules"):
            self._change("DELETE", f"/v1/rules/{rule['id']}")
        for group in self._get("/v1/groups"):
            for member in group["domains"]:
                self._change("DELETE", f"/v1/groups/{group['name']}/members/{member['domain']}")
            self._change("DELETE", f"/v1/groups/{group['name']}")
        domain = self._get("/v1/domains/test")
        for grant in domain["classes"]:
            if grant["class"] != "default":
                self._change("DELETE", f"/v1/domains/test/classes/{grant['class']}")
        for one in self._get("/v1/classes"):
            if one["name"] != "default":
                self._change("DELETE", f"/v1/classes/{one['name']}")
        if any(domain["ceiling"].values()):
            self._change("PUT", "/v1/domains/test/ceiling", {})
        self._change("PUT", "/v1/auto", {"enabled": False, "dry_run": False})
        self._change("PUT", "/v1/settings", {"uplink": None})

    def forget_nights(self) -> None:
        """Nothing takes a night away: sluiced begins anew with an empty state."""
        if self._get("/v1/nightly"):
            self.stop("sluiced")
            shutil.rmtree(self.folder / "state")
            self.start_sluiced()

    def _get(self, path: str):
        return self.controller("GET", path).json()

    def _change(self, method: str, path: str, body=None) -> None:
        answer = self.controller(method, path, json=body)
        assert answer.is_success, answer.text

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(patience.seconds(15))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [BIN / name, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )


def until(ready, name: str) -> None:
    limit_seconds = patience.seconds(START_SECONDS)
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        try:
            if ready():
                return
        except (httpx.HTTPError, FileNotFoundError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"{name} did not answer within {limit_seconds:g} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def service(tmp_path_factory) -> Iterator[Service]:
    """Both daemons, up; the first admin's password read where an operator reads it."""
    made = Service(tmp_path_factory.mktemp("service"), free_port())
    try:
        made.start_sluiced()
        made.start_web()
        shown = [line for line in made.log("sluice-web").splitlines() if "Password:" in line]
        made.password = shown[0].split()[1]
        yield made
    finally:
        for name in list(made.processes):
            made.stop(name)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="session")
def session(browser, service) -> StorageState:
    """The admin's cookies. A test that signs out needs a session of its own: ``sign_in``."""
    with context(browser) as visitor:
        sign_in(visitor, service.address, "admin", service.password)
        return visitor.storage_state()


@pytest.fixture(autouse=True)
def nothing_is_left(request) -> None:
    """Each test begins as if it were the first."""
    if "service" in request.fixturenames:
        request.getfixturevalue("service").clear()


@pytest.fixture
def batch(service):
    """The class `batch`, granted to the domain `test`, with nothing set."""
    assert service.controller("PUT", "/v1/classes/batch", json={"title": "Batch"}).is_success
    grant = service.controller("PUT", "/v1/domains/test/classes/batch", json={"limits": {}})
    assert grant.is_success, grant.text
    return "batch"


@pytest.fixture
def visit(browser, session) -> Iterator[Callable[..., Page]]:
    """A function that opens an empty page, signed in unless told ``session=None``.

    Its options are those of ``e2e.browser.context``: width, height, dark, scripts.
    """
    with ExitStack() as open_until_the_end:

        def visit(**options) -> Page:
            made = context(browser, **{"session": session, **options})
            return open_until_the_end.enter_context(made).new_page()

        yield visit


@pytest.fixture
def page(service, visit) -> Iterator[Page]:
    """A signed-in page on the overview; what its console complains about fails the test."""
    opened = visit()
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
    opened.goto(service.address)
    yield opened
    assert not complaints
