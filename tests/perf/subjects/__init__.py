# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment compares: Sluice and its peers, each as one way to set a rate.

A subject is entered with a guest, sets or lifts a rate any number of times, and
leaves nothing behind when it is left.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from testbed import Guest, Testbed

TOKEN_BUCKET, LEAKY_BUCKET = "token-bucket", "leaky-bucket"


class Subject(Protocol):
    """One way to limit a guest's I/O. ``name`` is what reports call it."""

    name: str

    def open(self, testbed: Testbed, guest: Guest) -> None:
        """Prepare; the guest is running. Raises Unavailable if it cannot work here."""

    def set_rate(self, rate_bps: int | None) -> None:
        """Limit to so many bytes per second; None lifts the limit."""

    def close(self) -> None:
        """Take away what ``open`` made."""


class Unavailable(Exception):
    """A peer cannot be had on this machine; the text says why."""


@contextlib.contextmanager
def limited(subject: Subject, rate_bps: int) -> Iterator[None]:
    """Hold a rate for the time of the block."""
    subject.set_rate(rate_bps)
    try:
        yield
    finally:
        subject.set_rate(None)


class Sluice:
    """The shaper: a limit of the guest's default class on one resource, default burst.

    ``policy`` says how the limit is used: token-bucket, or leaky-bucket (TAP §4.2).
    """

    def __init__(self, resource: str, policy: str = TOKEN_BUCKET):
        self.name = "sluice" if policy == TOKEN_BUCKET else "sluice leaky"
        self._resource = resource
        self._policy = policy
        self._testbed: Testbed | None = None
        self._class = ""

    def open(self, testbed: Testbed, guest: Guest) -> None:
        self._testbed = testbed
        self._class = f"/v1/domains/{guest.name}/classes/default"
        if self._policy != TOKEN_BUCKET:
            self._call("PUT", "scheduling", {"policy": self._policy})

    def _call(self, method: str, what: str, body: dict[str, Any] | None = None) -> None:
        self._testbed.controller.call(method, f"{self._class}/{what}/{self._resource}", body)

    def set_rate(self, rate_bps: int | None) -> None:
        if rate_bps is None:
            self._call("DELETE", "limits")
        else:
            self._call("PUT", "limits", {"bytes_per_second": rate_bps})

    def close(self) -> None:
        """The last ``set_rate(None)`` left no limit."""
        if self._policy != TOKEN_BUCKET:
            self._call("DELETE", "scheduling")
