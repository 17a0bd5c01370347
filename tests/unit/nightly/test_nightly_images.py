# SPDX-License-Identifier: GPL-2.0-or-later
"""Parts of images: there whole or not at all. Recipes here are small and quick."""

import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest

from sluice_nightly import images
from sluice_nightly.config import Config, Paths
from sluice_nightly.images import ImageError, Part

PARTS = (
    Part("guest", "guest.sh", ("init",), ("vmlinuz", "id_ed25519"), 100),
    Part("data", "data.sh", (), ("movie.img",), 50),
)


@pytest.fixture
def config(tmp_path, monkeypatch):
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "guest.sh").write_text('echo boot >"$1/vmlinuz"; echo key >"$1/id_ed25519"\n')
    (recipes / "init").write_text("x")
    (recipes / "data.sh").write_text('echo data >"$1/movie.img"\n')
    monkeypatch.setattr(images, "RECIPES", recipes)
    monkeypatch.setattr(images, "PARTS", PARTS)
    return Config(paths=Paths(state=tmp_path / "state"))


def made(config) -> dict[str, str]:
    folder = config.paths.state / "images"
    return {
        entry.name: entry.read_text()
        for entry in folder.iterdir()
        if not entry.is_dir() and not entry.name.startswith(".")
    }


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="recipes have namespaces: needs root")


@needs_root
def test_both_parts_are_made_once(config):
    said = []
    assert images.needed_mib(config) == 150 and not images.ready(config)
    images.prepare(config, said.append)
    assert made(config) == {"vmlinuz": "boot\n", "id_ed25519": "key\n", "movie.img": "data\n"}
    assert images.needed_mib(config) == 0 and images.ready(config)
    assert any("making guest" in line for line in said)
    before = os.stat(config.paths.state / "images" / "movie.img").st_mtime_ns
    images.prepare(config, said.append)
    assert os.stat(config.paths.state / "images" / "movie.img").st_mtime_ns == before


@needs_root
def test_a_changed_recipe_makes_its_part_anew_and_drops_the_old(config):
    images.prepare(config, lambda _: None)
    (images.RECIPES / "data.sh").write_text('echo more >"$1/movie.img"\n')
    assert images.needed_mib(config) == 50
    images.prepare(config, lambda _: None)
    assert made(config)["movie.img"] == "more\n"
    folders = [e for e in (config.paths.state / "images").iterdir() if e.is_dir()]
    assert len(folders) == 2


@needs_root
@pytest.mark.parametrize("recipe", ["echo no space left >&2; exit 3", 'echo x >"$1/vmlinuz"'])
def test_a_recipe_that_fails_leaves_nothing_and_says_why(config, recipe):
    (images.RECIPES / "guest.sh").write_text(recipe)
    with pytest.raises(ImageError) as caught:
        images.prepare(config, lambda _: None)
    assert "making guest" in str(caught.value)
    assert list((config.paths.state / "images").iterdir()) == []


def test_ready_made_images_are_copied_with_a_private_key(config, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for part in PARTS:
        for name in part.files:
            (source / name).write_text(f"ready {name}")
    images.prepare(config, lambda _: None, source)
    assert made(config)["movie.img"] == "ready movie.img"
    key = (config.paths.state / "images" / "id_ed25519").resolve()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_what_somebody_else_keeps_beside_the_images_stays(config, tmp_path):
    """paths.state may be a folder that has an images/ already."""
    folder = config.paths.state / "images"
    others = ("isos", "site.new", ".git")
    for name in (*others, "data-0123456789abcdef", "guest-0123456789abcdef.new"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    (folder / ".movie.img").symlink_to("gone")
    source = tmp_path / "source"
    source.mkdir()
    for part in PARTS:
        for name in part.files:
            (source / name).write_text("ready")
    images.prepare(config, lambda _: None, source)
    assert all((folder / name / "file").exists() for name in others)
    left = {entry.name for entry in folder.iterdir() if entry.is_dir()}
    assert left == {*others, *(part.folder(folder).name for part in PARTS)}
    assert not (folder / ".movie.img").is_symlink()


def running(argument: str) -> bool:
    """True if a process of the machine has this argument."""
    for entry in Path("/proc").iterdir():
        try:
            if argument in (entry / "cmdline").read_text().split("\0"):
                return True
        except OSError:
            continue
    return False


def test_images_put_into_the_state_folder_are_moved_from_there(config):
    ready = config.paths.state / images.READY
    ready.mkdir(parents=True)
    for name in PARTS[0].files:
        (ready / name).write_text(f"ready {name}")
    assert images.needed_mib(config) == PARTS[1].mib
    (ready / "movie.img").write_text("ready movie")
    assert images.needed_mib(config) == 0
    images.prepare(config, lambda _: None)
    assert made(config)["movie.img"] == "ready movie"
    assert list(ready.iterdir()) == []


@pytest.mark.parametrize("linked", [True, False], ids=["same-disk", "other-disk"])
def test_images_put_there_outlive_an_interruption(config, tmp_path, monkeypatch, linked):
    """The run may be ended at any moment, and they may be the only ones."""
    ready = config.paths.state / images.READY
    ready.mkdir(parents=True)
    disk = tmp_path / "disk"
    disk.touch()
    (ready / "movie.img").write_text("ready movie.img")
    (ready / "id_ed25519").write_text("ready key")
    (ready / "vmlinuz").symlink_to(disk)
    if not linked:
        monkeypatch.setattr(
            images.os, "link", Mock(side_effect=OSError(18, "Invalid cross-device"))
        )
    with monkeypatch.context() as during:
        during.setattr(images, "_close_key", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            images.prepare(config, lambda _: None)
    assert len(list(ready.iterdir())) == 3
    images.prepare(config, lambda _: None)
    folder = config.paths.state / "images"
    assert (folder / "movie.img").read_text() == "ready movie.img"
    # A disk of the host stays one: it is linked to, not copied.
    assert (folder / "vmlinuz").resolve() == disk
    assert list(ready.iterdir()) == []


@needs_root
def test_what_the_recipe_started_ends_with_it(config):
    """A recipe that leaves a process behind leaves none: it has a PID namespace."""
    (images.RECIPES / "data.sh").write_text(
        'sleep 86399.25 >/dev/null 2>&1 & echo data >"$1/movie.img"\n'
    )
    images.prepare(config, lambda _: None)
    assert not running("86399.25")


def test_in_a_checkout_nothing_is_made(config, tmp_path):
    own = Config(paths=Paths(state=tmp_path / "own"), installed=False)
    images.prepare(own, lambda _: None)
    assert images.needed_mib(own) == 0 and images.ready(own)
    assert not (tmp_path / "own").exists()
