# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment compares: Sluice and its peers, each as one way to set a rate.

A subject is entered with a guest, sets or lifts a rate any number of times, and
leaves nothing behind when it is left.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from testbed import Guest, Testbed


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
    """The shaper: a limit of the guest's default class on one resource, default burst."""

    def __init__(self, resource: str):
        self.name = "sluice"
        self._resource = resource
        self._testbed: Testbed | None = None
        self._path = ""

    def open(self, testbed: Testbed, guest: Guest) -> None:
        self._testbed = testbed
        self._path = f"/v1/domains/{guest.name}/classes/default/limits/{self._resource}"

    def set_rate(self, rate_bps: int | None) -> None:
        if rate_bps is None:
            self._testbed.controller.call("DELETE", self._path)
        else:
            self._testbed.controller.call("PUT", self._path, {"bytes_per_second": rate_bps})

    def close(self) -> None:
        """The last ``set_rate(None)`` left nothing."""
