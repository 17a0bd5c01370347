# SPDX-License-Identifier: GPL-2.0-or-later
"""Variables that are written freely: what is known, what is refused, and how it is said."""

import dataclasses
import math
import re
import tomllib
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import FilterModule
from ansible_collections.sluice.appliance.plugins.module_utils import settings
from ansible_collections.sluice.appliance.plugins.module_utils.settings import (
    CONTROLLER,
    NIGHTLY,
    PATH,
    file_problems,
    variable_problems,
)
from hypothesis import given
from hypothesis import strategies as st

from nightly import config as nightly_config
from nightly import images as nightly_images
from sluice_controller.domain import model
from sluice_controller.domain.errors import BadValue
from sluice_controller.entry import config as controller_config
from sluice_web import config as web_config
from sluice_web import store as web_store
from sluice_web.problems import Problem
from testbed import paths

ROLES = paths.TOP / "ansible" / "roles"
OPTIONS = {
    name: option
    for path in ROLES.glob("*/meta/argument_specs.yml")
    for name, option in yaml.safe_load(path.read_text())["argument_specs"]["main"][
        "options"
    ].items()
}


def said(name, value):
    """What is said of one variable, with its real declaration."""
    return variable_problems({name: value}, {name: OPTIONS[name]})


def test_the_controllers_settings_are_those_of_sluiced():
    found = {name: setting.default for name, setting in CONTROLLER.items()}
    assert found == controller_config.DEFAULTS
    assert CONTROLLER["log_level"].choices == controller_config.LOG_LEVELS
    assert {setting.kind for setting in CONTROLLER.values()} == {str, PATH}


def test_the_group_is_the_one_that_the_page_and_the_operators_are_in():
    unit = (paths.TOP / "web/debian/sluice-web.sluice-web.service").read_text()
    assert CONTROLLER["group"].choices == tuple(re.findall("(?m)^SupplementaryGroups=(.*)$", unit))
    tasks = yaml.safe_load((ROLES / "controller/tasks/operators.yml").read_text())
    commands = [
        task["ansible.builtin.command"] for task in tasks if "ansible.builtin.command" in task
    ]
    (joined,) = (command["argv"][-1] for command in commands if command["argv"][0] == "gpasswd")
    assert CONTROLLER["group"].choices == (joined,)


def test_the_nightly_settings_are_those_of_the_nightly_run():
    real = {}
    for section, kind in nightly_config.SECTIONS.items():
        for item in dataclasses.fields(kind):
            least, most = item.metadata.get("range", (-math.inf, math.inf))
            default = str(item.default) if item.type is Path else item.default
            kind = PATH if item.type is Path else item.type
            real[f"{section}.{item.name}"] = (kind, default, least, most)
    assert real == {
        name: (setting.kind, setting.default, setting.least, setting.most)
        for name, setting in NIGHTLY.items()
    }
    assert NIGHTLY["run.accelerator"].choices == nightly_config.ACCELERATORS


@pytest.mark.parametrize(
    "given",
    [{}, {"run.media_mib": 512, "run.web_mib": 384, "start.disk_spare_mib": 256}],
)
def test_the_nightly_run_needs_what_it_says_itself(given, tmp_path):
    raw = tomllib.loads(written("perf_nightly", "sluice_nightly_config", given))
    config = nightly_config.parse(raw, nightly_config.Config())
    needs = settings.nightly_needs(given)
    assert needs["state"] == str(config.paths.state)
    assert needs["memory_mib"] == config.guests_memory_mib() + config.start.memory_spare_mib
    assert needs["run_mib"] == nightly_images.RUN_MIB + config.start.disk_spare_mib
    # Where nothing is made yet.
    bare = dataclasses.replace(config, paths=nightly_config.Paths(state=tmp_path))
    assert sum(part["mib"] for part in needs["parts"]) == nightly_images.needed_mib(bare)
    assert [part["files"] for part in needs["parts"]] == [
        list(part.files) for part in nightly_images.PARTS
    ]


def written(role, name, given):
    """The file as the role's template writes it, with Ansible's own filter."""
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters["to_json"] = FilterModule().filters()["to_json"]
    template = next((ROLES / role / "templates").glob("*.toml.j2")).read_text()
    return environment.from_string(template).render({name: given})


