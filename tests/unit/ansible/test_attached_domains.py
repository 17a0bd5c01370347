# SPDX-License-Identifier: GPL-2.0-or-later
"""Who is asked which domains are attached, and whose silence says that there are none."""

import subprocess
from types import SimpleNamespace

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils.api import Api, ApiError
from ansible_collections.sluice.appliance.plugins.modules import attached_domains

NOBODY = {"attached": [], "running": [], "defined": [], "source": "nobody"}
# As virsh where no libvirt answers.
SILENT = "/bin/false"


@pytest.fixture
def ask(tmp_path):
    """Ask on a host without sluiced, whose libvirt has its definitions in a folder."""

    def run_command(command, environ_update):
        done = subprocess.run(command, capture_output=True, text=True, env=environ_update)
        return done.returncode, done.stdout, done.stderr

    def run(virsh):
        params = {"uri": "qemu:///system"}
        module = SimpleNamespace(params=params, run_command=run_command)
        api = Api(str(tmp_path / "none.sock"), str(tmp_path / "none"))
        folders = [str(tmp_path / name) for name in ("qemu", "away")]
        return attached_domains.answer_of(api, module, virsh, folders)

    return run


def test_without_libvirts_command_there_is_nobody_to_ask(ask):
    assert ask(None) == NOBODY


def test_a_libvirt_that_is_gone_has_no_domains(ask, tmp_path):
    """A removal was interrupted between libvirt and its command; or a guest has that alone."""
    assert ask(SILENT) == NOBODY
    (tmp_path / "qemu" / "networks").mkdir(parents=True)
    assert ask(SILENT) == NOBODY


def test_a_libvirt_that_has_domains_must_answer(ask, tmp_path):
    (tmp_path / "qemu").mkdir()
    (tmp_path / "qemu" / "web1.xml").write_text("<domain/>")
    with pytest.raises(ApiError, match="libvirt at 'qemu:///system' does not answer"):
        ask(SILENT)
