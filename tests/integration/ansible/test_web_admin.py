# SPDX-License-Identifier: GPL-2.0-or-later
"""The first admin, made by the role's own tasks and the real sluice-web.

The user sluice-web and its folder exist in a mount namespace alone: there
/etc/passwd and /var/lib are files of the test.
"""

import json
import subprocess
from pathlib import Path

import pytest

import ansible_collection
from ansible_collection import recap

RUN_SECONDS = 300
PLAY = """
- name: Make the first admin
  hosts: here
  gather_facts: false
  tasks:
    - name: As the role does
      ansible.builtin.include_role:
        name: sluice.appliance.web
        tasks_from: admin
"""
ENTER = """\
set -e
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/lib /var/lib
exec "$@"
"""


class Place:
    """A host and its control node."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "lib" / "sluice-web"
        self.passwords = folder / "passwords"
        self.state.mkdir(parents=True)
        users = Path("/etc/passwd").read_text()
        # Root under another name, so that the checkout can be read.
        (folder / "passwd").write_text(f"{users}sluice-web:x:0:0::/:/bin/sh\n")
        # Elsewhere, as site.yml is: folders count from where the operator is.
        (folder / "book").mkdir()
        (folder / "book" / "play.yml").write_text(PLAY)
        (folder / "enter").write_text(ENTER.format(folder=folder))

    def run(self, *options: str, **variables) -> subprocess.CompletedProcess:
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "sluice_web_admin_password_dir": str(self.passwords),
            # What is checked before is not looked at here.
            "__sluice_checked": True,
            **variables,
        }
        inventory = self.folder / "inventory.yml"
        inventory.write_text(json.dumps({"all": {"hosts": {"here": host}}}))
        playbook = str(ansible_collection.paths.VENV_BIN / "ansible-playbook")
        return subprocess.run(
            [
                *("unshare", "--mount", "--propagation", "private", "bash"),
                *(str(self.folder / "enter"), playbook, "-i", str(inventory)),
                *("book/play.yml", *options),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            env=ansible_collection.environment(),
        )

    def users(self) -> str:
        program = str(ansible_collection.paths.VENV_BIN / "sluice-web")
        command = [program, "users", "--state-dir", str(self.state)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def files(self) -> set[str]:
        """What is on the host and on the control node."""
        kept = [self.state.parent, self.passwords]
        return {str(p) for folder in kept for p in folder.rglob("*")} | {
            str(p) for p in kept if p.exists()
        }


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_check_mode_writes_nothing_anywhere(place):
    before = place.files()
    done = place.run("--check", "--diff")
    assert done.returncode == 0, done.stdout
    assert recap(done.stdout)["here"]["changed"] > 0, done.stdout
    assert place.files() == before
    # What is not there is not said to be there.
    assert "First sign-in" not in done.stdout


def test_check_mode_says_what_it_would_do_where_the_database_has_no_user_yet(place):
    assert place.users() == ""
    before = place.files()
    done = place.run("--check")
    assert done.returncode == 0, done.stdout
    assert recap(done.stdout)["here"]["changed"] > 0, done.stdout
    assert place.files() == before
    assert place.users() == ""


def test_a_generated_password_is_on_the_control_node_and_in_no_output(place):
    done = place.run("-vvv", sluice_web_admin_password_dir="passwords")
    assert done.returncode == 0, done.stdout
    assert place.users() == "admin\tadmin\n"
    file = place.passwords / "here"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "First sign-in at here: user 'admin', password in" in done.stdout
    assert file.read_text().strip() not in done.stdout + done.stderr
    again = place.run()
    assert recap(again.stdout)["here"]["changed"] == 0, again.stdout


def test_a_given_password_is_kept_nowhere_and_in_no_output(place):
    done = place.run("-vvv", sluice_web_admin_password="geheim-12345678")
    assert done.returncode == 0, done.stdout
    assert place.users() == "admin\tadmin\n"
    assert not place.passwords.exists()
    assert "geheim" not in done.stdout + done.stderr
