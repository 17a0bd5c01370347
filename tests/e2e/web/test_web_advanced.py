# SPDX-License-Identifier: GPL-2.0-or-later
"""What a class has beside its limits, set in the page and seen in the controller."""

from playwright.sync_api import expect

from e2e.browser import answer, lane, open_vm


def granted(service, name: str) -> dict:
    grants = service.controller("GET", "/v1/domains/test").json()["classes"]
    return next(grant for grant in grants if grant["class"] == name)


def form(page, name: str, kind: str, resource: str):
    return page.locator(
        f'form.knobs[data-class="{name}"][data-kind="{kind}"][data-resource="{resource}"]'
    )


def opened(page, name: str):
    open_vm(page, "test")
    lane(page, name).locator("summary").click()
    return lane(page, name).get_by_test_id("advanced-summary")


def test_scheduling_is_set_said_in_short_and_undone(service, page, batch):
    summary = opened(page, batch)
    expect(summary).to_have_text("as by default")
    disk = form(page, batch, "scheduling", "blk-read")
    disk.get_by_test_id("reserve").fill("5 MB/s")
    disk.get_by_test_id("charge").select_option("device")
    disk.get_by_test_id("set-scheduling").click()
    expect(summary).to_contain_text("disk read at least 5.00 MB/s, charged for what the disk did")
    one = granted(service, batch)["scheduling"]["blk-read"]
    assert (one["reservation_bytes_per_second"], one["charge"]) == (5_000_000, "device")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("u")
    expect(summary).to_have_text("as by default")
    assert granted(service, batch)["scheduling"] == {}


def test_a_form_keeps_the_digits_that_it_does_not_show(service, page, batch):
    body = {"reservation_bytes_per_second": 5_123_456}
    window = {"period_ns": 1_234_567_891, "bytes": 16384, "may_miss": 1, "of": 10}
    path = f"/v1/domains/test/classes/{batch}/scheduling/net-tx"
    assert service.controller("PUT", path, json={"window": window}).is_success
    path = f"/v1/domains/test/classes/{batch}/scheduling/blk-write"
    assert service.controller("PUT", path, json=body).is_success
    summary = opened(page, batch)
    disk = form(page, batch, "scheduling", "blk-write")
    expect(disk.get_by_test_id("reserve")).to_have_value("5.12 MB/s")
    disk.get_by_test_id("policy").select_option("leaky-bucket")
    disk.get_by_test_id("set-scheduling").click()
    expect(summary).to_contain_text("evenly spaced")
    one = granted(service, batch)["scheduling"]["blk-write"]
    assert one["reservation_bytes_per_second"] == 5_123_456
    network = form(page, batch, "scheduling", "net-tx")
    expect(network.get_by_test_id("window")).to_have_value("16 KiB / 1.23457 s")
    network.get_by_test_id("dynamic").select_option("latency")
    network.get_by_test_id("set-scheduling").click()
    expect(summary).to_contain_text("small flows first")
    assert granted(service, batch)["scheduling"]["net-tx"]["window"] == window


def test_what_others_set_while_somebody_types_is_shown_afterwards(service, page, batch):
    opened(page, batch)
    reserve = form(page, batch, "scheduling", "blk-read").get_by_test_id("reserve")
    reserve.focus()
    path = f"/v1/domains/test/classes/{batch}/scheduling/blk-read"
    body = {"reservation_bytes_per_second": 3e6}
    assert service.controller("PUT", path, json=body).is_success
    cell = lane(page, batch).locator('.cell[data-resource="blk-read"]')
    expect(cell).to_have_attribute("data-reserved", "3000000")
    expect(reserve).to_have_value("")
    page.get_by_role("heading", level=1).click()
    expect(reserve).to_have_value("3.00 MB/s")


def test_a_window_in_the_words_of_the_page(service, page, batch):
    opened(page, batch)
    network = form(page, batch, "scheduling", "net-tx")
    expect(network.get_by_test_id("may-miss")).to_be_hidden()
    network.get_by_test_id("window").fill("16 KiB / 20 ms")
    network.get_by_test_id("may-miss").fill("1 of 10")
    network.get_by_test_id("dynamic").select_option("latency")
    network.get_by_test_id("set-scheduling").click()
    expect(page.get_by_test_id("toast").last).to_contain_text("16 KiB in each 20 ms")
    one = granted(service, batch)["scheduling"]["net-tx"]
    assert one["window"] == {"period_ns": 20_000_000, "bytes": 16384, "may_miss": 1, "of": 10}
    # A reload shows the same again.
    opened(page, batch)
    expect(network.get_by_test_id("window")).to_have_value("16 KiB / 20 ms")
    expect(network.get_by_test_id("may-miss")).to_have_value("1 of 10")


def test_a_refusal_is_said_beside_the_form_and_changes_nothing(service, page, batch):
    opened(page, batch)
    disk = form(page, batch, "scheduling", "blk-write")
    disk.get_by_test_id("policy").select_option("token-leaky")
    disk.get_by_test_id("peak").fill("5 MB/s")
    disk.get_by_test_id("set-scheduling").click()
    expect(disk.locator(".error")).to_contain_text("has no limit of bytes per second")
    disk.get_by_test_id("reserve").fill("fast")
    disk.get_by_test_id("set-scheduling").click()
    expect(disk.locator(".error")).to_contain_text("'fast' is not a rate")
    assert granted(service, batch)["scheduling"] == {}


