# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of the nightly run: defaults, a file, and what is refused."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from sluice_nightly import config as settings
from sluice_nightly.config import BadConfig, Config, load, parse
from testbed import paths


def parsed(text: str) -> Config:
    return parse(tomllib.loads(text), Config())


def test_without_a_file_everything_has_a_default():
    assert parsed("") == Config()
    assert Config().plan().link_mbit == 200
    assert Config().bars().background_ratio == 0.70


def test_a_file_changes_what_it_names():
    found = parsed(
        '[run]\nauto_s = 60\naccelerator = "kvm"\n[start]\nwithout_libvirt = true\n'
        '[paths]\nstate = "/srv/night"\n'
    )
    assert (found.run.auto_s, found.run.accelerator) == (60.0, "kvm")
    assert found.start.without_libvirt is True
    assert found.paths.state == Path("/srv/night")
    assert found.run.readers == Config().run.readers


def test_a_slow_host_is_given_more_time():
    assert parsed("[run]\npatience = 8\n").run.patience == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[speed]", "[speed] is not a section; use run, checks"),
        ("run = 5", "run is not a table"),
        ("[run]\nspeed = 1", "run.speed is not a setting; use accelerator"),
        ("[run]\nlink_mbit = 10", "run.link_mbit 10 is out of range; give 50 to 10000"),
        ("[run]\nlink_mbit = 100.5", "give a whole number"),
        ("[run]\nauto_s = nan", "give a number"),
        ("[run]\nauto_s = true", "give a number"),
        ('[run]\nauto_s = "30"', "give a number"),
        ("[run]\npatience = 0.5", "run.patience 0.5 is out of range; give 1 to 20"),
        ('[run]\naccelerator = "xen"', "run.accelerator 'xen' is not known; use one of auto"),
        ("[start]\nwithout_libvirt = 1", "give true or false"),
        ('[paths]\nstate = "night"', "not an absolute path"),
        ("[keep]\nresults = 0", "keep.results 0 is out of range"),
    ],
)
def test_what_cannot_be_is_named_with_its_value(text, words):
    with pytest.raises(BadConfig) as caught:
        parsed(text)
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path):
    with pytest.raises(BadConfig, match="absent.toml does not exist"):
        load(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[run")
    with pytest.raises(BadConfig, match="broken.toml cannot be read"):
        load(broken)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[run]\nreaders = 99")
    with pytest.raises(BadConfig, match="wrong.toml: run.readers 99"):
        load(wrong)


def test_every_number_has_a_range_that_holds_its_default():
    for section in settings.SECTIONS.values():
        for item in dataclasses.fields(section):
            if item.type in (int, float):
                least, most = item.metadata["range"]
                assert least <= item.default <= most, item.name


def test_the_shipped_file_says_the_defaults():
    """Each setting stands in it as a comment; taken out of its comment it is the default."""
    shipped = paths.TOP / "controller" / "nightly" / "nightly.toml"
    assert parse(tomllib.loads(shipped.read_text()), Config()) == Config()
    lines = shipped.read_text().splitlines()
    bare = [line.removeprefix("# ") for line in lines if " = " in line or line.startswith("[")]
    found = parse(tomllib.loads("\n".join(bare)), Config())
    assert found == Config()
    named = {line.split(" = ")[0] for line in bare if " = " in line}
    every = {item.name for kind in settings.SECTIONS.values() for item in dataclasses.fields(kind)}
    assert named == every


def test_a_checkout_uses_its_build_and_an_installed_run_its_packages():
    own = settings.default_config()
    assert own.installed is False
    assert own.layout().images == paths.checkout().images
    assert own.layout().runs == paths.BUILD / "nightly" / "runs"
    installed = Config().layout()
    assert installed.images == Path("/var/lib/sluice-nightly/images")
    assert set(installed.remedies) == set(paths.checkout().remedies)
