# SPDX-License-Identifier: GPL-2.0-or-later
"""What the preflight says of a host."""

import pytest
import yaml
from ansible.plugins.filter.core import FilterModule
from ansible_collections.sluice.appliance.plugins.module_utils.hostcheck import MIB, judge
from jinja2.nativetypes import NativeEnvironment

from testbed import paths

ROLE = paths.TOP / "ansible" / "roles" / "sluice"
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]
FIT = {
    "release_id": "debian",
    "release_version": "13",
    "release_name": "Debian GNU/Linux 13 (trixie)",
    "architecture": "x86_64",
    "init": "systemd",
    "uid": 0,
    "kvm_flag": "svm",
    "kvm_error": None,
    "filesystems": {
        "/usr": {"mount": "/", "free_bytes": 3000 * MIB, "free_inodes": 100000},
        "/var": {"mount": "/", "free_bytes": 3000 * MIB, "free_inodes": 100000},
    },
    "broken_packages": [],
    "restorable_packages": [],
    "unfinished_packages": [],
    "dpkg_journal": False,
    "source_error": None,
    "port_errors": {},
    "missing_users": [],
    "calendar_error": None,
    "missing_interface": None,
    "others_things": {"/srv/sluice": []},
    "memory_mib": 4096,
    "nightly_files": set(),
    "installed": {},
    "offered": {},
}
WANTED = {
    "releases": ["debian 13"],
    "architectures": ["x86_64"],
    "virtualisation": True,
    "allow_tcg": False,
    "free_bytes": {"/usr": 1400 * MIB, "/var": 700 * MIB},
    "free_inodes": 5000,
    "nightly": {},
    "installs": {},
    "install_mib": {},
    "expected": {},
}
# A nightly run whose folder is on the only file system, too.
NIGHTLY = {
    "state": "/var/lib/sluice-nightly",
    "parts": [
        {"files": ["root.img", "vmlinuz"], "mib": 300},
        {"files": ["movie.img"], "mib": 400},
    ],
    "run_mib": 200,
    "memory_mib": 2816,
}
NIGHTLY_HOST = {
    **FIT,
    "filesystems": {**FIT["filesystems"], NIGHTLY["state"]: FIT["filesystems"]["/var"]},
}


def test_a_fit_host_has_no_problem():
    assert judge(FIT, WANTED) == ([], [])


@pytest.mark.parametrize(
    ("found", "wanted", "sentence"),
    [
        (
            {"release_version": "12", "release_name": "Debian GNU/Linux 12 (bookworm)"},
            {},
            "release 'debian 12' (Debian GNU/Linux 12 (bookworm)) is not supported: install one of"
            " debian 13",
        ),
        ({"architecture": "aarch64"}, {}, "architecture 'aarch64' is not supported: use a host"),
        ({"init": "init"}, {}, "process 1 is 'init' and not systemd: boot the host with systemd"),
        ({"uid": 1000}, {}, "user id 1000 is not root: let Ansible become root"),
        (
            {"kvm_flag": None},
            {},
            "virtualisation 'none': the processor shows neither vmx nor svm; enable it",
        ),
        (
            {"kvm_error": "Operation not supported"},
            {},
            "virtualisation 'svm': /dev/kvm does not make a virtual machine (Operation not"
            " supported); see 'dmesg | grep kvm', or set sluice_allow_tcg: true",
        ),
        (
            {},
            {"free_bytes": {"/usr": 2000 * MIB, "/var": 1001 * MIB}},
            "file system '/' has 3000 MiB free, and /usr, /var need 3001 MiB there: free some",
        ),
        ({}, {"free_inodes": 200000}, "file system '/' has 100000 free inodes and needs 200000"),
        (
            {"broken_packages": ["libvirt0"]},
            {},
            "package 'libvirt0' is half-installed: run 'apt-get install --reinstall libvirt0'",
        ),
        (
            {"source_error": "'deb http://x' does not work (no answer)"},
            {},
            "package source 'deb http://x' does not work (no answer): correct",
        ),
        (
            {"port_errors": {"0.0.0.0:8480": "Address already in use"}},
            {},
            "address '0.0.0.0:8480' for the web page cannot be used (Address already in use): stop",
        ),
        (
            {"others_things": {"/srv/sluice": ["a.img", "b.img", "c.img", "d.img"]}},
            {},
            "folder '/srv/sluice' for Sluice's data holds a.img, b.img, c.img and more: give an"
            " empty folder, or one to be made",
        ),
        (
            {"missing_interface": "eth7"},
            {},
            "interface 'eth7' of sluice_uplink does not exist: give one that 'ip link' shows",
        ),
        (
            {"missing_users": ["alcie"]},
            {},
            "user 'alcie' of sluice_operators does not exist: create it on the host",
        ),
        (
            {"calendar_error": "'*-*-* 25:00' (Invalid argument)"},
            {},
            "sluice_nightly_on_calendar '*-*-* 25:00' (Invalid argument) is no time: write",
        ),
    ],
)
def test_each_problem_is_named_with_its_value_and_remedy(found, wanted, sentence):
    problems, repairs = judge({**FIT, **found}, {**WANTED, **wanted})
    assert len(problems) == 1
    assert sentence in problems[0]
    assert repairs == []