def test_a_queue_is_set(service, page, batch):
    summary = opened(page, batch)
    queue = form(page, batch, "queues", "net-rx")
    expect(queue.get_by_test_id("ecn")).to_be_hidden()
    queue.get_by_test_id("aqm").select_option("codel")
    queue.get_by_test_id("ecn").check()
    queue.get_by_test_id("queue-bytes").fill("256 KiB")
    queue.get_by_test_id("connections").fill("200")
    queue.get_by_test_id("set-queue").click()
    expect(summary).to_contain_text("CoDel with ECN, 200 new connections/s")
    assert granted(service, batch)["queues"]["net-rx"] == {
        "limit_bytes": 262144,
        "limit_packets": None,
        "aqm": "codel",
        "ecn": True,
        "connections_per_second": 200,
        "burst_connections": None,
    }


def test_weight_and_unmanaged_of_a_class(service, page, batch):
    page.goto(f"{service.address}/classes")
    row = page.locator('[data-testid="class-row"][data-class="batch"]')
    row.get_by_test_id("change-class").click()
    expect(page.get_by_test_id("class-name")).to_have_value("batch")
    expect(page.get_by_test_id("class-weight")).to_be_hidden()
    page.get_by_test_id("class-advanced").locator("summary").click()
    page.get_by_test_id("class-weight").fill("300")
    page.get_by_test_id("class-unmanaged").check()
    page.get_by_test_id("class-submit").click()
    expect(row).to_contain_text("unmanaged")
    assert (granted(service, batch)["weight"], granted(service, batch)["unmanaged"]) == (300, True)
    # Its title went with it, and one key takes all of it back.
    expect(row).to_contain_text("Batch")
    page.get_by_role("heading", name="Classes and rules").click()
    page.keyboard.press("u")
    expect(row).not_to_contain_text("unmanaged")
    assert granted(service, batch)["weight"] == 100


def stored(service, name: str) -> dict:
    classes = service.controller("GET", "/v1/classes").json()
    return next(one for one in classes if one["name"] == name)


def test_a_class_keeps_what_was_left_alone_in_its_form(service, page, batch):
    has = {"title": "Batch", "priority": 7, "weight": 300, "unmanaged": True}
    assert service.controller("PUT", "/v1/classes/batch", json=has).is_success
    page.goto(f"{service.address}/classes")
    # Somebody else changes it while the page is open.
    assert service.controller("PUT", "/v1/classes/batch", json={**has, "weight": 500}).is_success
    page.get_by_test_id("class-title").fill("Backups")
    page.get_by_test_id("class-name").fill("batch")
    expect(page.get_by_test_id("class-title")).to_have_value("Backups")
    expect(page.get_by_test_id("class-priority")).to_have_value("7")
    expect(page.get_by_test_id("class-weight")).to_have_value("300")
    expect(page.get_by_test_id("class-unmanaged")).to_be_checked()
    page.get_by_test_id("class-submit").click()
    row = page.locator('[data-testid="class-row"][data-class="batch"]')
    expect(row).to_contain_text("Backups")
    one = stored(service, batch)
    assert (one["title"], one["priority"], one["weight"]) == ("Backups", 7, 500)
    assert one["unmanaged"] is True


def test_a_new_class_takes_nothing_from_one_whose_name_it_begins_with(service, page, batch):
    has = {"title": "Batch", "priority": 7, "weight": 300, "unmanaged": True}
    assert service.controller("PUT", "/v1/classes/batch", json=has).is_success
    page.goto(f"{service.address}/classes")
    name = page.get_by_test_id("class-name")
    name.press_sequentially("batch")
    expect(page.get_by_test_id("class-weight")).to_have_value("300")
    name.press_sequentially("-2")
    page.get_by_test_id("class-submit").click()
    expect(page.locator('[data-testid="class-row"][data-class="batch-2"]')).to_be_visible()
    one = stored(service, "batch-2")
    assert (one["title"], one["priority"], one["weight"]) == ("batch-2", 5, 100)
    assert one["unmanaged"] is False
    assert service.controller("DELETE", "/v1/classes/batch-2").is_success


def test_what_was_taken_away_comes_back_whole(service, page, batch):
    body = {
        "limits": {"net-rx": {"bytes_per_second": 5e6}},
        "scheduling": {"net-rx": {"reservation_bytes_per_second": 1e6}},
        "queues": {"net-rx": {"aqm": "codel"}},
    }
    assert service.controller("PUT", "/v1/domains/test/classes/batch", json=body).is_success
    before = granted(service, batch)
    open_vm(page, "test")
    lane(page, batch).get_by_role("button", name="Take away").click()
    expect(page.get_by_test_id("ask")).to_contain_text("queue of network in")
    answer(page, yes=True)
    expect(lane(page, batch)).to_have_count(0)
    page.keyboard.press("u")
    expect(lane(page, batch).get_by_test_id("advanced-summary")).to_contain_text("CoDel")
    assert granted(service, batch) == before
