# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at the host while a run is on, and ends the run when it must.

The run is the main thread, which mostly sleeps and waits. It is ended by a
signal whose handler raises ``Ended`` there; with the first one the reason is
settled, and later ones do not disturb the cleaning up.

Python runs a handler between two of its own steps. A main thread that waits
inside libvirt, which has no time limit, hears nothing: then the run's processes
are ended first, libvirt's daemon among them, and it comes back with an error.
"""

import signal
import threading
import time
import traceback
from types import FrameType

from sluice_nightly import shelf
from sluice_nightly.config import Config
from sluice_nightly.decide import Reason, Watch, must_end
from sluice_nightly.facts import Host

END_SIGNAL = signal.SIGUSR1
UNHEARD_SECONDS = 60.0


class Ended(BaseException):
    """The run ends now. Not an Exception: nothing on the way may swallow it."""


class Ending:
    """Why the run ends early, once that is so. Use it in the main thread."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        # The main thread has the order to end.
        self.heard = threading.Event()
        self._main = threading.main_thread().ident
        self._over = False

    def install(self) -> None:
        """Take SIGTERM, SIGINT and SIGHUP as orders to end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(END_SIGNAL, self._raise)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.reasons or self._over:
            return
        name = signal.Signals(number).name
        self.reasons = [Reason("interrupted", f"The run was ended by {name}")]
        self.heard.set()
        raise Ended

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        self.heard.set()
        if not self._over:
            raise Ended

    def order(self, reasons: list[Reason]) -> None:
        """End the run from another thread."""
        if self.reasons or self._over:
            return
        self.reasons = reasons
        signal.pthread_kill(self._main, END_SIGNAL)

    def over(self) -> None:
        """The run is over: nothing is ended any more."""
        self._over = True


class Watcher:
    """A thread that looks every ``abort.every_s``. A context manager."""

    def __init__(self, config: Config, host: Host, ending: Ending, *, force: bool, limit_s: float):
        self._config, self._host, self._ending = config, host, ending
        self._force, self._limit_s = force, limit_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._deadline = time.monotonic() + limit_s

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._look_on()
        except Exception as problem:
            # Without a watcher nothing would end the run for the host's guests.
            traceback.print_exc()
            sentence = (
                f"The host could not be watched any more: {type(problem).__name__}: {problem}"
            )
            self._end([Reason("watch-failed", sentence)])

    def _end(self, reasons: list[Reason]) -> None:
        self._ending.order(reasons)
        unheard_at = time.monotonic() + UNHEARD_SECONDS
        while not self._ending.heard.is_set() and not self._stop.wait(0.1):
            if time.monotonic() > unheard_at:
                shelf.end_own(self._config)
                return

    def _look_on(self) -> None:
        state = Watch()
        while not self._stop.wait(self._config.abort.every_s):
            if time.monotonic() > self._deadline:
                sentence = f"It took more than {self._limit_s:g} s"
                self._end([Reason("took-too-long", sentence)])
                return
            if self._force:
                continue
            state, reasons = must_end(state, self._host.look(), self._config.abort)
            if reasons and not self._stop.is_set():
                self._end(reasons)
                return
