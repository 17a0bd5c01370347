# SPDX-License-Identifier: GPL-2.0-or-later
"""Limits of the loads that are checked before a guest is asked for anything."""

import pytest

from testbed.loads import READERS, start_readers


@pytest.mark.parametrize("count", [-1, 0, READERS + 1])
def test_readers_without_files_are_refused_before_the_guest_is_asked(count):
    with pytest.raises(ValueError, match=f"{count} readers.* 1 to {READERS}"):
        start_readers(None, "/srv/media", count, 10)
