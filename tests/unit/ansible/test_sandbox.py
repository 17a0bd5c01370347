# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings that the units' sandbox makes impossible, and those that a drop-in makes possible."""

import posixpath
import re
from pathlib import Path

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils import sandbox
from ansible_collections.sluice.appliance.plugins.module_utils.settings import CHECKS
from hypothesis import given
from hypothesis import strategies as st

from nightly import config as nightly_config
from nightly import shelf
from sluice_controller.entry import config as controller_config
from sluice_controller.entry import daemon
from sluice_web import cli as web_cli
from testbed import paths

UNITS = {
    "sluiced": "controller/debian/sluice-controller.sluiced.service",
    "sluice-agent": "guest-agent/systemd/sluice-agent.service",
    "sluice-nightly": "tests/nightly/debian/sluice-nightly.service",
    "sluice-web": "web/debian/sluice-web.sluice-web.service",
}


def unit(name):
    """The packaged unit's settings, the last of each name."""
    text = (paths.TOP / UNITS[name]).read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def said(variable, given):
    return CHECKS[variable](given)


def test_the_units_have_the_sandbox_that_is_judged_here():
    for name, folder in sandbox.STATE.items():
        assert unit(name)["ProtectSystem"] == "strict"
        assert folder == f"/var/lib/{unit(name)['StateDirectory']}"
        assert (unit(name)["ProtectHome"], unit(name)["PrivateTmp"]) == ("yes", "yes")
    assert unit("sluiced")["RestrictAddressFamilies"] == "AF_UNIX AF_NETLINK"
    assert unit("sluice-web")["CapabilityBoundingSet"] == ""
    assert unit("sluice-web")["PrivateUsers"] == "yes"


@pytest.mark.parametrize(("name", "program"), [("sluice-web", web_cli), ("sluiced", daemon)])
def test_a_service_is_not_started_again_with_what_cannot_work(name, program):
    settings = unit(name)
    assert settings["Restart"] == "on-failure"
    assert settings["RestartPreventExitStatus"] == str(program.CANNOT_WORK)
    assert program.FAILED_NOW not in (0, program.CANNOT_WORK)


def test_the_agent_is_not_started_again_with_options_that_it_does_not_know():
    """They end it with status 2 (see its manual); all else is tried again."""
    settings = unit("sluice-agent")
    assert (settings["Restart"], settings["RestartPreventExitStatus"]) == ("always", "2")


def test_the_agents_tags_do_not_outlive_it():
    settings = unit("sluice-agent")
    assert settings["ExecStopPost"] == f"-{settings['ExecStart']} untag"
    # What it has to take off is there until then, and the rules for the next one after it.
    assert settings["RuntimeDirectoryPreserve"] == "restart"


def test_the_nightly_run_waits_for_its_next_night_whatever_its_status():
    assert "Restart" not in unit("sluice-nightly")


