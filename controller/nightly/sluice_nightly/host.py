# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's sluiced and libvirt, as the nightly run asks them. It changes neither."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import libvirt

from sluice_nightly.activity import Counters

API_SECONDS = 60.0
LIBVIRT_SECONDS = 20.0
# The rest of 4xx (a token that sluiced has not read yet, a call it does not know yet) may pass.
FAULTS_OF_WHAT_IS_SENT = (400, 409, 413, 422)


class HostError(Exception):
    """sluiced or libvirt does not answer; the text says which and why."""


class Refused(HostError):
    """sluiced answered and refused; trying again would not help."""


class Controller:
    """sluiced's API over its socket."""

    def __init__(self, socket: Path, token_file: Path):
        self._socket = socket
        self._token_file = token_file

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call ``/v1`` + path; raise HostError, or Refused if the request is at fault."""
        try:
            token = self._token_file.read_text().strip()
        except OSError as problem:
            raise HostError(
                f"the token in {self._token_file} cannot be read ({problem.strerror}): "
                "start sluiced, which makes it, and be root"
            ) from None
        try:
            with httpx.Client(
                transport=httpx.HTTPTransport(uds=str(self._socket), verify=False),
                base_url="http://sluiced",
                timeout=API_SECONDS,
                headers={"Authorization": f"Bearer {token}", "X-Sluice-Actor": "sluice-nightly"},
            ) as client:
                answer = client.request(method, f"/v1{path}", json=body)
        except httpx.HTTPError as problem:
            raise HostError(f"sluiced does not answer on {self._socket} ({problem})") from None
        if answer.is_error:
            try:
                said = answer.json()["detail"]
            except (ValueError, KeyError, TypeError):
                said = answer.text[:300]
            kind = Refused if answer.status_code in FAULTS_OF_WHAT_IS_SENT else HostError
            raise kind(f"{method} {path}: {answer.status_code}: {said}")
        return answer.json()


def playing_streams(streams: list[dict], live: dict) -> tuple[str, ...]:
    """Return the streams whose class moves a tenth of its rate or more, declared or learnt."""
    found = []
    for stream in streams:
        view = live.get("domains", {}).get(stream["domain"]) or {}
        resources = (view.get("classes") or {}).get(stream["class"]) or {}
        most = max((sample["bytes_per_second"] for sample in resources.values()), default=0)
        if most >= stream["nominal"]["bytes_per_second"] / 10:
            found.append(stream["name"])
    return tuple(found)


def _read_stats(uri: str) -> dict[str, Counters]:
    # libvirt prints each error to stderr besides raising it.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    connection = libvirt.openReadOnly(uri)
    try:
        wanted = (
            libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
            | libvirt.VIR_DOMAIN_STATS_BLOCK
            | libvirt.VIR_DOMAIN_STATS_INTERFACE
        )
        flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_RUNNING
        # A guest that is busy with another job is left out of some groups, not waited for.
        flags |= libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        return {
            domain.name(): counters
            for domain, counters in connection.getAllDomainStats(wanted, flags)
        }
    finally:
        connection.close()


def guest_counters(uri: str) -> dict[str, Counters]:
    """Return libvirt's counters of each running guest; HostError if it does not say."""
    answer: list[dict[str, Counters]] = []
    problem: list[str] = []

    def ask() -> None:
        try:
            answer.append(_read_stats(uri))
        except libvirt.libvirtError as error:
            problem.append(str(error))

    # libvirt has no time limit of its own, and a hung daemon must not hang the night.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(LIBVIRT_SECONDS)
    if answer:
        return answer[0]
    raise HostError(problem[0] if problem else f"no answer on {uri} in {LIBVIRT_SECONDS:g} s")
