# SPDX-License-Identifier: GPL-2.0-or-later
"""Which service a process belongs to. Stopping one is in tests/integration/ansible."""

import os

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils import control_groups
from ansible_collections.sluice.appliance.plugins.modules import user_services


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ("0::/system.slice/polkit.service\n", "polkit.service"),
        ("0::/system.slice/system-getty.slice/getty@tty1.service\n", "getty@tty1.service"),
        # A service's own groups, and version 1 beside.
        ("0::/system.slice/docker.service/main\n", "docker.service"),
        ("4:memory:/a.service\n1:name=systemd:/system.slice/b.service\n", "b.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/\n", None),
    ],
)
def test_the_service_of_a_process(text, service):
    assert control_groups.service_of(text) == service


def test_a_process_is_known_by_each_of_its_user_ids(tmp_path):
    folder = tmp_path / "17"
    folder.mkdir()
    (folder / "status").write_text("Name:\tx\nUid:\t0\t33\t33\t33\nGid:\t0\t0\t0\t0\n")
    (folder / "cgroup").write_text("0::/system.slice/x.service\n")
    (tmp_path / "18").mkdir()
    (tmp_path / "meminfo").write_text("")
    assert list(user_services.processes(str(tmp_path))) == [
        ({0, 33}, "0::/system.slice/x.service\n")
    ]


def test_only_users_that_exist_have_a_number():
    assert user_services.numbers_of(["root", "nobody-of-this-name"]) == {0}


def test_this_process_is_among_them():
    assert any(os.getuid() in ids for ids, _groups in user_services.processes())