@pytest.mark.parametrize(
    ("variable", "given", "sentence"),
    [
        (
            "sluice_controller_config",
            {"state_dir": "/home/sluice"},
            "sluice_controller_config: state_dir '/home/sluice' is not seen by the service, which"
            " has no /home, /root and /run/user and a /tmp of its own: give a path elsewhere",
        ),
        ("sluice_controller_config", {"state_dir": "/tmp/x"}, "is not seen by the service"),
        ("sluice_controller_config", {"state_dir": "/srv"}, "a folder of its own, which is closed"),
        ("sluice_controller_config", {"state_dir": "/srv"}, "give one like /srv/sluice"),
        ("sluice_controller_config", {"state_dir": "/var/lib"}, "'/var/lib' is not a folder of"),
        ("sluice_controller_config", {"state_dir": "/"}, "'/' is not written plainly: give a path"),
        ("sluice_controller_config", {"state_dir": "/srv/a b"}, "is not written plainly"),
        ("sluice_controller_config", {"state_dir": "/srv/%h"}, "is not written plainly"),
        ("sluice_controller_config", {"state_dir": "/srv/x/../y"}, "is not written plainly"),
        (
            "sluice_controller_config",
            {"state_dir": "/usr/local/sluice"},
            "is no place for data: give a folder like /srv/sluice",
        ),
        ("sluice_controller_config", {"state_dir": "/run/x"}, "is no place for data"),
        ("sluice_controller_config", {"state_dir": "/var/lib/sluice-web"}, "is no place for data"),
        ("sluice_controller_config", {"emulator": "/root/qemu"}, "emulator '/root/qemu' is not se"),
        (
            "sluice_controller_config",
            {"database": "sqlite:////srv/x/sluice.db"},
            "sluice_controller_config: database is the file '/srv/x/sluice.db' and not"
            " '/var/lib/sluice/sluice.db': leave it out, set state_dir to the file's folder, and"
            " name the file sluice.db",
        ),
        # The next run would take it for somebody else's.
        (
            "sluice_controller_config",
            {"state_dir": "/srv/sluice", "database": "sqlite:////srv/sluice/other.db"},
            "is the file '/srv/sluice/other.db' and not '/srv/sluice/sluice.db': leave it out",
        ),
        (
            "sluice_controller_config",
            {"database": "sqlite:////var/lib/sluice/x/sluice.db"},
            "is the file '/var/lib/sluice/x/sluice.db' and not '/var/lib/sluice/sluice.db'",
        ),
        (
            "sluice_controller_config",
            {"database": "sqlite://"},
            "database is not the file '/var/lib/sluice/sluice.db': leave it out",
        ),
        (
            "sluice_controller_config",
            {"database": "sqlite+pysqlcipher://:geheim@/var/lib/sluice/x.db"},
            "database is not the file '/var/lib/sluice/sluice.db': leave it out",
        ),
        (
            "sluice_controller_config",
            {"database": "oracle://a:geheim@db/x"},
            "database is for none of the databases that are known here: begin it with postgresql, ",
        ),
        ("sluice_controller_config", {"database": "postgresql"}, "is for none of the databases"),
        (
            "sluice_controller_config",
            {"libvirt_uri": "qemu+ssh://kvm2/system"},
            "libvirt_uri 'qemu+ssh://kvm2/system' is another host's libvirt: give this host's, qem",
        ),
        ("sluice_nightly_config", {"paths.state": "/srv"}, "paths.state '/srv' is not a folder of"),
        ("sluice_nightly_config", {"paths.state": "/srv"}, "give one like /srv/sluice-nightly"),
        ("sluice_nightly_config", {"paths.state": "/var/lib/sluice/n"}, "is no place for data"),
        (
            "sluice_nightly_config",
            {"paths.emulator": "/home/me/qemu"},
            "paths.emulator '/home/me/qemu' is not seen by the service",
        ),
    ],
)
def test_what_the_sandbox_makes_impossible_is_named(variable, given, sentence):
    problems = said(variable, given)
    assert len(problems) == 1
    assert sentence in problems[0]
    assert "geheim" not in problems[0]


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, []),
        ({"log_level": "debug"}, []),
        ({"state_dir": "/var/lib/sluice"}, []),
        ({"state_dir": "/var/lib/sluice/db"}, []),
        (
            {"state_dir": "/srv/sluice"},
            [
                *("[Unit]", "RequiresMountsFor=/srv/sluice"),
                *("[Service]", "ReadWritePaths=/srv/sluice"),
            ],
        ),
        (
            {"database": "postgresql://db.example/sluice"},
            ["[Service]", "RestrictAddressFamilies=AF_INET AF_INET6"],
        ),
        ({"database": "sqlite:////var/lib/sluice/sluice.db"}, []),
        (
            {"state_dir": "/srv/sluice", "database": "sqlite:////srv/sluice/sluice.db"},
            [
                *("[Unit]", "RequiresMountsFor=/srv/sluice"),
                *("[Service]", "ReadWritePaths=/srv/sluice"),
            ],
        ),
        (
            {"state_dir": "/data/sluice", "database": "postgresql://a:b@db.example/sluice"},
            [
                *("[Unit]", "RequiresMountsFor=/data/sluice"),
                *("[Service]", "ReadWritePaths=/data/sluice"),
                "RestrictAddressFamilies=AF_INET AF_INET6",
            ],
        ),
    ],
)
def test_what_the_controllers_settings_need(given, lines):
    assert said("sluice_controller_config", given) == []
    assert sandbox.controller_dropin(given) == lines


def test_what_the_nightly_settings_need():
    assert sandbox.nightly_dropin({"run.readers": 3}) == []
    given = {"paths.state": "/srv/nightly", "paths.socket": "/run/sluice/sluiced.sock"}
    assert said("sluice_nightly_config", given) == []
    assert sandbox.nightly_dropin(given) == [
        *("[Unit]", "RequiresMountsFor=/srv/nightly"),
        *("[Service]", "ReadWritePaths=/srv/nightly"),
    ]