ANY_VALUE = st.one_of(
    st.booleans(),
    st.integers(-10, 110_000_000),
    st.integers(0, 20),
    st.floats(),
    st.floats(0, 100),
    st.text(max_size=8),
    st.sampled_from(["kvm", "/srv/night", "info", "/\U0001f319", "a\x7fb", "\ud800"]),
    st.none(),
    st.just([]),
    st.just({"kvm": 1}),
)


@given(st.sampled_from([*NIGHTLY, "run", "run.speed", "abort.watch_s"]), ANY_VALUE)
def test_what_is_let_through_is_what_the_nightly_run_takes(name, value):
    problems = file_problems("sluice_nightly_config", {name: value}, NIGHTLY)
    try:
        raw = tomllib.loads(written("perf_nightly", "sluice_nightly_config", {name: value}))
        nightly_config.parse(raw, nightly_config.Config())
    except ValueError:
        assert problems
        return
    # A string that no program could use is refused although the parser takes it.
    assert not problems or (isinstance(value, str) and not (value and value.isprintable()))


@given(st.sampled_from([*CONTROLLER, "log_levl"]), ANY_VALUE)
def test_what_is_let_through_is_what_sluiced_takes(tmp_path_factory, name, value):
    if file_problems("sluice_controller_config", {name: value}, CONTROLLER):
        return
    path = tmp_path_factory.getbasetemp() / "sluiced.toml"
    path.write_text(written("controller", "sluice_controller_config", {name: value}))
    arguments = controller_config.argument_parser().parse_args(["--config", str(path)])
    assert str(getattr(controller_config.load(arguments), name)) == value


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "sluice_controller_config",
            {"log_levl": "debug"},
            "sluice_controller_config: setting 'log_levl' is not known: did you mean 'log_level'?",
        ),
        (
            "sluice_controller_config",
            {"speed": "1"},
            "sluice_controller_config: setting 'speed' is not known: use one of state_dir, run_dir",
        ),
        (
            "sluice_controller_config",
            {"log_level": "loud"},
            "sluice_controller_config: log_level 'loud' is not possible: use debug, info, warning",
        ),
        (
            "sluice_controller_config",
            {"group": 100},
            "sluice_controller_config: group 100 is no text: write it in quotes",
        ),
        (
            "sluice_controller_config",
            {"group": "libvirt"},
            "sluice_controller_config: group 'libvirt' is not possible: use sluice",
        ),
        (
            "sluice_controller_config",
            {"emulator": None},
            "sluice_controller_config: emulator None is no text",
        ),
        (
            "sluice_controller_config",
            {"state_dir": "data"},
            "sluice_controller_config: state_dir 'data' is not an absolute path: begin it with /",
        ),
        (
            "sluice_controller_config",
            {"run_dir": "/srv/run"},
            "sluice_controller_config: run_dir '/srv/run' is not possible: use /run/sluice",
        ),
        (
            "sluice_controller_config",
            "log_level=debug",
            "sluice_controller_config 'log_level=debug' is no mapping: give 'name: value' lines",
        ),
        ("sluice_controller_config", None, "sluice_controller_config has no value: give one, or"),
        (
            "sluice_nightly_config",
            {"run": {"readers": 3}},
            "sluice_nightly_config: setting 'run' is not known: write dotted names, for example"
            " run.accelerator",
        ),
        (
            "sluice_nightly_config",
            {"run.readrs": 3},
            "sluice_nightly_config: setting 'run.readrs' is not known: did you mean 'run.readers'?",
        ),
        (
            "sluice_nightly_config",
            {5: 3},
            "sluice_nightly_config: setting 5 is not known: use one of run.accelerator",
        ),
        (
            "sluice_nightly_config",
            {"run.readers": 20},
            "sluice_nightly_config: run.readers 20 is out of range: give 1 to 12",
        ),
        (
            "sluice_nightly_config",
            {"run.readers": "3"},
            "sluice_nightly_config: run.readers '3' is no whole number: give one, without quotes",
        ),
        (
            "sluice_nightly_config",
            {"start.without_libvirt": "yes"},
            "sluice_nightly_config: start.without_libvirt 'yes' is neither true nor false: give",
        ),
        (
            "sluice_nightly_config",
            {"paths.state": "night"},
            "sluice_nightly_config: paths.state 'night' is not an absolute path: begin it with /",
        ),
        (
            "sluice_web_names",
            ["kvm1.example.net", "kvm1 example"],
            "sluice_web_names: 'kvm1 example' is no name for a certificate: give DNS names",
        ),
        ("sluice_web_names", ["a,IP:192.0.2.1"], "'a,IP:192.0.2.1' is no name for a certificate"),
        ("sluice_web_names", ["fe80::1%eth0"], "'fe80::1%eth0' is no name for a certificate"),
        ("sluice_web_names", [""], "'' is no name for a certificate"),
        ("sluice_web_names", ["bücher.example"], "(xn-- for others)"),
        ("sluice_web_names", "kvm1", "sluice_web_names 'kvm1' is no list: begin each entry with"),
        (
            "sluice_web_names",
            [10],
            "sluice_web_names [10] has an entry that is no text (10): write",
        ),
        (
            "sluice_free_mib",
            {"/usr": "much"},
            "sluice_free_mib: /usr 'much' is no number of MiB: give 0 or more, without quotes",
        ),
        ("sluice_free_mib", {"/usr": -1}, "sluice_free_mib: /usr -1 is no number of MiB"),
        ("sluice_free_mib", {"usr": 1}, "sluice_free_mib: 'usr' is no folder of the host: begin"),
        ("sluice_web_bind", "8480", "sluice_web_bind '8480' is not HOST:PORT: give for example"),
        ("sluice_web_bind", 8480, "sluice_web_bind 8480 is no text: write it in quotes"),
        ("sluice_uplink", "eth\x1b0", "sluice_uplink 'eth\\x1b0' is not an interface: give a name"),
        ("sluice_uplink", "eth0/1", "sluice_uplink 'eth0/1' is not an interface: give a name that"),
        (
            "sluice_history_seconds",
            59,
            "sluice_history_seconds 59 is out of range: give 60 to 2592000",
        ),
        ("sluice_history_seconds", "2592001", "sluice_history_seconds '2592001' is out of range"),
        ("sluice_shutdown_seconds", 901, "sluice_shutdown_seconds 901 is out of range: give 1 to"),
        ("sluice_operators", "alice", "sluice_operators 'alice' is no list: begin each entry"),
        ("sluice_prerequisites", ["libvirt clients"], "'libvirt clients' is not a package's name"),
        (
            "sluice_host_releases",
            ["debian"],
            "'debian' is not ID and VERSION_ID: write 'debian 13'",
        ),
        ("sluice_nightly_on_calendar", 210, "sluice_nightly_on_calendar 210 is no text: write it"),
        (
            "sluice_apt_repository",
            "http://apt.example.net",
            "sluice_apt_repository 'http://apt.example.net' is not a source: write 'deb URI SUITE",
        ),
        ("sluice_apt_repository", "deb http://a ./\ndeb http://b ./", "is not a source: write"),
        (
            "sluice_apt_repository",
            "deb https://alice:geheim@apt.example.net trixie main",
            "sluice_apt_repository has a user or a password in its URI, which all users of the host"
            " could read: write the URI without, and put both into a file in /etc/apt/auth.conf.d",
        ),
        (
            "sluice_web_admin_user",
            "the admin",
            "sluice_web_admin_user 'the admin' is not a user name: give 1 to 32 letters, digits",
        ),
        (
            "sluice_web_admin_password",
            1234567890123,
            "sluice_web_admin_password is no text: write it in quotes",
        ),
        ("sluice_history_seconds", 10**400, "0…"),
        ("sluice_nightly_config", {"keep.results": 10**400}, "0… is out of range: give 1 to"),
        ("sluice_web_admin_password", "x" * 9, "sluice_web_admin_password has 9 characters: use"),
        ("sluice_web_admin_password", "x" * 1025, "has 1025 characters: use 10 to 1024, or leave"),
        ("sluice_web_admin_password", "0123456789\n", "has more than one line: give one, without"),
    ],
)
def test_what_cannot_be_is_named_with_its_value_and_remedy(name, value, sentence):
    problems = said(name, value)
    assert len(problems) == 1
    assert sentence in problems[0]


