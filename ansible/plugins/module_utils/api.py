# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""The API of sluiced over its UNIX socket, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import os
import socket
from urllib.parse import quote

from ansible.module_utils.basic import env_fallback

from .rates import shown

SOCKET = "/run/sluice/sluiced.sock"
TOKEN_FILE = "/etc/sluice/api-token"
TIMEOUT_SECONDS = 90

# The environment is the sluice command's own.
ARGUMENTS = {
    "socket": {
        "type": "path",
        "default": SOCKET,
        "fallback": (env_fallback, ["SLUICE_SOCKET"]),
    },
    "token_file": {
        "type": "path",
        "default": TOKEN_FILE,
        "fallback": (env_fallback, ["SLUICE_TOKEN_FILE"]),
        "no_log": False,
    },
}


class ApiError(Exception):
    """A refusal in the API's words, or that it cannot be reached (status 0)."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("sluiced", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Api:
    """Calls of one daemon."""

    def __init__(self, socket_path: str, token_file: str) -> None:
        self._socket = socket_path
        self._token_file = token_file

    @classmethod
    def of(cls, module) -> Api:
        """The daemon that a module's arguments name."""
        return cls(module.params["socket"], module.params["token_file"])

    @property
    def installed(self) -> bool:
        """False before the controller's first start: check mode then foresees."""
        return os.path.exists(self._socket)

    def _token(self) -> str:
        try:
            with open(self._token_file, encoding="ascii") as file:
                return file.read().strip()
        except OSError as error:
            raise ApiError(
                f"token file {self._token_file!r} cannot be read ({error.strerror}): become root,"
                " and see that the role controller ran on this host"
            ) from error

    def call(self, method: str, *parts: object, body: object = None, may_take_seconds: float = 0):
        """``parts`` are the path's segments after /v1. Raises ApiError.

        ``may_take_seconds`` is what sluiced waits for by itself, such as a guest's shutdown.
        """
        path = "/v1/" + "/".join(quote(str(part), safe="") for part in parts)
        headers = {"Authorization": f"Bearer {self._token()}", "X-Sluice-Actor": "ansible"}
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["Content-Type"] = "application/json"
        connection = _UnixConnection(self._socket, TIMEOUT_SECONDS + may_take_seconds)
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(
                f"sluiced at {self._socket!r} cannot be reached ({error}): start it with"
                " 'systemctl start sluiced'"
            ) from error
        finally:
            connection.close()
        return self._result(answer.status, text)

    def _result(self, status: int, text: bytes):
        try:
            value = json.loads(text) if text else None
        except ValueError as error:
            raise ApiError(
                f"sluiced at {self._socket!r} answered {text[:80]!r}, which is not JSON: see that"
                " the socket is sluiced's",
                status,
            ) from error
        if 200 <= status < 300:
            return value
        detail = value.get("detail") if isinstance(value, dict) else None
        raise ApiError(detail or f"sluiced refused with status {status}", status)


def lacking(answers: list, newer: dict) -> list[str]:
    """The members of ``newer`` that this sluiced does not know: its answers have them not.

    A role may meet a daemon of an earlier release, on a host that is upgraded later.
    """
    return [key for key in newer if any(key not in answer for answer in answers)]


def expressible(thing: str, wanted: dict, usual: dict, missing: list[str]) -> dict:
    """``wanted`` without the members that sluiced does not know.

    Raises ApiError for one of them that is not as it usually is.
    """
    for key in missing:
        if wanted.get(key, usual[key]) != usual[key]:
            raise ApiError(
                f"{key} {shown(wanted[key])} of {thing} cannot be set: the sluiced of this host is"
                f" of an earlier release, which has no {key}; upgrade the controller (role"
                f" controller, package sluice-controller), or leave {key} out"
            )
    return {key: value for key, value in wanted.items() if key not in missing}


def differs(present: dict, wanted: dict) -> dict:
    """The members of ``wanted`` that ``present`` has otherwise."""
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def plain_limits(limits: dict) -> dict:
    """The API's limits without the members that are null."""
    return {
        resource: {key: value for key, value in limit.items() if value is not None}
        for resource, limit in (limits or {}).items()
    }
