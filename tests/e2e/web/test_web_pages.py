# SPDX-License-Identifier: GPL-2.0-or-later
"""The pages in a real browser, against a real controller."""

import re

import httpx
import pytest
from playwright.sync_api import expect

from e2e.browser import lane, limit_input, open_vm, set_limit, sign_in
from sluice_controller.domain import rates
from sluice_controller.domain.errors import BadValue
from sluice_web import formatting, views

PATHS = ["/", "/vm/test", "/streams", "/classes", "/groups", "/nightly", "/audit", "/users"]


def limits(service, name: str) -> dict:
    grants = service.controller("GET", "/v1/domains/test").json()["classes"]
    return next(grant["limits"] for grant in grants if grant["class"] == name)


def class_names(service) -> list[str]:
    return [one["name"] for one in service.controller("GET", "/v1/classes").json()]


def test_wrong_password_is_refused_and_the_right_one_signs_in(service, visit):
    page = visit(session=None)
    page.goto(f"{service.address}/vm/test")
    assert "/sign-in" in page.url
    page.get_by_test_id("sign-in-user").fill("admin")
    page.get_by_test_id("sign-in-password").fill("not-the-password")
    page.get_by_test_id("sign-in-submit").click()
    expect(page.get_by_test_id("sign-in-error")).to_contain_text("reset-password")
    page.get_by_test_id("sign-in-password").fill(service.password)
    page.get_by_test_id("sign-in-submit").click()
    # Back where the visitor wanted to go.
    expect(lane(page, "default")).to_be_visible()
    copied = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    status = f"{service.address}/api/v1/status"
    assert httpx.get(status, cookies=copied).status_code == 200
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_test_id("sign-in-user")).to_be_visible()
    assert httpx.get(status, cookies=copied).status_code == 401
    page.goto(f"{service.address}/")
    assert "/sign-in" in page.url


def test_a_session_cookie_alone_changes_nothing(service, page):
    before = class_names(service)
    answer = page.request.put(f"{service.address}/api/v1/classes/forged", data={"title": "Forged"})
    assert answer.status == 403
    assert "X-CSRF-Token" in answer.json()["thing"]
    assert class_names(service) == before


def test_a_class_is_made_undone_with_a_key_and_audited(service, page):
    page.goto(f"{service.address}/classes")
    page.get_by_test_id("class-name").fill("nightly")
    page.locator("#class-form [name=title]").fill("Nightly work")
    page.locator("#class-form [name=priority]").fill("9")
    page.get_by_test_id("class-submit").click()
    row = page.locator('[data-testid="class-row"][data-class="nightly"]')
    expect(row).to_contain_text("Nightly work")
    assert "nightly" in class_names(service)
    page.get_by_role("heading", name="Classes and rules").click()
    page.keyboard.press("u")
    expect(row).to_have_count(0)
    assert "nightly" not in class_names(service)
    page.goto(f"{service.address}/audit")
    audit = page.get_by_test_id("audit")
    expect(audit).to_contain_text("nightly")
    audited = service.controller("GET", "/v1/audit?limit=10").json()
    assert any(row["actor"] == "admin" and row["thing"] == "nightly" for row in audited)


def test_a_group_is_made_filled_changed_and_removed(service, page):
    def groups() -> list[dict]:
        return service.controller("GET", "/v1/groups").json()

    page.goto(f"{service.address}/groups")
    expect(page.get_by_test_id("no-groups")).to_be_visible()
    page.get_by_test_id("group-name").fill("disks")
    page.locator("#group-form [name=resource]").select_option("blk")
    page.locator("#group-form [name=bytes_per_second]").fill("200 MB/s")
    page.get_by_test_id("group-submit").click()
    group = page.locator('[data-testid="group"][data-group="disks"]')
    expect(group).to_contain_text("Disk reads and writes together: 200 MB/s for all")
    group.get_by_test_id("group-join").select_option("test")
    member = group.locator('[data-testid="group-member"][data-domain="test"]')
    expect(member).to_be_visible()
    expect(group.get_by_test_id("remove-group")).to_have_count(0)
    member.get_by_test_id("group-weight").fill("300")
    member.get_by_test_id("group-weight").press("Enter")
    expect(page.get_by_test_id("toast").last).to_contain_text("test has weight 300 in disks")
    assert groups()[0]["domains"] == [{"domain": "test", "weight": 300}]
    group.get_by_test_id("change-group").click()
    page.locator("#group-form [name=bytes_per_second]").fill("twenty")
    page.get_by_test_id("group-submit").click()
    expect(page.get_by_test_id("group-error")).to_contain_text("twenty")
    page.locator("#group-form [name=bytes_per_second]").fill("50 MB/s")
    page.get_by_test_id("group-submit").click()
    expect(group).to_contain_text("50.0 MB/s for all")
    page.get_by_role("heading", name="Groups", exact=True).click()
    page.keyboard.press("u")
    expect(group).to_contain_text("200 MB/s for all")
    member.get_by_test_id("group-leave").click()
    expect(member).to_have_count(0)
    group.get_by_test_id("remove-group").click()
    expect(page.get_by_test_id("no-groups")).to_be_visible()
    assert groups() == []


