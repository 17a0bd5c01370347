# SPDX-License-Identifier: GPL-2.0-or-later
"""What other work on the machine does to a rate, and what it does not."""

import pytest

from testbed import rates


@pytest.mark.parametrize(
    "measured", [[100.0], [105.0], [80.0], [10.0, 79.0, 95.0], [10.0, 100.0, 200.0]]
)
def test_a_limit_that_is_used_once_and_never_exceeded_holds(measured):
    assert rates.at_limit(iter(measured).__next__, 100.0) >= 80.0


@pytest.mark.parametrize("measured", [[106.0], [50.0, 106.0], [200.0]])
def test_what_is_above_a_limit_is_no_matter_of_other_work(measured):
    with pytest.raises(AssertionError, match="are more than 105"):
        rates.at_limit(iter(measured).__next__, 100.0)


def test_a_limit_that_is_never_used_was_taken_for_another():
    with pytest.raises(AssertionError, match=r"\[50, 51, 49\] bytes/s none is 80"):
        rates.at_limit(iter([50.0, 51.0, 49.0]).__next__, 100.0)
