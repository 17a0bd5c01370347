# SPDX-License-Identifier: GPL-2.0-or-later
"""A database that cannot be used is told of in one line."""

import pytest

from sluice_controller.adapters.database import open_store
from sluice_controller.domain.errors import BadValue, Unavailable


def test_postgresql_means_the_driver_that_the_packages_bring(tmp_path):
    """Whichever SQLAlchemy takes by itself."""
    pytest.importorskip("psycopg2", reason="needs psycopg2")
    with pytest.raises(Unavailable) as refusal:
        open_store(f"postgresql://sluice:secret@/sluice?host={tmp_path}")
    said = str(refusal.value)
    assert "psycopg2." in said and str(tmp_path) in said, said
    assert "secret" not in said


def test_a_driver_that_is_named_is_kept(tmp_path):
    with pytest.raises(BadValue) as refusal:
        open_store(f"postgresql+nonesuch://sluice@/sluice?host={tmp_path}")
    assert "nonesuch" in str(refusal.value)
