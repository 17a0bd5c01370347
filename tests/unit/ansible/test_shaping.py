# SPDX-License-Identifier: GPL-2.0-or-later
"""sluice_domains and its companions, checked one by one and as a whole."""

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils.scheduling import (
    DEFAULT_QUEUE,
    DEFAULT_SCHEDULING,
    read_queues,
    read_schedulings,
)
from ansible_collections.sluice.appliance.plugins.module_utils.shaping import (
    class_definitions,
    problems_of,
    read_limit,
    read_limits,
)
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.domain.limits import RESOURCES, parse_limits
from sluice_controller.domain.model import parse_class, parse_dscp
from sluice_controller.domain.queues import AQMS, parse_queues
from sluice_controller.domain.render import by_resource_json
from sluice_controller.domain.rules import MATCH_KEYS, parse_match
from sluice_controller.domain.scheduling import (
    CHARGES,
    DYNAMICS,
    POLICIES,
    check_all_within,
    parse_schedulings,
)

MANY = "9" * 400
GOOD = {
    "name": "media",
    "restart": False,
    "devices": ["vda"],
    "ceiling": {"net-tx": "400Mbit/s"},
    "classes": [
        {"name": "film", "priority": 1, "stream": {"name": "film", "rate": "7Mbit/s"}},
        {"name": "batch", "dscp": [8], "limits": {"blk-read": {"rate": "20MB/s", "ops": 100}}},
    ],
    "rules": [{"class": "batch", "match": {"exe": "/usr/bin/rsync", "user": 1000}}],
}


def with_(**changes):
    return [{**GOOD, **changes}]


def test_sound_data_has_no_problem():
    assert problems_of([GOOD]) == []
    assert problems_of([], [], []) == []
    assert problems_of(None, None, None) == []
    classes = [{"name": "batch", "priority": 7}]
    rules = [{"class": "batch", "match": {"unit": "a.service"}}]
    assert problems_of([GOOD], classes, rules) == []
    assert problems_of([GOOD], [], [{"domain": "media", **rules[0]}]) == []