def test_a_group_that_somebody_else_makes_appears(service, page):
    page.goto(f"{service.address}/groups")
    body = {"resource": "net-tx", "operations_per_second": 5000}
    service.controller("PUT", "/v1/groups/frames", json=body)
    group = page.locator('[data-testid="group"][data-group="frames"]')
    expect(group).to_contain_text("Network, what VMs send: 5000 ops/s for all")
    service.controller("DELETE", "/v1/groups/frames")
    expect(group).to_have_count(0)


def test_a_bad_class_name_is_refused_beside_the_form(service, page):
    page.goto(f"{service.address}/classes")
    before = class_names(service)
    page.get_by_test_id("class-name").fill("Not A Name!")
    page.get_by_test_id("class-submit").click()
    expect(page.get_by_test_id("class-error")).to_contain_text("Not A Name!")
    assert class_names(service) == before


def test_a_class_is_given_on_the_vm_page(service, page):
    assert service.controller("PUT", "/v1/classes/guest", json={"title": "Guest"}).is_success
    open_vm(page, "test")
    page.get_by_test_id("grant-class").select_option("guest")
    page.get_by_test_id("grant-submit").click()
    expect(lane(page, "guest")).to_be_visible()
    # Nothing uses it: nobody is asked.
    lane(page, "guest").get_by_role("button", name="Take away").click()
    expect(lane(page, "guest")).to_have_count(0)
    page.keyboard.press("u")
    expect(lane(page, "guest")).to_be_visible()


def test_a_limit_is_typed_shown_and_undone(service, page, batch):
    open_vm(page, "test")
    set_limit(page, batch, "blk-read", "2 MB/s")
    assert limits(service, batch)["blk-read"]["bytes_per_second"] == 2_000_000
    expect(limit_input(page, batch, "blk-read")).to_have_value("2.00 MB/s")
    limit_input(page, batch, "blk-read").blur()
    page.keyboard.press("u")
    expect(limit_input(page, batch, "blk-read")).to_have_value("unlimited")
    assert "blk-read" not in limits(service, batch)


def test_a_limit_that_others_set_is_shown_when_the_field_is_left(service, page, batch):
    open_vm(page, "test")
    field = limit_input(page, batch, "blk-write")
    field.focus()
    path = f"/v1/domains/test/classes/{batch}/limits/blk-write"
    assert service.controller("PUT", path, json={"bytes_per_second": 3e6}).is_success
    expect(field).to_have_attribute("data-missed", re.compile("3000000"))
    expect(field).to_have_value("unlimited")
    page.get_by_role("heading", level=1).click()
    expect(field).to_have_value("3.00 MB/s")


def test_links_take_bits(service, page, batch):
    open_vm(page, "test")
    set_limit(page, batch, "net-tx", "160 Mbit/s")
    assert limits(service, batch)["net-tx"]["bytes_per_second"] == 20_000_000


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("-5", "-5"),
        ("0", "0"),
        ("fast", "fast"),
        ("10 parsecs", "10 parsecs"),
        ("900000 GB/s", "900000000000000 is above"),
        ("1e3", "1e3"),
    ],
)
def test_a_bad_limit_says_so_beside_the_field_and_changes_nothing(
    service, page, batch, text, named
):
    open_vm(page, "test")
    before = limits(service, batch)
    field = limit_input(page, batch, "blk-write")
    field.fill(text)
    field.press("Enter")
    hint = page.locator(f"#hint-{batch}-blk-write")
    expect(hint).to_be_visible()
    expect(hint).to_contain_text(named)
    expect(field).to_have_attribute("aria-invalid", "true")
    assert limits(service, batch) == before


