# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbooks, run for real as far as a machine without systemd allows.

Hosts are names for this machine (a local connection), so that one run tries
many inventories. What needs a host of its own is in tests/deploy.
"""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

import ansible_collection
from ansible_collection import failure_of, recap

RUN_SECONDS = 300
EXAMPLE = ansible_collection.paths.TOP / "ansible" / "inventories" / "example"
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
PACKAGES = ("sluice-qemu", "sluice-controller", "sluice-web", "sluice-agent", "sluice-nightly")


def ansible_playbook(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    command = [str(ansible_collection.paths.VENV_BIN / "ansible-playbook"), *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=ansible_collection.environment(PWD=str(cwd), **env),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The control node's folder: packages, one corrupt copy of them, certificates."""
    folder = tmp_path_factory.mktemp("control")
    for name in ("deb", "corrupt"):
        (folder / name).mkdir()
        stanzas = []
        for package in PACKAGES:
            content = f"{package}, as good as a package for a check".encode()
            (folder / name / f"{package}.deb").write_bytes(content)
            stanzas.append(
                f"Package: {package}\nVersion: 1\nFilename: ./{package}.deb\n"
                f"Size: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
            )
        (folder / name / "Packages").write_text("\n".join(stanzas))
    (folder / "corrupt" / "sluice-web.deb").write_bytes(b"sluice-web, cut short")
    return folder


def write_inventory(folder: Path, hosts: dict, **groups: dict) -> str:
    path = folder / "inventory.yml"
    path.write_text(json.dumps({"sluice_hosts": {"hosts": hosts}, **groups}))
    return str(path)


