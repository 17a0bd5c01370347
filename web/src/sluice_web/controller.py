# SPDX-License-Identifier: GPL-2.0-or-later
"""The controller's API over its UNIX socket."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from .problems import Problem

# Reads answer at once, but on a host that is short of processor: there 5 s were not enough.
# Attaching with a restart waits for a guest to shut down: sluiced for as long as it is told,
# which is not read here, and we for the longest and a change.
READ_TIMEOUT_SECONDS = 20.0
CHANGE_TIMEOUT_SECONDS = 90.0
LONGEST_SHUTDOWN_SECONDS = 900
EVENTS_TYPE = "text/event-stream"
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class Answer:
    """An answer of the controller, unread."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        """The decoded body, or the controller's problem as an exception."""
        try:
            data = json.loads(self.body) if self.body else None
        except ValueError:
            raise Problem(
                502,
                "controller-answer",
                "The controller's answer is not JSON",
                detail="sluiced answered with something that is not JSON; are sluiced and"
                " sluice-web of the same version?",
                thing="sluiced",
                value=self.body[:80].decode("utf-8", "replace"),
                remedy="install the same version of both and restart them",
            ) from None
        if self.status >= 400:
            raise controller_problem(self.status, data)
        return data


class Stream:
    """An answer of the controller that goes on; to be closed."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def pieces(self) -> Iterator[bytes]:
        """The bytes as they come, until the controller ends."""
        with contextlib.suppress(httpx.HTTPError):
            yield from self._response.iter_bytes()

    def close(self) -> None:
        self._response.close()


def _read(response: httpx.Response) -> Answer:
    return Answer(
        response.status_code,
        response.headers.get("Content-Type", "application/json"),
        response.content,
        response.headers,
    )


def controller_problem(status: int, data: Any) -> Problem:
    """The controller's problem, passed on; a foreign body gets a plain one."""
    data = data if isinstance(data, dict) else {}
    known = {key: data[key] for key in ("detail", "thing", "value", "remedy") if key in data}
    slug = str(data.get("type", "")).rpartition("/")[2] or "controller"
    return Problem(status, slug, str(data.get("title") or "The controller refused"), **known)


def _timeout_seconds(method: str, path: str) -> float:
    if method == "GET":
        return READ_TIMEOUT_SECONDS
    waits = path.endswith(("/attach", "/detach"))
    return CHANGE_TIMEOUT_SECONDS + (LONGEST_SHUTDOWN_SECONDS if waits else 0)


def path_of(*parts: str | int) -> str:
    """``/v1/…`` with every part quoted, so that a name cannot become a path."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


class Controller:
    """A client that may be shared by threads."""

    def __init__(self, socket: Path, token_file: Path) -> None:
        self._socket = socket
        self._token_file = token_file
        self._lock = threading.Lock()
        self._token: str | None = None
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(
                uds=str(socket), limits=httpx.Limits(max_keepalive_connections=4), retries=1
            ),
            base_url="http://sluiced",
        )

    def call(
        self,
        method: str,
        path: str,
        *,
        actor: str = "web",
        role: str = "viewer",
        query: dict[str, str] | None = None,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. Raises Problem (503) when the controller cannot be reached."""
        # Header values are ASCII; user names are checked to be so when made.
        headers = {**(headers or {}), "X-Sluice-Actor": actor, "X-Sluice-Role": role}
        return _read(self._sent(method, path, query, content, headers))

    def stream(
        self, path: str, *, actor: str, role: str, query: dict[str, str], headers: Mapping[str, str]
    ) -> "Answer | Stream":
        """A GET whose answer may go on; raises as ``call``."""
        headers = {**headers, "X-Sluice-Actor": actor, "X-Sluice-Role": role}
        response = self._sent("GET", path, query, b"", headers, goes_on=True)
        if response.headers.get("Content-Type", "").startswith(EVENTS_TYPE):
            return Stream(response)
        with contextlib.closing(response):
            try:
                response.read()
            except httpx.HTTPError as error:
                raise self._unreachable("GET", path, error) from error
            return _read(response)

    def _sent(self, method, path, query, content, headers, goes_on=False) -> httpx.Response:
        response = self._send(method, path, query, content, headers, goes_on)
        if response.status_code == 401:
            response.close()
            # sluiced made a new token, perhaps: read the file again, once.
            with self._lock:
                self._token = None
            response = self._send(method, path, query, content, headers, goes_on)
        if response.status_code == 401:
            response.close()
            raise self._token_problem("sluiced does not accept it")
        return response

    def get(self, path: str, query: dict[str, str] | None = None) -> Any:
        """GET and decode."""
        return self.call("GET", path, query=query).json()

    def _send(self, method, path, query, content, headers, goes_on) -> httpx.Response:
        request = self._client.build_request(
            method,
            path,
            params=query,
            content=content or None,
            headers={**headers, "Authorization": f"Bearer {self._read_token()}"},
            timeout=_timeout_seconds(method, path),
        )
        try:
            return self._client.send(request, stream=goes_on)
        except httpx.HTTPError as error:
            raise self._unreachable(method, path, error) from error

    def _unreachable(self, method: str, path: str, error: httpx.HTTPError) -> Problem:
        sent = method != "GET" and not isinstance(error, NEVER_SENT)
        made = " This change may have been made; look before you repeat it." if sent else ""
        if isinstance(error, httpx.ReadTimeout):
            waited = _timeout_seconds(method, path)
            detail = f"sluiced has not answered {method} {path} within {waited:g} s"
            again = "see whether it was made" if sent else "try again"
            remedy = (
                f"{again}: the host is short of processor, perhaps (uptime, top). If this lasts,"
                " look at sluiced's log, and restart it"
            )
        else:
            detail = f"sluiced does not answer on {self._socket} ({type(error).__name__}: {error})"
            remedy = "start sluiced (systemctl start sluiced), or look at its log"
        return Problem(
            503,
            "controller-unreachable",
            "The controller does not answer",
            detail=f"{detail}; the limits already set stay in force.{made}"
            f" {remedy[0].upper()}{remedy[1:]}.",
            thing="sluiced",
            value=str(self._socket),
            remedy=remedy,
        )

    def _read_token(self) -> str:
        with self._lock:
            if self._token is None:
                try:
                    self._token = self._token_file.read_text().strip()
                except OSError as error:
                    raise self._token_problem(str(error.strerror)) from error
                if not self._token:
                    raise self._token_problem("the file is empty")
            return self._token

    def _token_problem(self, why: str) -> Problem:
        return Problem(
            503,
            "controller-token",
            "No usable token for the controller",
            detail=f"The token in {self._token_file} cannot be used: {why}. Start sluiced, which"
            " makes it, and let sluice-web's user read it (group sluice).",
            thing="token file",
            value=str(self._token_file),
            remedy="start sluiced, which makes it, and let sluice-web read it (group sluice)",
        )
