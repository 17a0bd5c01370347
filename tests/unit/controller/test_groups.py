# SPDX-License-Identifier: GPL-2.0-or-later
"""Groups whose page somebody broke: the real database and real files."""

import logging
import os
import time

import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.adapters.group_pages import GroupPages
from sluice_controller.adapters.qmp import QmpShapers
from sluice_controller.domain.groups import Membership
from sluice_controller.services.groups import Groups


@pytest.fixture
def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path / 'sluice.db'}")
    yield store
    store.close()


@pytest.fixture
def groups(store, tmp_path):
    pages = GroupPages(tmp_path / "groups", None, time.monotonic_ns)
    found = Groups(store, pages, None, time.time, lambda domain: None)
    found.put("disks", {"resource": "blk", "bytes_per_second": 10**6})
    with store.transaction() as unit:
        unit.remember_domain("web1", "u-1")
        unit.put_membership(Membership("disks", "web1"))
    return found


def wanted(store, groups):
    with store.transaction() as unit:
        return groups.wanted(unit, "web1")


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def test_a_page_that_somebody_broke_is_made_anew_for_its_members(store, groups, tmp_path, caplog):
    page = tmp_path / "groups" / "disks.group"
    whole = wanted(store, groups)
    assert set(whole) == {"blk-read", "blk-write"}
    os.truncate(page, 4096)
    assert groups.all()[0]["members"] == []
    mended = wanted(store, groups)
    assert page.stat().st_size == 16896
    assert set(mended) == set(whole)
    # Another object of QEMU's, so that they leave the page that they still have.
    assert mended["blk-read"]["group"] != whole["blk-read"]["group"]
    assert wanted(store, groups) == mended
    listed, made = said(caplog)
    assert listed.startswith("group disks has no page: group page")
    assert made.startswith("group disks: its page is made anew")
    assert "4096 bytes were read, not 16896" in made


class LosingQemu(QmpShapers):
    """Says that it has lost the pages of these objects."""

    def __init__(self, *ids):
        super().__init__(None)
        self.groups = [{"id": i, "path": "/p", "lost": True} for i in ids]
        self.groups += [{"id": "group-kept-1", "path": "/k", "lost": False}]

    def execute(self, domain, command, arguments):
        if command == "query-shapers":
            return [{"id": "sluice0", "groups": []}]
        return self.groups


def test_a_page_that_is_lost_to_a_qemu_is_made_anew_however_whole_the_file_is(
    store, groups, tmp_path, caplog
):
    page = tmp_path / "groups" / "disks.group"
    whole, before = page.read_bytes(), wanted(store, groups)
    # Another process shortens it, and puts back what it had.
    os.truncate(page, 0)
    page.write_bytes(whole)
    assert wanted(store, groups) == before
    lost_id = before["blk-read"]["group"]
    for domain in ("web1", "web2"):
        answer = LosingQemu(lost_id).query(domain, "sluice0")
        assert answer["lost-groups"] == [lost_id]
        groups.lost(domain, answer["lost-groups"])
    # Once for all that had it.
    (sentence,) = said(caplog)
    assert sentence.startswith("group disks: its page is made anew")
    assert "domain web1 has lost it" in sentence
    after = wanted(store, groups)
    assert after["blk-read"]["group"] != lost_id
    assert wanted(store, groups) == after


def test_a_page_that_cannot_be_made_is_named_once_and_made_when_it_can(
    store, groups, tmp_path, caplog
):
    page = tmp_path / "groups" / "disks.group"
    page.unlink()
    page.mkdir()
    for _round in range(3):
        # Its members go on without it.
        assert wanted(store, groups) == {}
        assert groups.all()[0]["members"] == []
    (sentence,) = said(caplog)
    assert sentence.startswith("group disks has no page: [Errno 21] Is a directory")
    page.rmdir()
    assert set(wanted(store, groups)) == {"blk-read", "blk-write"}


def test_what_cannot_be_removed_at_the_start_keeps_no_group_from_its_page(
    store, groups, tmp_path, caplog
):
    folder = tmp_path / "groups"
    (folder / "stray.group").mkdir()
    (folder / "disks.group").unlink()
    groups.restore()
    assert (folder / "disks.group").stat().st_size == 16896
    assert any("stray" in line for line in said(caplog))
