# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of the process table, whatever a guest reports."""

import pytest

GROUPS = """async (processes) => {
    const { groups } = await import("/static/js/tree.js");
    return groups(processes, ["movie", "default"]).map((g) =>
        [g.name, g.rows.map((r) => [r.process.pid, r.depth]), g.read_bps]);
}"""


def test_processes_are_grouped_as_trees_even_if_a_guest_lies(page):
    """A loop of parents and an unknown class from a hostile guest lose no row."""
    processes = [
        {"pid": 1, "ppid": 0, "class": None},
        {"pid": 7, "ppid": 1, "class": "movie", "read_bps": 5},
        {"pid": 8, "ppid": 7, "class": "movie"},
        {"pid": 20, "ppid": 21, "class": None},
        {"pid": 21, "ppid": 20, "class": None},
        {"pid": 30, "ppid": 30, "class": "no such class"},
    ]
    found = page.evaluate(
        GROUPS,
        processes,
    )
    assert found[0] == ["movie", [[7, 0], [8, 1]], 5]
    assert sorted(pid for pid, _ in found[1][1]) == [1, 20, 21, 30]


def test_the_busiest_branch_is_first(page):
    processes = [
        {"pid": 1, "ppid": 0, "class": None},
        {"pid": 2, "ppid": 1, "class": None},
        {"pid": 3, "ppid": 1, "class": None},
        {"pid": 4, "ppid": 3, "class": None, "read_bps": 9},
        {"pid": 5, "ppid": 0, "class": None, "read_bps": 10},
    ]
    found = page.evaluate(GROUPS, processes)
    assert found[1][1] == [[5, 0], [1, 0], [3, 1], [4, 2], [2, 1]]


@pytest.mark.parametrize("first_is_root", [True, False], ids=["chain", "loop"])
def test_no_depth_of_processes_breaks_the_order(page, first_is_root):
    """Any user of a guest can nest shells, and a hostile guest can say anything."""
    count = 3000
    processes = [{"pid": pid, "ppid": pid - 1, "class": None} for pid in range(1, count + 1)]
    processes[0]["ppid"] = 0 if first_is_root else count
    found = page.evaluate(GROUPS, processes)
    assert found[1][1] == [[pid, pid - 1] for pid in range(1, count + 1)]


BRINGER = """async ([processes, pid]) => {
    const { bringerOf, ruleOf } = await import("/static/js/tree.js");
    const process = processes.find((one) => one.pid === pid);
    const bringer = bringerOf(process, processes, (one) => one.hand === true);
    return [bringer.pid, ruleOf(bringer)];
}"""


def child(pid: int, parent: int, name: str | None = "batch", **more) -> dict:
    row = {"pid": pid, "ppid": parent, "class": name, "rule": "rule-2", "inherited": True}
    return {**row, **more}


def test_a_child_leads_to_what_brought_it_into_its_class(page):
    processes = [
        child(1, 0, None, inherited=False, rule=None),
        child(2, 1, inherited=False, rule="rule-7"),
        child(3, 2),
        child(4, 3, hand=True),
        child(5, 4),
        # Its parent has ended; a parent of another class did not bring it.
        child(6, 99, rule="rule-3"),
        child(7, 1, rule="rule-4"),
    ]
    leads = {3: [2, "7"], 2: [2, "7"], 5: [4, "2"], 6: [6, "3"], 7: [7, "4"], 1: [1, None]}
    for pid, lead in leads.items():
        assert page.evaluate(BRINGER, [processes, pid]) == lead
    many = [child(pid, pid - 1) for pid in range(1, 5000)]
    assert page.evaluate(BRINGER, [many, 4999]) == [1, "2"]
    # A loop of parents, from a hostile guest, ends.
    assert page.evaluate(BRINGER, [[child(1, 2), child(2, 1)], 1])[0] in (1, 2)


CHOSEN = """async (rules) => {
    const { isChosenInGuest } = await import("/static/js/tree.js");
    return rules.map((rule) => isChosenInGuest({ rule }));
}"""


def test_a_choice_of_the_guest_is_no_rule_of_the_host(page):
    rules = ["shape-4711-8151", "rule-7", "assignment-4711", None]
    assert page.evaluate(CHOSEN, rules) == [True, False, False, False]