@pytest.mark.parametrize(
    ("domains", "sentence"),
    [
        ("media", "sluice_domains 'media' is not a list: begin each entry with '- '"),
        (["media"], "sluice_domains[0] 'media' is not a mapping: give members name, state"),
        ([{**GOOD, "ceilling": {}}], "sluice_domains[0].ceilling {} is not known: use name"),
        (with_(name="a/b"), "sluice_domains[0].name 'a/b' is not a domain's name"),
        (
            [GOOD, {"name": "media"}],
            "sluice_domains[1].name 'media' is a duplicate: name each domain once",
        ),
        (with_(restart="yes"), ".restart 'yes' is neither true nor false"),
        (with_(shutdown_seconds=0), ".shutdown_seconds 0 is no number of seconds: give 1 to 900"),
        (with_(shutdown_seconds="90"), ".shutdown_seconds '90' is no number of seconds"),
        (with_(state="gone"), ".state 'gone' is not known: give attached or detached"),
        (with_(devices=[1]), ".devices 1 is not a device: give for example vda"),
        (with_(ceiling={"disk": "1MB/s"}), ".ceiling has the unknown resource 'disk': use blk"),
        (with_(ceiling={"net-tx": "fast"}), ".ceiling net-tx: 'fast' is not a rate: write for"),
        (with_(ceiling={"net-tx": "1kB/s"}), ".ceiling net-tx: '1kB/s' (bytes_per_second) is out"),
        (with_(classes=[{"name": "Film"}], rules=[]), "'Film' is not a class name: use 1 to 31"),
        (
            with_(classes=[*GOOD["classes"], {"name": "batch"}]),
            "classes[2].name 'batch' is a duplicate: name each class of a domain once",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "dscp": [8]}]),
            "classes[2].dscp 8 is a duplicate: it already selects class 'batch'",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "dscp": [7]}]),
            "classes[2].dscp 7 belongs to Sluice's own tags",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "dscp": [64]}]),
            "dscp 64 is not a DSCP value: give integers from 0 to 63",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "priority": 10}]),
            "classes[2].priority 10 is not a priority: give 0 (first) to 9",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "weight": 0}]),
            "classes[2].weight 0 is not a weight: give 1 to 1000",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "unmanaged": "no"}]),
            "classes[2].unmanaged 'no' is neither true nor false",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "queues": {"net-tx": 5}}]),
            "classes[2].queues net-tx: 5 is not a mapping: give some of bytes",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "bulk", "scheduling": {"net-tx": 5}}]),
            "classes[2].scheduling net-tx: 5 is not a mapping: give some of reserve",
        ),
        (
            [
                {"name": "a", "classes": [{"name": "batch", "weight": 2}]},
                {"name": "b", "classes": [{"name": "batch", "weight": 3}]},
            ],
            "sluice_domains[1].classes[0].weight 3 contradicts 2 at sluice_domains[0].classes[0]",
        ),
        (
            with_(classes=[*GOOD["classes"], {"name": "default", "stream": True}]),
            "classes[2].stream True cannot hold for 'default'",
        ),
        (
            with_(classes=[{"name": f"c{i}"} for i in range(16)], rules=[]),
            "classes 16 are too many: a domain has tags for 15",
        ),
        (
            with_(rules=[{"class": "bulk", "match": {"exe": "/bin/cat"}}]),
            "rules[0].class 'bulk' is an unknown class: it is not among the classes of domain"
            " 'media' (batch, film); add it there or correct the name",
        ),
        (with_(rules=[{"class": "default", "match": {"exe": "/x"}}]), "takes no rules"),
        (with_(rules=[{"class": "batch", "match": {}}]), "match {} holds no condition: give some"),
        (with_(rules=[{"class": "batch", "match": {"exe": "cat"}}]), "'cat' is not an absolute"),
        (with_(rules=[{"class": "batch", "match": {"pid": 1}}]), "match.pid 1 is not known: use"),
        (with_(rules=[{"class": "batch", "match": {"unit": "vlc"}}]), "'vlc' is not a unit's name"),
        (with_(rules=[{"class": "batch", "match": {"cmdline": "("}}]), "not a regular expression"),
        (with_(rules=[{"class": "batch", "match": {"cmdline": "(?=x)"}}]), "uses '(?='"),
        (with_(rules=[{"class": "batch", "match": {"exe": ""}}]), "is not usable text: give 1 to"),
        (
            [GOOD, {"name": "web", "classes": [{"name": "batch", "priority": 3}]}],
            None,
        ),
        (
            [
                {"name": "a", "classes": [{"name": "batch", "priority": 2}]},
                {"name": "b", "classes": [{"name": "batch", "priority": 3}]},
            ],
            "sluice_domains[1].classes[0].priority 3 contradicts 2 at sluice_domains[0].classes[0]",
        ),
        (
            [
                {"name": n, "classes": [{"name": "f", "stream": {"name": "s", "rate": "1MB/s"}}]}
                for n in ("a", "b")
            ],
            "stream.name 's' is a duplicate: sluice_domains[0].classes[0] has it already",
        ),
        (
            with_(classes=[{"name": "f", "stream": {"name": "s"}}], rules=[]),
            "stream.rate None is missing: give the stream's nominal rate",
        ),
    ],
)
def test_each_problem_is_named_with_its_value_and_remedy(domains, sentence):
    found = problems_of(domains)
    if sentence is None:
        assert found == []
    else:
        assert len(found) == 1, found
        assert sentence in found[0]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            {"domain": "med1a", "class": "batch", "match": {"exe": "/x"}},
            "sluice_rules[0].domain 'med1a' is an unknown domain: sluice_domains has media; add",
        ),
        (
            {"class": "bulk", "match": {"exe": "/x"}},
            "sluice_rules[0].class 'bulk' is an unknown class: it is not among the classes of this"
            " host (batch, film)",
        ),
    ],
)
def test_a_rule_of_the_host_is_checked_against_the_domains(rule, sentence):
    assert [sentence in problem for problem in problems_of([GOOD], [], [rule])] == [True]


def test_classes_of_the_host_and_of_domains_are_one_definition():
    classes = [{"name": "batch", "title": "Batch", "stream": False}]
    domains = [{"name": "a", "classes": [{"name": "batch", "priority": 7}, {"name": "x"}]}]
    assert class_definitions(domains, classes) == [
        {"name": "batch", "title": "Batch", "stream": False, "priority": 7},
        {"name": "x"},
    ]


def test_scheduling_is_read_in_the_words_of_the_command():
    written = {
        "blk-read": {"reserve": "2MB/s", "charge": "device", "min_charge": "64KiB"},
        "blk-write": {"policy": "token-bucket"},
        "net-tx": {"window": "64KiB/20ms", "may_miss": "1/10", "dynamic": "latency"},
        "net-rx": None,
    }
    assert read_schedulings(written, {}) == {
        "blk-read": {
            **DEFAULT_SCHEDULING,
            "reservation_bytes_per_second": 2_000_000,
            "charge": "device",
            "minimum_charge_bytes": 65536,
        },
        "net-tx": {
            **DEFAULT_SCHEDULING,
            "window": {"period_ns": 20_000_000, "bytes": 65536, "may_miss": 1, "of": 10},
            "dynamic": "latency",
        },
    }
    written = {"net-rx": {"bytes": "256KiB", "aqm": "codel", "ecn": True, "connections": "200"}}
    assert read_queues(written) == {
        "net-rx": {
            **DEFAULT_QUEUE,
            "limit_bytes": 262144,
            "aqm": "codel",
            "ecn": True,
            "connections_per_second": 200,
        }
    }


