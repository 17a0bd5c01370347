# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices that are grouped anew go on with the memory of their groups."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.gate import State, Steering
from sluice_controller.domain.gated import Device, Part, went_on


def part(devices, domains="a"):
    return Part(frozenset(devices.split()), frozenset(domains.split()))


def device(name, adjust, target_ns=1):
    return Device(name, State(adjust), Steering(target_ns))


SDA_AND_SDB = part("sda sdb", "a b"), device("sda and sdb", 0.2)


def test_a_group_that_is_split_goes_on_in_each_of_its_parts():
    parts = [part("sda", "a"), part("sdb", "a b")]
    for one in parts:
        found = went_on("new", one, [SDA_AND_SDB], parts)
        assert (found.name, found.state.adjust) == ("new", 0.2)


def test_of_groups_that_become_one_the_most_careful_goes_on():
    former = [
        (part("sda"), device("sda", 0.5)),
        (part("sdb", "b"), device("sdb", 0.3)),
        (part("sdc", "c"), device("sdc", 0.1, target_ns=0)),
    ]
    one = part("sda sdb sdc", "a b c")
    assert went_on("all", one, former, [one]).state.adjust == 0.3


def test_a_device_with_another_name_goes_on_by_its_domains():
    former = [(part("unknown"), device("unknown", 0.2))]
    one = part("ceph")
    assert went_on("ceph", one, former, [one]).state.adjust == 0.2


def test_a_new_disk_of_a_domain_has_no_memory_of_its_other_disk():
    former = [(part("sda", "a b"), device("sda", 0.2))]
    parts = [part("sda", "a b"), part("sdb", "a")]
    assert went_on("sdb", parts[1], former, parts) == Device("sdb")


GROUPS = st.lists(st.sampled_from("0123"), min_size=6, max_size=6)


@given(GROUPS, GROUPS)
def test_no_device_that_stays_loses_the_memory_of_its_group(before, after):
    """Six devices, each with the number of its group."""

    def parts(groups):
        found = {}
        for number, group in enumerate(groups):
            found.setdefault(group, []).append(f"sd{number}")
        return [part(" ".join(devices)) for devices in found.values()]

    former = [(one, device("old", 0.1 * i + 0.1)) for i, one in enumerate(parts(before))]
    for one in parts(after):
        adjusts = [d.state.adjust for old, d in former if old.devices & one.devices]
        assert went_on("new", one, former, parts(after)).state.adjust == min(adjusts)
