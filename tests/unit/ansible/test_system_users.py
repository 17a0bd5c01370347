# SPDX-License-Identifier: GPL-2.0-or-later
"""Which accounts a removal may delete."""

from ansible_collections.sluice.appliance.plugins.filter.system_users import (
    system_groups,
    system_users,
)

PASSWD = {
    "root": ["x", "0", "0", "root", "/root", "/bin/sh"],
    "sluice-web": ["x", "998", "998", "", "/var/lib/sluice-web", "/usr/sbin/nologin"],
    "alice": ["x", "1000", "1000", "", "/home/alice", "/bin/bash"],
}


def test_users_with_a_number_of_the_system_may_go():
    assert system_users(PASSWD, ["sluice-web", "absent"]) == ["sluice-web"]


def test_a_person_of_that_name_stays():
    assert system_users(PASSWD, ["alice"]) == []


def test_groups_of_the_system_may_go():
    group = {"sluice": ["x", "997", "alice"], "sluice-web": ["x", "996", ""]}
    assert system_groups(group, ["sluice-web", "sluice", "absent"], PASSWD) == [
        "sluice-web",
        "sluice",
    ]


def test_a_group_of_people_stays_and_so_does_one_that_is_somebodys_first():
    group = {"sluice": ["x", "5000", ""], "sluice-web": ["x", "998", ""]}
    assert system_groups(group, ["sluice", "sluice-web"], PASSWD) == []
