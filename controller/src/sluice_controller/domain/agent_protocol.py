# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's side of the agent protocol (`docs/specs/agent-protocol.md`).

A session takes lines in and gives messages out; it does no I/O, and time is an argument. The
guest is hostile: lines are bounded before they are parsed, every value is checked before it is
kept, and breaches are counted. More than ten in a minute end the connection for a minute, and
so do more bytes than an honest agent sends.

A guest may also be slow, on a busy host by seconds. Repeated questions would then make it
slower still: one greeting at a time waits for its answer, further ones come ever more rarely,
and rules are sent once. An agent answers requests in their order, so an answer tells whether an
earlier request was lost.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .agent_messages import (
    MAX_LINE_BYTES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Breach,
    Line,
    Table,
    parse_hello,
    parse_param_error,
    parse_pids,
    parse_refused,
    parse_streams,
    printable,
    read_line,
    text_of,
    whole_of,
)

BREACHES_ALLOWED = 10
BREACH_WINDOW_S = 60.0
BAN_S = 60.0
# An agent that says nothing for this long may have been restarted: greet again.
SILENCE_S = 3.0
# While a greeting is not answered the next one waits twice as long as the one before,
# and at most this: the guest may have lost it, by a reset for instance.
LONGEST_PAUSE_S = 15.0
# At a time; an unanswered preview holds its place.
MOST_PREVIEWS = 8
# A table of older rules this long after they were sent: the call may have been lost.
BEHIND_S = 2.0
# Requests of another host travel with a guest, and are answered here. So are requests of
# earlier connections in a port of 128 buffers.
STRANGERS_ALLOWED = 256
# Without a reader of tables: enough to see which assigned processes are still there.
INTERVAL_MS = 10_000
# An asker gets a table as young as this; an older one is asked for anew, and waited for
# a moment.
FRESH_S = 1.5
TABLE_ANSWER_S = 1.0
# More tables than this in a minute are a breach. It is counted over a minute,
# since a busy host or guest delays honest tables, which then come together.
TABLES_PER_MINUTE = 300
# An agent tells of round trips each 100 ms at most.
STREAMS_PER_MINUTE = 700
# An agent at the limit of its lines sends 60 MiB.
BYTES_PER_MINUTE = 96 << 20
LONGEST_LOG_CHARS = 2000
# An agent sends 30 at most.
LOGS_PER_MINUTE = 40
# The part of a processor that one guest may take, 3 s of a minute, and how long it may be ahead of
# that: half a second's work at once.
PROCESSOR_SHARE = 0.05
AHEAD_S = 10.0


@dataclass
class Breaches:
    """Counted over connections: reconnecting does not wash them away."""

    times: deque[float] = field(default_factory=deque)
    banned_until: float = 0.0
    received_bytes: int = 0
    received_since: float = 0.0

    def add_bytes(self, count: int, now: float) -> bool:
        """True if they are too many for this minute, which ends the connection."""
        if now - self.received_since >= BREACH_WINDOW_S:
            self.received_since, self.received_bytes = now, 0
        self.received_bytes += count
        if self.received_bytes <= BYTES_PER_MINUTE:
            return False
        self.banned_until = now + BAN_S
        return True

    def add(self, now: float) -> bool:
        """True if this one ends the connection."""
        self.times.append(now)
        while self.times and self.times[0] <= now - BREACH_WINDOW_S:
            self.times.popleft()
        if len(self.times) < BREACHES_ALLOWED:
            return False
        self.times.clear()
        self.banned_until = now + BAN_S
        return True


@dataclass
class Pace:
    """How fast a guest is read: it pays for its cost in time, over all connections."""

    # The time at which its cost so far is paid.
    paid_at: float = 0.0

    def spend(self, processor_s: float, now: float) -> None:
        self.paid_at = max(self.paid_at, now) + processor_s / PROCESSOR_SHARE

    def may_read(self, now: float) -> bool:
        return self.paid_at - now <= AHEAD_S


@dataclass
class Preview:
    """An agent's answer about a rule; empty until it has answered."""

    match: Mapping[str, str]
    pids: list[int] | None = None
    # The part of the match that it refuses, and why.
    refused: tuple[str, str] | None = None
    # Why it is not asked, or gives no answer that helps.
    untold: str | None = None

    @property
    def is_over(self) -> bool:
        return (self.pids, self.refused, self.untold) != (None, None, None)


