# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbooks with this machine as their host, as far as nothing is installed."""

import subprocess
from pathlib import Path

import pytest

import ansible_collection
from ansible_collection import COLLECTIONS, failure_of, paths, recap
from integration.ansible.conftest import RUN_SECONDS, ControlNode

EXAMPLE = paths.TOP / "ansible" / "inventories" / "example"
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
MANY = """
- name: Check each host, and let no host stop the others
  hosts: all
  gather_facts: false
  roles:
    - role: sluice.appliance.sluice
"""


@pytest.mark.parametrize("playbook", ["site", "attach", "remove"])
def test_syntax_with_the_example_inventory(control: ControlNode, playbook: str):
    program = str(paths.VENV_BIN / "ansible-playbook")
    done = subprocess.run(
        [program, "--syntax-check", "-i", str(EXAMPLE), f"sluice.appliance.{playbook}"],
        cwd=control.folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=ansible_collection.environment(),
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_the_collection_installs_beside_what_debian_brings(tmp_path: Path):
    """Without a network: the collection that it needs is there, as by Debian's package."""
    done = subprocess.run(
        [
            str(paths.VENV_BIN / "ansible-galaxy"),
            *("collection", "install", "--offline", "--force", "-p", str(tmp_path)),
            str(paths.TOP / "ansible"),
        ],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=ansible_collection.environment(
            ANSIBLE_HOME=str(tmp_path / "home"),
            ANSIBLE_COLLECTIONS_PATH=f"{tmp_path}:{COLLECTIONS}",
        ),
    )
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "ansible_collections" / "sluice" / "appliance"
    assert (installed / "playbooks" / "site.yml").is_file()
    assert not (installed / ".ansible-lint").exists()
    assert not (tmp_path / "ansible_collections" / "community").exists()


# One host for each bad inventory: its variables, and the words about them.
BAD = {
    "misspelt": ({"sluice_domians": []}, "misspelt: sluice_domians not known: correct the name"),
    "wrongkind": ({"sluice_web_tls": "letsencrypt"}, "value of sluice_web_tls must be one of: se"),
    "notabool": ({"sluice_allow_tcg": "perhaps"}, "sluice_allow_tcg"),
    # Taken for false, it would leave out the page and, with it, its own judgement.
    "nopage": ({"sluice_web_enabled": "perhaps"}, "sluice_web_enabled"),
    "badword": ({"sluice_domains": [{"name": "web1", "restrt": True}]}, "sluice_domains.restrt"),
    "nostate": ({"sluice_state": ["web1"]}, "sluice_state"),
    "inclear": (
        {"sluice_web_tls": "none"},
        "sluice_web_tls 'none' with sluice_web_bind '0.0.0.0:8480' would send passwords in clear",
    ),
    "nocert": (
        {"sluice_web_tls": "files", "sluice_web_tls_cert": "/nowhere/web.pem"},
        "sluice_web_tls_cert '/nowhere/web.pem' is no file on the control node",
    ),
    "badfolder": (
        {"sluice_controller_config": {"state_dir": "/home/sluice"}},
        "badfolder: state_dir '/home/sluice' is no place for data",
    ),
    "nopackages": (
        {"sluice_packages_dir": "/nowhere/deb"},
        "nopackages: sluice_packages_dir '/nowhere/deb' has no index Packages: run 'make deb'",
    ),
    "release": (
        {"sluice_host_releases": ["debian 99"]},
        "is not supported: install one of debian 99",
    ),
}


@pytest.fixture(scope="module")
def bad_run(control: ControlNode) -> subprocess.CompletedProcess:
    (control.folder / "deb").mkdir()
    (control.folder / "deb" / "Packages").touch()
    (control.folder / "many.yml").write_text(MANY)
    packages = {"sluice_packages_dir": str(control.folder / "deb")}
    hosts = {name: {**LOCAL, **packages, **given} for name, (given, _) in BAD.items()}
    return control.play("many.yml", {"sluice_hosts": {"hosts": hosts}})


@pytest.mark.parametrize("host", BAD)
def test_a_bad_inventory_is_named(bad_run: subprocess.CompletedProcess, host: str):
    assert BAD[host][1] in failure_of(bad_run.stdout, host)
    assert recap(bad_run.stdout)[host]["changed"] == 0


def test_one_host_that_is_away_stops_the_others_before_anything_changes(
    control: ControlNode, tmp_path: Path
):
    (tmp_path / "Packages").touch()
    # Nobody listens on port 1.
    hosts = {"good": LOCAL, "away": {"ansible_host": "127.0.0.1", "ansible_port": 1}}
    given = {"hosts": hosts, "vars": {"sluice_packages_dir": str(tmp_path)}}
    done = control.play("sluice.appliance.site", {"sluice_hosts": given})
    assert done.returncode != 0
    assert "Install libvirt" not in done.stdout
    assert all(counts["changed"] == 0 for counts in recap(done.stdout).values())
    assert recap(done.stdout)["away"]["unreachable"] == 1


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({}, "groups 'sluice_hosts' and 'sluice_guests' are empty"),
        (
            {"sluice_nightly": {"hosts": {"elsewhere": LOCAL}}},
            "group 'sluice_nightly' has elsewhere, which 'sluice_hosts' has not",
        ),
    ],
)
def test_an_inventory_that_cannot_be_meant_is_named(control: ControlNode, groups, words):
    hosts = {"sluice_hosts": {"hosts": {"here": LOCAL} if groups else {}}}
    done = control.play("sluice.appliance.site", {**hosts, **groups})
    assert words in failure_of(done.stdout, "localhost")
