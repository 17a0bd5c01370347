# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the Ansible collection of this checkout importable and runnable for tests."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed import paths

COLLECTIONS = paths.BUILD / "ansible"
MODULES = "ansible_collections.sluice.appliance.plugins.modules"
RUN_SECONDS = 120


def link(*options: str) -> Path:
    """Link the collection where Ansible and Python find it; return the collections path.

    With ``--own`` without the collection that it needs, which comes over the network once.
    """
    script = str(paths.TOP / "tools" / "setup" / "collection.sh")
    subprocess.run(["bash", script, *options], check=True)
    if str(COLLECTIONS) not in sys.path:
        sys.path.insert(0, str(COLLECTIONS))
    return COLLECTIONS


def provide_community(folder: Path) -> None:
    """Offer in a collections path just what Debian's package ansible brings of it."""
    link()
    there = folder / "ansible_collections"
    there.mkdir(parents=True, exist_ok=True)
    if not (there / "community").exists():
        (there / "community").symlink_to(COLLECTIONS / "ansible_collections" / "community")


def environment(**more: str) -> dict[str, str]:
    """Variables for Ansible, with nothing of the caller's own configuration."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(Path.home()),
        # Caches and temporary files of a run are not left in the caller's ~/.ansible.
        "ANSIBLE_HOME": str(COLLECTIONS / "home"),
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(COLLECTIONS),
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


def recap(output: str) -> dict[str, dict[str, int]]:
    """Ansible's closing counts by host."""
    lines = output.partition("PLAY RECAP")[2].splitlines()
    found = {}
    for line in lines:
        host, colon, counts = line.partition(" : ")
        if colon:
            pairs = (part.split("=") for part in counts.split())
            found[host.strip()] = {key: int(value) for key, value in pairs}
    return found


def failure_of(output: str, host: str) -> str:
    """The messages with which a host failed, those of a loop's items included."""
    pattern = rf"^(?:fatal: \[{host}\]: FAILED!|failed: \[{host}\] \(item=.*?\)) => (\{{.*)$"
    lines = re.findall(pattern, output, re.MULTILINE)
    assert lines, f"{host} did not fail:\n{output[-4000:]}"
    return "\n".join(str(json.loads(line)["msg"]) for line in lines)