@pytest.mark.parametrize("value", [1234567890123, ["geheim1234"], "geheim\n1234", "geheim"])
def test_no_message_repeats_a_secret(value):
    for problem in said("sluice_web_admin_password", value):
        assert not any(secret in problem for secret in ("1234", "geheim"))
    for source in (
        "deb https://alice:geheim@apt.example.net ./",
        "deb [trusted=yes] https://geheim@[2001:db8::1]:8080/x trixie main",
        "deb http:alice:geheim@apt.example.net ./",
        # No sound sources either.
        "https://alice:geheim@apt.example.net",
        "https://alice:ge/heim@apt.example.net",
    ):
        (problem,) = said("sluice_apt_repository", source)
        assert "heim" not in problem
    problems = said("sluice_controller_config", {"database": ["postgresql://a:geheim@db/x"]})
    assert problems == ["sluice_controller_config: database is no text: write it in quotes"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sluice_controller_config", {}),
        ("sluice_controller_config", {"log_level": "debug", "libvirt_uri": "qemu:///system"}),
        ("sluice_controller_config", {"run_dir": "/run/sluice", "database": "postgresql://a:b@c"}),
        ("sluice_nightly_config", {"run.readers": 3, "run.overload": 2, "run.auto_s": 10.5}),
        ("sluice_web_names", ["kvm1", "*.example.net", "192.0.2.1", "::1", "kvm_1.example.net"]),
        ("sluice_free_mib", {"/usr": 900, "/var/lib/sluice-nightly": 0}),
        ("sluice_web_bind", "[::]:8480"),
        ("sluice_web_bind", "kvm1.example.net:443"),
        ("sluice_uplink", None),
        ("sluice_uplink", ""),
        ("sluice_uplink", "bond0.100"),
        ("sluice_history_seconds", None),
        ("sluice_history_seconds", "3600"),
        ("sluice_history_seconds", 2592000),
        ("sluice_prerequisites", ["g++", "libvirt-daemon-system", "libc6:amd64"]),
        ("sluice_apt_repository", "deb [trusted=yes] file:/srv/apt ./"),
        ("sluice_apt_repository", "deb [arch=amd64 trusted=yes] http://a/debian trixie main extra"),
        ("sluice_apt_repository", "deb http://a/@debian@ trixie main"),
        ("sluice_web_admin_password", ""),
        ("sluice_web_admin_password", "0123456789"),
    ],
)
def test_what_can_be_is_let_through(name, value):
    assert said(name, value) == []


