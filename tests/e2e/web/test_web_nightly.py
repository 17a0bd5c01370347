# SPDX-License-Identifier: GPL-2.0-or-later
"""The nightly pages in a real browser, against a real controller."""

import httpx
import pytest
from playwright.sync_api import expect

from sluice_controller.domain.nightly import OUTCOMES, PHASES
from sluice_web import nights as words
from unit.controller.nightly_facts import result

SENTENCE = "The guests web1 and db2 move 84.2 MB/s on their disks; at most 5 MB/s is allowed."
PAGE = "<!doctype html><style>h1{color:rgb(1,2,3)}</style><h1>own</h1><script>document.body.textContent='ran'</script>"  # noqa: E501


@pytest.fixture(scope="module")
def nights(service):
    """Four nights, the second refused; their ids by number."""
    service.forget_nights()
    kept = {}
    for number, outcome in ((1, "passed"), (2, "refused"), (3, "failed"), (4, "passed")):
        page = PAGE if outcome != "refused" else None
        body = {"result": result(number, outcome, SENTENCE), "page": page}
        answer = service.controller("POST", "/v1/nightly", json=body)
        assert answer.is_success, answer.text
        kept[number] = answer.json()["id"]
    return kept


def test_before_the_first_night_the_page_says_how_to_begin(service, page):
    # Runs before the fixture `nights` is asked for.
    service.forget_nights()
    page.goto(f"{service.address}/nightly")
    expect(page.get_by_test_id("no-nights")).to_contain_text("systemctl enable")


def test_the_trend_is_drawn_and_a_night_without_figures_is_a_gap(service, page, nights):
    page.goto(f"{service.address}/nightly")
    expect(page.get_by_test_id("nightly-headline")).to_contain_text("kept 88 %")
    expect(page.locator("#trend[data-drawn=yes]")).to_be_visible()
    assert page.locator("#trend canvas").count() == 4
    expect(page.get_by_test_id("gaps")).to_contain_text("1 of 4 nights")
    row = page.locator('[data-testid="night-row"][data-outcome="refused"]')
    expect(row).to_contain_text(SENTENCE)
    # A click on a chart marks the night in the list: the leftmost is the oldest.
    chart = page.locator("#trend-stalled .u-over")
    height = chart.bounding_box()["height"]
    chart.click(position={"x": 8, "y": height / 2})
    expect(page.locator("tr.marked")).to_have_attribute("data-at", str(result(1)["started_at"]))
    chart.hover(position={"x": 12, "y": height / 2})
    expect(page.locator("#trend-readout")).to_contain_text("stalled 20.0 s unshaped")


def test_from_the_list_to_a_night_and_its_plots(service, page, nights):
    page.goto(f"{service.address}/nightly")
    page.locator('[data-testid="night-row"][data-outcome="failed"] a').click()
    expect(page.get_by_test_id("check")).to_contain_text("✗ fails")
    expect(page.locator("#night[data-drawn=yes]")).to_be_visible()
    assert page.locator("#night .uplot").count() == 4
    strip = page.locator("#night-strip")
    expect(strip).to_have_attribute("aria-label", "The stream in 120 half seconds: 100 perfect, 0 good, 20 poor")  # noqa: E501  # fmt: skip
    page.get_by_text("Figures behind the plots").click()
    expect(page.locator("#night-table tbody tr")).to_have_count(60)
    expect(page.get_by_test_id("night-log")).to_contain_text("batch 45 → 22 MB/s")


def test_the_runs_own_page_runs_nothing(service, nights, visit):
    page = visit()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{service.address}/nightly/{nights[1]}")
    page.get_by_test_id("night-report").click()
    expect(page.get_by_role("heading", name="own")).to_have_css("color", "rgb(1, 2, 3)")
    assert "ran" not in page.locator("body").inner_text()
    assert any("sandboxed" in line for line in said)


def test_a_refused_night_says_why_and_shows_no_empty_plots(service, page, nights):
    page.goto(f"{service.address}/nightly/{nights[2]}")
    expect(page.get_by_test_id("night-reason")).to_contain_text(SENTENCE)
    assert page.locator("canvas").count() == 0


def test_a_night_that_is_not_there(service, page, nights):
    page.goto(f"{service.address}/nightly/999")
    expect(page.get_by_test_id("problem")).to_contain_text("999")


def test_the_web_offers_no_way_to_post_one(service, page, nights):
    address = f"{service.address}/api/v1/nightly"
    assert httpx.post(address, json={}).status_code == 401
    page.goto(service.address)
    refused = page.evaluate(
        """async () => {
            const { call } = await import("/static/js/api.js");
            return call("POST", "/nightly", {}).catch((problem) => problem.message);
        }"""
    )
    assert "a nightly result" in refused and "needs the role host" in refused


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_all_of_it_without_sideways_scrolling(service, nights, visit, dark):
    page = visit(width=360, height=740, dark=dark)
    for path in ("/nightly", f"/nightly/{nights[4]}", f"/nightly/{nights[2]}"):
        page.goto(f"{service.address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_the_page_has_words_for_all_that_the_controller_may_say():
    assert set(words.OUTCOME_WORDS) == set(OUTCOMES)
    assert set(words.PHASE_TITLES) == set(PHASES)
