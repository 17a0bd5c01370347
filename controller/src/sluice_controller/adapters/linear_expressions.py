# SPDX-License-Identifier: GPL-2.0-or-later
"""Searches with the expressions of rules, by RE2.

A command line is the guest's, and an expression may come from anybody who may
make rules: Python's own search, which backtracks, would take years for some
pairs of them, and nothing else of the daemon would run meanwhile. RE2 takes time
in proportion to the text, and lets other threads run.

To RE2 the letters, digits and blanks of \\w, \\d and \\s are those of ASCII, to the
agent and to Python those of Unicode: they are spelled out for it. What stays ASCII's
are edges of words (\\b, \\B), and \\W and \\S within brackets.
"""

from __future__ import annotations

import re

import re2

from ..domain.errors import BadValue

# The agent's limit is 1 MiB of memory for an expression. It was met from 15,000 of RE2's
# instructions on, by repeated \d, and by others later.
MOST_INSTRUCTIONS = 10_000

_WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}"
_BLANK = r"\t-\r\x{85}\p{Z}"
_IN_CLASS = {r"\d": r"\p{Nd}", r"\D": r"\P{Nd}", r"\w": _WORD, r"\s": _BLANK}
# Another class cannot stand in a class, which leaves these as in ASCII; to the agent
# they are as large as their opposites.
_IN_CLASS_AS_LARGE = {**_IN_CLASS, r"\W": _WORD, r"\S": _BLANK}
_ELSEWHERE = {
    r"\d": r"\p{Nd}",
    r"\D": r"\P{Nd}",
    r"\w": f"[{_WORD}]",
    r"\W": f"[^{_WORD}]",
    r"\s": f"[{_BLANK}]",
    r"\S": f"[^{_BLANK}]",
}
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.", re.S)
_ESCAPE_OR_CLASS = re.compile(_ESCAPE.pattern + r"|\[\^?\]?(?:\\.|[^\]\\])*\]", re.S)


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    # Only whether it is found matters.
    options.never_capture = True
    return options


_OPTIONS = _options()


def _escape(escape: str, spelled: dict[str, str]) -> str:
    if escape[1] in "uU":
        return rf"\x{{{escape[2:]}}}"
    return spelled.get(escape, escape)


def _compiled(expression: str, in_class: dict[str, str] = _IN_CLASS) -> re2._Regexp:
    def spelled_out(found: re.Match[str]) -> str:
        if found[0].startswith("["):
            return _ESCAPE.sub(lambda escape: _escape(escape[0], in_class), found[0])
        return _escape(found[0], _ELSEWHERE)

    return re2.compile(_ESCAPE_OR_CLASS.sub(spelled_out, expression), _OPTIONS)


class LinearExpressions:
    """For expressions that `domain/rules.py` has let through."""

    def check(self, thing: str, expression: str) -> None:
        """BadValue for one that RE2 cannot read, or that is too large for the agent."""
        try:
            size = _compiled(expression, _IN_CLASS_AS_LARGE).programsize
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
            raise BadValue(
                thing,
                expression,
                f"is no expression that is searched in linear time ({said})",
                "correct the expression",
            ) from error
        if size > MOST_INSTRUCTIONS:
            raise BadValue(
                thing,
                expression,
                f"is too large ({size} steps, at most {MOST_INSTRUCTIONS})",
                "repeat less, or name letters where \\w, \\d or \\s stand",
            )

    def is_found(self, expression: str, text: str) -> bool:
        # Half a pair of a guest's text is no character.
        whole = text.encode("utf-8", "replace").decode()
        return _compiled(expression).search(whole) is not None
