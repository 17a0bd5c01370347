# SPDX-License-Identifier: GPL-2.0-or-later
"""Today's agent for test guests: on a disk, or as the archive that an operator installs."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from testbed import paths


def make(image: Path) -> None:
    """Pack the agent with its unit and rule into a small file system, label SLUICE."""
    with tempfile.TemporaryDirectory(dir=image.parent) as folder:
        for file in _files():
            shutil.copy(file, folder)
        size = paths.agent().stat().st_size // 2**20 + 4
        command = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-L", "SLUICE"]
        command += ["-d", folder, str(image), f"{size}M"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def pack(archive: Path) -> Path:
    """Pack the agent, its unit, rule and scripts as the package does."""
    script = paths.TOP / "guest-agent" / "install" / "pack.sh"
    command = ["sh", str(script), str(archive), *map(str, _files())]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return archive


def _files() -> list[Path]:
    return [paths.agent(), paths.agent_unit(), paths.agent_rule()]
