# SPDX-License-Identifier: GPL-2.0-or-later
"""The operator's inventories, as data."""

from deploy import plan

BASE = {"sluice_hosts": {"hosts": {"host1": {}}}}


def test_an_inventory_that_a_test_spoils_is_its_own():
    spoilt = plan.with_guest(BASE, "host1")["sluice_hosts"]["hosts"]["host1"]
    spoilt["sluice_state"]["classes"].clear()
    spoilt["sluice_domains"][0]["name"] = "elsewhere"
    sound = plan.with_guest(BASE, "host1")["sluice_hosts"]["hosts"]["host1"]
    assert sound["sluice_state"]["classes"] == {plan.CLASS: plan.STATE["classes"][plan.CLASS]}
    assert sound["sluice_domains"][0]["name"] == plan.WEB1.name
