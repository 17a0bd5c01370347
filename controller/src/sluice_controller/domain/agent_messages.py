# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of an agent, checked before anything of them is kept (`docs/specs/agent-protocol.md`).

The guest is hostile. A line is bounded in bytes, but its cost is in its objects: a
mebibyte of brackets takes half a second to parse. So brackets and commas are counted
first, and no line has more of them than an honest agent's largest table.

Texts are made printable here: they end in journals, on terminals and in pages.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .errors import SluiceError
from .model import is_boot_id, parse_class_name

PROTOCOL = 2
# Of an agent that refuses all rules because of one, and previews none.
OLDEST_PROTOCOL = 1
MAX_LINE_BYTES = 1 << 20
# The least that an agent writes of a process, with its comma.
SHORTEST_ROW_BYTES = 212
MAX_ROWS = MAX_LINE_BYTES // SHORTEST_ROW_BYTES
# Beside the rows there is the message around them; a refusal may name rules.
MAX_BRACKETS = MAX_ROWS + 64
MAX_COMMAS = 17 * MAX_ROWS + 64

# From its quote to the next one, or to the end if there is none: each byte is looked at once.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.S)
_TABLE = {"time_ns", "interval_ms", "revision", "truncated", "processes"}
_MESSAGE = {"jsonrpc", "id", "method", "params", "result", "error"}
# Members of a process: texts by their longest, numbers by their bounds.
TEXTS = {"comm": 64, "exe": 4096, "cmdline": 4096, "user": 256, "unit": 256, "cgroup": 4096}
WHOLES = {
    "pid": (1, 2**22),
    "ppid": (0, 2**22),
    "start_time_ticks": (0, 2**63 - 1),
    "threads": (0, 2**22),
    "rss_bytes": (0, 2**63),
}
NUMBERS = {"cpu_ratio": 1e5, "read_bps": 2.0**64, "write_bps": 2.0**64}
_STREAM = {"record", "tag", "round_trip_us", "least_us"}
_CHANNEL = {"version", "port_map", "why"}
_ROW = {"inherited", "class", "rule", *TEXTS, *WHOLES, *NUMBERS}
# As many rules as an agent takes, and as many processes as it names in a preview.
MAX_REFUSED = 1024
MAX_PREVIEWED = 4096
# As many records of streams as a channel has; its tags.
MAX_STREAMS = 64
TAGS = 16
LONGEST_US = 2**32 - 1
LONGEST_WHY = 500
_FIELD = re.compile(r"match(\.[a-z_]{1,32})?")


class Breach(ValueError):
    """The agent broke the protocol; the message says how."""


class LineSplitter:
    """Bytes in, lines out; a line beyond the limit is dropped up to its newline."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._discarding = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Complete lines; None stands for a line that was too long."""
        lines: list[bytes | None] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._append(data[start:end])
            lines.append(None if self._discarding else bytes(self._buffer))
            self._buffer.clear()
            self._discarding = False
            start = end + 1
        self._append(data[start:])
        return lines

    def _append(self, piece: bytes) -> None:
        if self._discarding:
            return
        if len(self._buffer) + len(piece) > self.limit_bytes:
            self._buffer.clear()
            self._discarding = True
        else:
            self._buffer += piece


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _brackets_and_commas(line: bytes) -> tuple[int, int]:
    return line.count(b"[") + line.count(b"{"), line.count(b",")


def has_more_parts(text: bytes, most: int) -> bool:
    """Whether JSON has more than `most` commas and opening brackets outside of its strings."""
    found = sum(_brackets_and_commas(text))
    return found > most and sum(_brackets_and_commas(_STRING.sub(b"", text))) > most


def check_size(line: bytes) -> None:
    """Breach for a line with more in it than an honest agent has to say."""
    brackets, commas = _brackets_and_commas(line)
    if brackets > MAX_BRACKETS or commas > MAX_COMMAS:
        # Those in texts cost nothing, and a process may have any in its command line.
        brackets, commas = _brackets_and_commas(_STRING.sub(b"", line))
    if brackets > MAX_BRACKETS:
        raise Breach(f"a line with {brackets} objects and lists, of which {MAX_BRACKETS} may be")
    if commas > MAX_COMMAS:
        raise Breach(f"a line with {commas} commas, of which {MAX_COMMAS} may be")


