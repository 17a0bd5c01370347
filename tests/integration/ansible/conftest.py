# SPDX-License-Identifier: GPL-2.0-or-later
"""The collection with what it needs, and playbooks run from it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ansible_collection
from integration.controller.conftest import Daemon

RUN_SECONDS = 900
ansible_collection.link()


class ControlNode:
    """A folder of an operator, in which playbooks are started."""

    def __init__(self, folder: Path):
        self.folder = folder

    def play(
        self, playbook: str, inventory: Mapping[str, Any], *options: str, **environment: str
    ) -> subprocess.CompletedProcess:
        """Run a playbook by its name or path; both outputs are in ``stdout``."""
        path = self.folder / "inventory.yml"
        path.write_text(json.dumps(inventory))
        program = str(ansible_collection.paths.VENV_BIN / "ansible-playbook")
        return subprocess.run(
            [program, "-i", str(path), playbook, *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
            env=ansible_collection.environment(
                PWD=str(self.folder), ANSIBLE_PIPELINING="1", **environment
            ),
        )


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> ControlNode:
    return ControlNode(tmp_path_factory.mktemp("control"))


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory):
    """sluiced on libvirt's test driver, which has one domain, "test"."""
    daemon = Daemon(tmp_path_factory.mktemp("ansible-sluiced")).start()
    yield daemon
    daemon.stop()
