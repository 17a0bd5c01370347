# SPDX-License-Identifier: GPL-2.0-or-later
"""The roles' configuration files are judged by the programs that read them."""

import json
import sys

import pytest

from ansible_collection import paths
from integration.ansible.conftest import ControlNode

# The last task fails, so that no handler restarts a service of this machine.
PLAY = """
- name: Configure
  hosts: here
  gather_facts: false
  tasks:
    - name: As the role does
      ansible.builtin.include_role:
        name: "sluice.appliance.{{ role }}"
        tasks_from: configure
    - name: End before the handlers
      ansible.builtin.fail:
        msg: the files are written
"""
ENDED = "the files are written"


@pytest.mark.parametrize(
    ("role", "given", "file", "said"),
    [
        (
            "controller",
            {"sluice_controller_config": {"log_level": "debug", "libvirt_uri": 'a"\\é'}},
            'libvirt_uri = "a\\"\\\\é"\nlog_level = "debug"\n',
            ENDED,
        ),
        (
            "controller",
            {"sluice_controller_config": {"log_level": "loud"}},
            None,
            "log_level 'loud' is not a level",
        ),
        (
            "controller",
            {"sluice_controller_config": {"database": "postgresql+nosuch://u:secret-word@h/d"}},
            None,
            "database 'postgresql+nosuch://u:***@h/d' cannot be used",
        ),
        (
            "perf_nightly",
            {"sluice_nightly_config": {"run.readers": 4, "run.accelerator": "kvm"}},
            'run.accelerator = "kvm"\nrun.readers = 4\n',
            ENDED,
        ),
        (
            "perf_nightly",
            {"sluice_nightly_config": {"run.readers": 20}},
            None,
            "run.readers 20 is out of range; give 1 to 12",
        ),
    ],
)
def test_a_file_is_written_only_if_its_program_takes_it(
    control: ControlNode, tmp_path, role, given, file, said
):
    for name in ("etc", "units", "bin"):
        (tmp_path / name).mkdir()
    # In a checkout it is a module; sluiced is in the environment's folder.
    program = tmp_path / "bin" / "sluice-nightly"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sluice_nightly "$@"\n')
    program.chmod(0o755)
    (control.folder / "configure.yml").write_text(PLAY)
    here = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    # A role's own variables give way to these alone.
    extra = {
        "__sluice_checked": True,
        "__sluice_etc_folder": str(tmp_path / "etc"),
        "__sluice_units_folder": str(tmp_path / "units"),
        "role": role,
        **given,
    }
    path = f"{tmp_path / 'bin'}:{paths.VENV_BIN}:/usr/sbin:/usr/bin:/sbin:/bin"
    hosts = {"all": {"hosts": {"here": here}}}
    done = control.play("configure.yml", hosts, "--diff", "-e", json.dumps(extra), PATH=path)
    assert said in done.stdout, done.stdout
    assert "secret-word" not in done.stdout
    written = list((tmp_path / "etc").iterdir())
    assert len(written) == (file is not None)
    if file is not None:
        assert written[0].read_text().endswith(file)
