# SPDX-License-Identifier: GPL-2.0-or-later
"""dpkg's and apt's answers, and the index of a folder of packages."""

import hashlib

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils.dpkg import (
    errors_of,
    held_lock,
    journal,
    read_plan,
    read_status,
)
from ansible_collections.sluice.appliance.plugins.module_utils.package_index import (
    IndexProblem,
    index_of,
    read_folder,
    read_index,
)


def test_dpkgs_states_are_told_apart():
    status = read_status(
        "install\tinstalled\tok\tbash\t5.2\n"
        "install\thalf-configured\tok\tlibvirt0\t11.3\n"
        "install\thalf-installed\treinstreq\tqemu-utils\t10.0\n"
        "deinstall\tconfig-files\tok\told\t1\n"
        "not a line\n"
    )
    assert sorted(status) == ["bash", "libvirt0", "old", "qemu-utils"]
    assert status["bash"].installed
    assert status["libvirt0"].repairable and not status["libvirt0"].installed
    assert status["qemu-utils"].broken and not status["qemu-utils"].repairable
    assert not status["old"].installed


def test_apts_plan_is_read():
    plan = read_plan(
        "Inst libvirt0 (11.3.0-3 Debian:13.0/stable [amd64])\n"
        "Inst sluice-web [0.1.0] (0.2.0 sluice [all])\n"
        "Inst libc6:amd64 [2.41-1] (2.41-2 Debian:13.0/stable [amd64]) []\n"
        "Remv exim4 [4.98]\n"
        "Purg nginx [1.26]\n"
        "Conf libvirt0 (11.3.0-3 Debian:13.0/stable [amd64])\n"
    )
    assert plan.new == {"libvirt0": "11.3.0-3"}
    assert plan.upgraded == {"sluice-web": ("0.1.0", "0.2.0"), "libc6": ("2.41-1", "2.41-2")}
    assert plan.removed == ("exim4", "nginx")
    assert not plan.empty
    assert read_plan("0 upgraded\n").empty


def test_apts_own_words_are_kept():
    assert errors_of("Reading…\nE: Unable to locate package x\n") == "Unable to locate package x"
    assert errors_of("a\nb\n\nc\nd\n") == "b; c; d"
    assert errors_of("") == "no message"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n"
            "N: Be aware that removing the lock file is not a solution and may break your system.\n"
            "E: Unable to lock directory /var/lib/apt/lists/\n",
            "/var/lib/apt/lists/lock",
        ),
        (
            "E: Could not get lock /var/cache/apt/archives/lock - open (11: Resource temporarily"
            " unavailable)\n",
            "/var/cache/apt/archives/lock",
        ),
        ("E: Unable to lock directory /var/lib/apt/lists/\n", "/var/lib/apt/lists/lock"),
        # Nobody has it: it is no matter of waiting.
        (
            "E: Could not open lock file /var/lib/apt/lists/lock - open (28: No space left on"
            " device)\nE: Unable to lock directory /var/lib/apt/lists/\n",
            None,
        ),
        # A package's script, which apt-get repeats among other words.
        ("Could not get lock /run/x.lock\nE: Sub-process /usr/bin/dpkg returned an error\n", None),
        ("", None),
    ],
)
def test_a_lock_that_another_program_has_is_told_from_other_errors(text, path):
    assert held_lock(text) == path


def test_dpkgs_journal_is_seen(tmp_path):
    assert not journal(str(tmp_path / "none"))
    assert not journal(str(tmp_path))
    (tmp_path / "tmp.i").touch()
    assert not journal(str(tmp_path))
    (tmp_path / "0003").touch()
    assert journal(str(tmp_path))


@pytest.fixture
def folder(tmp_path):
    """Three packages, of which web needs controller."""
    stanzas = []
    for name, depends in (
        ("controller", ""),
        ("web", "sluice-controller (>= 1), python3 | x"),
        ("agent", ""),
    ):
        content = f"package {name}".encode()
        (tmp_path / f"sluice-{name}_1_all.deb").write_bytes(content)
        stanzas.append(
            f"Package: sluice-{name}\nVersion: 1\nInstalled-Size: 12\n"
            + (f"Depends: {depends}\n" if depends else "")
            + f"Description: text\n with two lines\nFilename: ./sluice-{name}_1_all.deb\n"
            f"Size: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    (tmp_path / "Packages").write_text("\n".join(stanzas))
    return tmp_path


def test_a_sound_folder_gives_what_was_asked_for_and_its_needs(folder):
    found = read_folder(str(folder), ["sluice-web"])
    assert [package.name for package in found] == ["sluice-controller", "sluice-web"]
    assert found[1].as_dict("/f")["path"] == "/f/sluice-web_1_all.deb"
    assert found[1].as_dict("/f")["installed_bytes"] == 12288
    again = read_index(index_of(found))
    assert [(p.name, p.sha256) for p in again] == [(p.name, p.sha256) for p in found]


def test_a_package_that_is_not_there_is_named(folder):
    with pytest.raises(IndexProblem, match="does not hold package 'sluice-qemu' .*run 'make deb'"):
        read_folder(str(folder), ["sluice-qemu"])


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(IndexProblem, match="does not exist: run 'make deb'"):
        read_folder(str(tmp_path / "none"), ["sluice-web"])
    with pytest.raises(IndexProblem, match="has no file Packages: run 'make deb'"):
        read_folder(str(tmp_path), ["sluice-web"])


def test_a_missing_file_is_named(folder):
    (folder / "sluice-controller_1_all.deb").unlink()
    with pytest.raises(IndexProblem, match="lacks the file 'sluice-controller_1_all.deb'"):
        read_folder(str(folder), ["sluice-web"])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"package we", "it has 10 bytes and not 11"), (b"package wex", "its SHA-256 is not that")],
)
def test_a_corrupt_file_is_named(folder, content, words):
    (folder / "sluice-web_1_all.deb").write_bytes(content)
    with pytest.raises(IndexProblem, match=f"has a corrupt 'sluice-web_1_all.deb': {words}"):
        read_folder(str(folder), ["sluice-web"])
    read_folder(str(folder), ["sluice-agent"])


@pytest.mark.parametrize("where", ["/etc/passwd", "../x.deb"])
def test_an_index_that_points_outside_is_refused(folder, where):
    index = folder / "Packages"
    index.write_text(index.read_text().replace("./sluice-web_1_all.deb", where))
    with pytest.raises(IndexProblem, match="which is outside of it"):
        read_folder(str(folder), ["sluice-web"])


def test_an_index_that_is_cut_short_is_refused(folder):
    text = (folder / "Packages").read_text()
    (folder / "Packages").write_text(text[: text.rindex("Size:")])
    with pytest.raises(IndexProblem, match="stanza .* lacks 'size'"):
        read_folder(str(folder), ["sluice-web"])
