# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands to a running QEMU, by libvirt or by a socket of its own: one at a time."""

import json
import socket
import time
from pathlib import Path
from typing import Any, Self

import libvirt_qemu

from testbed.guest import Guest

ANSWER_SECONDS = 120.0


class QmpError(Exception):
    """A command was refused, or QEMU is gone; the text has QEMU's words."""


def ask(guest: Guest, command: str, **arguments: Any) -> Any:
    """Return the answer of the QEMU of libvirt's guest. Raises QmpError if it refuses."""
    request = json.dumps({"execute": command, "arguments": arguments})
    answer = json.loads(libvirt_qemu.qemuMonitorCommand(guest.domain, request, 0))
    return _result(f"QEMU of {guest.name}: {command}", answer)


def _result(asked: str, answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise QmpError(f"{asked}: {answer['error']['desc']}")
    return answer["return"]


class Qmp:
    """A connection to one QEMU. A context manager; not for several threads."""

    def __init__(self, path: Path, timeout_seconds: float = 30.0):
        """Connect as soon as QEMU listens; QmpError if it does not in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(str(path))
                break
            except OSError as problem:
                self._socket.close()
                if time.monotonic() > deadline:
                    raise QmpError(f"{path}: {problem}") from None
                time.sleep(0.05)
        self._socket.settimeout(ANSWER_SECONDS)
        self._lines = self._socket.makefile("r")
        self._read()
        self.execute("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise QmpError("QEMU has closed its monitor")
        return json.loads(line)

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run a command and return its result; events are passed over.

        In names of arguments an underscore stands for a hyphen.
        """
        named = {name.rstrip("_").replace("_", "-"): value for name, value in arguments.items()}
        request = {"execute": command, "arguments": named}
        self._socket.sendall(json.dumps(request).encode())
        while True:
            answer = self._read()
            if "event" not in answer:
                return _result(command, answer)
