# SPDX-License-Identifier: GPL-2.0-or-later
"""How sluiced ends: its own services, on libvirt's test driver."""

import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.tuner_types import Arm, State
from sluice_controller.entry.config import DEFAULTS, Config
from sluice_controller.entry.wiring import Services

KEY = ("web1", "batch", "blk-read")


@pytest.fixture
def config(tmp_path):
    given = dict.fromkeys(("run_dir", "state_dir", "etc_dir"), tmp_path)
    return Config(**{**DEFAULTS, **given, "libvirt_uri": "test:///default"})


def test_what_the_last_tick_decided_and_holds_is_there_at_the_next_start(config):
    """Its thread may look at it for the last time before that tick."""
    services = Services(config)
    services.auto.put({"enabled": True})
    services.records.round()
    arms = {**State().arms, "disk": Arm(level=40e6, caps={KEY: 20e6})}
    services.auto.state = State(arms=arms)
    entry = {"sentence": "the last", "reason": "disk room", "stream": None, "dry_run": False}
    services.records.add_decision(services.clock(), entry)
    services.stop()
    store = SqlStore(config.database_url)
    with store.transaction() as unit:
        assert [d["sentence"] for d in unit.decisions(0.0, 1e12, 9)] == ["the last"]
    store.close()
    services = Services(config)
    assert services.auto_limits.snapshot() == {KEY: 20e6}
    services.stop()
