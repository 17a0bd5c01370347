# SPDX-License-Identifier: GPL-2.0-or-later
"""What the page asks before a class or a rule goes that is in use."""

import pytest
from playwright.sync_api import Page, expect

from e2e.browser import answer, lane, open_vm

RULE = {"domain": "test", "class": "batch", "match": {"exe": "/usr/bin/rsync"}}


@pytest.fixture
def rules(service, batch):
    """Two rules for the class; equal ones would be one."""
    bodies = [{**RULE, "match": {"exe": exe}} for exe in ("/usr/bin/rsync", "/usr/bin/rclone")]
    return [service.controller("POST", "/v1/rules", json=body).json()["id"] for body in bodies]


@pytest.fixture
def stream(service, batch):
    """A stream that needs the class."""
    streaming = {"title": "Batch", "is_stream": True}
    assert service.controller("PUT", "/v1/classes/batch", json=streaming).is_success
    body = {"domain": "test", "class": batch, "nominal_bytes_per_second": 1e6}
    assert service.controller("PUT", "/v1/streams/asked", json=body).is_success


def take_away(page: Page):
    return lane(page, "batch").get_by_role("button", name="Take away")


def has_class(service) -> bool:
    grants = service.controller("GET", "/v1/domains/test").json()["classes"]
    return "batch" in [grant["class"] for grant in grants]


def numbers(service) -> list[int]:
    return [rule["id"] for rule in service.controller("GET", "/v1/rules").json()]


def test_the_question_says_who_uses_it_and_what_will_happen(service, page, rules):
    open_vm(page, "test")
    take_away(page).click()
    dialog = page.get_by_role("alertdialog", name="Take batch from test?")
    expect(dialog).to_contain_text("2 rules use the class batch on test.")
    expect(dialog).to_contain_text(f"rule {rules[0]}, exe /usr/bin/rsync")
    expect(dialog).to_contain_text("no agent answers")
    answer(page, yes=False)
    expect(lane(page, "batch")).to_be_visible()
    assert has_class(service) and set(rules) <= set(numbers(service))


def test_a_question_that_is_not_read_keeps_everything(service, page, rules):
    open_vm(page, "test")
    take_away(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("ask-no")).to_be_focused()
    # Nothing behind it can be reached.
    for _ in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.activeElement.closest('main, header')")
    page.get_by_test_id("ask-no").focus()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("ask")).to_have_count(0)
    expect(take_away(page)).to_be_focused()
    # Whoever presses Enter twice keeps it, too.
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("ask-no")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("ask")).to_have_count(0)
    expect(take_away(page)).to_be_focused()
    assert has_class(service)


def test_the_focus_is_found_again_when_the_lanes_were_drawn_anew(service, page, rules):
    open_vm(page, "test")
    take_away(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("ask-no")).to_be_focused()
    grant = "/v1/domains/test/classes/late"
    assert service.controller("PUT", "/v1/classes/late", json={}).is_success
    assert service.controller("PUT", grant, json={}).is_success
    expect(lane(page, "late")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("ask")).to_have_count(0)
    expect(take_away(page)).to_be_focused()
    # Without a question, too.
    assert service.controller("DELETE", grant).is_success
    expect(lane(page, "late")).to_have_count(0)
    expect(take_away(page)).to_be_focused()
    assert service.controller("DELETE", "/v1/classes/late").is_success


def test_what_is_agreed_to_goes_and_one_key_brings_it_back(service, page, rules):
    open_vm(page, "test")
    take_away(page).click()
    answer(page, yes=True)
    expect(lane(page, "batch")).to_have_count(0)
    expect(page.get_by_test_id("toast").last).to_contain_text("with 2 rules")
    expect(page.locator("main")).to_be_focused()
    assert not has_class(service) and not set(rules) & set(numbers(service))
    page.keyboard.press("u")
    # The rules come back after the class.
    expect(page.get_by_test_id("toast").last).to_contain_text("Undone")
    expect(lane(page, "batch")).to_be_visible()
    assert len(numbers(service)) == 2


def test_the_page_of_the_classes_asks_the_same(service, page, rules):
    page.goto(f"{service.address}/classes")
    button = page.get_by_role("button", name="Take batch from test")
    button.click()
    expect(page.get_by_test_id("ask")).to_contain_text("2 rules use the class batch on test.")
    answer(page, yes=False)
    expect(button).to_be_focused()
    button.click()
    answer(page, yes=True)
    expect(button).to_have_count(0)
    assert not has_class(service)


def test_a_rule_that_holds_nothing_goes_at_once(service, page, rules):
    page.goto(f"{service.address}/classes")
    row = page.locator(f'[data-testid="rule-row"][data-rule="{rules[0]}"]')
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    assert rules[0] not in numbers(service)


def test_a_class_that_a_stream_needs_is_refused_without_a_question(page, stream):
    open_vm(page, "test")
    take_away(page).click()
    expect(page.get_by_test_id("toast-failed")).to_contain_text("forget the stream first")
    expect(page.get_by_test_id("ask")).to_have_count(0)
    expect(lane(page, "batch")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True])
def test_the_question_fits_a_phone(service, visit, rules, dark):
    long = {**RULE, "match": {"exe": "/opt/" + "a-very-long-name" * 12}}
    rules.append(service.controller("POST", "/v1/rules", json=long).json()["id"])
    page = visit(width=360, height=740, dark=dark)
    page.goto(service.address)
    open_vm(page, "test")
    take_away(page).click()
    dialog = page.get_by_test_id("ask")
    expect(dialog).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert dialog.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    for name in ("ask-yes", "ask-no"):
        box = page.get_by_test_id(name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    page.goto(f"{service.address}/vm/test/classes/batch/take-away")
    expect(page.get_by_test_id("ask-no")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_without_scripts_a_page_asks(service, visit, rules):
    page = visit(scripts=False)
    page.goto(f"{service.address}/vm/test")
    take_away(page).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Take batch from test?")
    expect(page.get_by_test_id("question")).to_contain_text("2 rules use the class batch")
    page.get_by_test_id("ask-no").click()
    expect(lane(page, "batch")).to_be_visible()
    assert has_class(service)
    page.goto(f"{service.address}/classes")
    row = page.locator(f'[data-testid="rule-row"][data-rule="{rules[0]}"]')
    row.get_by_role("button", name="Remove").click()
    page.get_by_test_id("ask-yes").click()
    expect(page.get_by_text(f"Rule {rules[0]} is removed.")).to_be_visible()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Take batch from test").click()
    page.get_by_test_id("ask-yes").click()
    expect(page.get_by_text("batch is taken from test, with 1 rule.")).to_be_visible()
    assert page.url.endswith("/classes") and not has_class(service)
