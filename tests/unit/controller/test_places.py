# SPDX-License-Identifier: GPL-2.0-or-later
"""The operator's names of devices, by the beginnings of images' paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.errors import BadValue
from sluice_controller.domain.model import MAX_DEVICE_NAMES, AutoSettings, parse_auto
from sluice_controller.domain.places import named_by

PARTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(lambda p: "/" + "/".join(p))


@given(PARTS, st.sets(PARTS))
def test_the_longest_folder_that_holds_the_image_names_it(image, folders):
    names = dict.fromkeys(folders, "san")
    holding = [one for one in folders if f"{image}/".startswith(f"{one}/")]
    assert named_by(image, names) == max(holding, key=len, default=None)


@pytest.mark.parametrize(
    ("image", "beginning", "is_under"),
    [
        ("/srv/ab/disk", "/srv/a", False),
        ("/srv/a/disk", "/srv/a/", True),
        ("/srv/a/disk", "/", True),
        ("/dev/mapper/lun1", "/dev/mapper/lun1", True),
        ("/dev/mapper/lun12", "/dev/mapper/lun1", False),
        ("rbd:vms/film", "rbd:", True),
        ("rbd:vms/film", "rbd:vms", True),
        ("rbd:vms2/film", "rbd:vms", False),
        (None, "/", False),
    ],
)
def test_whole_parts_of_a_path_count(image, beginning, is_under):
    assert (named_by(image, {beginning: "san"}) is not None) == is_under


def names(**given):
    return parse_auto({"device_names": given.pop("names")}, AutoSettings(**given)).device_names


def test_a_name_is_added_changed_and_taken_back():
    assert names(names={"/a": "san"}) == {"/a": "san"}
    assert names(names={"/b": "nas"}, device_names={"/a": "san"}) == {"/a": "san", "/b": "nas"}
    assert names(names={"/a": None}, device_names={"/a": "san", "/b": "nas"}) == {"/b": "nas"}
    assert names(names={"/never": None}) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"srv/a": "san"},
        {"/srv/../a": "san"},
        {"/srv//a": "san"},
        {"/srv/a\n": "san"},
        {"": "san"},
        {"/srv/a": ""},
        {"/srv/a": "two words"},
        {"/srv/a": "-san"},
        {"/srv/a": "s" * 64},
        {"/srv/a": 7},
        {f"/srv/{number}": "san" for number in range(MAX_DEVICE_NAMES + 1)},
    ],
)
def test_wrong_names_are_refused_whole(wrong):
    with pytest.raises(BadValue) as refusal:
        names(names={"/good": "san", **wrong})
    assert refusal.value.thing.startswith("device_names")