def test_every_default_is_let_through():
    given = {name: option["default"] for name, option in OPTIONS.items() if "default" in option}
    assert variable_problems(given, {name: OPTIONS[name] for name in given}) == []


def test_all_that_is_wrong_is_said_at_once():
    values = {"sluice_web_bind": "8480", "sluice_web_names": ["a b", "c d"]}
    assert len(variable_problems(values, {name: OPTIONS[name] for name in values})) == 3


@given(st.one_of(st.text(max_size=12), st.from_regex(r"[a-z0-9:.\[\]]{1,12}:[0-9]{1,6}")))
def test_an_address_that_is_let_through_is_one_for_the_page(value):
    if said("sluice_web_bind", value) == []:
        web_config.split_bind(value)


@given(st.one_of(st.none(), st.text(max_size=18), st.from_regex(r"[a-z0-9:./ ]{1,18}")))
def test_an_interface_that_is_let_through_is_one_for_sluiced(value):
    if said("sluice_uplink", value) == []:
        model.parse_interface(value or None, "uplink")


@given(st.integers(0, 3_000_000))
def test_history_is_kept_as_long_as_sluiced_allows(seconds):
    try:
        model.parse_settings({"history_seconds": seconds}, model.Settings())
    except BadValue:
        assert said("sluice_history_seconds", seconds)
    else:
        assert not said("sluice_history_seconds", seconds)


def test_user_and_password_are_bounded_as_the_page_bounds_them(tmp_path):
    assert settings.PASSWORD_CHARACTERS == (web_store.PASSWORD_MIN, web_store.PASSWORD_MAX)
    store = web_store.Store(tmp_path)
    for name in ("a" * 32, "a" * 33, "a.b-c_d", "a b", "ä", ""):
        try:
            store.add_user(name, "admin", "0123456789", now=0, actor="test")
        except Problem:
            assert said("sluice_web_admin_user", name)
        else:
            assert not said("sluice_web_admin_user", name)