def test_all_problems_are_said_at_once():
    problems, _ = judge({**FIT, "release_id": "alpine", "uid": 1, "kvm_flag": None}, WANTED)
    assert len(problems) == 3


@pytest.mark.parametrize("change", [{"kvm_flag": None}, {"kvm_error": "No such device"}])
def test_no_virtualisation_is_fine_where_the_inventory_says_so(change):
    assert judge({**FIT, **change}, {**WANTED, "allow_tcg": True}) == ([], [])


def test_no_virtualisation_is_fine_where_no_guest_runs():
    assert judge({**FIT, "kvm_flag": None}, {**WANTED, "virtualisation": False}) == ([], [])


def test_an_interrupted_installation_is_repaired_and_no_problem():
    unfinished = {**FIT, "unfinished_packages": ["libvirt0"], "dpkg_journal": True}
    assert judge(unfinished, WANTED) == (
        [],
        ["package 'libvirt0' is not configured yet: 'dpkg --configure -a' will be run"],
    )
    assert judge({**FIT, "restorable_packages": ["libvirt0"]}, WANTED) == (
        [],
        ["package 'libvirt0' is not unpacked to the end: it will be unpacked anew"],
    )
    assert judge({**FIT, "dpkg_journal": True}, WANTED) == (
        [],
        ["dpkg was interrupted: 'dpkg --configure -a' will be run"],
    )


def test_file_systems_without_an_inode_count_pass():
    place = {"mount": "/", "free_bytes": 3000 * MIB, "free_inodes": None}
    assert judge({**FIT, "filesystems": {"/usr": place}}, WANTED) == ([], [])


def test_the_nightly_runs_own_disk_and_memory_are_asked_for():
    nightly = {**WANTED, "nightly": NIGHTLY}
    assert judge(NIGHTLY_HOST, nightly) == ([], [])
    # 1400 and 700 for the packages, 900 for images and a run: 3000 of 3000.
    tight = {**nightly, "free_bytes": {"/usr": 1401 * MIB, "/var": 700 * MIB}}
    problems, _ = judge(NIGHTLY_HOST, tight)
    assert len(problems) == 1
    assert (
        "file system '/' has 3000 MiB free, and /usr, /var, /var/lib/sluice-nightly need 3001 MiB"
    ) in problems[0]
    problems, _ = judge({**NIGHTLY_HOST, "memory_mib": 2815}, nightly)
    assert len(problems) == 1
    assert (
        "memory of 2815 MiB in all is too little for the nightly run, which needs 2816"
        in (problems[0])
    )
    assert "take the host out of sluice_nightly, or lower run.media_mib" in problems[0]


@pytest.mark.parametrize(
    ("files", "need_mib"),
    [
        (set(), 900),
        ({"root.img"}, 900),
        ({"root.img", "vmlinuz"}, 600),
        ({"root.img", "vmlinuz", "movie.img", "other"}, 200),
    ],
)
def test_images_that_are_there_need_no_room_again(files, need_mib):
    found = {**NIGHTLY_HOST, "nightly_files": files}
    for spare, problems in ((0, 0), (1, 1)):
        free_bytes = {"/usr": (3000 - need_mib + spare) * MIB}
        wanted = {**WANTED, "nightly": NIGHTLY, "free_bytes": free_bytes}
        assert len(judge(found, wanted)[0]) == problems


def test_the_inventory_outranks_what_the_nightly_run_asks_for():
    wanted = {**WANTED, "nightly": NIGHTLY, "free_bytes": {NIGHTLY["state"]: 3000 * MIB}}
    assert judge(NIGHTLY_HOST, wanted) == ([], [])


def test_without_a_nightly_run_nothing_of_it_is_asked_for():
    assert judge({**FIT, "memory_mib": 16}, WANTED) == ([], [])


