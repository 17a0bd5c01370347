# SPDX-License-Identifier: GPL-2.0-or-later
"""site.yml and remove.yml on a whole host: a Debian 13 tree whose process 1 is systemd.

The host gets the controller and the page, from the packages of this checkout, with
the units' whole sandbox. libvirt and QEMU are left out (``sluice_parts``): hosts that
have them are in tests/deploy.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collection import recap
from integration.ansible.conftest import ControlNode
from testbed.booted_root import BootedRoot, control_groups
from testbed.debian_root import DEB, build, wanted_by

pytestmark = pytest.mark.skipif(
    control_groups() is None, reason="this kernel shows no control groups of version 2"
)
NAMES = ("sluice-controller", "sluice-web")
# The tree reaches no archive: these are there already.
OF_ANSIBLE = ("python3-apt", "python3-debian", "python3-cryptography")
SITE, REMOVE = "sluice.appliance.site", "sluice.appliance.remove"
TOKEN = {"user": "olga", "label": "backup", "days": 7}
GIVEN = {
    "sluice_parts": ["controller", "web"],
    "sluice_packages_dir": str(DEB),
    "sluice_web_bind": "127.0.0.1:8480",
    "sluice_web_names": ["booted.example.net", "127.0.0.1"],
    "sluice_web_users": [{"name": "olga", "role": "operator", "password": "geheim-12345678"}],
    "sluice_web_tokens": [TOKEN],
    "sluice_operators": ["alice"],
    "sluice_controller_config": {"log_level": "info"},
}


class Host:
    """The booted tree, and the control node."""

    def __init__(self, root: BootedRoot, control: ControlNode):
        self.root, self.control = root, control
        self.said = ""

    def play(self, playbook: str, *options: str, fails: bool = False, **variables) -> int:
        """Run a playbook by name or path; return how many tasks changed something."""
        host = {
            "ansible_ssh_executable": str(self.root.ssh),
            "ansible_ssh_transfer_method": "piped",
            "ansible_python_interpreter": "/usr/bin/python3",
            # The way in leads to root, and the tree has no sudo.
            "ansible_become": False,
            **GIVEN,
            **variables,
        }
        inventory = {"sluice_hosts": {"hosts": {"booted": host}}}
        done = self.control.play(playbook, inventory, *options)
        self.said = done.stdout
        assert (done.returncode != 0) is fails, self.said
        return recap(self.said)["booted"]["changed"]

    def start_of(self, unit: str) -> str:
        """Which start of the unit this is."""
        return self.root.out(f"systemctl show --property=InvocationID --value {unit}")

    def answers(self, port: int) -> bool:
        """Whether the page does, there, with the certificate in /etc/sluice/tls."""
        ask = (
            "import ssl, urllib.request;"
            "trust = ssl.create_default_context(cafile='/etc/sluice/tls/web.crt');"
            f"page = urllib.request.urlopen('https://127.0.0.1:{port}/sign-in', context=trust);"
            "print(page.status)"
        )
        return self.root.run(f'python3 -c "{ask}"', check=False).stdout.strip() == "200"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, control: ControlNode) -> Iterator[Host]:
    packages = build(*NAMES)
    wanted = {*wanted_by(packages, ("Depends",)), *OF_ANSIBLE}
    with BootedRoot(tmp_path_factory.mktemp("booted"), wanted) as root:
        root.run("rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*; useradd alice")
        yield Host(root, control)


def test_check_mode_changes_nothing_on_a_bare_host(host):
    assert host.play(SITE, "--check", "--diff") == 0
    assert "booted has no package source of Sluice yet: a run sets it up" in host.said


def test_site_installs_and_a_second_run_changes_and_restarts_nothing(host):
    assert host.play(SITE) > 0
    assert "geheim" not in host.said
    assert host.answers(8480)
    root = host.root
    assert root.out("runuser -u sluice-web -- sluice-web users") == "admin\tadmin\nolga\toperator"
    assert "sluice" in root.out("id -nG alice").split()
    kept = host.control.folder / "sluice-passwords"
    assert sorted(path.name for path in kept.iterdir()) == ["booted", "booted-olga-backup.token"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept.iterdir())
    assert not any(path.read_text().strip() in host.said for path in kept.iterdir())
    starts = [host.start_of(unit) for unit in ("sluiced", "sluice-web")]
    assert all(starts)
    assert host.play(SITE) == 0, host.said
    assert host.play(SITE, "--check") == 0, host.said
    assert [host.start_of(unit) for unit in ("sluiced", "sluice-web")] == starts


def test_a_user_or_a_token_that_is_refused_is_named_and_keeps_no_other_from_the_operator(host):
    olga = {**TOKEN, "label": "second"}
    given = {
        # Given from a vault, so no password is kept there, and nothing has made the folder.
        "sluice_web_admin_password": "wahrhaft-geheim",
        "sluice_web_admin_password_dir": str(host.control.folder / "elsewhere"),
        "sluice_web_tokens": [{"user": "ghost", "label": "first"}, olga],
    }
    host.play(SITE, "-vvv", fails=True, **given)
    assert "token first: sluice-web: There is no user ghost" in host.said
    token = (host.control.folder / "elsewhere" / "booted-olga-second.token").read_text().strip()
    assert len(token) > 20 and token not in host.said
    short = [{"name": "petra", "password": "geheim-12"}]
    assert host.play(SITE, "-vvv", fails=True, sluice_web_users=short) == 0
    assert "user petra: sluice-web: password: 9 characters cannot be used" in host.said
    assert "geheim-12" not in host.said


def test_a_changed_setting_restarts_its_own_service(host):
    page, daemon = host.start_of("sluice-web"), host.start_of("sluiced")
    debug = {"sluice_controller_config": {"log_level": "debug", "state_dir": "/srv/data/sluice"}}
    # Configuration, folder, drop-in with its folder, restart.
    assert host.play(SITE, **debug) > 0
    assert host.start_of("sluiced") != daemon and host.start_of("sluice-web") == page
    assert "sqlite:////srv/data/sluice/sluice.db" in host.root.out("sluice status")
    assert host.play(SITE, **debug) == 0, host.said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"log_levl": "debug"}, "log_levl 'debug' is not a setting"),
        ({"state_dir": "/srv"}, "has data, which is none of sluiced's"),
    ],
)
def test_the_daemon_refuses_a_setting_before_it_is_written(host, given, words):
    before, start = host.root.path("/etc/sluice/sluiced.toml").read_text(), host.start_of("sluiced")
    assert host.play(SITE, fails=True, sluice_controller_config=given) == 0
    assert words in host.said
    assert host.root.path("/etc/sluice/sluiced.toml").read_text() == before
    assert host.start_of("sluiced") == start


def test_the_page_serves_a_port_that_is_kept_for_root(host):
    host.play(SITE, sluice_web_bind="127.0.0.1:443")
    assert host.answers(443) and not host.answers(8480)
    process = "$(systemctl show --property=MainPID --value sluice-web)"
    # CAP_NET_BIND_SERVICE, bit 10, and nothing else.
    assert host.root.out(f"grep CapEff /proc/{process}/status").split()[1] == f"{1 << 10:016x}"


def test_a_certificate_that_ends_soon_is_made_anew(host):
    crt = host.root.path("/etc/sluice/tls/web.crt")
    host.root.run(
        "openssl req -x509 -key /etc/sluice/tls/web.key -subj /CN=booted.example.net -days 20"
        " -addext subjectAltName=DNS:booted.example.net,IP:127.0.0.1 -out /etc/sluice/tls/web.crt"
    )
    before = crt.read_text()
    host.play(SITE)
    assert crt.read_text() != before
    assert host.answers(8480)


ONE_FILE = """
- name: Do some of a role's tasks
  hosts: all
  gather_facts: false
  tasks:
    - name: As the role does
      ansible.builtin.include_role:
        name: sluice.appliance.{role}
        tasks_from: {tasks}
