# SPDX-License-Identifier: GPL-2.0-or-later
"""A source line means to the roles what it means to apt, which is asked what it would fetch."""

import fnmatch
import re
import subprocess

import jinja2
import pytest
from ansible_collections.sluice.appliance.plugins.module_utils import apt_source
from ansible_collections.sluice.appliance.plugins.module_utils.settings import CHECKS

from testbed import paths

TEMPLATES = paths.TOP / "ansible" / "roles" / "sluice" / "templates"
KEY = "/etc/apt/keyrings/sluice.asc"
LINES = [
    "deb http://deb.example.org/ ./",
    "deb http://deb.example.org/debian/ trixie main",
    "deb [trusted=yes] http://deb.example.org/debian trixie/sluice main extra",
    "deb [ arch=amd64,i386 lang=none ] https://deb.example.org:8080/de_b/~x/ sid main",
    "deb [arch=i386 arch+=amd64 arch-=i386]\thttp://[2001:db8::1]/x  trixie  main",
    "deb file:/srv/re_po ./",
    "deb file:///srv/repo sub/folder/",
    "deb copy:/srv/repo /",
    "deb http://deb.example.org/x=y//z/ trixie main",
]


@pytest.fixture
def fetched(tmp_path):
    """(address, name of the list) of all that apt would fetch for a source."""
    (tmp_path / "lists" / "partial").mkdir(parents=True)

    def ask(name, text):
        parts = tmp_path / "parts"
        parts.mkdir(exist_ok=True)
        for old in parts.iterdir():
            old.unlink()
        (parts / name).write_text(text)
        options = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": parts,
            "Dir::State::lists": tmp_path / "lists",
            "Dir::Cache": tmp_path,
        }
        words = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        said = subprocess.run(
            ["apt-get", *words, "--print-uris", "update"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = re.findall(r"^'(\S+)' (\S+) ", said, re.MULTILINE)
        assert found, said
        return found

    return ask


def written(line, key=""):
    """The source as the role writes it."""
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters["apt_source"] = apt_source.read_source
    text = (TEMPLATES / "sluice.sources.j2").read_text()
    text = text.replace("sluice.appliance.apt_source", "apt_source")
    return environment.from_string(text).render(
        sluice_apt_repository=line, sluice_apt_repository_key=key, __sluice_apt_key=KEY
    )


@pytest.mark.parametrize("line", LINES)
def test_apt_fetches_what_the_line_says(fetched, line):
    assert CHECKS["sluice_apt_repository"](line) == []
    assert fetched("x.sources", written(line)) == fetched("x.list", f"{line}\n")


# A password in it is refused, but a removal may be of one that an earlier release took.
@pytest.mark.parametrize("line", [*LINES, "deb https://a:b@deb.example.org:8080/x sid main"])
def test_the_lists_of_a_source_are_found(fetched, line):
    (pattern,) = apt_source.list_patterns(line)
    names = [name for _address, name in fetched("x.list", f"{line}\n")]
    assert fnmatch.filter(names, pattern) == names


def test_no_other_list_of_the_same_archive_is_found(fetched):
    ours = "deb http://deb.example.org/debian trixie-sluice main"
    others = "deb http://deb.example.org/debian trixie main\ndeb http://deb.example.org ./\n"
    names = [name for _address, name in fetched("x.list", others)]
    assert not fnmatch.filter(names, *apt_source.list_patterns(ours))
    assert apt_source.list_patterns("") == []


@pytest.mark.parametrize(
    ("options", "key", "fields"),
    [
        ("trusted=yes", "", ["Trusted: yes"]),
        ("signed-by=/srv/a.gpg check-date=no", "", ["Signed-By: /srv/a.gpg", "Check-Date: no"]),
        # The key is what the inventory gives.
        ("trusted=yes", "A KEY", [f"Signed-By: {KEY}"]),
        ("signed-by=/srv/a.gpg arch=amd64", "A KEY", [f"Signed-By: {KEY}", "Architectures: amd64"]),
    ],
)
def test_a_source_keeps_its_options(options, key, fields):
    text = written(f"deb [{options}] http://deb.example.org ./", key)
    assert text.splitlines()[-len(fields) - 1 :] == ["Suites: ./", *fields]