def test_the_tick_is_dragged_to_a_limit(service, page, batch):
    open_vm(page, "test")
    cell = lane(page, batch).locator('.cell[data-resource="net-rx"]')
    # The first live sample fills the scale, and draws the cell anew.
    expect(page.get_by_test_id("data-age")).to_be_visible()
    for part in (".bar", ".tick"):
        expect(cell.locator(part)).to_be_visible()
    bar = cell.locator(".bar").bounding_box()
    tick = cell.locator(".tick").bounding_box()
    page.mouse.move(tick["x"] + 8, tick["y"] + 8)
    page.mouse.down()
    page.mouse.move(bar["x"] + bar["width"] / 2, tick["y"] + 8, steps=5)
    page.mouse.up()
    expect(page.get_by_test_id("toast").last).to_contain_text(batch)
    shown = limit_input(page, batch, "net-rx").input_value()
    assert formatting.rate(limits(service, batch)["net-rx"]["bytes_per_second"]) == shown


def test_the_ceiling_is_set(service, page):
    open_vm(page, "test")
    field = page.locator('[data-testid="ceiling-input"][data-resource="blk-read"]')
    field.fill("50 MB/s")
    field.press("Enter")
    expect(page.get_by_test_id("toast").last).to_contain_text("50.0 MB/s")
    ceiling = service.controller("GET", "/v1/domains/test").json()["ceiling"]
    assert ceiling["blk-read"]["bytes_per_second"] == 50_000_000


def test_auto_shaping_is_switched_and_undone(service, page):
    page.goto(f"{service.address}/streams")
    page.get_by_test_id("auto-dry-run").check()
    expect(page.get_by_test_id("toast").last).to_contain_text("Dry run")
    page.get_by_test_id("auto-enabled").check()
    expect(page.get_by_test_id("auto-state")).to_contain_text("dry run")
    state = service.controller("GET", "/v1/auto").json()
    assert state["enabled"] and state["dry_run"]
    expect(page.get_by_test_id("toast").last).to_contain_text("Auto-shaping is on")
    # The switch still has the focus, and turns back all the same.
    page.keyboard.press("u")
    expect(page.get_by_test_id("auto-state")).to_have_text("off")
    expect(page.get_by_test_id("auto-enabled")).not_to_be_checked()
    state = service.controller("GET", "/v1/auto").json()
    assert not state["enabled"] and state["dry_run"]


def test_the_method_is_chosen_and_undone(service, page):
    page.goto(f"{service.address}/streams")
    method = page.locator("#auto-method [name=method]")
    method.select_option("rates")
    expect(page.get_by_test_id("toast").last).to_contain_text("the method rates")
    assert service.controller("GET", "/v1/auto").json()["method"] == "rates"
    page.get_by_test_id("undo").last.click()
    expect(method).to_have_value("gate")
    assert service.controller("GET", "/v1/auto").json()["method"] == "gate"


def test_the_uplink_is_chosen_and_undone(service, page):
    names = service.controller("GET", "/v1/status").json()["uplinks"]
    page.goto(f"{service.address}/streams")
    page.get_by_test_id("uplink").select_option(names[0])
    expect(page.get_by_test_id("toast").last).to_contain_text(names[0])
    assert service.controller("GET", "/v1/settings").json()["uplink"] == names[0]
    page.get_by_test_id("undo").last.click()
    expect(page.get_by_test_id("uplink")).to_have_value("")
    assert service.controller("GET", "/v1/settings").json()["uplink"] is None


def test_a_stream_is_declared_and_a_players_report_shows(service, page):
    assert service.controller(
        "PUT", "/v1/classes/movie", json={"title": "Movie", "is_stream": True}
    ).is_success
    assert service.controller(
        "PUT", "/v1/domains/test/classes/movie", json={"limits": {}}
    ).is_success
    page.goto(f"{service.address}/streams")
    page.get_by_test_id("stream-name").fill("film")
    page.get_by_test_id("stream-where").select_option("test/movie")
    page.locator("#stream-form [name=nominal_bytes_per_second]").fill("8 Mbit/s")
    page.get_by_test_id("stream-submit").click()
    row = page.locator('[data-testid="stream"][data-stream="film"]')
    expect(row).to_contain_text("1.00 MB/s")
    report = {
        "continuity_errors": 0,
        "stalls": 3,
        "stall_seconds": 4.0,
        "lost_pictures": 50,
        "received_bytes": 2_000_000,
        "max_gap_ms": 1500,
        "window_ms": 10_000,
    }
    answer = service.controller("POST", "/v1/streams/film/reports", json=report)
    assert answer.json()["verdict"] == "poor"
    # The page hears of it by itself.
    expect(row.locator(".verdict")).to_contain_text("poor")
    expect(row.locator("[data-field=source]")).to_have_text("client")
    page.goto(f"{service.address}/")
    expect(page.get_by_test_id("headline")).to_contain_text("film is poor")