INSTALLING = {
    **WANTED,
    "free_bytes": {},
    "installs": {"prerequisites": ["libvirt-clients:amd64"], "web": ["sluice-web"]},
    "install_mib": {
        "prerequisites": {"/usr": 2000, "/var": 500},
        "web": {"/usr": 500, "/var": 1},
        "perf_nightly": {"/usr": 9000},
    },
    "expected": {"sluice-web": "2"},
}


@pytest.mark.parametrize(
    ("installed", "offered", "need_mib"),
    [
        ({}, {}, 3001),
        # Interrupted before the page came; and an upgrade of the page.
        ({"libvirt-clients": "11.3"}, {}, 501),
        ({"libvirt-clients": "11.3", "sluice-web": "1"}, {}, 501),
        ({"sluice-web": "2"}, {}, 2500),
        ({"libvirt-clients": "11.3", "sluice-web": "2"}, {}, 0),
        # What a repository offers outranks what the control node has.
        ({"libvirt-clients": "11.3", "sluice-web": "2"}, {"sluice-web": "3"}, 501),
        ({"libvirt-clients": "11.3", "sluice-web": "3"}, {"sluice-web": "3"}, 0),
        # Prerequisites are not upgraded.
        ({"libvirt-clients": "11.3", "sluice-web": "2"}, {"libvirt-clients": "11.4"}, 0),
    ],
)
def test_room_is_asked_for_what_is_still_to_be_installed(installed, offered, need_mib):
    for free_mib, problems in ((need_mib, 0), (need_mib - 1, 1)):
        if free_mib < 0:
            continue
        place = {"mount": "/", "free_bytes": free_mib * MIB, "free_inodes": 5000}
        places = {"/usr": place, "/var": place}
        found = {**FIT, "filesystems": places, "installed": installed, "offered": offered}
        said, _ = judge(found, INSTALLING)
        assert len(said) == problems
        sentence = f"has {free_mib} MiB free, and /usr, /var need {need_mib} MiB"
        assert all(sentence in problem for problem in said)


def test_a_full_disk_is_no_problem_where_nothing_is_to_be_installed():
    full = {"mount": "/", "free_bytes": 0, "free_inodes": 0}
    found = {
        **FIT,
        "filesystems": {"/usr": full, "/var": full},
        "installed": {"libvirt-clients": "11.3", "sluice-web": "2"},
    }
    assert judge(found, INSTALLING) == ([], [])


def test_what_the_inventory_asks_for_counts_whatever_is_installed():
    wanted = {**INSTALLING, "free_bytes": {"/usr": 3001 * MIB}}
    there = {"libvirt-clients": "11.3", "sluice-web": "2"}
    problems, _ = judge({**FIT, "installed": there}, wanted)
    assert len(problems) == 1 and "/usr need 3001 MiB" in problems[0]
    # In place of the roles' own, of which /var's remains.
    wanted["free_bytes"] = {"/usr": 2499 * MIB}
    assert judge(FIT, wanted) == ([], [])
    wanted["free_bytes"] = {"/usr": 2500 * MIB}
    assert "/usr, /var need 3001 MiB" in judge(FIT, wanted)[0][0]


def test_the_roles_ask_for_room_for_each_part_that_they_install():
    """The module's arguments, as Ansible makes them of the role's."""
    environment = NativeEnvironment()
    environment.filters.update(FilterModule().filters())
    known = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    parts = known["__sluice_packages_of"]
    given = {"__sluice_packages_of": parts, "sluice_prerequisites": ["libvirt-clients"]}
    render = environment.from_string(known["__sluice_installs"]).render
    installs = {"installs": render(sluice_parts=["guest_agent"], **given)}
    assert installs == {"installs": {"guest_agent": ["sluice-agent"]}}
    installs = {"installs": render(sluice_parts=list(parts), **given)}
    assert installs["installs"] == {"prerequisites": ["libvirt-clients"], **parts}
    sizes = known["__sluice_install_mib"]
    assert sizes.keys() == installs["installs"].keys()
    # What the reference says.
    folders, meaning = (
        ("/usr", "/var", "/etc"),
        SPECS["main"]["options"]["sluice_free_mib"]["description"],
    )
    nightly, guest = ([sizes[part][f] for f in folders] for part in ("perf_nightly", "guest_agent"))
    host = [
        sum(size[f] for part, size in sizes.items() if part not in ("perf_nightly", "guest_agent"))
        for f in folders
    ]
    for sentence in (
        "/usr {}, /var {}, /etc {} on a host".format(*host),
        "{}, {} and {} more for the nightly run".format(*nightly),
        "{}, {} and {} in a guest".format(*guest),
    ):
        assert sentence in " ".join(meaning.split())