"""


def offer(folder: Path, **versions: str) -> None:
    """Make empty packages sluice-NAME of these versions, and their index."""
    folder.mkdir()
    for name, version in versions.items():
        control = folder / name / "DEBIAN" / "control"
        control.parent.mkdir(parents=True)
        control.write_text(
            f"Package: sluice-{name}\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: Tests <tests@sluice.invalid>\nDescription: nothing\n"
        )
        file = folder / f"sluice-{name}_{version}_all.deb"
        command = ["dpkg-deb", "--root-owner-group", "--build", str(folder / name), str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    index = subprocess.check_output(["dpkg-scanpackages", "-m", "."], cwd=folder, text=True)
    (folder / "Packages").write_text(index)


def test_an_installation_ends_at_the_newest_release_whatever_was_there(host, tmp_path):
    """One package is missing and another is old, and apt has not read the newest index."""
    (host.control.folder / "install.yml").write_text(
        ONE_FILE.format(role="sluice", tasks="install")
    )

    def install(release: str, *names: str) -> str:
        given = {
            "__sluice_checked": True,
            "__sluice_packages_of": {"web": names},
            "__sluice_install": names,
            "sluice_packages_dir": str(tmp_path / release),
        }
        host.play("install.yml", "-e", json.dumps(given), sluice_parts=["web"])
        return host.root.out("dpkg-query -W -f '${Package} ${Version} ' 'sluice-t*'")

    try:
        offer(tmp_path / "old", this="1")
        assert install("old", "sluice-this") == "sluice-this 1"
        offer(tmp_path / "new", this="2", that="1")
        assert install("new", "sluice-this", "sluice-that") == "sluice-that 1 sluice-this 2"
        offer(tmp_path / "newest", this="3", that="1")
        # An interrupted run has come so far.
        for file in (tmp_path / "newest").glob("*.deb"):
            shutil.copy(file, host.root.path("/var/lib/sluice-apt"))
        shutil.copy(tmp_path / "newest" / "Packages", host.root.path("/var/lib/sluice-apt"))
        assert install("newest", "sluice-this", "sluice-that") == "sluice-that 1 sluice-this 3"
    finally:
        host.root.run("dpkg --purge sluice-this sluice-that")


def test_the_module_of_the_processor_is_loaded_once(host):
    (host.control.folder / "kvm.yml").write_text(ONE_FILE.format(role="kvm_host", tasks="kvm"))
    program = host.root.path("/usr/sbin/modprobe")
    assert not program.exists()
    try:
        # The kernel is this machine's: no module is loaded.
        program.write_text('#!/bin/sh\n[ "$*" = kvm_amd ] && touch /dev/kvm\n')
        program.chmod(0o755)
        given = {"__sluice_checked": True, "__sluice_processor": {"stdout": "svm"}}
        for changed in (1, 0):
            assert host.play("kvm.yml", "-e", json.dumps(given)) == changed, host.said
    finally:
        program.unlink()
        host.root.run("rm -f /dev/kvm")


ATTACHED = "<domain><qemu:arg value='x,page=/run/sluice/pages/web1'/></domain>"


def test_removal_stops_while_nobody_is_there_to_detach_a_domain(host):
    definition = host.root.path("/etc/libvirt/qemu/web1.xml")
    definition.parent.mkdir(parents=True)
    definition.write_text(ATTACHED)
    host.root.run("systemctl stop sluiced")
    try:
        assert host.play(REMOVE, fails=True) == 0
        assert "web1 are attached, and sluiced, which detaches them, does not" in host.said
    finally:
        host.root.run("rm -r /etc/libvirt; systemctl start sluiced")


def test_removal_leaves_the_data_and_says_so(host):
    assert host.play(REMOVE, "--check") > 0
    assert host.root.run("sluice status").returncode == 0
    host.play(REMOVE)
    said = " ".join(host.said.split())
    assert "data or certificates in /var/lib/sluice, /var/lib/sluice-web stay" in said
    assert "of users and groups passwd sluice-web, group sluice-web, group sluice stay" in said
    assert host.root.out("dpkg-query -W -f '${Package} ' 'sluice*' 2>/dev/null || :") == ""
    assert host.root.out("find /etc -name '*sluice*' -not -name '*-'") == ""


def test_removal_with_the_data_leaves_nothing_of_sluice(host):
    host.play(SITE)
    host.play(REMOVE, sluice_remove_data=True)
    assert "stay with the data that belongs to them" not in host.said
    left = "find / -xdev -name '*sluice*' -not -path '/proc/*' -not -path '/debs*' 2>/dev/null"
    journal = " -not -path '/var/log/*' -not -path '/var/cache/*' -not -path '/root/.ansible*'"
    assert host.root.out(f"{left}{journal}") == ""
    assert host.play(REMOVE, sluice_remove_data=True) == 0, host.said
