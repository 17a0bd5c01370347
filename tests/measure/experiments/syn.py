# SPDX-License-Identifier: GPL-2.0-or-later
"""SYN: the guest's processor time for connections that a limit refuses.

httperf asks a guest's web server for a page, each time by a new connection. Without a limit all
are served; with one, nearly all SYNs are dropped by QEMU. The time is that of the guest's
processors: of the threads of its QEMU that run them, in the host's count, so nothing has to be
asked in the guest meanwhile. Each run has four windows:

* *idle*: nothing is asked of the guest, before the others and after them; the quieter of both
  counts, or a guest that was not at rest yet would make the others cheaper than they are;
* *served*: all connections, no limit;
* *few*: as many connections a second as the limit lets in, no limit;
* *refused*: all connections, with the limit.

The time of the idle window, per second, is taken off the others. What the admitted connections of
the last window cost is known from *few*, and is taken off, too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from measure import loads
from measure.experiments import machine
from measure.experiments.choice import Choice
from measure.experiments.rows import Rows
from measure.experiments.spread import spreads
from measure.qmp import ask
from testbed import FileDisk, Guest, GuestSpec, Testbed, paths, patience, saved
from testbed.clients import parse_httperf

TITLE = "the guest's processor time for refused connections"
REPEATS = 3
PART, SUBJECT = "network", "refused connections"
PORT = 8080
OFFERED_PER_SECOND = 40
LIMIT_PER_SECOND = 1
SECONDS = 15
# A client whose SYN is dropped tries again after 1 s and 3 s, and then gives up.
GIVE_UP_SECONDS = 5
READY_SECONDS = 60
Say = Callable[[str], None]


@dataclass(frozen=True)
class Window:
    """Figures of one window: connections that were served, and processor time of the guest."""

    replies: int
    busy_s: float
    seconds: float

    @property
    def busy_share(self) -> float:
        return self.busy_s / self.seconds


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; return the wanted rows."""
    rows = Rows(say, choice)
    with Testbed("perf-syn") as testbed:
        guest = _guest(testbed)
        rows.add(PART, SUBJECT, partial(_row, testbed, guest, repeats, say))
        return {
            "experiment": "SYN",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"httperf offers {OFFERED_PER_SECOND} connections/s for {SECONDS} s; the limit"
            f" is {LIMIT_PER_SECOND} a second. Times are those of the guest's processors, without"
            " the idle guest's and, beside refused connections, without the admitted ones'.",
            **rows.as_dict(),
        }


def _guest(testbed: Testbed) -> Guest:
    """Return a running guest with a web server and no agent at work: all is of one class."""
    media = FileDisk(paths.image("media-data.img"), readonly=True)
    guest = testbed.add_guest(GuestSpec("small", disks=(media,)), place=50)
    testbed.start_controller()
    machine.attach(testbed, guest)
    saved.start(guest)
    machine.await_shaper(testbed, guest)
    guest.ssh("systemctl stop sluice-agent")
    guest.ssh("cat >/run/serve-http.pl", input=loads.web_server(PORT))
    guest.spawn("exec perl /run/serve-http.pl", unit="syn-server")
    deadline = time.monotonic() + patience.seconds(READY_SECONDS)
    while str(PORT) not in guest.ssh("ss -Htln").stdout:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the guest's server does not listen after {READY_SECONDS} s")
        time.sleep(0.5)
    return guest


def _row(testbed: Testbed, guest: Guest, repeats: int, say: Say) -> dict[str, Any]:
    # The guest's programs are in its memory, and its neighbour is known, before it counts.
    _visit(testbed, guest, OFFERED_PER_SECOND, SECONDS)
    measured = [_measure(testbed, guest, number, say) for number in range(repeats)]
    return {"part": PART, "subject": SUBJECT, "runs": repeats, **spreads(measured)}


def _measure(testbed: Testbed, guest: Guest, number: int, say: Say) -> dict[str, float]:
    idle = _window(guest, partial(_wait, SECONDS))
    served = _window(guest, partial(_visit, testbed, guest, OFFERED_PER_SECOND, SECONDS))
    few = _window(guest, partial(_visit, testbed, guest, LIMIT_PER_SECOND, SECONDS))
    _limit(testbed, guest, {"net-rx": {"connections_per_second": LIMIT_PER_SECOND}})
    try:
        refused = _window(guest, partial(_visit, testbed, guest, OFFERED_PER_SECOND, SECONDS))
    finally:
        _limit(testbed, guest, {})
    idle = min(idle, _window(guest, partial(_wait, SECONDS)), key=lambda one: one.busy_share)
    found = costs(idle, served, few, refused, OFFERED_PER_SECOND * SECONDS)
    say(f"run {number + 1}: idle {idle}, served {served}, few {few}, refused {refused}: {found}")
    return found


def costs(
    idle: Window, served: Window, few: Window, refused: Window, offered: int
) -> dict[str, float]:
    """Return the figures of a run. Raises ValueError if nothing was served or refused."""
    if not served.replies or not few.replies or offered <= refused.replies:
        raise ValueError(
            f"of {offered} connections {served.replies} were served without a limit,"
            f" {few.replies} of the few and {refused.replies} with a limit; nothing is to be told"
        )

    def of_its_own_s(window: Window) -> float:
        return window.busy_s - idle.busy_share * window.seconds

    admitted_s = of_its_own_s(few) / few.replies * refused.replies
    refusals = offered - refused.replies
    served_ms = 1e3 * of_its_own_s(served) / served.replies
    refused_ms = 1e3 * (of_its_own_s(refused) - admitted_s) / refusals
    return {
        "served_ms": served_ms,
        "refused_ms": refused_ms,
        "idle_ms": 1e3 * idle.busy_share,
        "refused_share": refusals / offered,
        "cost_ratio": refused_ms / served_ms,
    }


def _window(guest: Guest, do: Callable[[], int]) -> Window:
    started, before_s = time.monotonic(), _busy_s(guest)
    replies = do()
    return Window(replies, _busy_s(guest) - before_s, time.monotonic() - started)


def _busy_s(guest: Guest) -> float:
    """Return the time that the guest's processors have run so far."""
    threads = guest.threads()
    return sum(threads[one["thread-id"]].ran_s for one in ask(guest, "query-cpus-fast"))


def _wait(seconds: float) -> int:
    time.sleep(seconds)
    return 0


def _visit(testbed: Testbed, guest: Guest, per_second: int, seconds: int) -> int:
    """Return how many connections were served."""
    command = loads.httperf(guest.address, PORT, per_second, per_second * seconds, GIVE_UP_SECONDS)
    limit_s = patience.seconds(seconds + GIVE_UP_SECONDS + 30)
    found = parse_httperf(testbed.client_run(command, timeout_seconds=limit_s).stdout)
    if found is None:
        raise ValueError("httperf printed no summary")
    return found.replies


def _limit(testbed: Testbed, guest: Guest, queues: dict[str, Any]) -> None:
    path = f"/v1/domains/{guest.name}/classes/default"
    testbed.controller.call("PUT", path, {"limits": {}, "queues": queues})
