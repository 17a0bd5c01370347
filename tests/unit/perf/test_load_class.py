# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.load_class and the subject Sluice: what the load is charged, and that QEMU has it."""

from typing import Any

import pytest

from perf.load_class import NAME, LoadClass, Setting, setting_of
from perf.subjects import LEAKY_BUCKET, TOKEN_BUCKET, Sluice, limited
from sluice_controller.domain.limits import DISK_RESOURCES, RESOURCES
from sluice_controller.domain.scheduling import default_minimum_charge, parse_scheduling
from sluice_controller.domain.shaper_rows import scheduling_rows


class Told(LoadClass):
    """A class whose controller and QEMU are what the controller's own code makes of it."""

    def __init__(self) -> None:
        super().__init__(None, None, 1)
        self.__dict__.update(limits={}, scheduling={}, awaited=[])

    def call(self, method: str, what: str, body: dict[str, Any] | None = None) -> None:
        kind, resource = what.split("/")
        getattr(self, kind).pop(resource, None)
        if method == "PUT":
            getattr(self, kind)[resource] = body

    def await_setting(self, resource: str, wanted: Setting) -> None:
        self.awaited.append(resource)
        assert setting_of(self.shapers(), resource) == wanted

    def shapers(self) -> list[dict]:
        """What query-shapers would say."""
        limits = [
            {"resource": resource, "bytes-per-second": limit["bytes_per_second"]}
            for resource, limit in self.limits.items()
        ]
        parsed = {
            resource: parse_scheduling(body, resource, "scheduling")
            for resource, body in self.scheduling.items()
        }
        default = {"class": "default", "limits": [], "scheduling": []}
        mine = {"class": NAME, "limits": limits, "scheduling": scheduling_rows(parsed)}
        return [{"classes": [default, mine]}]


@pytest.mark.parametrize("policy", [TOKEN_BUCKET, LEAKY_BUCKET])
@pytest.mark.parametrize("resource", RESOURCES)
def test_the_load_is_charged_what_it_asks_for_and_nothing_stays_behind(resource, policy):
    load = Told()
    subject = Sluice(load, resource, policy)
    subject.open(None, None)
    with limited(subject, 65536):
        assert load.limits == {resource: {"bytes_per_second": 65536}}
        assert setting_of(load.shapers(), resource) == Setting(65536, policy, 0)
    subject.close()
    assert (load.limits, load.scheduling) == ({}, {})
    assert load.awaited == [resource, resource]


@pytest.mark.parametrize("resource", RESOURCES)
def test_what_qemu_does_not_mention_is_as_by_default(resource):
    charge = default_minimum_charge(resource)
    assert setting_of(Told().shapers(), resource) == Setting(None, TOKEN_BUCKET, charge)
    assert (charge > 512) == (resource in DISK_RESOURCES)


def test_a_class_that_qemu_has_not_yet_has_no_setting():
    assert setting_of([], "blk-read") is None
    default = {"class": "default", "limits": [], "scheduling": []}
    assert setting_of([{"classes": [default]}], "blk-read") is None


def test_the_tag_is_on_each_request_of_the_load():
    load = LoadClass(None, None, 3)
    assert load.disk_command("fio") == "ionice --class 1 --classdata 3 fio"
    # The pool that is set aside for local use, and the tag before it.
    assert (load.dscp & 3, load.dscp >> 2) == (3, 3)
