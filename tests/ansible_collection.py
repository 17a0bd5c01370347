# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the Ansible collection of this checkout importable and runnable for tests."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed import paths

COLLECTIONS = paths.BUILD / "ansible"
MODULES = "ansible_collections.sluice.appliance.plugins.modules"
RUN_SECONDS = 120


def link() -> Path:
    """Link the collection where Ansible and Python find it; return the collections path."""
    subprocess.run(["bash", str(paths.TOP / "tools" / "setup" / "collection.sh")], check=True)
    if str(COLLECTIONS) not in sys.path:
        sys.path.insert(0, str(COLLECTIONS))
    return COLLECTIONS


def environment(**more: str) -> dict[str, str]:
    """Variables for Ansible, with nothing of the caller's own configuration."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(COLLECTIONS),
        "ANSIBLE_CONFIG": "/dev/null",
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        **more,
    }


def run_module(
    module: str, /, *, check: bool = False, env: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Run a module of the collection as Ansible would on the host; return its answer."""
    given = {"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check}}
    done = subprocess.run(
        [sys.executable, "-m", f"{MODULES}.{module}"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=environment(**(env or {})),
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"{module} ended with {done.returncode}: {done.stderr}") from None
