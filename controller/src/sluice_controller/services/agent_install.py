# SPDX-License-Identifier: GPL-2.0-or-later
"""Installs Sluice's agent in a running guest, through the QEMU guest agent there.

The guest needs no network and no account: an archive of the agent is written to /run of the
guest piece by piece, and its script is run. The archive is the package's, and the same for
guests of every distribution with systemd.
"""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..domain.errors import Conflict, NotFound, SluiceError, Unavailable
from ..domain.events import Subject
from ..domain.guests import InstallBody
from .catalogue import audited
from .ports import Clock, Host, Store

Value = TypeVar("Value")

# Of the archive, for one command. With 192 KiB the agent of a Debian 13 guest read broken JSON.
PIECE_BYTES = 32 * 1024
POLL_SECONDS = 0.25
# Each has a thread of the API waiting.
MOST_INSTALLATIONS = 2
NEEDED = (
    "guest-file-open",
    "guest-file-write",
    "guest-file-close",
    "guest-exec",
    "guest-exec-status",
)
SCRIPT = """set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder" "$0"' EXIT
tar -xzf "$0" -C "$folder"
sh "$folder/sluice-agent/install.sh"
"""


class GuestCommands(Protocol):
    def ask(self, domain: str, command: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of the guest's QEMU guest agent; Conflict or Unavailable."""
        ...


@dataclass(eq=False)
class AgentInstaller:
    """`monotonic` is in seconds; `pause` says if sluiced ends."""

    store: Store
    host: Host
    guests: GuestCommands
    archive: Path
    monotonic: Callable[[], float]
    clock: Clock
    pause: Callable[[float], bool]

    def __post_init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MOST_INSTALLATIONS)

    def install(self, domain: str, body: InstallBody) -> dict[str, str]:
        """{domain, said}: the last line of the guest's script."""
        guest = self.host.guest(domain)
        if guest.live is None:
            raise Conflict("domain", domain, f"is {guest.state}", "start it, then repeat")
        archive = self._archive()
        if not self._slots.acquire(blocking=False):
            raise Conflict(
                "agent of domain",
                domain,
                f"waits: {MOST_INSTALLATIONS} other guests are being installed",
                "try again when one of them is done",
            )
        try:
            said = self._install(domain, archive, body.seconds)
        finally:
            self._slots.release()
        about = Subject((domain,))
        with self.store.transaction() as unit:
            audited(unit, self.clock, "install agent", domain, None, said, about)
        return {"domain": domain, "said": said}

    def _archive(self) -> bytes:
        try:
            return self.archive.read_bytes()
        except OSError as error:
            raise NotFound(
                "archive of the agent",
                str(self.archive),
                f"cannot be read ({error.strerror})",
                "install the package sluice-agent-archive on this host",
            ) from error

    def _install(self, domain: str, archive: bytes, seconds: int) -> str:
        self._check_commands(domain)
        # Only the guest's root writes to /run.
        path = f"/run/sluice-agent-{secrets.token_hex(8)}.tar.gz"
        self._write(domain, path, archive)
        return self._run(domain, ["/bin/sh", "-c", SCRIPT, path], seconds)

    def _check_commands(self, domain: str) -> None:
        known = self._told(domain, "guest-info", {}, "supported_commands", list)
        try:
            enabled = {one["name"] for one in known if one["enabled"]}
        except (KeyError, TypeError) as error:
            raise _nonsense(domain, "guest-info") from error
        blocked = next((one for one in NEEDED if one not in enabled), None)
        if blocked is not None:
            raise Conflict(
                f"QEMU guest agent of domain {domain}: command",
                blocked,
                "is blocked in the guest",
                "allow it there (/etc/sysconfig/qemu-ga or /etc/qemu/qemu-ga.conf), restart "
                "qemu-guest-agent, then repeat; or install the agent by hand",
            )

    def _write(self, domain: str, path: str, content: bytes) -> None:
        handle = self.guests.ask(domain, "guest-file-open", {"path": path, "mode": "wb"})
        try:
            self._write_pieces(domain, path, handle, content)
        except SluiceError:
            # The first failure is the one to tell.
            with suppress(SluiceError):
                self.guests.ask(domain, "guest-file-close", {"handle": handle})
            raise
        self.guests.ask(domain, "guest-file-close", {"handle": handle})

    def _write_pieces(self, domain: str, path: str, handle: int, content: bytes) -> None:
        for at in range(0, len(content), PIECE_BYTES):
            piece = content[at : at + PIECE_BYTES]
            text = base64.b64encode(piece).decode()
            arguments = {"handle": handle, "buf-b64": text}
            written = self._told(domain, "guest-file-write", arguments, "count", int)
            if written != len(piece):
                raise Unavailable(
                    f"{path} in domain",
                    domain,
                    f"took {written} of {len(piece)} bytes",
                    "see that /run of the guest has room",
                )

    def _run(self, domain: str, words: list[str], seconds: int) -> str:
        path, *arguments = words
        program = {"path": path, "arg": arguments, "capture-output": True}
        process = {"pid": self._told(domain, "guest-exec", program, "pid", int)}
        until = self.monotonic() + seconds
        while True:
            state = self.guests.ask(domain, "guest-exec-status", process)
            if _member(domain, "guest-exec-status", state, "exited", bool):
                return _outcome(domain, state)
            if self.monotonic() > until or self.pause(POLL_SECONDS):
                raise Unavailable(
                    "installation in domain",
                    domain,
                    f"has not ended within {seconds} s",
                    "look at the guest's processes; it may still end well: sluice list",
                )

    def _told(
        self, domain: str, command: str, arguments: Mapping[str, Any], name: str, kind: type[Value]
    ) -> Value:
        return _member(domain, command, self.guests.ask(domain, command, arguments), name, kind)


def _member(domain: str, command: str, answer: Any, name: str, kind: type[Value]) -> Value:
    """The answer's member of that name. A guest answers with anything."""
    value = answer.get(name) if isinstance(answer, Mapping) else None
    if not isinstance(value, kind):
        raise _nonsense(domain, command)
    return value


def _nonsense(domain: str, command: str) -> Unavailable:
    return Unavailable(
        "QEMU guest agent of domain",
        domain,
        f"answers {command} with nonsense",
        "restart qemu-guest-agent in the guest",
    )


def _text(state: Mapping[str, Any], stream: str) -> str:
    """The last line that the script wrote. The guest is not trusted with the rest."""
    try:
        raw = base64.b64decode(state.get(stream, ""))
    except (ValueError, TypeError):
        return ""
    lines = raw[-2000:].decode(errors="replace").strip().splitlines()
    return "".join(c if c.isprintable() else "\ufffd" for c in lines[-1]) if lines else ""


def _outcome(domain: str, state: Mapping[str, Any]) -> str:
    if state.get("exitcode") == 0:
        return _text(state, "out-data")
    why = _text(state, "err-data") or _text(state, "out-data") or "it said nothing"
    raise Conflict(
        "installation in domain",
        domain,
        f"failed in the guest ({why})",
        "correct that in the guest, then repeat; nothing else was changed there",
    )
