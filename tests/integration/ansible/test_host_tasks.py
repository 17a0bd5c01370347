# SPDX-License-Identifier: GPL-2.0-or-later
"""Tasks that ask and change the host with its own programs, which here are stand-ins.

A stand-in answers what its test wants and notes how it was called. What else a
role does stays undone: it runs in check mode, or one of its files by itself.
"""

import json
import subprocess
from pathlib import Path

import pytest

import ansible_collection
from ansible_collection import recap

RUN_SECONDS = 120
PLAY = """
- name: Run some tasks of a role
  hosts: here
  gather_facts: false
  tasks:
    - name: As the role does
      ansible.builtin.include_role:
        name: "sluice.appliance.{{ role }}"
        tasks_from: "{{ file }}"
"""
LOCAL = {
    "ansible_connection": "local",
    "ansible_python_interpreter": "/usr/bin/python3",
    "__sluice_checked": True,
}
# Of units those run that a test calls active (a run under way: activating); all of them
# are there and enabled.
SYSTEMCTL = """
state() {
    case " $ACTIVE " in
    *" $1 "*) echo active ;;
    *" $1=activating "*) echo activating ;;
    *) echo inactive ;;
    esac
}
case $1 in
is-active)
    shift
    for unit; do state "$unit"; done
    ;;
show)
    for unit; do :; done
    printf 'LoadState=loaded\\nActiveState=%s\\nInvocationID=1\\n' "$(state "$unit")"
    ;;
is-enabled) echo enabled ;;
*) echo "systemctl $*" >>"$CALLS" ;;
esac
"""
# The host has the group, or has it not.
GETENT = """
for word; do
    [ "$word" != group ] || { [ -n "$GROUP" ] && echo "$GROUP" || exit 2; exit 0; }
done
exec /usr/bin/getent "$@"
"""
NOTE = 'echo "$(basename "$0") $*" >>"$CALLS"'


class Machine:
    """This one, with stand-ins for programs that would change it."""

    def __init__(self, folder: Path):
        self.folder, self.calls = folder, folder / "calls"
        self.said = ""
        (folder / "play.yml").write_text(PLAY)
        (folder / "inventory.yml").write_text(json.dumps({"all": {"hosts": {"here": LOCAL}}}))
        (folder / "bin").mkdir()
        for name, text in (("systemctl", SYSTEMCTL), ("getent", GETENT), ("gpasswd", NOTE)):
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / "bin" / name).chmod(0o755)

    def run(
        self, role: str, file: str, *options: str, group: str = "", active: str = "", **variables
    ) -> int:
        """Run a file of a role; return how many tasks changed something."""
        self.calls.write_text("")
        environment = ansible_collection.environment(
            GROUP=group, ACTIVE=active, CALLS=str(self.calls)
        )
        environment["PATH"] = f"{self.folder}/bin:{environment['PATH']}"
        extra = json.dumps({"role": role, "file": file, **variables})
        program = str(ansible_collection.paths.VENV_BIN / "ansible-playbook")
        done = subprocess.run(
            [program, "-i", "inventory.yml", "play.yml", "-e", extra, *options],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        assert done.returncode == 0, self.said
        return recap(done.stdout)["here"]["changed"]

    def called(self) -> list[str]:
        """What was changed, by the calls."""
        return self.calls.read_text().splitlines()


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_a_controller_needs_no_operators(machine):
    given = {"sluice_operators": [], "sluice_controller_config": {}}
    assert machine.run("controller", "configure", "--check", active="sluiced.service", **given) == 0


OPERATORS = {"sluice_operators": ["alice", "bob"]}


@pytest.mark.parametrize(
    ("group", "joining"),
    [
        ("sluice:x:997:", ["alice", "bob"]),
        ("sluice:x:997:bob,carol", ["alice"]),
        ("sluice:x:997:carol,bob,alice", []),
    ],
)
def test_operators_join_who_are_no_members_yet(machine, group, joining):
    # Check mode says the same and does nothing.
    assert machine.run("controller", "operators", "--check", group=group, **OPERATORS) == bool(
        joining
    )
    assert machine.called() == []
    assert machine.run("controller", "operators", group=group, **OPERATORS) == bool(joining)
    assert machine.called() == [f"gpasswd --add {name} sluice" for name in joining]


LEAVING = [
    ("sluice:x:997:bob,carol,alice", ["alice", "bob"]),
    ("sluice:x:997:carol", []),
    # It went with its package.
    ("", []),
]


@pytest.mark.parametrize(("group", "leaving"), LEAVING)
def test_a_removal_takes_operators_out_of_the_group_and_nobody_else(machine, group, leaving):
    assert machine.run("remove", "operators", "--check", group=group, **OPERATORS) == bool(leaving)
    assert machine.called() == []
    assert machine.run("remove", "operators", group=group, **OPERATORS) == bool(leaving)
    assert machine.called() == [f"gpasswd --delete {name} sluice" for name in leaving]


@pytest.mark.parametrize("wanted", [{"log_level": "info"}, {"database": "postgresql://new-word@h"}])
def test_no_difference_shows_a_databases_password(machine, tmp_path, wanted):
    file = tmp_path / "sluiced.toml"
    file.write_text('database = "postgresql://sluice:old-word@db/sluice"\n')
    given = {"sluice_controller_config": wanted, "__sluice_controller_file": str(file)}
    machine.run("controller", "configure", "--check", "--diff", **given)
    assert "old-word" not in machine.said and "new-word" not in machine.said


NEW, THERE = {"changed": True}, {"changed": False}


@pytest.mark.parametrize(
    ("active", "prerequisites", "options", "changed", "calls"),
    [
        ("", NEW, [], 1, ["systemctl start libvirtd.socket"]),
        ("", THERE, ["--check"], 1, []),
        # It would be there by now.
        ("", NEW, ["--check"], 0, []),
        # Its socket does not start beside it.
        ("libvirtd.service", THERE, [], 0, []),
        # One for each kind of thing.
        ("virtqemud.socket", THERE, [], 0, []),
    ],
)
def test_a_libvirt_that_answers_is_left_alone(
    machine, active, prerequisites, options, changed, calls
):
    given = {"__kvm_host_prerequisites": prerequisites}
    assert machine.run("kvm_host", "libvirt", *options, active=active, **given) == changed
    assert machine.called() == calls


@pytest.mark.parametrize(
    ("active", "ended"),
    [
        (
            "sluice-nightly.timer sluice-nightly.service=activating",
            ["sluice-nightly.timer", "sluice-nightly.service"],
        ),
        ("", []),
    ],
)
def test_a_removal_ends_the_nightly_run_and_its_timer_first(machine, active, ended):
    assert machine.run("remove", "nightly", active=active) == bool(ended)
    assert machine.called() == [f"systemctl stop {unit}" for unit in ended]