def parse_line(line: bytes) -> dict[str, Any]:
    check_size(line)
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Breach(f"a line that is not JSON ({error})") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Breach("a message that is not JSON-RPC 2.0")
    _refuse_unknown(message, _MESSAGE, "message")
    return message


def _refuse_unknown(raw: dict[str, Any], known: set[str], thing: str) -> None:
    unknown = raw.keys() - known
    if unknown:
        raise Breach(f"a {thing} with the unknown member {min(unknown)[:64]!r}")


def printable(text: str) -> str:
    """White space becomes a blank, other unprintable characters U+FFFD; the length stays."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def text_of(raw: Any, thing: str, longest: int) -> str:
    return printable(_raw_text(raw, thing, longest))


def _raw_text(raw: Any, thing: str, longest: int) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str) or len(raw) > longest:
        raise Breach(f"{thing} is not text of at most {longest} characters")
    return raw


def whole_of(raw: Any, thing: str, low: int, high: int) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        raise Breach(f"{thing} is not an integer from {low} to {high}")
    return raw


def _number(raw: Any, thing: str, high: float) -> float:
    # No arithmetic: an integer of JSON may be larger than any float.
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw <= high:
        raise Breach(f"{thing} is not a number from 0 to {high:.0f}")
    return raw


def _flag(raw: Any, thing: str) -> bool:
    if not isinstance(raw, bool):
        raise Breach(f"{thing} is neither true nor false")
    return raw


def parse_process(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise Breach("a process is not an object")
    _refuse_unknown(raw, _ROW, "process")
    row: dict[str, Any] = {}
    for name, (low, high) in WHOLES.items():
        row[name] = whole_of(raw.get(name), name, low, high)
    for name, longest in TEXTS.items():
        row[name] = text_of(raw.get(name), name, longest)
    for name, high in NUMBERS.items():
        row[name] = _number(raw.get(name), name, high)
    row["inherited"] = _flag(raw.get("inherited"), "inherited")
    row["class"], row["rule"] = raw.get("class"), None
    if row["class"] is not None:
        try:
            parse_class_name(text_of(row["class"], "class", 31), "class")
        except SluiceError as error:
            # Escaped: it is logged and shown.
            raise Breach(f"a class {row['class']!r} that is no name of one") from error
    if raw.get("rule") is not None:
        row["rule"] = text_of(raw["rule"], "rule", 64)
    return row


@dataclass(frozen=True)
class Table:
    """The processes of a guest. ``rows`` have all members of the specification."""

    revision: int
    truncated: bool
    rows: list[dict[str, Any]]

    @cached_property
    def text(self) -> str:
        """The rows as JSON, which is handed on as it is."""
        return json.dumps(self.rows, separators=(",", ":"), allow_nan=False)


def parse_table(params: Any) -> Table:
    if not isinstance(params, dict) or not isinstance(params.get("processes"), list):
        raise Breach("a process table without processes")
    _refuse_unknown(params, _TABLE, "process table")
    if len(params["processes"]) > MAX_ROWS:
        raise Breach(f"a table of {len(params['processes'])} processes; {MAX_ROWS} fit a line")
    return Table(
        whole_of(params.get("revision"), "revision", 0, 2**63),
        _flag(params.get("truncated"), "truncated"),
        [parse_process(raw) for raw in params["processes"]],
    )


def parse_hello(result: Any, protocol: int) -> dict[str, Any]:
    if not isinstance(result, dict) or result.get("protocol") != protocol:
        raise Breach(f"an answer to hello that is not of protocol {protocol}")
    if whole_of(result.get("max_tag"), "max_tag", 7, 15) not in (7, 15):
        raise Breach("a max_tag that is neither 7 nor 15")
    hello = {
        name: text_of(result.get(name), name, 256)
        for name in ("agent_version", "kernel", "hostname")
    }
    hello["boot_id"] = _raw_text(result.get("boot_id"), "boot_id", 256)
    if not is_boot_id(hello["boot_id"]):
        # It is written down with assignments, and must be read again wherever they go.
        raise Breach("a boot_id that is none")
    hello["channel"] = parse_channel(result.get("channel"))
    return {**hello, "max_tag": result["max_tag"], "protocol": protocol}


def parse_channel(raw: Any) -> dict[str, Any] | None:
    """{version, port_map, why} of the guest's channel; None of an agent that knows of none."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise Breach("a channel that is not an object")
    _refuse_unknown(raw, _CHANNEL, "channel")
    return {
        "version": whole_of(raw.get("version"), "version", 0, 2**32 - 1),
        "port_map": _flag(raw.get("port_map"), "port_map"),
        "why": text_of(raw.get("why"), "why", LONGEST_WHY),
    }


