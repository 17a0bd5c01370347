# SPDX-License-Identifier: GPL-2.0-or-later
"""One poller for all open pages.

A thread asks the controller for the topics of the open pages, each topic at its own
pace, and wakes the subscribers. Without an open page there is no thread and no request.

A topic is a pair (kind, domain or ""). Each has a version that rises when its
content changed, so a subscriber gets each content once. The live topic changes
with every sample.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .problems import Problem

log = logging.getLogger(__name__)
Topic = tuple[str, str]
CONTROLLER: Topic = ("controller", "")
TICK_SECONDS = 0.5
PERIOD_TICKS = {
    "live": 1,
    "processes": 4,
    "programs": 4,
    "streams": 2,
    "auto": 2,
    "domains": 2,
    "domain": 2,
    "told": 2,
    "groups": 2,
}
# Of a guest: its processes, and to viewers the same without arguments.
OF_PROCESSES = frozenset({"processes", "programs"})
# The name of a topic in the stream, where that is another name.
EVENT_NAMES = {"programs": "processes"}
# A page tells from two counts how fast they grow; that they stand still is news too.
ALWAYS_NEWS = frozenset({"groups"})
# The thread ends this long after the last page was closed.
LINGER_SECONDS = 5.0
# Each open page has a stream, and each stream a thread. A browser opens six connections to
# a server at most, so one user's pages need few.
MAX_STREAMS, STREAMS_PER_USER = 48, 8
# A stream that says nothing for this long shows that it is still there.
SILENCE_SECONDS = 5.0
# How soon the end of a page is noticed while there is no news for it.
LOOK_SECONDS = 1.0
STILL_ALLOWED_SECONDS = 10.0


@dataclass
class Content:
    """The last content of a topic."""

    version: int = 0
    # The round of questions in which it was asked for last.
    asked: int = 0
    data: Any = None
    payload: str = ""
    failure: Problem | None = None


@dataclass
class Subscription:
    """One open page: its topics, whose it is, and the version of each topic it has seen."""

    topics: frozenset[Topic]
    user: str = ""
    # The round that had begun when the page was drawn: its answers may be older than the page.
    since: int = 0
    seen: dict[Topic, int] = field(default_factory=dict)


class LiveHub:
    """Polls while there are subscribers and hands out news."""

    def __init__(
        self, fetch: Callable[[Topic], Any], clock: Callable[[], float] = time.time
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._condition = threading.Condition()
        self._subscriptions: list[Subscription] = []
        self._contents: dict[Topic, Content] = {}
        self._thread: threading.Thread | None = None
        self._round = 0

    def subscribe(self, topics: frozenset[Topic], user: str = "") -> Subscription:
        """Register a page and make sure that the poller runs.

        Raises Problem: 429 if the user has too many open, 503 if all users together have.
        """
        with self._condition:
            subscription = Subscription(topics | {CONTROLLER}, user, self._round)
            own = sum(1 for one in self._subscriptions if one.user == user)
            if own >= STREAMS_PER_USER:
                raise _too_many(429, f"open pages of {user}", STREAMS_PER_USER)
            if len(self._subscriptions) >= MAX_STREAMS:
                raise _too_many(503, "open pages", MAX_STREAMS)
            self._subscriptions.append(subscription)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="live-poller", daemon=True)
                self._thread.start()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """The page is gone."""
        with self._condition:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

    def news(self, subscription: Subscription, timeout: float) -> list[tuple[str, str]]:
        """``(event, JSON)`` of each topic that changed; waits up to ``timeout`` for one."""
        with self._condition:
            self._condition.wait_for(lambda: bool(self._unseen(subscription)), timeout)
            topics = self._unseen(subscription)
            for topic in topics:
                subscription.seen[topic] = self._contents[topic].version
            return [
                (EVENT_NAMES.get(topic[0], topic[0]), self._contents[topic].payload)
                for topic in topics
            ]

    def poll(self, tick: int) -> None:
        """Ask for every topic due at this tick, and wake the subscribers."""
        with self._condition:
            self._round += 1
            wanted = {topic for s in self._subscriptions for topic in s.topics} - {CONTROLLER}
            # A page that comes back later must not get old content as new.
            for topic in self._contents.keys() - wanted - {CONTROLLER}:
                del self._contents[topic]
            due = [t for t in sorted(wanted) if self._is_due(t, tick)]
        whole_live: Any = None
        for topic in due:
            failure: Problem | None = None
            try:
                if topic[0] == "live":
                    whole_live = whole_live or self._fetch(("live", ""))
                    data = only_domain(whole_live, topic[1])
                else:
                    data = self._fetch(topic)
            except Problem as problem:
                # A guest without an agent is that page's matter, not everybody's.
                if problem.status in (401, 502, 503) and topic[0] not in OF_PROCESSES:
                    failure = problem
                data = {"problem": problem.body}
            self._publish(topic, data, failure)
        if due:
            # Failures of topics that were not due count, too: they last until the next answer.
            failures = (self._contents[topic].failure for topic in sorted(wanted))
            first = next((failure for failure in failures if failure), None)
            self._publish(CONTROLLER, {"ok": first is None, "problem": first and first.body})

    def _is_due(self, topic: Topic, tick: int) -> bool:
        if topic not in self._contents or tick % PERIOD_TICKS[topic[0]] == 0:
            return True
        return any(
            topic in one.topics and self._contents[topic].asked <= one.since
            for one in self._subscriptions
        )

    def _publish(self, topic: Topic, data: Any, failure: Problem | None = None) -> None:
        with self._condition:
            content = self._contents.setdefault(topic, Content())
            content.failure, content.asked = failure, self._round
            if content.version and content.data == data and topic[0] not in ALWAYS_NEWS:
                # A page that waits for an answer newer than itself has it now.
                self._condition.notify_all()
                return
            content.version += 1
            content.data = data
            content.payload = json.dumps(data, separators=(",", ":"))
            self._condition.notify_all()

    def _unseen(self, subscription: Subscription) -> list[Topic]:
        return [
            topic
            for topic in sorted(subscription.topics)
            if topic in self._contents
            and (topic == CONTROLLER or self._contents[topic].asked > subscription.since)
            and self._contents[topic].version != subscription.seen.get(topic, 0)
        ]

    def _run(self) -> None:
        tick, idle_since = 0, None
        while True:
            started = time.monotonic()
            try:
                self.poll(tick)
            except Exception:
                # One unexpected answer must not silence every open page for good.
                log.exception("polling the controller failed; trying again")
            tick += 1
            with self._condition:
                if self._subscriptions:
                    idle_since = None
                elif idle_since is None:
                    idle_since = started
                elif started - idle_since > LINGER_SECONDS:
                    self._thread = None
                    self._contents.clear()
                    return
            time.sleep(max(TICK_SECONDS - (time.monotonic() - started), 0.05))


def only_domain(live: Any, domain: str) -> Any:
    """The part of ``/v1/live`` that a page about one domain needs."""
    if not domain or not isinstance(live, dict):
        return live
    domains = live.get("domains") or {}
    return {**live, "domains": {domain: domains[domain]} if domain in domains else {}}


def _too_many(status: int, thing: str, most: int) -> Problem:
    return Problem(
        status,
        "too-many-pages",
        "Too many open pages",
        f"{thing}: {most} get live data already, and no more can",
        thing=thing,
        value=most,
        remedy="close one, then reload this one",
    )


def events(
    hub: LiveHub,
    subscription: Subscription,
    still_allowed: Callable[[], bool],
    is_gone: Callable[[], bool],
) -> Iterator[str]:
    """The text of a server-sent event stream; ends when the session or the page does."""
    checked = told = time.monotonic()
    yield "retry: 1000\n\n"
    while not is_gone():
        for name, payload in hub.news(subscription, timeout=LOOK_SECONDS):
            told = time.monotonic()
            yield f"event: {name}\ndata: {payload}\n\n"
        now = time.monotonic()
        if now - told > SILENCE_SECONDS:
            told = now
            yield ": still here\n\n"
        if now - checked > STILL_ALLOWED_SECONDS:
            checked = now
            if not still_allowed():
                return


def passed_on(
    pieces: Iterator[bytes], still_allowed: Callable[[], bool], is_gone: Callable[[], bool]
) -> Iterator[bytes]:
    """The bytes of the controller's own stream, which is never silent for long; ends as above."""
    checked = time.monotonic()
    for piece in pieces:
        now = time.monotonic()
        if now - checked > STILL_ALLOWED_SECONDS:
            checked = now
            if not still_allowed():
                return
        if is_gone():
            return
        yield piece
