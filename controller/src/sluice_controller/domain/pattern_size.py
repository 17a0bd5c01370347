# SPDX-License-Identifier: GPL-2.0-or-later
"""How large the agent's compiled expressions are, counted from how they are written.

The agent gives the patterns of all rules of its guest 16 MiB together, and refuses all
rules if that is not enough. Of RE2's program, which this host makes, nothing follows for
the agent's: it merges what the agent's does not. So this counts what the agent's compiler
makes, which copies an expression as often as it is repeated: bytes for each letter, class
and repetition, rounded up from what the agent took of each (regex 1.13; the most copies of
it that 1 MiB has room for). It is a bound: never less than the agent needs.

The agent charges an expression with 16 KiB, doubled until that is enough for it, and
with 1 MiB at most: a larger one is refused. So does `charged_bytes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from .errors import BadValue, Conflict
from .model import Rule

SMALLEST_BYTES = 16 << 10
MOST_BYTES = 1 << 20
MOST_TOGETHER_BYTES = 16 << 20

SMALLER = r"repeat less, or name letters where \w, \d or \s stand"

_BASE = 1000
_LETTER = 32
_ANY = 1010
_EDGE = 64
_GROUP = 80
_BRANCH = 100
_REPEAT = 120
# Where case means nothing, for each byte of UTF-8.
_FOLDED = 260
_ESCAPES = {r"\w": 52_500, r"\W": 52_500, r"\d": 5200, r"\D": 12_900, r"\s": 700, r"\S": 2000}
_EDGES = ("^", "$", r"\b", r"\B", r"\A")
# Of a class: a letter or range of ASCII, another letter, another range.
_MEMBERS = (40, 140, 1000)
_MEMBERS_LEFT_OUT = (390, 390, 1000)
_MEMBERS_FOLDED = (600, 1600, 4000)

_LETTER_ESCAPE = r"\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\x[0-9a-fA-F]{2}|\\."
_TOKEN = re.compile(
    _LETTER_ESCAPE + r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\((?:\?(?:P<\w+>|[a-zA-Z-]*[:)]))?|[*+?]\??|\{\d+(?:,\d*)?\}\??|.",
    re.S,
)
_MEMBER = re.compile(rf"({_LETTER_ESCAPE}|.)(-(?:{_LETTER_ESCAPE}|.))?", re.S)
_COUNTS = re.compile(r"\{(\d+)(,?)(\d*)\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)[-:)]")


class _Group:
    """What stands in one pair of brackets."""

    def __init__(self) -> None:
        self.bytes = 0
        # What a repetition repeats.
        self.last = 0

    def add(self, size: int) -> None:
        self.bytes += self.last
        self.last = size

    def repeat(self, token: str) -> None:
        counts = _COUNTS.match(token)
        if counts is None:
            self.last += _REPEAT
        elif not counts[2]:
            self.last *= int(counts[1])
        else:
            times = max(1, int(counts[1]), int(counts[3] or 0))
            self.last = (self.last + _REPEAT) * times + _REPEAT


def _is_ascii(letter: str) -> bool:
    return letter.isascii() and letter[:2] not in (r"\u", r"\U", r"\x")


def _class_bytes(token: str, *, folds: bool) -> int:
    left_out = token.startswith("[^")
    sizes = _MEMBERS_FOLDED if folds else _MEMBERS_LEFT_OUT if left_out else _MEMBERS
    total = _ANY if left_out else 0
    for letter, until in _MEMBER.findall(token[2 if left_out else 1 : -1]):
        if letter in _ESCAPES:
            total += max(_ESCAPES[letter], _ESCAPES[letter.swapcase()] if left_out else 0)
        elif _is_ascii(letter) and _is_ascii(until[1:]):
            total += sizes[0]
        else:
            total += sizes[2 if until else 1]
    return total


def _atom_bytes(token: str, *, folds: bool) -> int:
    if token in _ESCAPES:
        return _ESCAPES[token]
    if token in _EDGES:
        return _EDGE
    if token == ".":
        return _ANY
    if token[0] == "[" and len(token) > 1:
        return _class_bytes(token, folds=folds)
    length = 1 if _is_ascii(token) else 4
    return length * (_FOLDED if folds else _LETTER)


def needed_bytes(expression: str) -> int:
    """At most so many, for an expression that `rules.py` has let through."""
    flags = "".join(_FLAGS.findall(expression))
    if "x" in flags:
        # A comment may hold brackets that mean nothing.
        return MOST_BYTES
    groups = [_Group()]
    for token in _TOKEN.findall(expression):
        if token[0] == "(" and token[-1] != ")":
            groups.append(_Group())
        elif token == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1].add(inner.bytes + inner.last + _GROUP)
        elif token == "|":
            groups[-1].add(_BRANCH)
            groups[-1].add(_BRANCH)
        elif token[0] in "*+?{":
            groups[-1].repeat(token)
        elif token[0] not in "()":
            groups[-1].add(_atom_bytes(token, folds="i" in flags))
    return _BASE + sum(group.bytes + group.last for group in groups)


@lru_cache(maxsize=1024)
def charged_bytes(expression: str) -> int:
    """What the agent takes from its room for all; for one that it refuses, the most."""
    needed, charged = needed_bytes(expression), SMALLEST_BYTES
    while charged < min(needed, MOST_BYTES):
        charged *= 2
    return charged


def check_size(thing: str, expression: str) -> None:
    """BadValue for one that alone is too large for the agent."""
    if needed_bytes(expression) > MOST_BYTES:
        raise BadValue(
            thing,
            expression,
            f"is too large (it may take {_mib(needed_bytes(expression))} MiB compiled, at most"
            f" {_mib(MOST_BYTES)})",
            SMALLER,
        )


def check_room(domain: str, rules: Iterable[Rule]) -> None:
    """Conflict if the patterns of a guest's rules are more than its agent has room for."""
    patterns = [rule.match["cmdline"] for rule in rules if "cmdline" in rule.match]
    together = sum(map(charged_bytes, patterns))
    if together > MOST_TOGETHER_BYTES:
        raise Conflict(
            "domain",
            domain,
            f"would have {len(patterns)} rules with patterns that may take {_mib(together)} MiB"
            f" compiled, and its agent has room for {_mib(MOST_TOGETHER_BYTES)}",
            f"remove some of them, use exe, unit or user instead, or {SMALLER}",
        )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.4g}"
