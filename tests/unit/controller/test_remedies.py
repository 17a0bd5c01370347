# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands in remedies can be pasted into a shell, whatever a domain is called."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import sluice_controller
from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import SluiceError
from sluice_controller.domain.guests import Guest
from sluice_controller.services.auto_limits import AutoLimits
from sluice_controller.services.catalogue import Catalogue
from sluice_controller.services.domains import Domains
from sluice_controller.services.locks import DomainLocks
from unit.controller.test_catalogue import Agents, Host

SOURCES = sorted(Path(sluice_controller.__file__).parent.rglob("*.py"))
COMMAND = re.compile(r"\b(?:sluice|virsh|systemctl|rm|mv) [a-z-][^';,:]*$")
NAMES = ["web 1", "web;rm -rf ~", "it's", "$(id)", "web1"]


def unquoted(source):
    """Texts that put a value behind the words of a command as it is."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            text = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    text += part.value
                elif COMMAND.search(text):
                    yield ast.unparse(node)
                    break


def test_a_value_behind_a_command_is_found():
    assert list(unquoted("f'see: sluice show {name}'")) == ["f'see: sluice show {name}'"]
    assert not list(unquoted("f'{name}: see sluice list'"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_command_is_put_together_without_quotes(path):
    assert list(unquoted(path.read_text())) == []


class Transient:
    def guest(self, name):
        return Guest(name, "u-1", "running", 1, transient=True)


def attach(catalogue, name):
    domains = Domains(
        catalogue.store, Transient(), Agents(), None, catalogue, lambda domain: None,
        DomainLocks(), None, None,
    )  # fmt: skip
    domains.attach(name, {})


REFUSED = [
    lambda c, name: c.set_resource("limits", name, "film", "blk-read", {"bytes_per_second": 5e6}),
    lambda c, name: c.revoke(name, "default"),
    lambda c, name: c.unassign(name, 7),
    lambda c, name: c.assign(name, 7, {"class": "batch"}),
    lambda c, name: c.assign(name, 812, {"class": "default"}),
    lambda c, name: c.delete_class("batch"),
    attach,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_a_domain_s_name_as_one_word(tmp_path, name):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    host = Host()
    host.uuids = {name: "u-1"}
    catalogue = Catalogue(
        store, host, Agents(), AutoLimits(), lambda: 5.0, lambda domain: None, None
    )
    for one in ("batch", "film"):
        catalogue.put_class(one, {})
    catalogue.put_grant(name, "batch", {})
    for call in REFUSED:
        with pytest.raises(SluiceError) as refused:
            call(catalogue, name)
        line = refused.value.remedy.partition(": ")[2]
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        assert name in words, line
    store.close()
