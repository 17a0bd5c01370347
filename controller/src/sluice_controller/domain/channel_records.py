# SPDX-License-Identifier: GPL-2.0-or-later
"""Records of the channel, as QEMU shows them: the guest's word, read within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Of one kind, in an answer to query-shaper-channel.
MOST_RECORDS = 64


def records(
    answer: Any, kind: str, bounds: Mapping[str, int]
) -> Iterator[tuple[Mapping[str, Any], list[int]]]:
    """Yields (the record, its numbers in the order of `bounds`), where each number is an integer
    from 0 to below its bound. Records with another number, or without one, are left out."""
    rows = answer.get(kind) if isinstance(answer, Mapping) else None
    for row in rows[:MOST_RECORDS] if isinstance(rows, list) else ():
        if not isinstance(row, Mapping):
            continue
        numbers = [row.get(name) for name in bounds]
        if all(
            type(number) is int and 0 <= number < bound
            for number, bound in zip(numbers, bounds.values(), strict=True)
        ):
            yield row, numbers
