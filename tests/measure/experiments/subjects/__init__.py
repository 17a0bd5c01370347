# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment compares: Sluice and its peers, each as one way to set a rate.

A subject is entered with a guest, sets or lifts a rate any number of times, and
leaves nothing behind when it is left.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from measure.experiments.bars import UNLIMITED
from measure.experiments.load_class import LoadClass, Setting
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


class Unlimited:
    """No limit: the control. What it cannot do, no limit has kept it from."""

    name = UNLIMITED

    def open(self, _testbed: Testbed, _guest: Guest) -> None:
        """Nothing is needed."""

    def set_rate(self, rate_bps: int | None) -> None:
        """Whatever rate is set for the others."""

    def close(self) -> None:
        """Nothing was made."""


class Sluice:
    """The shaper: a limit of the load's class on one resource, default burst.

    ``policy`` says how the limit is used: token-bucket, or leaky-bucket (TAP §4.2).
    Requests are charged what they ask for: by default a disk's are charged a page at
    least, and smaller ones would pass at a fraction of the rate.
    """

    def __init__(self, load: LoadClass, resource: str, policy: str = TOKEN_BUCKET):
        self.name = "sluice" if policy == TOKEN_BUCKET else "sluice leaky"
        self._load = load
        self._resource = resource
        self._policy = policy

    def open(self, _testbed: Testbed, _guest: Guest) -> None:
        body = {"policy": self._policy, "minimum_charge_bytes": 0}
        self._load.call("PUT", f"scheduling/{self._resource}", body)

    def set_rate(self, rate_bps: int | None) -> None:
        if rate_bps is None:
            self._load.call("DELETE", f"limits/{self._resource}")
        else:
            self._load.call("PUT", f"limits/{self._resource}", {"bytes_per_second": rate_bps})
        self._load.await_setting(self._resource, Setting(rate_bps, self._policy, 0))

    def close(self) -> None:
        """The last ``set_rate(None)`` left no limit."""
        self._load.call("DELETE", f"scheduling/{self._resource}")