def test_a_token_works_until_it_is_revoked(service, page):
    page.goto(f"{service.address}/users")
    page.get_by_test_id("token-label").fill("script")
    page.get_by_test_id("token-scope").select_option("operator")
    page.get_by_test_id("token-submit").click()
    token = page.get_by_test_id("secret").inner_text()
    url, headers = f"{service.address}/api/v1", {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/domains", headers=headers).json()[0]["name"] == "test"
    made = httpx.put(f"{url}/classes/scripted", headers=headers, json={"title": "Scripted"})
    assert made.is_success
    refused = httpx.put(f"{url}/classes/scripted", headers=headers, json={"priority": 12})
    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert {"thing", "value", "remedy"} <= refused.json().keys()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_test_id("ask")).to_contain_text("Programs that use it stop working.")
    page.get_by_test_id("ask-no").click()
    assert httpx.get(f"{url}/domains", headers=headers).is_success
    page.get_by_role("button", name="Revoke").click()
    page.get_by_test_id("ask-yes").click()
    expect(page.get_by_text("The token is revoked.")).to_be_visible()
    assert httpx.get(f"{url}/domains", headers=headers).status_code == 401
    actors = {row["actor"] for row in service.controller("GET", "/v1/audit?limit=50").json()}
    assert "admin/script" in actors


def test_a_viewer_sees_and_changes_nothing(service, page, visit, batch):
    page.goto(f"{service.address}/users")
    page.get_by_test_id("user-name").fill("visitor")
    page.get_by_test_id("user-role").select_option("viewer")
    page.get_by_test_id("user-submit").click()
    password = page.get_by_test_id("secret").inner_text()
    theirs = sign_in(visit(session=None).context, service.address, "visitor", password)
    open_vm(theirs, "test")
    assert limit_input(theirs, batch, "blk-read").is_editable() is False
    expect(theirs.get_by_test_id("attach")).to_have_count(0)
    csrf = theirs.locator("meta[name=csrf-token]").get_attribute("content")
    answer = theirs.request.put(
        f"{service.address}/api/v1/classes/theirs",
        data={"title": "Theirs"},
        headers={"X-CSRF-Token": csrf},
    )
    assert answer.status == 403
    assert "theirs" not in class_names(service)


def test_the_page_mends_itself_when_the_controller_was_away(service, page):
    open_vm(page, "test")
    expect(page.get_by_test_id("data-age")).to_be_visible()
    banner = page.get_by_test_id("banner")
    service.stop("sluiced")
    expect(banner).to_contain_text("sluiced does not answer")
    service.start_sluiced()
    expect(banner).to_be_hidden()


def test_an_unknown_vm_is_a_page_that_helps(service, page):
    answer = page.goto(f"{service.address}/vm/nothing")
    assert answer.status == 404
    expect(page.get_by_test_id("problem")).to_contain_text("nothing")


