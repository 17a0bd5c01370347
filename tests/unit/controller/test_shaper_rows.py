# SPDX-License-Identifier: GPL-2.0-or-later
from dataclasses import replace

from hypothesis import given

from sluice_controller.domain.queues import Queue
from sluice_controller.domain.scheduling import Scheduling, Window, shapers_own
from sluice_controller.domain.shaper_rows import (
    queue_rows,
    queues_of,
    scheduling_of,
    scheduling_rows,
    whole,
)
from unit.controller.scheduling_data import knobs


def as_the_shaper_has_it(resource, one):
    """Rates are whole there, and a default that was asked for is no difference."""
    usual = one.minimum_charge_bytes == shapers_own(resource).minimum_charge_bytes
    reserved, peak = one.reservation_bytes_per_second, one.peak_bytes_per_second
    return replace(
        one,
        reservation_bytes_per_second=None if reserved is None else whole(reserved),
        peak_bytes_per_second=None if peak is None else whole(peak),
        minimum_charge_bytes=None if usual else one.minimum_charge_bytes,
    )


@given(knobs())
def test_what_goes_to_the_shaper_comes_back(some):
    _limits, scheduling, queues = some
    wanted = {r: as_the_shaper_has_it(r, one) for r, one in scheduling.items()}
    wanted = {r: one for r, one in wanted.items() if one != type(one)()}
    assert scheduling_of(scheduling_rows(scheduling)) == wanted
    rows = queue_rows(queues)
    assert queues_of(rows, rows) == queues


@given(knobs())
def test_rows_are_one_form(some):
    _limits, scheduling, queues = some
    rows = scheduling_rows(scheduling)
    assert scheduling_rows(scheduling_of(rows)) == rows
    rows = queue_rows(queues)
    assert queue_rows(queues_of(rows, rows)) == rows


def test_only_what_is_set_is_said():
    scheduling = {
        "net-tx": Scheduling(window=Window(20_000_000, 65536)),
        "blk-read": Scheduling(5e6, "leaky-bucket", minimum_charge_bytes=4096),
        "blk-write": Scheduling(minimum_charge_bytes=4096),
        "net-rx": Scheduling(minimum_charge_bytes=4096),
    }
    assert scheduling_rows(scheduling) == [
        {
            "resource": "blk-read",
            "reservation-bytes-per-second": 5000000,
            "policy": "leaky-bucket",
        },
        {
            "resource": "net-tx",
            "window": {"period-ns": 20_000_000, "bytes": 65536, "may-miss": 0, "of": 1},
        },
        {"resource": "net-rx", "minimum-charge-bytes": 4096},
    ]
    queues = {"net-rx": Queue(aqm="codel", ecn=True, connections_per_second=10.6)}
    assert queue_rows(queues) == [
        {"resource": "net-rx", "aqm": "codel", "ecn": True, "connections-per-second": 11}
    ]


def test_what_the_shaper_adds_is_no_difference():
    answered = [
        {
            "resource": "blk-read",
            "policy": "token-bucket",
            "dynamic": "none",
            "charge": "all",
            "minimum-charge-bytes": 4096,
            "reservation-bytes-per-second": 5000000,
        }
    ]
    asked = [{"resource": "blk-read", "reservation-bytes-per-second": 5000000}]
    assert scheduling_rows(scheduling_of(answered)) == asked
    asked = [{"resource": "net-rx", "connections-per-second": 100}]
    answered = [{**asked[0], "aqm": "none", "ecn": False, "burst-connections": 5}]
    assert queue_rows(queues_of(answered, asked)) == asked
    with_burst = [{**asked[0], "burst-connections": 7}]
    assert queue_rows(queues_of(answered, with_burst)) != with_burst
