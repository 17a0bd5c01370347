# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the focus is after a part of the page was drawn anew: never at another row's control."""

import pytest
from playwright.sync_api import expect

from e2e.browser import lane, open_vm

GROUP = {"resource": "blk-read", "bytes_per_second": 1e6}


@pytest.fixture
def groups(service, page):
    """The page of two groups."""
    for name in ("first", "second"):
        assert service.controller("PUT", f"/v1/groups/{name}", json=GROUP).is_success
    page.goto(f"{service.address}/groups")


def button(page, group, testid):
    return page.locator(f'[data-group="{group}"]').get_by_test_id(testid)


def test_the_focus_stays_in_its_group(service, page, groups):
    button(page, "second", "change-group").focus()
    assert service.controller("PUT", "/v1/groups/another", json=GROUP).is_success
    expect(page.locator('[data-group="another"]')).to_have_count(1)
    expect(button(page, "second", "change-group")).to_be_focused()


def test_the_focus_of_a_group_that_goes_is_not_at_the_removal_of_another(page, groups):
    button(page, "second", "remove-group").focus()
    page.keyboard.press("Enter")
    expect(page.locator('[data-group="second"]')).to_have_count(0)
    expect(button(page, "first", "remove-group")).not_to_be_focused()


def test_a_knob_keeps_the_focus_in_its_class_and_resource(service, page, batch):
    open_vm(page, "test")
    lane(page, "batch").locator("summary").click()
    knobs = 'form.knobs[data-class="batch"][data-resource="net-tx"][data-kind="limits"] input'
    page.locator(knobs).first.focus()
    assert service.controller("PUT", "/v1/classes/late", json={}).is_success
    assert service.controller("PUT", "/v1/domains/test/classes/late", json={}).is_success
    expect(lane(page, "late")).to_have_count(1)
    focused = "(({ class: name, resource, kind }) => [name, resource, kind].join())"
    said = page.evaluate(f"{focused}(document.activeElement.closest('form')?.dataset ?? {{}})")
    assert said in ("batch,net-tx,limits", ",,")


CARDS = """async () => {
    const { successor } = await import("/static/js/refresh.js");
    const main = document.getElementById("main");
    const card = (mac) => `<form data-card="${mac}"><select data-label="DSCP"></select></form>`;
    main.innerHTML = `<ul>${card("a")}${card("b")}</ul>`;
    const old = main.querySelector("[data-card=b] select");
    main.innerHTML = `<ul>${card("a")}${card("b")}</ul>`;
    const again = successor(old)?.closest("form").dataset.card ?? null;
    main.innerHTML = `<ul>${card("a")}</ul>`;
    return [again, successor(old)];
}"""


def test_a_cards_setting_keeps_the_focus_at_its_card(page):
    assert page.evaluate(CARDS) == ["b", None]
