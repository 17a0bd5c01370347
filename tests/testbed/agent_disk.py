# SPDX-License-Identifier: GPL-2.0-or-later
"""The disk that brings today's agent into a test guest."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from testbed import paths


def make(image: Path) -> None:
    """Pack the agent and its unit into a small file system, label SLUICE."""
    with tempfile.TemporaryDirectory(dir=image.parent) as folder:
        shutil.copy(paths.agent(), folder)
        shutil.copy(paths.agent_unit(), folder)
        size = paths.agent().stat().st_size // 2**20 + 4
        command = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-L", "SLUICE"]
        command += ["-d", folder, str(image), f"{size}M"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
