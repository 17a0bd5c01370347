# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose certificate is it? The roles' own tasks, from making one to the removal.

They work in a folder of the test in place of /etc/sluice.
"""

import json
import subprocess
from pathlib import Path

import pytest

import ansible_collection
from ansible_collection import recap

RUN_SECONDS = 300
PLAY = """
- name: Put certificates there, or take everything away
  hosts: here
  gather_facts: false
  tasks:
    - name: As the roles do
      ansible.builtin.include_role:
        name: "sluice.appliance.{{ part }}"
        tasks_from: "{{ file_of_tasks }}"
"""


class Host:
    """This machine, with a folder of its own for configuration."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.etc = folder / "etc"
        self.tls = self.etc / "tls"
        self.record = folder / "record" / "tls.json"
        self.etc.mkdir()
        (self.etc / "sluiced.toml").write_text("# settings\n")
        (self.etc / "api-token").write_text("secret\n")
        # Elsewhere, as site.yml is: names of files count from where the operator is.
        (folder / "book").mkdir()
        (folder / "book" / "play.yml").write_text(PLAY)

    def run(self, role: str, tasks: str, *options: str, **variables) -> str:
        given = {
            **variables,
            "part": role,
            "file_of_tasks": tasks,
            "__sluice_checked": True,
            "__sluice_etc_folder": str(self.etc),
            "__sluice_tls_folder": str(self.tls),
            "__sluice_record_folder": str(self.record.parent),
            "__sluice_tls_record": str(self.record),
            "__sluice_web_group": "root",
        }
        local = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
        inventory = self.folder / "inventory.yml"
        inventory.write_text(json.dumps({"all": {"hosts": {"here": local}}}))
        playbook = str(ansible_collection.paths.VENV_BIN / "ansible-playbook")
        done = subprocess.run(
            [playbook, "-i", str(inventory), "-e", json.dumps(given), "book/play.yml", *options],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            env=ansible_collection.environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def put(self, **variables) -> str:
        return self.run("web", "tls", **variables)

    def remove(self, *options: str, **variables) -> str:
        return self.run("remove", "configuration", *options, **variables)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.etc)) for path in self.etc.rglob("*"))


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_certificate_that_was_made_goes(host):
    host.put(sluice_web_tls="self_signed")
    assert {"tls/web.crt", "tls/web.key"} <= set(host.files())
    assert host.record.stat().st_mode & 0o777 == 0o600
    said = host.put(sluice_web_tls="self_signed")
    assert recap(said)["here"]["changed"] == 0, said
    (host.tls / "web.key.new").write_text("left by an interruption")
    host.remove()
    assert not host.etc.exists()
    assert not host.record.exists()


def test_certificates_that_were_copied_go(host):
    host.put(sluice_web_tls="self_signed")
    for name in ("given.cert", "given.key"):
        (host.folder / name).write_text(f"{name}\n")
    given = {"sluice_web_tls_cert": str(host.folder / "given.cert")}
    host.put(sluice_web_tls="files", sluice_web_tls_key="given.key", **given)
    assert (host.tls / "web.key").read_text() == "given.key\n"
    host.remove()
    assert not host.etc.exists()
    assert (host.folder / "given.key").exists()


def test_the_operators_certificates_stay_and_are_named(host):
    # As certbot's hook does where a certificate of Sluice's was before.
    host.put(sluice_web_tls="self_signed")
    for name in ("web.crt", "web.key", "chain.pem"):
        (host.tls / name).write_text("the operator's\n")
    host.put(sluice_web_tls="host")
    said = host.remove("--check")
    assert host.record.exists() and (host.etc / "sluiced.toml").exists()
    said = host.remove()
    kept = ["chain.pem", "web.crt", "web.key"]
    assert host.files() == ["tls", *(f"tls/{name}" for name in kept)]
    names = ", ".join(str(host.tls / name) for name in kept)
    assert f"here: {names} were not put there by Sluice and stay" in " ".join(said.split())
    said = host.remove()
    assert recap(said)["here"]["changed"] == 0, said
    host.remove(sluice_remove_data="true")
    assert not host.etc.exists()


def test_what_the_operator_added_stays_and_what_was_made_goes(host):
    host.put(sluice_web_tls="self_signed")
    elsewhere = host.folder / "live"
    elsewhere.mkdir()
    (elsewhere / "web.pem").write_text("the operator's\n")
    (host.tls / "web.crt").unlink()
    (host.tls / "web.crt").symlink_to(elsewhere / "web.pem")
    host.remove()
    assert host.files() == ["tls", "tls/web.crt"]
    assert (elsewhere / "web.pem").exists()