def parse_refused(raw: Any) -> dict[str, str]:
    """{id: why} of the rules that an agent does not follow."""
    if not isinstance(raw, list) or len(raw) > MAX_REFUSED:
        raise Breach(f"refused is not a list of at most {MAX_REFUSED} rules")
    refused = {}
    for one in raw:
        if not isinstance(one, dict) or one.keys() != {"id", "why"}:
            raise Breach("a refused rule that is not an id and a reason")
        refused[text_of(one["id"], "id", 128)] = text_of(one["why"], "why", LONGEST_WHY)
    return refused


def parse_pids(result: Any) -> list[int]:
    raw = result.get("pids") if isinstance(result, dict) else None
    if not isinstance(raw, list) or len(raw) > MAX_PREVIEWED:
        raise Breach(f"a preview that is not a list of at most {MAX_PREVIEWED} processes")
    return [whole_of(pid, "pid", 1, 2**22) for pid in raw]


def parse_streams(params: Any) -> dict[int, tuple[int, int, int]]:
    """{number of its record: (tag, round trip, the least of it)} of streams, in microseconds."""
    raw = params.get("streams") if isinstance(params, dict) else None
    if not isinstance(raw, list) or len(raw) > MAX_STREAMS:
        raise Breach(f"streams that are not a list of at most {MAX_STREAMS}")
    found = {}
    for one in raw:
        if not isinstance(one, dict) or one.keys() != _STREAM:
            raise Breach(f"a stream that does not have {', '.join(sorted(_STREAM))}")
        found[whole_of(one["record"], "record", 0, MAX_STREAMS - 1)] = (
            whole_of(one["tag"], "tag", 0, TAGS - 1),
            whole_of(one["round_trip_us"], "round_trip_us", 1, LONGEST_US),
            whole_of(one["least_us"], "least_us", 1, LONGEST_US),
        )
    return found


def parse_param_error(error: dict[str, Any]) -> tuple[str, str]:
    """Which part of a rule's match is refused, and the remedy; of an older agent its message."""
    data = error.get("data")
    if not isinstance(data, dict):
        return "match", text_of(error.get("message"), "error message", MAX_LINE_BYTES)[:LONGEST_WHY]
    field = text_of(data.get("field"), "field", 256)
    why = text_of(data.get("remedy"), "remedy", LONGEST_WHY)
    return (field if _FIELD.fullmatch(field) else "match"), why


@dataclass(frozen=True)
class Line:
    """A line as it was read: a message, with its table if it has one, or a breach.

    ``is_read`` is false for a line that is no message; its sender is told so.
    """

    message: dict[str, Any] | None = None
    table: Table | None = None
    breach: Breach | None = None
    is_read: bool = True


def read_line(raw: bytes | None) -> Line:
    """All slow work on a line; `raw` is None for a line that was too long."""
    if raw is None:
        return Line(breach=Breach(f"a line longer than {MAX_LINE_BYTES} bytes"))
    try:
        message = parse_line(raw)
    except Breach as breach:
        return Line(breach=breach, is_read=False)
    result = message.get("result")
    try:
        if message.get("method") == "processes":
            return Line(message, parse_table(message.get("params")))
        if isinstance(result, dict) and "processes" in result:
            return Line(message, parse_table(result))
    except Breach as breach:
        return Line(message, breach=breach)
    return Line(message)
