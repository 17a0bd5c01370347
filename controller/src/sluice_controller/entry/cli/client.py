# SPDX-License-Identifier: GPL-2.0-or-later
"""The controller's API from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...domain.errors import SluiceError, Unavailable

if TYPE_CHECKING:
    from httpx import Client as HttpClient
    from httpx import Response

DEFAULT_SOCKET = "/run/sluice/sluiced.sock"
DEFAULT_TOKEN_FILE = "/etc/sluice/api-token"
TIMEOUT_SECONDS = 90.0
# An answer that goes on says something each 5 s.
SILENCE_SECONDS = 30.0


class Refused(Exception):
    """A refusal of the API; prints as its `detail`."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        super().__init__(str(problem.get("detail", problem)))


@dataclass(frozen=True)
class Client:
    socket: Path
    token_file: Path
    timeout_seconds: float = TIMEOUT_SECONDS

    def _token(self) -> str:
        try:
            return self.token_file.read_text().strip()
        except OSError as error:
            raise Unavailable(
                "token file",
                str(self.token_file),
                f"cannot be read ({error.strerror})",
                "run as root or as a member of the group sluice, or give --token-file",
            ) from error

    def call(
        self,
        method: str,
        *parts: str | int,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        may_take_seconds: float = 0.0,
    ) -> Any:
        """`parts` are path segments after /v1; each is escaped by itself.

        `may_take_seconds` is sluiced's own wait, as for a guest's shutdown.
        """
        path = _path(parts)
        headers = self._headers()
        content = None
        if body is not None:
            # With NaN and infinity, which the API refuses by their names.
            content = json.dumps(body)
            headers["Content-Type"] = "application/json"
        with self._http(self.timeout_seconds + may_take_seconds) as http:
            answer = http.request(method, path, content=content, params=query, headers=headers)
        return _result(answer)

    @contextmanager
    def lines(
        self, *parts: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Iterator[Iterator[str]]:
        """The lines of an answer that goes on, as they come; Unavailable where it breaks off."""
        headers = {**self._headers(), **headers}
        with (
            self._http(SILENCE_SECONDS) as http,
            http.stream("GET", _path(parts), params=query, headers=headers) as answer,
        ):
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                answer.read()
                raise _refusal(answer)
            yield answer.iter_lines()

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token()}"}

    @contextmanager
    def _http(self, timeout: float) -> Iterator[HttpClient]:
        # Imported for a question only: help and completion of words do not wait for it.
        import httpx

        # Reading the certificates of all authorities would cost a third of a command's time; a
        # socket of this machine has none.
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=False)
        try:
            with httpx.Client(
                transport=transport, base_url="http://sluiced", timeout=timeout
            ) as http:
                yield http
        except httpx.TransportError as error:
            raise Unavailable(
                "sluiced",
                str(self.socket),
                f"cannot be reached ({error})",
                "start it with 'systemctl start sluiced', or give --socket",
            ) from error


def _path(parts: Iterable[str | int]) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def _result(answer: Response) -> Any:
    if answer.is_success and not answer.content:
        return None
    found = _json(answer)
    if answer.is_success and found is not None:
        return found
    raise _refusal(answer)


def _json(answer: Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _refusal(answer: Response) -> Exception:
    found = _json(answer)
    if isinstance(found, dict) and not answer.is_success:
        return Refused(found)
    return SluiceError(
        "answer of sluiced",
        answer.text[:200],
        f"is not what the API answers (status {answer.status_code})",
        "see that --socket is sluiced's",
    )