def test_what_a_port_needs():
    assert sandbox.web_dropin("0.0.0.0:1024") == sandbox.web_dropin("[::]:8480") == []
    assert "PrivateUsers=no" in sandbox.web_dropin("[::]:443")
    assert sandbox.web_dropin("kvm1.example.net:1023")


def test_a_driver_is_installed_with_the_database():
    assert sandbox.driver_packages({}) == []
    assert sandbox.driver_packages({"database": "sqlite:////var/lib/sluice/x.db"}) == []
    assert sandbox.driver_packages({"database": "postgresql://db/x"}) == ["python3-psycopg2"]
    assert set(sandbox.DRIVERS.values()) >= {"python3-psycopg2"}
    control = (paths.TOP / "controller/debian/control").read_text()
    suggested = control.partition("Suggests:")[2].partition("Description:")[0]
    assert set(sandbox.DRIVERS.values()) <= set(re.findall(r"[\w-]+", suggested))


def test_folders_to_look_into():
    given = {"state_dir": "/srv/sluice", "paths.state": "/var/lib/sluice-nightly"}
    assert sandbox.own_folders(given) == {"sluiced": "/srv/sluice"}
    assert sandbox.folders_to_check(given) == {"/srv/sluice": sandbox.CONTENTS["sluiced"]}


SEGMENTS = st.lists(st.sampled_from(["srv", "var", "lib", "sluice", "home", "..", "a b", "%i", ""]))


@given(st.one_of(SEGMENTS.map(lambda words: "/" + "/".join(words)), st.from_regex(r"\A/[ -~]*\Z")))
def test_a_folder_that_is_let_through_is_one_that_a_unit_reads_as_it_stands(path):
    for program in sandbox.STATE:
        if sandbox.state_problem(path, program):
            continue
        # No specifier, no quote, no space, nothing that leads elsewhere.
        assert re.fullmatch(r"[A-Za-z0-9/._+-]+", path)
        assert posixpath.normpath(path) == path and path.count("/") >= 2
        assert not path.startswith(("/home", "/run/", "/usr/", "/etc/", "/tmp/"))


TEXTS = st.one_of(
    st.text(max_size=20),
    st.from_regex(r"\A(/srv/[ -~]*|qemu(\+ssh)?://[ -~]*|(sqlite|postgresql)://[ -~]*)\Z"),
)
NAMES = st.sampled_from(["state_dir", "emulator", "database", "libvirt_uri"])


@given(st.dictionaries(NAMES, TEXTS))
def test_what_is_let_through_makes_a_dropin_of_whole_lines(given):
    if said("sluice_controller_config", given):
        return
    paths_of = ("RequiresMountsFor=/", "ReadWritePaths=/")
    known = ("[Unit]", "[Service]", *paths_of, "RestrictAddressFamilies=AF_INET AF_INET6")
    for line in sandbox.controller_dropin(given):
        assert line.startswith(known) and line.isprintable() and line.count(" ") <= 1


def test_what_sluiced_makes_in_its_folder_is_known(tmp_path):
    arguments = controller_config.argument_parser().parse_args(["--state-dir", str(tmp_path)])
    url = controller_config.load(arguments).database_url
    name = Path(url.removeprefix("sqlite:///")).name
    assert name == sandbox.DATABASE
    assert set(sandbox.CONTENTS["sluiced"]) == {
        name,
        f"{name}-wal",
        f"{name}-shm",
        f"{name}-journal",
    }


def test_what_the_nightly_run_makes_in_its_folder_is_known(tmp_path):
    config = nightly_config.Config(paths=nightly_config.Paths(state=tmp_path))
    kept = shelf.Shelf(config)
    with kept.lock():
        kept.begin({"run_id": "x"})
        kept.keep({"run_id": "x", "started_at": 1}, None)
    layout = config.layout()
    made = {layout.images, layout.notes / "accelerator.json", tmp_path / "runs"}
    # As a probe that was killed leaves it.
    torn = tmp_path / "accelerator.81.tmp"
    assert shelf.TORN_PROBE.fullmatch(torn.name)
    for path in (*tmp_path.iterdir(), *made, torn):
        assert sandbox.is_made(path.name, sandbox.CONTENTS["sluice-nightly"]), path
    assert not sandbox.is_made("accelerator.txt", sandbox.CONTENTS["sluice-nightly"])
