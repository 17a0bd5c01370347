# SPDX-License-Identifier: GPL-2.0-or-later
"""Sluice's REST interface, used as its page uses it: signed in, with a CSRF token.

Also the stream probe's way to the controller, which does not need the web.
"""

import re
from pathlib import Path
from typing import Any

import httpx

from testbed import patience

TIMEOUT_SECONDS = 30.0


class ApiError(Exception):
    """Sluice refused a request; the text has its words."""


def _answer(response: httpx.Response) -> Any:
    if response.is_error:
        try:
            problem = response.json()
            said = problem.get("detail") or problem.get("title")
        except ValueError:
            said = response.text[:500]
        request = response.request
        raise ApiError(f"{request.method} {request.url.path}: {response.status_code}: {said}")
    return response.json() if response.content else None


class WebApi:
    """A session of sluice-web. May be used from several threads."""

    def __init__(self, address: str, user: str, password: str):
        self._client = httpx.Client(
            base_url=address, timeout=patience.seconds(TIMEOUT_SECONDS), trust_env=False
        )
        page = self._client.get("/sign-in").text
        form = re.search(r'name="csrf_token" value="([^"]+)"', page)
        if not form:
            raise ApiError(f"{address}sign-in: the page has no sign-in form")
        body = {"csrf_token": form[1], "user": user, "password": password, "next": "/"}
        answer = self._client.post("/sign-in", data=body, follow_redirects=True)
        token = re.search(r'name="csrf-token" content="([^"]+)"', answer.text)
        if answer.is_error or not token:
            raise ApiError(f"{address}sign-in: {answer.status_code} for user {user}")
        self._client.headers["X-CSRF-Token"] = token[1]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call ``/api/v1`` + path; return the answer's JSON, if any."""
        return _answer(self._client.request(method, f"/api/v1{path}", json=body))

    def close(self) -> None:
        self._client.close()


def _controller_client(socket: Path, token_file: Path, actor: str) -> httpx.Client:
    token = token_file.read_text().strip()
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=str(socket)),
        base_url="http://sluiced",
        timeout=patience.seconds(TIMEOUT_SECONDS),
        headers={"Authorization": f"Bearer {token}", "X-Sluice-Actor": actor},
    )


class ControllerApi:
    """These calls straight to sluiced, where no web runs."""

    def __init__(self, socket: Path, token_file: Path):
        self._client = _controller_client(socket, token_file, "demo")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call ``/v1`` + path; return the answer's JSON, if any."""
        return _answer(self._client.request(method, f"/v1{path}", json=body))

    def close(self) -> None:
        self._client.close()


class ProbeApi:
    """A client's reports on its stream, straight to the controller."""

    def __init__(self, socket: Path, token_file: Path, stream: str):
        self._client = _controller_client(socket, token_file, "stream-probe")
        self._path = f"/v1/streams/{stream}/reports"

    def report(self, body: dict[str, float]) -> str:
        """Send one window; return the verdict."""
        return _answer(self._client.post(self._path, json=body))["verdict"]

    def close(self) -> None:
        self._client.close()
