# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose drop-ins are touched: Sluice's own files alone. How units take them is in
tests/integration/ansible/test_units.py.
"""

from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.sluice.appliance.plugins.modules import dropin

from testbed import paths

ROLES = paths.TOP / "ansible" / "roles"
TIMER = "sluice-nightly.timer"


def given_by(task_file: str) -> list[dict]:
    """What a role's tasks hand to the module."""
    tasks = yaml.safe_load((ROLES / task_file).read_text())
    found = [task["sluice.appliance.dropin"] for task in tasks if "sluice.appliance.dropin" in task]
    return [one for one in found if one["name"] == TIMER]


def run(folder, arguments, lines):
    params = {"file": dropin.FILE, **arguments, "folder": str(folder), "lines": lines}
    return dropin.run(SimpleNamespace(params=params, check_mode=False))["changed"]


@pytest.mark.parametrize("others", [["override.conf"], []])
def test_the_timers_time_comes_and_goes_beside_what_the_operator_has_there(tmp_path, others):
    folder = tmp_path / f"{TIMER}.d"
    for name in others:
        # As 'systemctl edit' leaves it.
        folder.mkdir()
        (folder / name).write_text("[Timer]\nRandomizedDelaySec=0\n")
    (arguments,) = given_by("perf_nightly/tasks/timer.yml")
    lines = ["[Timer]", "OnCalendar=", "OnCalendar=*-*-* 03:30"]
    assert [run(tmp_path, arguments, lines) for _ in range(2)] == [True, False]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, "calendar.conf"])
    # No time in the inventory any more, or a removal.
    (taken_back,) = given_by("remove/tasks/files.yml")
    assert [run(tmp_path, taken_back, []) for _ in range(2)] == [True, False]
    assert folder.exists() == bool(others)


@pytest.mark.parametrize("name", ["perf_nightly/tasks/timer.yml", "remove/tasks/files.yml"])
def test_no_task_takes_a_whole_folder_of_dropins(name):
    for task in yaml.safe_load((ROLES / name).read_text()):
        for part in ("ansible.builtin.file", "vars"):
            assert "dropin" not in str(task.get(part, {}))
