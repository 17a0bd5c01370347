# SPDX-License-Identifier: GPL-2.0-or-later
"""Which hosts the plays of a playbook take."""

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

from testbed import paths

PLAYBOOKS = paths.TOP / "ansible" / "playbooks"
INVENTORY = """
sluice_hosts: {hosts: {kvm1: , kvm2: , both: }}
sluice_guests: {hosts: {web1: , both: }}
"""


@pytest.fixture
def inventory(tmp_path):
    """Two hosts, a guest, and a guest that is a host itself."""
    path = tmp_path / "inventory.yml"
    path.write_text(INVENTORY)
    return InventoryManager(loader=DataLoader(), sources=[str(path)])


def test_a_removal_takes_each_host_once_and_guests_first(inventory):
    # What was found on a host holds for one removal: the second would detach once more.
    taken = []
    for play in yaml.safe_load((PLAYBOOKS / "remove.yml").read_text()):
        if any(role["role"] == "sluice.appliance.remove" for role in play.get("roles", [])):
            taken.append(sorted(host.name for host in inventory.get_hosts(play["hosts"])))
    assert taken == [["both", "web1"], ["kvm1", "kvm2"]]