@pytest.mark.parametrize(
    ("scheduling", "words"),
    [
        ({"blk-read": 5}, "blk-read: 5 is not a mapping: give some of reserve, policy"),
        ({"blk-read": {"rate": 5}}, "has the unknown member 'rate': use reserve"),
        ({"blk-read": {"reserve": "fast"}}, "has reserve 'fast', which is not a rate: write"),
        ({"blk-read": {"reserve": "6MB/s"}}, "reserves 6000000 bytes per second, more than the"),
        ({"blk-read": {"window": "64KiB/1ms"}}, "reserves 65536000 bytes per second"),
        ({"blk-read": {"policy": "token-leaky"}}, "has peak or policy token-leaky alone"),
        ({"blk-read": {"peak": "9MB/s"}}, "has peak or policy token-leaky alone"),
        (
            {"net-tx": {"policy": "token-leaky", "peak": "9MB/s"}},
            "has the peak 9000000 without a limit",
        ),
        ({"blk-read": {"may_miss": "1/10"}}, "has may_miss without a window"),
        ({"net-tx": {"window": "2GB/1us"}}, "reserves 2000000000000000 bytes per second, more"),
        ({"net-tx": {"charge": "device"}}, "it is for blk-read and blk-write"),
        ({"net-tx": {"reserve": "1kB/s", "window": "1/1s"}}, "has a window and reserve"),
        ({"net-tx": {"reserve": 10**11 + 1}}, "which is out of range: give 1 to 100000000000"),
        ({"blk-read": {"reserve": MANY}}, "9…, which is out of range: no rate is above 1TB/s"),
        ({"blk-read": {"reserve": 10**400}}, "0…, which is out of range: no rate is above"),
        ({"blk-read": {"min_charge": MANY}}, "9…, which is out of range: no size is above 1TiB"),
        ({"blk-read": {"window": f"1/{MANY}s"}}, "9…, which is out of range: no time is above"),
        (
            {"blk-read": {"window": "1/1s", "may_miss": f"1/{'9' * 5000}"}},
            "9…, which is not a part: write N/OF with N less than OF and OF up to 1000",
        ),
        ({"disk": {}}, "has the unknown resource 'disk': use blk-read"),
        ("fast", "is not a mapping: map some of"),
    ],
)
def test_each_problem_of_scheduling_is_named(scheduling, words):
    with pytest.raises(ValueError) as refused:
        read_schedulings(scheduling, {"blk-read": {"bytes_per_second": 5_000_000}})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ({"blk-read": {}}, "has the unknown resource 'blk-read': use net-tx, net-rx"),
        ({"net-tx": {"ecn": True}}, "give aqm codel too"),
        ({"net-tx": {"ecn": "yes"}}, "has ecn 'yes', which is neither true nor false"),
        ({"net-tx": {"packets": 0}}, "has packets 0, which is out of range: give 1 to 262144"),
        ({"net-tx": {"packets": 10**400}}, "0…, which is out of range: give 1 to 262144"),
        ({"net-rx": {"connections": MANY}}, "9…, which is out of range: give 1 to 1000000000000"),
        ({"net-tx": {"connections": 5}}, "use net-rx"),
        ({"net-rx": {"burst_connections": 5}}, "without connections"),
    ],
)
def test_each_problem_of_queues_is_named(queues, words):
    with pytest.raises(ValueError) as refused:
        read_queues(queues)
    assert words in str(refused.value)


@pytest.mark.parametrize("value", [MANY, 10**400], ids=["text", "number"])
@pytest.mark.parametrize("key", ["rate", "burst", "ops", "burst_ops"])
def test_a_limit_beyond_all_bounds_is_named_in_one_sentence(key, value):
    limits = {"blk-read": {"rate": "1MB/s", "ops": 100, key: value}}
    entry = {"name": "web1", "classes": [{"name": "default", "limits": limits}]}
    problem, *others = problems_of([entry])
    assert others == [] and len(problem) < 300
    assert problem.startswith("sluice_domains[0].classes[0].limits blk-read: {")
    assert "… is out of range: " in problem


def test_a_limit_is_read_in_all_its_forms():
    assert read_limit("20MB/s") == {"bytes_per_second": 20_000_000}
    assert read_limit(5000) == {"bytes_per_second": 5000}
    assert read_limit("unlimited") == {}
    assert read_limit({"rate": "8Mbit/s", "burst": "64KiB", "ops": "100", "burst_ops": 5}) == {
        "bytes_per_second": 1_000_000,
        "burst_bytes": 65536,
        "operations_per_second": 100,
        "burst_operations": 5,
    }
    with pytest.raises(ValueError, match="has burst_bytes without a rate"):
        read_limit({"burst": "64KiB"})