def test_no_request_leaves_the_host_and_no_policy_is_broken(service, page):
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    for path in PATHS:
        page.goto(service.address + path)
        expect(page.locator("h1")).to_be_visible()
    assert len(addresses) > len(PATHS)
    assert [url for url in addresses if not url.startswith(service.address)] == []


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_overflows_on_a_phone(service, visit, batch, dark):
    page = visit(width=360, height=740, dark=dark)
    for path in PATHS:
        page.goto(service.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_browser_and_server_write_numbers_alike(service, page):
    values = [0, 1, 400, 512, 999, 1023.9, 4_000, 99_940, 999_400, 1e6, 9.994e6, 9.996e6]
    values += [12_345_678, 99.949e6, 99.951e6, 999.4e6, 999.6e6, 1.25e9, 4e10]
    shown = page.evaluate(
        """async (values) => {
            const f = await import("/static/js/format.js");
            return values.map((v) => [
                f.rate(v), f.linkRate(v), f.size(v), f.milliseconds(v / 1e5), f.age(v / 1e4)]);
        }""",
        values,
    )
    for value, written in zip(values, shown, strict=True):
        assert written == [
            formatting.rate(value),
            formatting.link_rate(value),
            formatting.size(value),
            formatting.milliseconds(value / 1e5),
            formatting.age(value / 1e4),
        ], value


def test_browser_and_server_say_alike_how_long_a_stream_waits_for_processors(page):
    waits = [None, 0.0, 12.0, 199.9, 262.0]
    streams = [
        {"processor_wait_ms_per_second": ms, "processor_pressure": ms and ms / 200} for ms in waits
    ]
    said = page.evaluate(
        """async (streams) => {
            const { processorWait } = await import("/static/js/format.js");
            return streams.map(processorWait);
        }""",
        streams,
    )
    assert said == [views.processor_wait(stream) for stream in streams]


def test_page_and_command_read_units_alike(page):
    """A small b is a bit for both; what one of them refuses, the other does."""
    prefixes = ["", "k", "K", "Ki", "ki", "m", "M", "Mi", "g", "G", "Gi", "T", "x"]
    units = ["B", "b", "bit", "byte", "bytes", "bits", "octets"]
    ends = ["", "/s", "ps", "/min"]
    texts = [f"2000{p}{u}{e}" for p in prefixes for u in units for e in ends]
    texts += [f"2000{p}{e}" for p in prefixes for e in ends] + ["2000/s", "2000 ps", "1.5 Mb"]
    texts += ["1,5MB/s", "1,5", "-20", "-2 MB/s", "20", "9" * 400, " 2 MB/s ", "unlimited", "none"]
    read = page.evaluate(
        """async (texts) => {
            const f = await import("/static/js/format.js");
            return texts.map((text) => {
                try { return f.parseRate(text); } catch (error) { return error.message; }
            });
        }""",
        texts,
    )
    for text, value in zip(texts, read, strict=True):
        try:
            by_command = rates.parse_rate(text)
        except BadValue as refusal:
            assert refusal.problem in str(value), text
        else:
            assert value == by_command, text


def test_what_is_typed_is_sluiceds_to_read_and_its_refusal_is_shown(service, page, batch):
    """Whatever the page sends of a field, the API has a value or a remedy for it."""
    where = f"/domains/test/classes/{batch}/queues/net-rx"
    said = page.evaluate(
        """async ([where, texts]) => {
            const { count, given } = await import("/static/js/format.js");
            const { call } = await import("/static/js/api.js");
            const put = async (body) => {
                try { return (await call("PUT", where, body)).queues["net-rx"] ?? {}; }
                catch (problem) { return problem.message; }
            };
            const found = [];
            for (const [size, frames] of texts) {
                found.push(await put({ limit_bytes: given(size), limit_packets: count(frames) }));
            }
            return found;
        }""",
        [where, [["256 KiB", "200"], ["", "any"], ["1500", ""], ["1,5 KiB", ""], ["", "many"],
                 ["", "9" * 400]]],
    )  # fmt: skip
    assert (said[0]["limit_bytes"], said[0]["limit_packets"]) == (262144, 200)
    assert said[1] == {}
    assert "limit_bytes '1500' has no unit: write for example 256KiB" in said[2]
    assert "is not a size" in said[3]
    assert "limit_packets 'many' is not an integer from 1 to" in said[4]
    assert "limit_packets" in said[5] and len(said[5]) < 300


def test_sizes_and_times_are_shown_as_they_can_be_typed(page):
    read = page.evaluate(
        """async () => {
            const f = await import("/static/js/format.js");
            const ns = [20e6, 500e3, 1e9, 1500];
            return [[262144, 1500, 2 ** 30].map(f.binarySize), ns.map(f.duration)];
        }"""
    )
    assert read[0] == ["256 KiB", "1500 B", "1 GiB"]
    assert [rates.parse_size(text) for text in read[0]] == [262144, 1500, 2**30]
    assert read[1] == ["20 ms", "500 µs", "1 s", "1.5 µs"]
    assert [rates.parse_time_ns(text) for text in read[1]] == [20_000_000, 500_000, 10**9, 1500]


def test_the_page_offers_the_controllers_document(service):
    document = httpx.get(f"{service.address}/api/v1/openapi.json").json()
    assert document["servers"] == [{"url": "/api/v1"}]
    assert "get" in document["paths"]["/domains/{domain}"]
    described = document["paths"]["/nightly"]["post"]["description"]
    assert described == "On the host only, at sluiced's socket."
