# SPDX-License-Identifier: GPL-2.0-or-later
"""How often somebody may try a password.

Failures are counted per key (an address, a user name) over a sliding window.
Pure: time comes in as an argument.
"""

import ipaddress
import threading
from collections import OrderedDict, deque

WINDOW_SECONDS = 60.0
FAILURES_PER_WINDOW = 8
KEYS_KEPT = 4096


def network_of(address: str) -> str:
    """The addresses that one visitor has at least: of IPv6 not one, but 2^64 of them."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(found, "ipv4_mapped", None)
    if found.version == 4 or mapped:
        return str(mapped or found)
    return str(ipaddress.ip_network((found, 64), strict=False))


class SignInThrottle:
    """Counts failures; the oldest keys are forgotten first when there are many."""

    def __init__(
        self, failures: int = FAILURES_PER_WINDOW, window_seconds: float = WINDOW_SECONDS
    ) -> None:
        self._failures = failures
        self._window = window_seconds
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, keys: list[str], now: float) -> float:
        """0 if another try may begin now, else the seconds until one may.

        A try counts as a failure from its beginning until it succeeds: checking a
        password takes long, and many may be tried at the same time.
        """
        with self._lock:
            wait = max((self._wait(key, now) for key in keys), default=0.0)
            if not wait:
                self._count(keys, now)
            return wait

    def succeeded(self, address: str, user: str, begun: float) -> None:
        """The try that began then was none of failing; the user's failures are forgotten.

        Those of the address stay: or the owner of one password could try all others' names,
        with a sign-in of their own between.
        """
        with self._lock:
            self._seen.pop(user, None)
            times = self._seen.get(address)
            if times and begun in times:
                times.remove(begun)

    def _count(self, keys: list[str], now: float) -> None:
        for key in keys:
            self._seen.setdefault(key, deque(maxlen=self._failures)).append(now)
            self._seen.move_to_end(key)
        while len(self._seen) > KEYS_KEPT:
            self._seen.popitem(last=False)

    def _wait(self, key: str, now: float) -> float:
        times = self._seen.get(key)
        if not times or len(times) < self._failures:
            return 0.0
        return max(times[0] + self._window - now, 0.0)
