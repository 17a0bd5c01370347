# SPDX-License-Identifier: GPL-2.0-or-later
"""The packages of controller, web and agent in a fresh Debian 13.

One tree goes through the life of an installation: installed from the flat
repository, used, upgraded, purged. No init system runs in it, so units are
checked and not started; `make test-deploy` starts them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice_controller.adapters.domain_xml import attach
from testbed.debian_root import DebianRoot, build, difference, wanted_by

NAMES = ("sluice-controller", "sluice-web", "sluice-agent")
COMMANDS = {
    "/usr/bin/sluice": "sluice.1",
    "/usr/sbin/sluiced": "sluiced.8",
    "/usr/bin/sluice-web": "sluice-web.8",
    "/usr/sbin/sluice-agent": "sluice-agent.8",
}
UNITS = ("sluiced.service", "sluice-web.service", "sluice-agent.service")
# Who may do what in the worst case, by systemd's own measure (0 to 10).
MOST_EXPOSURE = {"sluiced.service": 2.5, "sluice-web.service": 1.1, "sluice-agent.service": 2.6}
TMPFILES = Path(__file__).parents[3] / "qemu-patches" / "debian" / "sluice-qemu.tmpfiles"
IGNORED = {
    "/var/lib/dpkg/*": "dpkg's own book of what is installed",
    "/var/lib/apt/*": "APT's own book",
    "/var/cache/apt/*": "APT's cache",
    "/var/cache/debconf/*": "of the questions that packages may ask",
    "/var/log/*": "logs of the installation",
    "/etc/*-": "what the tools for users keep of the file before",
    "/run/systemd*": "marks of systemctl, gone at the next boot",
    "/proc/*": "no file of the tree",
    "/dev/*": "bound while a command runs",
    "/debs": "where the test shows the packages",
    "/tmp/*": "the test's own",
    "/root/*": "the test's own",
}
INSTALL = (
    "echo 'deb [trusted=yes] file:/debs ./' >/etc/apt/sources.list.d/test.list;"
    "apt-get -qq update; apt-get -qq install --no-install-recommends"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    packages = build(*NAMES)
    folder = tmp_path_factory.mktemp("packaging")
    with DebianRoot(folder, wanted_by(packages, ("Depends",))) as root:
        root.before = root.manifest(IGNORED)
        root.said = root.run(f"{INSTALL} {' '.join(NAMES)}").stdout
        yield root


def test_the_nightly_run_is_built_and_starts(tmp_path):
    """With its own tests, against Debian's libraries; lintian is silent or it fails.

    The package of QEMU takes long to build, and no guest boots here: of the dependencies
    only Python's are installed.
    """
    packages = build("sluice-nightly")
    assert [stanza["Package"] for stanza in packages] == ["sluice-nightly"]
    wanted = {name for name in wanted_by(packages, ("Depends",)) if name.startswith("python3")}
    with DebianRoot(tmp_path, wanted) as root:
        root.run("dpkg -i --force-depends /debs/sluice-nightly_*.deb")
        said = root.run("sluice-nightly --check-config").stdout
        assert "sluice-nightly: the configuration can work" in said


def test_every_package_is_configured_without_a_warning(root):
    states = root.run(f"dpkg-query -W -f '${{db:Status-Status}}\\n' {' '.join(NAMES)}").stdout
    assert states.split() == ["installed"] * len(NAMES)
    assert not re.search(r"\b(warning|error|failed)\b", root.said, re.IGNORECASE), root.said


def test_users_groups_and_folders(root):
    assert root.run("getent group sluice").stdout.startswith("sluice:")
    user = root.run("getent passwd sluice-web").stdout.strip().split(":")
    assert user[5:] == ["/var/lib/sluice-web", "/usr/sbin/nologin"]
    owners = root.run(
        "stat -c '%n %U %G %a' /etc/sluice /etc/sluice/sluiced.toml /var/lib/sluice-web"
        " /run/sluice; stat -c '%n %U %g %a' /run/sluice/pages"
    ).stdout
    assert owners.splitlines() == [
        "/etc/sluice root root 755",
        "/etc/sluice/sluiced.toml root root 644",
        "/var/lib/sluice-web sluice-web sluice-web 750",
        "/run/sluice root root 755",
        "/run/sluice/pages root 64055 3770",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_its_version_and_its_options(root, command):
    version = Path(__file__).parents[3].joinpath("VERSION").read_text().strip()
    assert root.run(f"{command} --version").stdout.split()[-1] == version
    said = root.run(f"{command} --help").stdout
    assert "--version" in said
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", said)) - {"--help"}
    page = root.run(f"zcat /usr/share/man/man*/{COMMANDS[command]}.gz").stdout.replace("\\", "")
    completion = {"--install-completion", "--show-completion"}
    assert sorted(o for o in options - completion if o not in page) == []


def test_the_manual_names_every_subcommand(root):
    page = root.run("zcat /usr/share/man/man1/sluice.1.gz").stdout
    for command in ("attach", "class set", "rule add", "auto on"):
        assert f"sluice {command}" in page


@pytest.mark.parametrize(
    ("shell", "variables", "words"),
    [("bash", "COMP_WORDS='sluice att' COMP_CWORD=1 _SLUICE_COMPLETE=complete_bash", "attach")],
)
def test_completion_completes(root, shell, variables, words):
    root.run("bash -n /usr/share/bash-completion/completions/sluice")
    assert root.run(f"{variables} sluice").stdout.split() == [words]


def test_the_units_are_valid_and_give_away_little(root):
    said = root.run(f"systemd-analyze verify --man=no {' '.join(UNITS)} 2>&1", check=False)
    about_ours = [line for line in said.stdout.splitlines() if "sluice" in line]
    assert said.returncode == 0 and about_ours == [], said.stdout
    for unit in UNITS:
        rated = root.run(f"systemd-analyze security --offline=yes --json=short {unit}", check=False)
        overall = root.run(f"systemd-analyze security --offline=yes --no-pager {unit}", check=False)
        exposure = re.search(r"Overall exposure level.*?: ([\d.]+)", overall.stdout)
        assert exposure, overall.stdout
        print(f"{unit}: {exposure[1]}")
        assert float(exposure[1]) <= MOST_EXPOSURE[unit], json.loads(rated.stdout)


def test_sluiced_serves_without_libvirt(root):
    said = root.run(
        "sluiced 2>/tmp/log & daemon=$!;"
        "for i in $(seq 100); do [ -S /run/sluice/sluiced.sock ] && break; sleep 0.1; done;"
        "sluice status; stat -c '%G %a' /run/sluice/sluiced.sock /etc/sluice/api-token;"
        "kill $daemon; wait $daemon; echo ended $?"
    ).stdout
    assert "libvirt qemu:///system: not connected" in said
    assert "database sqlite:////var/lib/sluice/sluice.db" in said
    assert said.splitlines()[-3:] == ["sluice 660", "sluice 640", "ended 0"]


def test_sluice_web_serves_once_there_is_a_user(root):
    said = root.run(
        "runuser -u sluice-web -- sluice-web reset-password admin;"
        "stat -c '%U %a' /var/lib/sluice-web/web.sqlite;"
        "runuser -u sluice-web -- sluice-web & web=$!;"
        "for i in $(seq 200); do"
        " python3 -c 'import urllib.request as r;"
        'print(r.urlopen("http://127.0.0.1:8480/sign-in").status)\' 2>/dev/null && break;'
        " sleep 0.1; done; kill $web"
    ).stdout
    assert re.search(r"Password: \S+", said)
    assert "sluice-web 600" in said
    assert "\n200\n" in said, said


def test_the_agent_shows_processes(root):
    table = json.loads(root.run("sluice-agent --once").stdout)
    assert any(process["comm"] == "sluice-agent" for process in table["processes"])


def test_an_upgrade_keeps_what_was_configured(root):
    config = root.path("/etc/sluice/sluiced.toml")
    config.write_text('log_level = "debug"\n')
    root.run("dpkg -i /debs/sluice-controller_*.deb")
    assert config.read_text() == 'log_level = "debug"\n'


def test_an_interrupted_installation_is_completed(root):
    root.run("dpkg --unpack /debs/sluice-controller_*.deb /debs/sluice-web_*.deb")
    states = "dpkg-query -W -f '${db:Status-Status} ' sluice-controller sluice-web"
    assert root.run(states).stdout.split() == ["unpacked", "unpacked"]
    root.run("apt-get -qq -f install && dpkg --configure -a")
    assert root.run(states).stdout.split() == ["installed", "installed"]


def _attached(name: str) -> str:
    """A domain's XML after attach."""
    plain = (
        f"<domain type='kvm'><name>{name}</name><features><acpi/></features><devices>"
        "<emulator>/usr/bin/qemu-system-x86_64</emulator>"
        "<disk type='file'><driver name='qemu' type='raw'/><source file='/d'/>"
        "<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    page = f"/run/sluice/pages/{name}.page"
    return attach(plain, emulator="/e", page_path=page, name=name)[0]


def test_attached_domains_outlive_the_controller(root):
    defined, running = root.path("/etc/libvirt/qemu"), root.path("/run/libvirt/qemu")
    for folder, name in ((defined, "web1"), (running, "web2")):
        folder.mkdir(parents=True)
        (folder / f"{name}.xml").write_text(_attached(name))
    (defined / "plain.xml").write_text("<domain/>")
    page = root.path("/run/sluice/pages/web2.page")
    page.write_text("")
    said = root.run("dpkg --purge sluice-web sluice-controller").stdout
    assert "warning: these domains stay attached: web1, web2\n" in said
    assert "without the package sluice-qemu nothing makes /run/sluice/pages" in said
    assert page.exists() and not root.path("/run/sluice/sluiced.sock").exists()
    page.unlink()
    root.run("rm -r /etc/libvirt/qemu /run/libvirt")
    # With the package that has QEMU, it is that one's folder.
    entry = root.path("/usr/lib/tmpfiles.d/sluice-qemu.conf")
    entry.write_text(TMPFILES.read_text())
    said = root.run(f"{INSTALL} sluice-controller; dpkg --purge sluice-controller").stdout
    assert "warning" not in said
    root.run("rmdir /run/sluice/pages; systemd-tmpfiles --create --prefix=/run/sluice")
    assert root.path("/run/sluice/pages").is_dir()
    entry.unlink()
    said = root.run(f"{INSTALL} sluice-controller; dpkg --remove sluice-controller").stdout
    assert "warning" not in said
    root.run(f"{INSTALL} sluice-controller sluice-web")


def test_purge_keeps_the_data_and_says_where(root):
    assert root.path("/var/lib/sluice/sluice.db").exists()
    said = root.run(f"dpkg --purge {' '.join(NAMES)}").stdout
    for folder in ("/var/lib/sluice", "/var/lib/sluice-web"):
        assert f"is kept in {folder}; to remove it: rm -r {folder};" in said
    assert root.path("/var/lib/sluice/sluice.db").exists()
    assert root.path("/var/lib/sluice-web/web.sqlite").exists()
    assert not root.path("/etc/sluice").exists()


def test_nothing_else_is_left(root):
    root.run(f"{INSTALL} {' '.join(NAMES)}")
    root.run(f"rm -r /var/lib/sluice /var/lib/sluice-web; dpkg --purge {' '.join(NAMES)}")
    root.run("rm /etc/apt/sources.list.d/test.list")
    assert difference(root.before, root.manifest(IGNORED)) == []
