# SPDX-License-Identifier: GPL-2.0-or-later
"""measure.stress.rewriter: what the program's output means."""

import pytest

from measure.stress.rewriter import Rewritten, outcome


def test_a_line_of_json_is_success():
    said = '{"writes": 12, "reads": 12, "longest_ms": 3.250}\n'
    assert outcome(said) == Rewritten(writes=12, longest_ms=3.25)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it has said nothing"),
        ("block 5, byte 0: holds write 1\n", "block 5, byte 0: holds write 1"),
        ("7", "7"),
        ('{"writes": 3}', '{"writes": 3}'),
    ],
)
def test_anything_else_is_an_error(text, error):
    assert outcome(text) == Rewritten(errors=error)
