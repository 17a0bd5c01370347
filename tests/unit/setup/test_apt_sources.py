# SPDX-License-Identifier: GPL-2.0-or-later
"""Where Debian packages of another suite come from."""

import pytest

import apt_sources as sources

DEB822 = """\
Types: deb
# a comment in the middle
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP-----
 .
 abc

Types: deb
URIs: http://mirror.invalid/security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://other.invalid/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://mirror.invalid/debian
Suites: bookworm
Components: main
"""


def test_deb822_keeps_place_and_key_and_changes_the_suite():
    answer = sources.for_suite(sources.stanzas(DEB822), "bookworm", "trixie")
    assert answer == (
        "Types: deb\n"
        "Uris: http://mirror.invalid/debian\n"
        "Suites: trixie\n"
        "Components: main\n"
        "Signed-By: \n -----BEGIN PGP-----\n .\n abc\n"
    )


@pytest.mark.parametrize("word", ["no", "No", "false", "off", "disable", "without", "0"])
def test_a_source_that_is_off_is_not_used(word):
    """As APT reads it: a mirror that is switched off is often one that is gone."""
    text = "Types: deb\nURIs: http://gone.invalid\nSuites: bookworm\nComponents: main\nEnabled: "
    assert list(sources.stanzas(text + word)) == []
    assert len(list(sources.stanzas(text + "yes"))) == 1


def test_one_line_form():
    text = (
        "# deb http://commented.invalid/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg trusted=yes] "
        "http://a.invalid/debian bookworm main non-free # x\n"
        "deb http://a.invalid/debian bookworm-updates main\n"
        "deb-src http://a.invalid/debian bookworm main\n"
    )
    answer = sources.for_suite(sources.one_line_stanzas(text), "bookworm", "trixie")
    assert answer == (
        "Types: deb\n"
        "Uris: http://a.invalid/debian\n"
        "Suites: trixie\n"
        "Components: main\n"
        "Signed-By: /k.gpg\n"
        "Trusted: yes\n"
    )


def test_same_source_twice_is_printed_once():
    line = "deb http://a.invalid/debian trixie main\n"
    answer = sources.for_suite(sources.one_line_stanzas(line * 2), "trixie", "trixie")
    assert answer.count("Uris:") == 1


def test_none_found_names_the_suite_and_the_remedy():
    with pytest.raises(sources.NoSource, match="bookworm.*add one"):
        sources.for_suite(
            sources.one_line_stanzas("deb http://x.invalid nodistro main"), "bookworm", "trixie"
        )


def test_of_machine_reads_both_forms(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://a.invalid/debian trixie main\n")
    (tmp_path / "sources.list.d" / "b.sources").write_text(
        "Types: deb\nURIs: http://b.invalid/debian\nSuites: trixie\nComponents: main\n"
    )
    found = sources.for_suite(sources.of_machine(tmp_path), "trixie", "trixie")
    assert "a.invalid" in found and "b.invalid" in found


@pytest.mark.parametrize("line", ["VERSION_CODENAME=bookworm", 'VERSION_CODENAME="bookworm"'])
def test_own_suite(line):
    assert sources.own_suite(f"ID=debian\n{line}\n") == "bookworm"


def test_own_suite_missing():
    with pytest.raises(sources.NoSource, match="VERSION_CODENAME"):
        sources.own_suite("ID=debian\n")