# What the inventory's check lets through, sluiced takes as well: otherwise a
# run would stop halfway, after it had changed other hosts.

QUANTITY = st.one_of(
    st.integers(-5, 10**12),
    st.floats(allow_nan=True),
    st.sampled_from(["1MB/s", "10Mbit/s", "1B/s", "unlimited", "64KiB", "x", None, True]),
)
LIMIT = st.one_of(
    QUANTITY,
    st.dictionaries(st.sampled_from(["rate", "burst", "ops", "burst_ops", "x"]), QUANTITY),
)
RATE = st.sampled_from(
    ["1MB/s", "9MB/s", 5000, 0, 10**11 + 1, 10**12 + 1, "none", True, float("inf")]
)
SCHEDULING = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "reserve": RATE,
        "policy": st.sampled_from([*POLICIES, "leaky"]),
        "peak": RATE,
        "min_charge": st.sampled_from([0, "64KiB", "1MiB", "2MiB", 0.5]),
        "dynamic": st.sampled_from([*DYNAMICS, "x"]),
        "charge": st.sampled_from([*CHARGES, None]),
        "window": st.sampled_from(["64KiB/20ms", "1/1us", "4GiB/1s", "9", "none", 5]),
        "may_miss": st.sampled_from(["1/10", "1/1", "0/1", "1", 5]),
    },
)
QUEUE = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "bytes": st.sampled_from(["256KiB", "65MiB", 0, 1]),
        "packets": st.sampled_from([1, "500", 2.5, 2**18 + 1]),
        "aqm": st.sampled_from([*AQMS, "red"]),
        "ecn": st.one_of(st.booleans(), st.none()),
        "connections": st.sampled_from([1, "200", 0, 2.5, float("nan")]),
        "burst_connections": st.sampled_from([1, 2**41]),
    },
)
NAME = st.one_of(st.sampled_from(["a", "batch", "default", "A", "", "x" * 32]), st.none())
CLASS = st.fixed_dictionaries(
    {"name": NAME},
    optional={
        "title": st.one_of(st.text(max_size=90), st.integers()),
        "priority": st.one_of(st.integers(-1, 10), st.booleans(), st.text(max_size=2)),
        "stream": st.booleans(),
        "dscp": st.lists(st.one_of(st.integers(-1, 64), st.booleans()), max_size=3),
        "limits": st.dictionaries(st.sampled_from([*RESOURCES, "disk"]), LIMIT, max_size=3),
        "weight": st.one_of(st.integers(-1, 1001), st.booleans()),
        "unmanaged": st.one_of(st.booleans(), st.integers(0, 1)),
        "scheduling": st.dictionaries(st.sampled_from([*RESOURCES, "disk"]), SCHEDULING),
        "queues": st.dictionaries(st.sampled_from(RESOURCES), QUEUE, max_size=3),
    },
)
TEXT = st.one_of(
    st.text(max_size=12), st.sampled_from(["/usr/bin/cat", "a(b)c", "[", "(?=x)", "a++"])
)
MATCH = st.dictionaries(
    st.sampled_from([*MATCH_KEYS, "pid"]), st.one_of(TEXT, st.integers(), st.none()), max_size=3
)


@given(CLASS)
def test_a_class_that_passes_is_taken_by_the_controller(entry):
    if problems_of([{"name": "d", "classes": [entry]}]):
        return
    members = ("title", "priority", "weight", "unmanaged")
    body = {key: entry[key] for key in members if key in entry}
    parse_class(entry["name"], {**body, "is_stream": entry.get("stream", False)}, 1)
    parse_dscp(entry.get("dscp") or [], [])
    limits = read_limits(entry.get("limits"))
    scheduling = read_schedulings(entry.get("scheduling") or {}, limits)
    queues = read_queues(entry.get("queues") or {})
    taken = parse_schedulings(scheduling)
    check_all_within(parse_limits(limits), taken)
    # What is read is what the API answers, so that a second run finds no difference.
    assert by_resource_json(taken) == scheduling
    assert by_resource_json(parse_queues(queues)) == queues


@given(MATCH)
def test_a_rule_that_passes_is_taken_by_the_controller(match):
    rules = [{"class": "a", "match": match}]
    if not problems_of([{"name": "d", "classes": [{"name": "a"}], "rules": rules}]):
        parse_match(match)


@given(LIMIT)
def test_a_limit_that_passes_is_taken_by_the_controller(limit):
    try:
        limits = read_limits({"blk-read": limit})
    except ValueError:
        return
    parse_limits(limits)