def _count(times: deque[float], now: float, most: int, things: str) -> None:
    """Raises Breach for more than `most` of them in a minute."""
    times.append(now)
    while times[0] <= now - 60:
        times.popleft()
    if len(times) > most:
        raise Breach(f"more than {most} {things} in a minute")


@dataclass(frozen=True)
class _Asked:
    method: str
    params: Mapping[str, Any]
    preview: Preview | None = None


class Session:
    """One connection to an agent.

    Requests are numbered from ``first_id``, which should be another one each time: answers
    to an earlier connection must not be taken for this one's.
    """

    def __init__(self, now: float, breaches: Breaches, revision: int, first_id: int = 1) -> None:
        self.breaches = breaches
        self.revision = revision
        self.hello: dict[str, Any] | None = None
        self.table: Table | None = None
        self.table_at = 0.0
        self._wants_table = False
        self._table_asked_at = 0.0
        self.matched: int | None = None
        # The rules that are not in force: {id: why}.
        self.refused: dict[str, str] = {}
        self._previews: list[Preview] = []
        self.refusal: str | None = None
        self.breach: str | None = None
        self.logs: deque[tuple[str, str]] = deque(maxlen=100)
        self._wanted: dict[str, Any] | None = None
        # On its way or in force; to be sent again once that is None.
        self._sent_revision: int | None = None
        self._answered_revision: int | None = None
        self._refused_revision: int | None = None
        self._sent_at = 0.0
        self.heard_at = now
        # It may be another one: a table was of other rules, or it sent a log.
        self._doubts = True
        # Why it was greeted last: for that, and not for its silence.
        self._greeted_in_doubt = True
        self._log_times: deque[float] = deque()
        self._table_times: deque[float] = deque()
        self._streams_times: deque[float] = deque()
        # By record: when it was told of, its class's tag, and its round trip with the least of it.
        self.round_trips: dict[int, tuple[float, int, int, int]] = {}
        # Somebody wants them; and the agent knows.
        self._wants_streams = self._watches_streams = False
        self._replies: list[bytes] = []
        self._greet_at = now
        self._pause_s = SILENCE_S
        self._lines = 0
        self._first_id = self._next_id = first_id
        # In the order in which they were asked.
        self._pending: dict[int, _Asked] = {}
        # Asked and given up on; each may still be answered, once.
        self._given_up = 0
        self._strangers = 0
        self._has_answered = False

    # Out

    def _request(
        self, method: str, params: Mapping[str, Any], preview: Preview | None = None
    ) -> bytes:
        request_id, self._next_id = self._next_id, self._next_id + 1
        # An agent that never answers must not make this grow. An agent that starts long after
        # its guest finds every greeting since then in its port.
        while len(self._pending) >= 32:
            del self._pending[min(self._pending)]
            self._given_up += 1
        self._pending[request_id] = _Asked(method, params, preview)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return json.dumps(message).encode() + b"\n"

    def want_rules(self, payload: Mapping[str, Any]) -> None:
        """Sets the rules for the agent; `due` sends them when they differ."""
        if payload != self._wanted:
            self._wanted = dict(payload)
            self.revision += 1

    def ask_table(self, now: float) -> bool:
        """Has a newer table asked for, unless this one is fresh; whether it may come soon."""
        is_fresh = self.table is not None and now - self.table_at < FRESH_S
        if self.hello is None or is_fresh:
            return False
        waited_s = now - self._table_asked_at
        if self._awaits("get_processes") and waited_s < LONGEST_PAUSE_S:
            # A slow guest is not waited for again.
            return waited_s < TABLE_ANSWER_S
        self._wants_table = True
        return True

    def want_streams(self) -> None:
        """From now on the agent tells of streams' round trips, if it can."""
        self._wants_streams = True

    def ask_preview(self, match: Mapping[str, str]) -> Preview:
        """The agent's answer is written into the returned preview."""
        preview = Preview(match)
        if self.hello is None:
            preview.untold = "its agent has not answered yet"
        elif self.hello["protocol"] < PROTOCOL:
            preview.untold = "its agent is too old to say: install the present one"
        elif len(self._previews) + self._awaits("preview_rule") >= MOST_PREVIEWS:
            preview.untold = "its agent has others to try: try again later"
        else:
            self._previews.append(preview)
        return preview

    def due(self, now: float) -> list[bytes]:
        """The lines to send now."""
        out, self._replies = self._replies, []
        silent = now - self.heard_at > SILENCE_S
        if (self.hello is None or silent or self._doubts) and now >= self._greet_at:
            out.append(self._greeting(now))
        if self.hello and self._wanted is not None and self._sent_revision != self.revision:
            self._sent_revision, self._sent_at = self.revision, now
            out += self._rules()
        if self._wants_table and self.hello:
            self._wants_table, self._table_asked_at = False, now
            out.append(self._request("get_processes", {}))
        if self.hello and self._wants_streams and not self._watches_streams:
            self._watches_streams = True
            out.append(self._request("watch_streams", {}))
        previews, self._previews = self._previews, []
        out += [self._request("preview_rule", {"match": dict(p.match)}, p) for p in previews]
        return out

    def _awaits(self, method: str) -> int:
        return sum(asked.method == method for asked in self._pending.values())

    def _greeting(self, now: float) -> bytes:
        is_awaited = self._awaits("hello")
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if is_awaited else SILENCE_S
        self._greet_at = now + self._pause_s
        self._greeted_in_doubt, self._doubts = self._doubts, False
        return self._request("hello", {"protocol": PROTOCOL})

    def _rules(self) -> list[bytes]:
        params = {"revision": self.revision, "interval_ms": INTERVAL_MS, **(self._wanted or {})}
        message = self._request("set_rules", params)
        if len(message) <= MAX_LINE_BYTES:
            return [message]
        self._pending.popitem()
        self._refused_revision = self.revision
        self.refusal = (
            f"the rules are {len(message)} bytes long, and an agent reads {MAX_LINE_BYTES}: "
            "remove some, or shorten what they match"
        )
        return []

    # In

    def on_line(self, line: bytes | None, now: float) -> bool:
        return self.take(read_line(line), now)

    def take(self, line: Line, now: float) -> bool:
        """Takes a line that was read; False if the connection has to end."""
        self._lines += 1
        if not line.is_read:
            self._reply(None, -32700, "not a JSON-RPC line")
        try:
            if line.breach is not None:
                raise line.breach
            self._take(line.message or {}, line.table, now)
        except Breach as breach:
            if self._lines == 1:
                # The rest of a line that an earlier connection cut.
                return True
            self.breach = f"the agent sent {breach}"
            return not self.breaches.add(now)
        self.heard_at = now
        return True

    def _reply(self, request_id: Any, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        message = {"jsonrpc": "2.0", "id": request_id, "error": error}
        self._replies.append(json.dumps(message).encode() + b"\n")

    def _take(self, message: dict[str, Any], table: Table | None, now: float) -> None:
        method = message.get("method")
        if method == "processes":
            self._take_table(table, now)
        elif method == "log":
            self._take_log(message.get("params"), now)
        elif method == "streams":
            self._take_streams(message.get("params"), now)
        elif method is not None:
            request_id = message.get("id")
            if isinstance(request_id, int) or (
                isinstance(request_id, str) and len(request_id) <= 64
            ):
                self._reply(request_id, -32601, "the host has no methods")
            raise Breach("a method that the host does not have")
        elif "result" in message:
            self._take_result(message, table, now)
        elif "error" in message:
            self._take_error(message, now)
        else:
            raise Breach("a message without method, result or error")

    def _take_table(self, table: Table | None, now: float) -> None:
        if table is None:
            raise Breach("a process table without processes")
        _count(self._table_times, now, TABLES_PER_MINUTE, "process tables")
        self.table, self.table_at = table, now
        expected = (None, self._refused_revision, table.revision)
        if self._sent_revision in expected or now - self._sent_at <= BEHIND_S:
            return
        self._doubts = True
        if not self._awaits("set_rules"):
            # They were in force: it was restarted since.
            self._sent_revision = None

    def _take_streams(self, params: Any, now: float) -> None:
        _count(self._streams_times, now, STREAMS_PER_MINUTE, "messages of streams")
        told = {record: (now, *one) for record, one in parse_streams(params).items()}
        # Another thread reads them without a lock.
        self.round_trips = {**self.round_trips, **told}

    def _count_log(self, now: float) -> None:
        _count(self._log_times, now, LOGS_PER_MINUTE, "log messages")

    def _take_log(self, params: Any, now: float) -> None:
        self._count_log(now)
        if not isinstance(params, dict) or params.get("level") not in ("info", "warning", "error"):
            raise Breach("a log without a level")
        # A new agent may be starting: by its tables alone it would pass for the last one.
        self._doubts = True
        text = text_of(params.get("text"), "log text", MAX_LINE_BYTES)
        self.logs.append((params["level"], text[:LONGEST_LOG_CHARS]))

    def _answered(self, message: dict[str, Any]) -> _Asked | None:
        """Return the answered request; None if it is no longer of interest."""
        request_id = message.get("id")
        if isinstance(request_id, bool) or not isinstance(request_id, int):
            raise Breach("an answer without an id")
        asked = self._pending.pop(request_id, None)
        if asked is not None:
            self._has_answered = True
            # It will not answer earlier requests any more.
            for earlier in [other for other in self._pending if other < request_id]:
                del self._pending[earlier]
            return asked
        is_ours = self._first_id <= request_id < self._next_id
        if is_ours and self._given_up:
            self._given_up -= 1
            return None
        if not is_ours and not self._has_answered and self._strangers < STRANGERS_ALLOWED:
            self._strangers += 1
            return None
        raise Breach("an answer to nothing that was asked")

    def _take_result(self, message: dict[str, Any], table: Table | None, now: float) -> None:
        asked = self._answered(message)
        if asked is None:
            return
        result = message["result"]
        if asked.method == "hello":
            self._take_hello(parse_hello(result, asked.params["protocol"]))
        elif asked.method == "get_processes":
            self._take_table(table, now)
        elif asked.preview is not None:
            asked.preview.pids = parse_pids(result)
        elif asked.method == "set_rules":
            revision = asked.params["revision"]
            if not isinstance(result, dict) or result.get("revision") != revision:
                raise Breach("an answer to set_rules with another revision")
            self.matched = whole_of(result.get("matched"), "matched", 0, 2**22)
            self.refused = parse_refused(result.get("refused", []))
            self.refusal = None
            self._answered_revision = revision

    def _take_hello(self, hello: dict[str, Any]) -> None:
        known, self.hello = self.hello or {}, hello
        marks = ("boot_id", "agent_version", "protocol")
        is_another = any(known.get(name) != hello[name] for name in marks)
        if is_another:
            self._answered_revision = self._refused_revision = None
        # A new agent on a port that stayed open does not know that it is watched.
        self._watches_streams = False
        told = (self._answered_revision, self._refused_revision)
        if self._sent_revision not in told and not self._awaits("set_rules"):
            # The rules were lost, or were another boot's.
            self._sent_revision = None
        if is_another or self._greeted_in_doubt:
            # A fresh start: breaches of an earlier agent on this port are past.
            self.breach = None
        if self._sent_revision is None or self._sent_revision != self._refused_revision:
            self.refusal = None

    def _take_error(self, message: dict[str, Any], now: float) -> None:
        error = message["error"]
        if not isinstance(error, dict):
            raise Breach("an error that is not an object")
        text = text_of(error.get("message"), "error message", MAX_LINE_BYTES)[:LONGEST_LOG_CHARS]
        if message.get("id") is None:
            # It could not parse a line: a cut one, after a reconnect.
            self._count_log(now)
            self.logs.append(("warning", f"the agent could not read a line: {text}"))
            return
        asked = self._answered(message)
        if asked is None:
            return
        if asked.preview is not None:
            asked.preview.refused = parse_param_error(error)
            return
        if asked.method == "hello" and asked.params["protocol"] > OLDEST_PROTOCOL:
            self._replies.append(self._request("hello", {"protocol": OLDEST_PROTOCOL}))
            return
        if asked.method == "watch_streams":
            # An agent from before it; it goes on without.
            return
        detail = error.get("data")
        if isinstance(detail, dict):
            text = printable(f"{text} ({json.dumps(detail)[:500]})")
        if asked.method == "set_rules":
            self._refused_revision = asked.params["revision"]
        self.refusal = f"the agent refused {asked.method}: {text}"
