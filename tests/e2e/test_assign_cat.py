# SPDX-License-Identifier: GPL-2.0-or-later
"""The main job: with the mouse, a running process is put under a class's limit.

All parts are real: Chromium, the page, the controller, libvirt, QEMU, the
guest's kernel and agent, and ``cat``. The rate is what the host's kernel says
that QEMU read from the disk: the guest's disk is opened with O_DIRECT.
"""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from e2e.browser import answer, chromium, context, drag_process, open_vm, process_row, sign_in
from testbed import Controller, Guest, Web, patience, rates

CLASS = "slow"
LIMIT_BPS = 2_000_000
# cat's requests are of up to 128 KiB, 6 % of a second's budget. A window of
# 10 s holds more than 150 of them: one more or less is 0.7 %.
WINDOW_SECONDS = 10.0
UNIT = "reader"


@pytest.fixture
def limited_class(controller: Controller, guest: Guest):
    """A class limited to LIMIT_BPS that the guest may use."""
    limits = {"blk-read": {"bytes_per_second": LIMIT_BPS}}
    controller.call("PUT", f"/v1/classes/{CLASS}", {"title": "Slow", "priority": 5})
    controller.call("PUT", f"/v1/domains/{guest.name}/classes/{CLASS}", {"limits": limits})
    yield CLASS
    controller.call("DELETE", f"/v1/domains/{guest.name}/classes/{CLASS}")
    controller.call("DELETE", f"/v1/classes/{CLASS}")


@pytest.fixture
def cat(guest: Guest):
    """The pid of one cat that reads 1.9 GB, several times the guest's memory, for hours."""
    guest.drop_caches()
    guest.spawn(
        "exec cat $(for n in $(seq 300); do echo /srv/media/f*; done) >/dev/null", unit=UNIT
    )
    deadline = time.monotonic() + patience.seconds(20)
    while not (pids := guest.pids("cat")):
        assert time.monotonic() < deadline, "cat has not started"
        time.sleep(0.1)
    assert len(pids) == 1
    yield pids[0]
    guest.kill_unit(UNIT)


@pytest.fixture
def page(web: Web, guest: Guest):
    """The guest's page in Chromium, signed in."""
    with chromium() as browser, context(browser) as visitor:
        page = sign_in(visitor, web.url, web.user, web.password)
        open_vm(page, guest.name)
        yield page


def wait_until_held(controller: Controller, guest: Guest) -> None:
    """Wait until the class reads at its limit, and little is read outside of it."""
    deadline = time.monotonic() + patience.seconds(20)
    while True:
        live = controller.call("GET", f"/v1/live?domain={guest.name}")["domains"][guest.name]
        read_bps = {
            name: one.get("blk-read", {}).get("bytes_per_second", 0)
            for name, one in live["classes"].items()
        }
        held_bps = read_bps.pop(CLASS, 0)
        if 0 < held_bps < 1.1 * LIMIT_BPS and sum(read_bps.values()) < LIMIT_BPS / 10:
            return
        assert time.monotonic() < deadline, (held_bps, read_bps)
        time.sleep(0.2)


def test_a_cat_dropped_on_a_lane_is_limited_and_set_free(
    page: Page, guest: Guest, controller: Controller, limited_class: str, cat: int
):
    page.reload()
    expect(process_row(page, cat)).to_be_visible()
    # Otherwise the limit would show nothing.
    unshaped = rates.reached(lambda: guest.disk_read_bps(4), 2 * LIMIT_BPS)

    drag_process(page, cat, limited_class)
    once = page.get_by_test_id("assign-once")
    expect(once).to_be_visible()
    once.click()
    wait_until_held(controller, guest)
    shaped = rates.at_limit(lambda: guest.disk_read_bps(WINDOW_SECONDS), LIMIT_BPS)
    print(f"unshaped {unshaped / 1e6:.1f} MB/s, shaped {shaped / 1e6:.3f} MB/s")

    page.locator(f'[data-testid="unassign"][data-pid="{cat}"]').click()
    freed = rates.reached(lambda: guest.disk_read_bps(4), 2 * LIMIT_BPS)
    print(f"unassigned {freed / 1e6:.1f} MB/s")


def test_a_choice_of_the_page_says_which_dscp_counts(
    page: Page, guest: Guest, controller: Controller
):
    def cards() -> list[str]:
        shown = controller.call("GET", f"/v1/domains/{guest.name}")["cards"]
        return [one["dscp"] for one in shown.values()]

    choice = page.get_by_label("DSCP counts")
    expect(choice).to_have_value("auto")
    choice.select_option("both")
    expect(page.get_by_test_id("toast")).to_contain_text("both")
    assert cards() == ["both"]
    page.reload()
    expect(choice).to_have_value("both")
    choice.select_option("auto")
    expect(page.get_by_test_id("toast")).to_contain_text("as by default")
    assert set(cards()) <= {"auto"}


def exe_of_cat(controller: Controller, guest: Guest, pid: int) -> str:
    """Return what the agent says it runs; what it said first may be the shell that began it."""
    deadline = time.monotonic() + patience.seconds(15)
    while time.monotonic() < deadline:
        table = controller.call("GET", f"/v1/domains/{guest.name}/processes")["processes"]
        exe = next((one["exe"] for one in table if one["pid"] == pid), "")
        if exe.endswith("/cat"):
            return exe
        time.sleep(0.2)
    raise AssertionError(f"process {pid} runs {exe!r} and not cat")


def test_a_rule_that_holds_a_process_is_not_removed_unasked(
    page: Page, guest: Guest, web: Web, controller: Controller, limited_class: str, cat: int
):
    expect(process_row(page, cat)).to_be_visible()
    # The guest's /bin is a link, and the rule names the program by it.
    assert exe_of_cat(controller, guest, cat) == "/usr/bin/cat"
    body = {"domain": guest.name, "class": limited_class, "match": {"exe": "/bin/cat"}}
    number = controller.call("POST", "/v1/rules", body)["id"]
    wait_until_held(controller, guest)
    page.goto(f"{web.url}/classes")
    row = page.locator(f'[data-testid="rule-row"][data-rule="{number}"]')
    row.get_by_role("button", name="Remove").click()
    question = page.get_by_test_id("ask")
    expect(question).to_contain_text(re.compile(f"match(es)? rule {number} now"))
    expect(question).to_contain_text(f"cat {cat} on {guest.name}")
    answer(page, yes=False)
    assert number in [rule["id"] for rule in controller.call("GET", "/v1/rules")]
    row.get_by_role("button", name="Remove").click()
    answer(page, yes=True)
    expect(row).to_have_count(0)
    assert number not in [rule["id"] for rule in controller.call("GET", "/v1/rules")]
