# SPDX-License-Identifier: GPL-2.0-or-later
"""Gate pages: the bytes, held against the C code that QEMU checks them with, and the files."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from sluice_controller.adapters.gate_pages import GatePages
from sluice_controller.domain.gate_page import has_runs, page_name

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "qemu-patches" / "src"
NOW_NS = 5 * 10**9
# Devices with an arm.
ARMS = {"sdr"}


@pytest.fixture
def pages(tmp_path):
    clock = iter(range(NOW_NS, NOW_NS + 1000))
    return GatePages(tmp_path / "gates", None, lambda: next(clock), ARMS.__contains__)


def test_qemu_takes_a_page(pages, tmp_path):
    program = tmp_path / "oracle"
    folders = [f"-I{SOURCES / 'include'}", f"-I{SOURCES}"]
    sources = [HERE / "gate_page_oracle.c", SOURCES / "sluice" / "gate-page.c"]
    subprocess.run(["cc", "-std=gnu11", *folders, "-o", program, *sources], check=True)
    path = Path(pages.ensure("sda").path)
    assert subprocess.run([program, path]).returncode == 0
    path.write_bytes(path.read_bytes()[:-1])
    assert subprocess.run([program, path]).returncode != 0


def test_a_device_has_one_page_for_as_long_as_it_is_whole(pages):
    page = pages.ensure("sda")
    assert page == pages.ensure("sda")
    assert page.path.endswith("/gates/sda.gate")
    assert page.object_id.startswith("gate-sda-")
    assert stat.S_IMODE(os.stat(page.path).st_mode) == 0o660
    assert pages.ensure("sdb") != page


@pytest.mark.parametrize("damage", ["shorten", "magic", "link", "remove", "mode"])
def test_a_page_that_is_damaged_is_made_anew_under_another_object(pages, damage):
    page = pages.ensure("sda")
    path = Path(page.path)
    whole = path.read_bytes()
    if damage == "shorten":
        os.truncate(path, 4096)
    elif damage == "magic":
        path.write_bytes(b"SLUICEGP" + whole[8:])
    elif damage == "link":
        path.rename(path.with_suffix(".other"))
        path.symlink_to(path.with_suffix(".other"))
    elif damage == "remove":
        path.unlink()
    else:
        path.chmod(0o666)
    again = pages.ensure("sda")
    assert again.path == page.path and again.object_id != page.object_id
    assert path.stat().st_size == len(whole) and not path.is_symlink()
    assert pages.ensure("sda") == again


def test_several_that_have_lost_a_page_get_one_other(pages):
    lost = pages.ensure("sda")
    other = pages.renew(lost, "sda", "test")
    assert other != lost
    assert pages.renew(lost, "sda", "test") == other == pages.ensure("sda")


def test_a_page_of_an_earlier_start_of_the_host_is_made_anew(pages, tmp_path):
    page = pages.ensure("sda")
    earlier = GatePages(tmp_path / "gates", None, lambda: 1000, ARMS.__contains__)
    assert earlier.ensure("sda") != page


def test_a_page_says_whether_its_device_has_an_arm(pages, tmp_path):
    with_arm, without = pages.ensure("sdr"), pages.ensure("sda")
    assert has_runs(Path(with_arm.path).read_bytes())
    assert not has_runs(Path(without.path).read_bytes())
    assert pages.ensure("sdr") == with_arm
    # It is told otherwise, by the operator or by another version of sluiced.
    others = GatePages(tmp_path / "gates", None, lambda: 2 * NOW_NS, lambda _device: False)
    assert others.ensure("sdr").object_id != with_arm.object_id
    assert not has_runs(Path(with_arm.path).read_bytes())


def test_names_of_devices_make_names_of_files():
    assert page_name("sda") == "sda"
    assert re.fullmatch("filesystem-0-46-[0-9a-f]{16}", page_name("filesystem 0:46"))
    # Names that the operator gives may be like those, and like each other.
    alike = ("filesystem 0:46", "filesystem-0-46", "filesystem:0:46", "filesystem-0:46")
    assert len({page_name(name) for name in alike}) == len(alike)
    assert re.fullmatch("..-x-y{41}-[0-9a-f]{16}", page_name("../x/" + "y" * 100))
    many = " and ".join(f"sd{letter}" for letter in "abcdefghijklmnop")
    assert page_name(many) != page_name(many + " and sdq") and len(page_name(many)) == 63