@pytest.mark.parametrize("playbook", ["site", "attach", "remove"])
def test_syntax_with_the_example_inventory(playbook, tmp_path):
    done = ansible_playbook(
        "--syntax-check", "-i", str(EXAMPLE), f"sluice.appliance.{playbook}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_the_collection_installs_without_a_network(tmp_path):
    done = subprocess.run(
        [
            str(ansible_collection.paths.VENV_BIN / "ansible-galaxy"),
            *("collection", "install", "--offline", "-p", str(tmp_path)),
            str(ansible_collection.paths.TOP / "ansible"),
        ],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=ansible_collection.environment(
            ANSIBLE_HOME=str(tmp_path / "home"),
            ANSIBLE_COLLECTIONS_PATH=str(tmp_path),
            # The checkout's own collection must not count as installed.
            PYTHONPATH="",
        ),
    )
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "ansible_collections" / "sluice" / "appliance"
    assert (installed / "playbooks" / "site.yml").is_file()
    assert not (installed / ".ansible-lint").exists()


MANY = """
- name: Check each host, and let no host stop the others
  hosts: all
  gather_facts: false
  roles:
    - role: sluice.appliance.sluice
"""
DOMAIN = {
    "name": "media",
    "classes": [{"name": "batch", "limits": {"blk-read": "20MB/s"}}],
    "rules": [{"class": "batch", "match": {"exe": "/bin/cat"}}],
}
# One host for each bad inventory: its variables, and what is said of them.
BAD = {
    "misspelt": (
        {"sluice_domians": []},
        "misspelt: variable 'sluice_domians' is not known: did you mean 'sluice_domains'?",
    ),
    "wrongkind": ({"sluice_web_tls": "letsencrypt"}, "value of sluice_web_tls must be one of: se"),
    "notabool": ({"sluice_allow_tcg": "perhaps"}, "sluice_allow_tcg"),
    # Taken for false, it would leave out the page and, with it, its own judgement.
    "nopage": ({"sluice_web_enabled": "perhaps"}, "sluice_web_enabled"),
    "badrate": (
        {
            "sluice_domains": [
                {**DOMAIN, "classes": [{"name": "batch", "limits": {"blk-read": "20 parsecs"}}]}
            ]
        },
        "badrate: sluice_domains[0].classes[0].limits blk-read: '20 parsecs' is not a rate: write",
    ),
    "badclass": (
        {"sluice_domains": [{**DOMAIN, "classes": []}]},
        "badclass: sluice_domains[0].rules[0].class 'batch' is an unknown class",
    ),
    "baddomain": (
        {
            "sluice_domains": [DOMAIN],
            "sluice_rules": [{"domain": "medai", "class": "batch", "match": {"exe": "/x"}}],
        },
        "baddomain: sluice_rules[0].domain 'medai' is an unknown domain: sluice_domains has media",
    ),
    "twice": (
        {"sluice_domains": [DOMAIN, DOMAIN]},
        "twice: sluice_domains[1].name 'media' is a duplicate: name each domain once",
    ),
    "inclear": (
        {"sluice_web_tls": "none"},
        "sluice_web_tls 'none' with sluice_web_bind '0.0.0.0:8480' would send passwords in clear",
    ),
    "nocert": (
        {"sluice_web_tls": "files", "sluice_web_tls_cert": "/nowhere/web.pem"},
        "sluice_web_tls_cert '/nowhere/web.pem' is no file on the control node",
    ),
    "nopair": (
        {
            "sluice_web_tls": "files",
            "sluice_web_tls_cert": __file__,
            "sluice_web_tls_key": __file__,
        },
        "test_playbooks.py' cannot be used (not PEM): give a certificate and a key in PEM",
    ),
    "shortword": (
        {"sluice_web_admin_password": "geheim"},
        "sluice_web_admin_password has 6 characters: use 10 to 1024",
    ),
    "numberword": (
        {"sluice_web_admin_password": 12345678},
        "numberword: sluice_web_admin_password is no text: write it in quotes",
    ),
    "badsetting": (
        {"sluice_controller_config": {"log_levl": "debug"}},
        "badsetting: sluice_controller_config: setting 'log_levl' is not known: did you mean 'log",
    ),
    "badfolder": (
        {"sluice_controller_config": {"state_dir": "/home/sluice"}},
        "badfolder: sluice_controller_config: state_dir '/home/sluice' is not seen by the service",
    ),
    "badnight": (
        {"sluice_nightly_config": {"run.readers": 20}},
        "badnight: sluice_nightly_config: run.readers 20 is out of range: give 1 to 12",
    ),
    "badname": (
        {"sluice_web_names": ["kvm1 example"]},
        "badname: sluice_web_names: 'kvm1 example' is no name for a certificate: give DNS names",
    ),
    "badaddress": (
        {"ansible_host": "fe80::1%lo"},
        "'fe80::1%lo' is no name for a certificate: give DNS names (xn-- for others) and IP"
        " addresses; these are the inventory's name and address, because sluice_web_names is empty",
    ),
    "badhistory": (
        {"sluice_history_seconds": 5},
        "badhistory: sluice_history_seconds 5 is out of range: give 60 to 2592000",
    ),
    "notalist": (
        {"sluice_operators": "alice"},
        "notalist: sluice_operators 'alice' is no list: begin each entry with '- '",
    ),
    "nopackages": (
        {"sluice_packages_dir": "/nowhere/deb"},
        "nopackages: sluice_packages_dir '/nowhere/deb' does not exist: run 'make deb'",
    ),
    "corrupt": (
        {"sluice_packages_dir": "corrupt"},
        "has a corrupt 'sluice-web.deb': it has 21 bytes and not",
    ),
    "release": (
        {"sluice_host_releases": ["debian 99"]},
        "is not supported: install one of debian 99",
    ),
    "fulldisk": (
        {"sluice_free_mib": {"/usr": 900_000_000}},
        "MiB free, and",
    ),
    "badbind": (
        {"sluice_web_bind": "192.0.2.77:8480"},
        "badbind: ",
    ),
    "badsource": (
        {"sluice_apt_repository": "deb [trusted=yes] file:/nowhere/apt ./"},
        "package source 'deb [trusted=yes] file:/nowhere/apt ./' does not work",
    ),
}


@pytest.fixture(scope="module")
def bad_run(folder):
    hosts = {
        name: {
            **LOCAL,
            "sluice_packages_dir": str(folder / "deb"),
            **variables,
        }
        for name, (variables, _words) in BAD.items()
    }
    hosts["corrupt"]["sluice_packages_dir"] = str(folder / "corrupt")
    (folder / "many.yml").write_text(MANY)
    inventory = write_inventory(folder, hosts, sluice_nightly={"hosts": {"badnight": {}}})
    return ansible_playbook("-i", inventory, "many.yml", cwd=folder)


@pytest.mark.parametrize("host", BAD)
def test_a_bad_inventory_is_named(bad_run, host):
    message = failure_of(bad_run.stdout, host)
    assert BAD[host][1] in message
    assert recap(bad_run.stdout)[host]["changed"] == 0


def test_a_password_is_shown_nowhere(folder):
    words = {"short": "geheim", "number": 12345678, "good": "geheim-12345678", "many": ["geheim"]}
    hosts = {
        name: {**LOCAL, "sluice_web_admin_password": word, "sluice_packages_dir": "/nowhere"}
        for name, word in words.items()
    }
    (folder / "many.yml").write_text(MANY)
    done = ansible_playbook("-vvvv", "-i", write_inventory(folder, hosts), "many.yml", cwd=folder)
    assert recap(done.stdout).keys() == words.keys()
    for secret in ("geheim", "12345678"):
        assert secret not in done.stdout + done.stderr


def test_all_that_is_wrong_with_a_host_is_said_at_once(bad_run):
    message = failure_of(bad_run.stdout, "badbind")
    # This machine boots without systemd, and has not got that address.
    assert "and not systemd: boot the host with systemd" in message
    assert "address '192.0.2.77:8480' for the web page cannot be used (Cannot assign" in message


def test_one_bad_host_stops_the_others_before_anything_changes(folder):
    hosts = {
        "good": {**LOCAL, "sluice_packages_dir": str(folder / "deb")},
        # Nobody listens on port 1.
        "away": {"ansible_host": "127.0.0.1", "ansible_port": 1},
    }
    done = ansible_playbook(
        "-i", write_inventory(folder, hosts), "sluice.appliance.site", cwd=folder
    )
    assert done.returncode != 0
    message = failure_of(done.stdout, "away")
    assert "host 'away' (127.0.0.1) cannot be reached" in message
    assert "--limit 'all:!away'" in message
    assert "Look at the host" not in done.stdout
    assert "Install libvirt" not in done.stdout
    assert all(counts["changed"] == 0 for counts in recap(done.stdout).values())


def test_an_inventory_without_hosts_is_named(folder):
    done = ansible_playbook("-i", write_inventory(folder, {}), "sluice.appliance.site", cwd=folder)
    assert "groups 'sluice_hosts' and 'sluice_guests' are empty" in failure_of(
        done.stdout, "localhost"
    )


def test_a_nightly_run_needs_a_host(folder):
    inventory = write_inventory(
        folder, {"here": LOCAL}, sluice_nightly={"hosts": {"elsewhere": LOCAL}}
    )
    done = ansible_playbook("-i", inventory, "sluice.appliance.site", cwd=folder)
    assert "group 'sluice_nightly' has elsewhere, which 'sluice_hosts' has not" in failure_of(
        done.stdout, "localhost"
    )


def attach(daemon, folder, *options: str, **variables) -> subprocess.CompletedProcess:
    inventory = write_inventory(folder, {"here": {**LOCAL, **variables}})
    return ansible_playbook(
        "-i",
        inventory,
        "sluice.appliance.attach",
        *options,
        cwd=folder,
        SLUICE_SOCKET=str(daemon.socket),
        SLUICE_TOKEN_FILE=str(daemon.token_file),
    )


def test_a_domain_that_is_not_defined_is_named_before_anything_changes(daemon, folder):
    done = attach(daemon, folder, sluice_domains=[DOMAIN])
    assert done.returncode != 0
    assert "domain 'media' is not defined in libvirt on this host" in done.stdout
    assert [c["name"] for c in daemon.call("GET", "/v1/classes")] == ["default"]


def test_check_mode_leaves_out_what_the_real_run_leaves_out(daemon, folder):
    there = {"name": "test", "state": "detached"}
    domains = [{**DOMAIN, "exclusive": True}, there]
    done = attach(daemon, folder, "--check", sluice_domains=domains, sluice_missing_domain="skip")
    assert done.returncode == 0, done.stdout
    assert "here: media not defined in libvirt yet and left out" in done.stdout
    # The class is the host's; what the domain would have of it is no change.
    assert recap(done.stdout)["here"]["changed"] == 1, done.stdout


def test_a_domain_that_cannot_be_shaped_is_refused(daemon, folder):
    done = attach(
        daemon, folder, sluice_domains=[{**DOMAIN, "name": "test", "devices": ["testnet0"]}]
    )
    assert done.returncode != 0
    assert "device 'testnet0' of domain 'test' cannot be shaped (model" in done.stdout
    assert [c["name"] for c in daemon.call("GET", "/v1/classes")] == ["default"]


def test_classes_and_rules_of_a_host_are_set_once(daemon, folder):
    variables = {
        "sluice_classes": [{"name": "batch", "title": "Batch", "priority": 7}],
        "sluice_rules": [{"class": "batch", "match": {"unit": "backup.service"}}],
    }
    try:
        for changed, options in ((2, ["--check", "--diff"]), (2, []), (0, [])):
            done = attach(daemon, folder, *options, **variables)
            if "--check" in options:
                # The class is not there yet, but nothing of that fails.
                assert [c["name"] for c in daemon.call("GET", "/v1/classes")] == ["default"]
            assert done.returncode == 0, done.stdout
            assert recap(done.stdout)["here"]["changed"] == changed, done.stdout
        assert daemon.call("GET", "/v1/rules")[0]["match"] == {"unit": "backup.service"}
    finally:
        for rule in daemon.call("GET", "/v1/rules"):
            daemon.call("DELETE", f"/v1/rules/{rule['id']}")
        for shaping_class in daemon.call("GET", "/v1/classes"):
            if shaping_class["name"] != "default":
                daemon.call("DELETE", f"/v1/classes/{shaping_class['name']}")
