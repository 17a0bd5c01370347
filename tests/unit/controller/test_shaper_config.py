# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands are run on a model that refuses what the shaper refuses."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.limits import RESOURCES, Limit
from sluice_controller.domain.model import Grant, ShapingClass
from sluice_controller.domain.queues import Queue
from sluice_controller.domain.scheduling import Scheduling
from sluice_controller.domain.shaper_config import actual, commands, qmp_limits, wanted
from unit.controller.scheduling_data import knobs, limits

CLASSES = [ShapingClass(name, name) for name in ("default", "a", "b", "c")]
CLASSES.append(ShapingClass("d", "d", weight=300, unmanaged=True))


class Shaper:
    """What `docs/specs/shaper-qmp.md` says of the shaper, as far as commands go."""

    def __init__(self):
        self.classes = {}
        self.ceiling = []
        self.groups = {}
        self.objects = {}
        self.count = 0
        self.shaper_set_class(**{"class": "default"}, tag=0, priority=5, dscp=[], limits=[])

    def run(self, steps):
        for command, arguments in steps:
            self.count += 1
            arguments = copy.deepcopy(arguments)
            if not command.startswith("object-"):
                assert arguments.pop("id") == "sluice0"
            getattr(self, command.replace("-", "_"))(**arguments)

    def shaper_set_class(
        self,
        tag,
        priority,
        dscp,
        limits,
        weight=100,
        unmanaged=False,
        scheduling=(),
        queues=(),
        **rest,
    ):
        name = rest.pop("class")
        assert not rest
        assert (tag == 0) == (name == "default")
        for other, config in self.classes.items():
            if other != name:
                assert config["tag"] != tag, f"tag {tag} is in use by {other}"
                assert not set(config["dscp"]) & set(dscp), f"dscp of {name} is in use by {other}"
        self.classes[name] = {
            "class": name,
            "tag": tag,
            "priority": priority,
            "dscp": dscp,
            "limits": limits,
            "weight": weight,
            "unmanaged": unmanaged,
            "scheduling": list(scheduling),
            "queues": list(queues),
        }

    def shaper_remove_class(self, **arguments):
        assert arguments["class"] != "default"
        del self.classes[arguments["class"]]

    def shaper_set_ceiling(self, limits):
        self.ceiling = limits

    def shaper_set_group(self, resource, group=None, weight=None):
        assert (group is None) == (weight is None)
        assert group is None or group in self.objects
        self.groups.pop(resource, None)
        if group is not None:
            self.groups[resource] = {"resource": resource, "group": group, "weight": weight}

    def object_add(self, id, path, **rest):
        assert rest == {"qom-type": "shaper-group"}
        assert id not in self.objects
        self.objects[id] = path

    def object_del(self, id):
        assert all(row["group"] != id for row in self.groups.values())
        del self.objects[id]

    def query(self):
        """As query-shapers answers: with what the shaper chose, and with its defaults."""
        classes = copy.deepcopy(list(self.classes.values()))
        for config in classes:
            for limit in config["limits"]:
                if "bytes-per-second" in limit:
                    limit.setdefault("burst-bytes", max(65536, limit["bytes-per-second"] // 20))
            for row in config["scheduling"]:
                disk = row["resource"].startswith("blk")
                usual = {"policy": "token-bucket", "dynamic": "none", "charge": "all"}
                row.update({**usual, "minimum-charge-bytes": 4096 if disk else 0, **row})
            for row in config["queues"]:
                row.update({"aqm": "none", "ecn": False, **row})
                if "connections-per-second" in row:
                    row.setdefault("burst-connections", row["connections-per-second"] // 20 or 1)
        return {
            "id": "sluice0",
            "classes": classes,
            "ceiling": copy.deepcopy(self.ceiling),
            "groups": list(self.groups.values()),
            "group-objects": dict(self.objects),
        }


weights = st.integers(1, 10_000)


NO_CAPS = st.just({})


@st.composite
def configs(draw, caps=NO_CAPS):
    names = draw(st.lists(st.sampled_from("abcd"), unique=True))
    tags = draw(st.permutations(range(1, 16)))
    values = draw(st.permutations([0, 2, 8, 10, 12, 46]))
    grants = [Grant("vm", "default", 0, (), *draw(knobs()))]
    for i, name in enumerate(names):
        dscp, values = tuple(values[: i % 3]), values[i % 3 :]
        grants.append(Grant("vm", name, tags[i], dscp, *draw(knobs())))
    groups = {
        resource: {"group": f"group-{n}", "path": f"/run/{n}.group", "weight": draw(weights)}
        for resource, n in draw(
            st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 3))
        ).items()
    }
    return wanted("vm", grants, CLASSES, draw(limits()), draw(caps), groups)


@given(st.lists(configs(), min_size=1, max_size=4))
def test_any_sequence_of_configurations_is_reached_without_a_collision(sequence):
    shaper = Shaper()
    for config in sequence:
        shaper.run(commands("sluice0", actual(shaper.query(), config), config))
        assert actual(shaper.query(), config) == config


@given(configs())
def test_what_is_there_already_takes_no_command(config):
    shaper = Shaper()
    shaper.run(commands("sluice0", actual(shaper.query(), config), config))
    assert commands("sluice0", actual(shaper.query(), config), config) == []
    assert commands("sluice0", config, config) == []


def test_one_changed_limit_is_one_command():
    def config(rate):
        grants = [Grant("vm", n, i + 1, (), {"blk-read": Limit(rate)}) for i, n in enumerate("ab")]
        grants[1] = Grant("vm", "b", 2, (), {"blk-read": Limit(5e6)})
        return wanted("vm", grants, CLASSES, {}, {})

    (step,) = commands("sluice0", config(1e6), config(2e6))
    assert step[0] == "shaper-set-class"
    assert step[1]["class"] == "a"
    assert step[1]["limits"] == [{"resource": "blk-read", "bytes-per-second": 2000000}]


def test_auto_shaping_caps_get_a_small_burst():
    config = wanted("vm", [Grant("vm", "a", 1)], CLASSES, {}, {("vm", "a", "blk-read"): 5e6})
    assert config["classes"]["a"]["limits"] == [
        {"resource": "blk-read", "bytes-per-second": 5000000, "burst-bytes": 262144}
    ]
    assert config["classes"]["default"]["limits"] == []


def test_rates_become_whole_numbers_of_at_least_one():
    rows = qmp_limits({"net-tx": Limit(operations_per_second=1.4), "net-rx": Limit()})
    assert rows == [{"resource": "net-tx", "operations-per-second": 1}]


def test_all_that_a_class_may_have_is_in_one_command():
    shaping_class = ShapingClass("a", "A", 2, weight=300, unmanaged=True)
    grant = Grant(
        "vm",
        "a",
        1,
        (),
        {"net-rx": Limit(9e6)},
        {"net-rx": Scheduling(2e6, "token-leaky", 2e7)},
        {"net-rx": Queue(262144, aqm="codel", ecn=True)},
    )
    config = wanted("vm", [grant], [shaping_class], {}, {})["classes"]["a"]
    assert config == {
        "class": "a",
        "tag": 1,
        "priority": 2,
        "weight": 300,
        "unmanaged": True,
        "dscp": [],
        "limits": [{"resource": "net-rx", "bytes-per-second": 9000000}],
        "scheduling": [
            {
                "resource": "net-rx",
                "reservation-bytes-per-second": 2000000,
                "policy": "token-leaky",
                "peak-bytes-per-second": 20000000,
            }
        ],
        "queues": [{"resource": "net-rx", "limit-bytes": 262144, "aqm": "codel", "ecn": True}],
    }


def test_what_is_as_by_default_is_not_said():
    """A QEMU of an earlier release may still run, and knows limits and priority only."""
    config = wanted("vm", [Grant("vm", "a", 1)], CLASSES, {}, {})["classes"]["a"]
    assert set(config) == {"class", "tag", "priority", "dscp", "limits"}


caps = st.dictionaries(
    st.tuples(st.just("vm"), st.sampled_from("abcd"), st.sampled_from(RESOURCES)),
    st.floats(1e3, 1e12),
)


@given(configs(caps))
def test_no_cap_of_auto_shaping_undercuts_what_is_reserved(config):
    """The shaper would refuse the whole class: a reservation goes up to the limit only."""
    for row in config["classes"].values():
        rates = {one["resource"]: one.get("bytes-per-second") for one in row["limits"]}
        for one in row.get("scheduling", []):
            rate = rates.get(one["resource"])
            assert rate is None or one.get("reservation-bytes-per-second", 0) <= rate
            if "window" in one and rate is not None:
                window = one["window"]
                assert window["bytes"] * 10**9 <= rate * window["period-ns"]
            if "peak-bytes-per-second" in one:
                assert rate is not None and rate <= one["peak-bytes-per-second"]
