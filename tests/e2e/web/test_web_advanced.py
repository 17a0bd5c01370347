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


def member(within, name: str):
    """The field of a member of the controller's object."""
    return within.locator(f'[name="{name}"]')


def opened(page, name: str):
    open_vm(page, "test")
    lane(page, name).locator("summary").click()
    return lane(page, name).get_by_test_id("advanced-summary")


def test_scheduling_is_set_said_in_short_and_undone(service, page, batch):
    summary = opened(page, batch)
    expect(summary).to_have_text("as by default")
    disk = form(page, batch, "scheduling", "blk-read")
    member(disk, "reservation_bytes_per_second").fill("5 MB/s")
    member(disk, "charge").select_option("device")
    disk.get_by_role("button", name="Set").click()
    expect(summary).to_contain_text("disk read reservation 5.00 MB/s, charge device")
    one = granted(service, batch)["scheduling"]["blk-read"]
    assert (one["reservation_bytes_per_second"], one["charge"]) == (5_000_000, "device")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("u")
    expect(summary).to_have_text("as by default")
    assert granted(service, batch)["scheduling"] == {}


def test_the_first_sample_leaves_a_choice_that_was_made_before_it(service, page, batch):
    path = f"/v1/domains/test/classes/{batch}/scheduling/"
    body = {"window": {"period_ns": 10**9, "bytes": 16384, "may_miss": 1, "of": 10}}
    assert service.controller("PUT", f"{path}net-tx", json=body).is_success
    page.route("**/events*", lambda route: route.abort())
    summary = opened(page, batch)
    policy = member(form(page, batch, "scheduling", "net-tx"), "policy")
    policy.select_option("leaky-bucket")
    page.unroute("**/events*")
    assert service.controller("PUT", f"{path}blk-write", json={"charge": "device"}).is_success
    expect(summary).to_contain_text("charge device")
    expect(policy).to_have_value("leaky-bucket")


def test_a_form_keeps_the_digits_that_it_does_not_show(service, page, batch):
    body = {"reservation_bytes_per_second": 5_123_456}
    window = {"period_ns": 1_234_567_891, "bytes": 16384, "may_miss": 1, "of": 10}
    path = f"/v1/domains/test/classes/{batch}/scheduling/net-tx"
    assert service.controller("PUT", path, json={"window": window}).is_success
    path = f"/v1/domains/test/classes/{batch}/scheduling/blk-write"
    assert service.controller("PUT", path, json=body).is_success
    summary = opened(page, batch)
    disk = form(page, batch, "scheduling", "blk-write")
    expect(member(disk, "reservation_bytes_per_second")).to_have_value("5.12 MB/s")
    member(disk, "policy").select_option("leaky-bucket")
    disk.get_by_role("button", name="Set").click()
    expect(summary).to_contain_text("policy leaky bucket")
    one = granted(service, batch)["scheduling"]["blk-write"]
    assert one["reservation_bytes_per_second"] == 5_123_456
    network = form(page, batch, "scheduling", "net-tx")
    expect(member(network, "window.period_ns")).to_have_value("1.23457 s")
    member(network, "dynamic").select_option("latency")
    network.get_by_role("button", name="Set").click()
    expect(summary).to_contain_text("dynamic latency")
    assert granted(service, batch)["scheduling"]["net-tx"]["window"] == window


def test_what_others_set_while_somebody_types_is_shown_afterwards(service, page, batch):
    opened(page, batch)
    reserve = member(form(page, batch, "scheduling", "blk-read"), "reservation_bytes_per_second")
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
    member(network, "window.bytes").fill("16 KiB")
    member(network, "window.period_ns").fill("20 ms")
    member(network, "window.may_miss").fill("1")
    member(network, "window.of").fill("10")
    member(network, "dynamic").select_option("latency")
    network.get_by_role("button", name="Set").click()
    expect(page.get_by_test_id("toast").last).to_contain_text(
        "window period 20 ms, window bytes 16 KiB"
    )
    one = granted(service, batch)["scheduling"]["net-tx"]
    assert one["window"] == {"period_ns": 20_000_000, "bytes": 16384, "may_miss": 1, "of": 10}
    # A reload shows the same again.
    opened(page, batch)
    expect(member(network, "window.bytes")).to_have_value("16 KiB")
    expect(member(network, "window.period_ns")).to_have_value("20 ms")
    expect(member(network, "window.may_miss")).to_have_value("1")


def test_a_refusal_is_said_beside_the_form_and_changes_nothing(service, page, batch):
    opened(page, batch)
    disk = form(page, batch, "scheduling", "blk-write")
    member(disk, "policy").select_option("token-leaky")
    member(disk, "peak_bytes_per_second").fill("5 MB/s")
    disk.get_by_role("button", name="Set").click()
    expect(disk.locator(".error")).to_contain_text("has no limit of bytes per second")
    member(disk, "reservation_bytes_per_second").fill("fast")
    disk.get_by_role("button", name="Set").click()
    expect(disk.locator(".error")).to_contain_text("'fast' is not a rate")
    assert granted(service, batch)["scheduling"] == {}


def test_what_a_limit_has_beside_its_rate_is_set_without_its_rate(service, page, batch):
    path = f"/v1/domains/test/classes/{batch}/limits/blk-read"
    assert service.controller("PUT", path, json={"bytes_per_second": 5_123_456}).is_success
    summary = opened(page, batch)
    expect(summary).to_have_text("as by default")
    disk = form(page, batch, "limits", "blk-read")
    member(disk, "operations_per_second").fill("500")
    member(disk, "burst_bytes").fill("1 MiB")
    disk.get_by_role("button", name="Set").click()
    expect(summary).to_have_text("disk read burst 1 MiB, operations 500")
    assert granted(service, batch)["limits"]["blk-read"] == {
        "bytes_per_second": 5_123_456,
        "burst_bytes": 1_048_576,
        "operations_per_second": 500,
        "burst_operations": None,
    }


def test_a_queue_is_set(service, page, batch):
    summary = opened(page, batch)
    queue = form(page, batch, "queues", "net-rx")
    expect(member(queue, "ecn")).to_be_hidden()
    member(queue, "aqm").select_option("codel")
    member(queue, "ecn").check()
    member(queue, "limit_bytes").fill("256 KiB")
    member(queue, "connections_per_second").fill("200")
    queue.get_by_role("button", name="Set").click()
    expect(summary).to_contain_text("aqm codel, ecn, connections 200")
    assert granted(service, batch)["queues"]["net-rx"] == {
        "limit_bytes": 262144,
        "limit_packets": None,
        "aqm": "codel",
        "ecn": True,
        "connections_per_second": 200,
        "burst_connections": None,
        "overload": "off",
    }


def test_weight_and_unmanaged_of_a_class(service, page, batch):
    page.goto(f"{service.address}/classes")
    row = page.locator('[data-testid="class-row"][data-class="batch"]')
    row.get_by_test_id("change-class").click()
    expect(page.get_by_test_id("class-name")).to_have_value("batch")
    member(page, "weight").fill("300")
    member(page, "unmanaged").check()
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
    member(page, "title").fill("Backups")
    page.get_by_test_id("class-name").fill("batch")
    expect(member(page, "title")).to_have_value("Backups")
    expect(member(page, "priority")).to_have_value("7")
    expect(member(page, "weight")).to_have_value("300")
    expect(member(page, "unmanaged")).to_be_checked()
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
    expect(member(page, "weight")).to_have_value("300")
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
    expect(lane(page, batch).get_by_test_id("advanced-summary")).to_contain_text("aqm codel")
    assert granted(service, batch) == before
