# SPDX-License-Identifier: GPL-2.0-or-later
"""Sluice's own daemons in a testbed: ``sluiced`` and ``sluice-web``."""

import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx

from testbed import paths, patience
from testbed.sandbox import Sandbox, Task

RUN_DIR = Path("/run/sluice")
START_SECONDS = 60.0
END_SECONDS = 30.0
AGENT_SECONDS = 60.0
WEB_PORT = 8480
FORWARD = Path(__file__).with_name("forward.py")


class ServiceError(Exception):
    """A daemon did not start or refused a request; the text has its words."""


def _log_tail(log: Path) -> str:
    text = log.read_text(errors="replace").strip()[-2000:] if log.exists() else ""
    return f"; the end of {log}:\n{text}"


class Controller:
    """sluiced, its API and its command line."""

    def __init__(self, sandbox: Sandbox, libvirt_uri: str, emulator: Path):
        self._sandbox = sandbox
        self._libvirt_uri = libvirt_uri
        self._emulator = emulator
        self._task: Task | None = None
        self._client: httpx.Client | None = None
        self.etc_dir = sandbox.folder / "sluice" / "etc"
        self.state_dir = sandbox.folder / "sluice" / "state"
        self.log = sandbox.folder / "logs" / "sluiced.log"
        # There is one only where a test packs it (``agent_disk.pack``).
        self.agent_archive = sandbox.folder / "sluice-agent.tar.gz"

    @property
    def socket(self) -> Path:
        """The API's socket as a process inside the sandbox sees it."""
        return RUN_DIR / "sluiced.sock"

    @property
    def token_file(self) -> Path:
        return self.etc_dir / "api-token"

    def start(self) -> None:
        """Start sluiced and wait until its API answers."""
        for folder in (self.etc_dir, self.state_dir):
            folder.mkdir(parents=True, exist_ok=True)
        command = [str(paths.program("sluiced"))]
        command += [f"--etc-dir={self.etc_dir}", f"--state-dir={self.state_dir}"]
        command += [f"--run-dir={RUN_DIR}", f"--libvirt-uri={self._libvirt_uri}"]
        command += [f"--emulator={self._emulator}", "--group=root", "--qemu-group=root"]
        command += [f"--agent-archive={self.agent_archive}"]
        self._task = self._sandbox.popen(command, name="sluiced", log=self.log)
        limit_seconds = patience.seconds(START_SECONDS)
        deadline = time.monotonic() + limit_seconds
        while True:
            try:
                if self.request("GET", "/v1/status").status_code == 200:
                    return
            except (httpx.TransportError, OSError):
                pass
            if not self._task.running():
                raise ServiceError(f"sluiced ended at its start{_log_tail(self.log)}")
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"sluiced does not answer after {limit_seconds:g} s{_log_tail(self.log)}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        if self._client:
            self._client.close()
            self._client = None
        if self._task:
            self._task.stop(grace_seconds=10)
            self._task = None

    def end(self) -> None:
        """Have sluiced end by itself, as its service manager does; ``stop`` does not wait."""
        entering = self._task.process.pid
        (sluiced,) = Path(f"/proc/{entering}/task/{entering}/children").read_text().split()
        os.kill(int(sluiced), signal.SIGTERM)
        self._task.wait(patience.seconds(END_SECONDS))
        self.stop()

    def kill(self) -> None:
        """End sluiced without notice, as a crash would."""
        if self._task:
            self._task.signal(9)
        self.stop()

    def running(self) -> bool:
        return self._task is not None and self._task.running()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        token: str | None = None,
    ) -> httpx.Response:
        """Send one request to the API; the answer may be an error.

        ``content`` goes out as it is, instead of ``body`` as JSON.
        """
        if not self._client:
            transport = httpx.HTTPTransport(uds=str(self._sandbox.path(self.socket)))
            self._client = httpx.Client(
                transport=transport,
                base_url="http://sluiced",
                timeout=patience.seconds(90),
                trust_env=False,
            )
        token = self.token_file.read_text().strip() if token is None else token
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if content is None and body is not None:
            # Tests send NaN too, which httpx itself would refuse.
            content = json.dumps(body).encode()
        return self._client.request(method, path, content=content, headers=headers)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request that must succeed; return the answer's JSON, if any."""
        answer = self.request(method, path, body)
        if answer.is_error:
            raise ServiceError(f"{method} {path}: {answer.status_code} {answer.text[:1000]}")
        return answer.json() if answer.content else None

    def wait_for_agent(self, domain: str) -> None:
        """Wait until the domain has its shaper and its agent has said hello."""
        limit_seconds = patience.seconds(AGENT_SECONDS)
        deadline = time.monotonic() + limit_seconds
        while True:
            answer = self.call("GET", f"/v1/domains/{domain}")
            if answer["active"] and answer["agent"]["connected"]:
                return
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{domain}: no shaper or no agent in {limit_seconds:g} s: {answer}"
                )
            time.sleep(0.2)

    def cli(self, *arguments: str, timeout_seconds: float = 90.0) -> CompletedProcess:
        """Run the ``sluice`` command; its exit code is the caller's to judge."""
        return self._sandbox.run(
            [str(paths.program("sluice")), *arguments],
            timeout_seconds=timeout_seconds,
            check=False,
            env={"SLUICE_SOCKET": str(self.socket), "SLUICE_TOKEN_FILE": str(self.token_file)},
        )


class Web:
    """sluice-web inside the sandbox, and a way to it from outside."""

    def __init__(self, sandbox: Sandbox, controller: Controller):
        self._sandbox = sandbox
        self._controller = controller
        self._tasks: list[Task] = []
        self.state_dir = sandbox.folder / "sluice" / "web"
        self.log = sandbox.folder / "logs" / "sluice-web.log"
        self.url = ""
        self.user = "admin"
        self.password = ""

    def start(self) -> None:
        """Start sluice-web, read the first admin's password, make the page reachable."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        command = [str(paths.program("sluice-web"))]
        command += [f"--bind=127.0.0.1:{WEB_PORT}", f"--state-dir={self.state_dir}"]
        command += [f"--controller-socket={self._controller.socket}"]
        command += [f"--token-file={self._controller.token_file}"]
        web = self._sandbox.popen(command, name="sluice-web", log=self.log)
        self._tasks.append(web)
        self._forward()
        self._wait(web)
        found = re.search(r"^\s*Password: (\S+)$", self.log.read_text(), re.MULTILINE)
        if found:
            self.password = found[1]

    def _forward(self) -> None:
        """Listen on this machine's loopback, and have connections served inside."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", WEB_PORT))
            except OSError:
                # The usual port is taken, perhaps by another testbed: any will do.
                listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            listener.setblocking(False)
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            command = [sys.executable, "-I", str(FORWARD), str(listener.fileno())]
            forwarder = self._sandbox.popen(
                [*command, "127.0.0.1", str(WEB_PORT)],
                name="forward",
                log=self._sandbox.folder / "logs" / "forward.log",
                pass_fds=[listener.fileno()],
            )
        self._tasks.append(forwarder)

    def _wait(self, web: Task) -> None:
        limit_seconds = patience.seconds(START_SECONDS)
        deadline = time.monotonic() + limit_seconds
        while True:
            try:
                httpx.get(self.url, timeout=10, trust_env=False)
                return
            except httpx.TransportError:
                pass
            if not web.running():
                raise ServiceError(f"sluice-web ended at its start{_log_tail(self.log)}")
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"sluice-web does not answer after {limit_seconds:g} s{_log_tail(self.log)}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        for task in self._tasks:
            task.stop(grace_seconds=5)
        self._tasks.clear()
