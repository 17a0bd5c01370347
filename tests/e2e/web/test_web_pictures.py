# SPDX-License-Identifier: GPL-2.0-or-later
"""Every page looks as its stored picture: on a desk, on a phone and in the dark.

After a change that is meant to be seen, renew the pictures, look at them, and keep them:

    build/venv/bin/python -m pytest -c tests/pytest.ini tests/e2e/web/test_web_pictures.py \
        --update-pictures
"""

import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from e2e.browser import sign_in
from e2e.web.conftest import BIN, free_port, until
from e2e.web.picture import compare, save, shrunk
from e2e.web.still_host import ANSWERS, EMPTY, NOW, StillHost
from sluice_controller.domain.auto_words import sentences
from sluice_controller.domain.models import adapter
from sluice_controller.entry.api.calls import OPERATIONS
from testbed import patience

STORED = Path(__file__).parent / "pictures"
BUILD = Path(__file__).parents[3] / "build" / "pictures"
# Where a page is, and what says that it is drawn: live figures, a chart, a strip.
LIVE_BAR = "#uplink:has-text('queued')"
STRIPS = "canvas[aria-label*='poor']"
PAGES = {
    "overview": ("/", [LIVE_BAR, STRIPS]),
    "vm": ("/vm/media", [".process-row", "#chart-rate canvas", ".burst:not(:empty)"]),
    "vm-waits": ("/vm/db", ["#chart-rate canvas", "#processes-empty:has-text('No agent')"]),
    "streams": ("/streams", ["#chart-auto canvas", STRIPS]),
    "classes": ("/classes", []),
    "groups": ("/groups", ["tbody [data-field=rate]:has-text('MB/s')", ".state:has-text('waits')"]),
    "nightly": ("/nightly", ["#trend[data-drawn=yes]"]),
    "night": ("/nightly/5", ["#night[data-drawn=yes]"]),
    "audit": ("/audit", []),
    "users": ("/users", []),
    "question": ("/vm/media/classes/batch/take-away", []),
    "error": ("/vm/nothing", []),
    "sign-in": ("/sign-in", []),
    # Before the empty ones: figures of an empty host, which a page may get for the first
    # half second after them, would be its last.
    "lost": ("/", [LIVE_BAR, STRIPS]),
    "empty-overview": ("/", []),
    "empty-streams": ("/streams", ["#chart-auto canvas"]),
    "empty-groups": ("/groups", []),
    "empty-nightly": ("/nightly", []),
    "empty-audit": ("/audit", []),
}
LOOKS = {"desktop": (1280, "light"), "phone": (360, "light"), "dark": (1280, "dark")}
# Of what differs from the others in words alone, one look is enough.
ONE_LOOK = {"vm-waits", "lost", *(name for name in PAGES if name.startswith("empty"))}
TAKEN = [
    (name, look) for name in PAGES for look in LOOKS if look == "desktop" or name not in ONE_LOOK
]
# Live news of an earlier state of the host may still come, for a round of questions.
SETTLED_MS = 4000
TRIES = 10
# How old the data is says another number each time; of the web's own times, which are
# not of the still host, only the place stays. Bars are at their ends at once.
FREEZE = """([now]) => {
    document.documentElement.style.setProperty("--sans", '"DejaVu Sans"');
    document.documentElement.style.setProperty("--mono", '"DejaVu Sans Mono"');
    document.getElementById("data-age")?.style.setProperty("visibility", "hidden");
    for (const time of document.querySelectorAll("time")) {
        if (Number(time.dataset.at) > now + 86400) time.textContent = "Jun 3 12:00:00";
    }
}"""


@dataclass
class Studio:
    """The pages of a host on which nothing moves, in one tab."""

    host: StillHost
    address: str
    tab: Page
    visitor: Page

    def look(self, name: str, look: str) -> Page:
        """The page that is shown, on a screen of that width and colour."""
        page = self.tab if name != "sign-in" else self.visitor
        width, scheme = LOOKS[look]
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        return page

    def show(self, name: str) -> None:
        """The page, drawn as on a desk."""
        self.host.answers = EMPTY if name.startswith("empty") else ANSWERS
        page = self.look(name, "desktop")
        where, drawn = PAGES[name]
        page.goto(self.address + where)
        for selector in drawn:
            expect(page.locator(selector).first).to_be_visible()
        if name == "lost":
            self.host.answers = {}
            expect(page.get_by_test_id("banner")).to_be_visible()
        page.evaluate(FREEZE, [NOW])


def shot(page: Page) -> Image.Image:
    return shrunk(page.screenshot(full_page=True, type="jpeg", quality=95))


@pytest.fixture(scope="module")
def studio(browser: Browser, tmp_path_factory) -> Iterator[Studio]:
    """A real sluice-web before the still host; signed in once."""
    folder = tmp_path_factory.mktemp("still")
    (folder / "token").write_text("of the still host")
    host = StillHost(str(folder / "sluiced.sock"))
    threading.Thread(target=host.serve_forever, daemon=True).start()
    port = free_port()
    options = [
        f"--bind=127.0.0.1:{port}",
        f"--controller-socket={folder / 'sluiced.sock'}",
        f"--token-file={folder / 'token'}",
        f"--state-dir={folder / 'web'}",
    ]
    with (folder / "log").open("w") as log:
        web = subprocess.Popen([BIN / "sluice-web", *options], stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    contexts = []

    def tab(session=None) -> Page:
        contexts.append(
            browser.new_context(timezone_id="UTC", locale="en-US", storage_state=session)
        )
        page = contexts[-1].new_page()
        page.clock.set_fixed_time(NOW)
        return page

    try:
        healthy = f"{address}/healthz"
        until(lambda: httpx.get(healthy, verify=False).status_code == 200, "sluice-web")
        said = (folder / "log").read_text()
        password = said.partition("Password:")[2].split()[0]
        visitor = tab()
        session = sign_in(visitor.context, address, "admin", password).context.storage_state()
        visitor.context.clear_cookies()
        yield Studio(host, address, tab(session), visitor)
    finally:
        for context in contexts:
            context.close()
        web.terminate()
        web.wait(patience.seconds(15))
        host.shutdown()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_its_stored_pictures(studio, request, name):
    studio.show(name)
    for look in [one for of, one in TAKEN if of == name]:
        page = studio.look(name, look)
        if request.config.getoption("--update-pictures"):
            page.wait_for_timeout(SETTLED_MS)
            save(shot(page), STORED / f"{name}-{look}.webp")
        else:
            compare_with_stored(page, f"{name}-{look}")


def compare_with_stored(page: Page, name: str) -> None:
    stored = STORED / f"{name}.webp"
    assert stored.exists(), f"{stored} is not there; run this test with --update-pictures"
    expected = Image.open(stored)
    found = compare(expected, actual := shot(page))
    for _ in range(TRIES):
        if found.is_within_tolerance:
            return
        page.wait_for_timeout(SETTLED_MS / TRIES)
        found = compare(expected, actual := shot(page))
    BUILD.mkdir(parents=True, exist_ok=True)
    kinds = {"actual": actual, "expected": expected, "difference": found.picture}
    for kind, picture in kinds.items():
        picture.save(BUILD / f"{name}.{kind}.png")
    pytest.fail(
        f"{name} is not as its stored picture: {found}. Look at {BUILD}/{name}.*.png; if it is"
        " meant so, --update-pictures"
    )


def test_a_guests_word_on_its_streams_is_shown_while_the_page_is_open(studio):
    """Figures, a stream more, and none at all; by itself, each within some seconds."""
    studio.show("vm")
    told = studio.tab.get_by_test_id("told")
    path = "/v1/domains/media/streams"
    before = ANSWERS[path][0]
    for streams in (
        [{**before, "verdict": "poor", "reason": "3 of 125 frames lost in 5 s"}],
        [before, {**before, "name": "radio", "source": "sockets", "stream": None}],
    ):
        studio.host.answers = {**ANSWERS, path: streams}
        for stream in streams:
            expect(told).to_contain_text(
                f"{stream['name']} {stream['verdict']}, {stream['reason']}"
            )
    expect(told).to_contain_text("no stream is declared")
    studio.host.answers = {**ANSWERS, path: []}
    expect(told).to_be_hidden()


def with_gate(*held):
    """The answers while a gate alone holds these, as (VM, class)."""
    rows = [
        {"domain": vm, "class": one, "resource": "blk-read", "bytes_per_second": 9e6}
        for vm, one in held
    ]
    auto = ANSWERS["/v1/auto"]
    device = {**auto["devices"][0], "held": rows}
    said = [f"Gate of sda leaves {len(rows)} ms", *auto["sentences"][1:]]
    changed = {**auto, "limits": [], "devices": [device], "sentences": said}
    return {**ANSWERS, "/v1/auto": changed}


def test_a_change_of_what_a_gate_alone_holds_is_shown_while_the_page_is_open(studio):
    studio.show("overview")
    protection = studio.tab.locator("[data-stream=movie] [data-field=protection]")
    for held in ([("web", "http")], [("db", "default")]):
        studio.host.answers = with_gate(*held)
        ((vm, one),) = held
        expect(protection).to_contain_text(f"Auto-shaping holds {one} on {vm} at 9.00 MB/s")


def test_gates_are_shown_while_the_page_is_open_and_have_their_vms_in_the_chart(studio):
    studio.host.answers = with_gate()
    page = studio.tab
    page.goto(f"{studio.address}/streams")
    limits, legend = page.get_by_test_id("auto-limits"), page.locator("#legend-auto")
    expect(page.get_by_test_id("auto-said")).to_contain_text("Gate of sda leaves 0 ms")
    expect(limits).to_be_hidden()
    expect(legend).to_contain_text("batch on media")
    expect(legend).not_to_contain_text("on web")
    # No stream is on it, and no rate holds it.
    studio.host.answers = with_gate(("web", "http"))
    expect(page.get_by_test_id("auto-said")).to_contain_text("Gate of sda leaves 1 ms")
    expect(limits).to_contain_text("http on webDisk read9.00 MB/sgate of sda")
    expect(legend).to_contain_text("http on web", timeout=20_000)


def test_a_dry_run_is_shown_as_one(studio):
    auto = {**ANSWERS["/v1/auto"], "dry_run": True, "limits": [], "eased": []}
    set_, *others = auto["devices"]
    rehearsed = {**set_, "held": [], "open_because": "auto-shaping only rehearses"}
    auto["devices"] = [rehearsed, *others]
    studio.host.answers = {**ANSWERS, "/v1/auto": {**auto, "sentences": sentences(auto)}}
    page = studio.tab
    page.goto(f"{studio.address}/streams")
    expect(page.get_by_test_id("auto-state")).to_contain_text("dry run")
    expect(page.get_by_test_id("auto-said").locator("li").first).to_contain_text(
        "open: auto-shaping only rehearses; it would leave 54.0 ms of work of others in flight"
    )
    expect(page.get_by_test_id("auto-limits")).to_be_hidden()
    expect(page.get_by_text("No class is held back.")).to_be_visible()


def test_a_stream_of_a_vm_that_is_gone_leaves_the_charts_to_the_others(studio):
    orphan = {**ANSWERS["/v1/streams"][0], "name": "orphan", "domain": "gone"}
    studio.host.answers = {**ANSWERS, "/v1/streams": [orphan, *ANSWERS["/v1/streams"]]}
    page = studio.tab
    page.goto(f"{studio.address}/streams")
    expect(page.locator("#legend-pressure")).to_contain_text("processors")
    expect(page.locator("#legend-auto")).to_contain_text("batch on media")


def test_a_click_on_any_chart_opens_the_sentence_of_a_decision_also_of_a_folded_one(studio):
    studio.show("streams")
    page = studio.tab
    sentence = page.locator("[data-decision].marked")
    for chart, seconds, text in (("pressure", 80, "Gate on sda"), ("target", 260, "media waits")):
        over = page.locator(f"#chart-{chart} .u-over")
        width = over.bounding_box()["width"]
        over.click(position={"x": width * seconds / 900, "y": 20})
        expect(sentence).to_be_visible()
        expect(sentence).to_contain_text(text)


def test_the_figures_of_the_time_axis_are_a_table_and_a_new_decision_is_shown(studio):
    studio.show("streams")
    page = studio.tab
    page.locator("#past-figures summary").click()
    head = page.locator("#past-table thead")
    expect(head).to_contain_text("disk, pressure")
    expect(head).to_contain_text("sda, ms")
    expect(page.locator("#past-table tbody tr").first).to_contain_text("54.0")
    page.locator("#chart-target").hover(position={"x": 900, "y": 40})
    expect(page.locator("#past-readout")).to_contain_text(
        re.compile(r"pressure: disk 0\.5.* sda 54\.0")
    )
    page.locator("#past-figures summary").click()
    # An earlier line that was unfolded stays so when a new one comes.
    page.locator("details.earlier > summary").click()
    new = {**ANSWERS["/v1/auto/log"][0], "at": NOW - 1, "sentence": "Gate of sdz opened: why"}
    studio.host.answers = {
        **ANSWERS,
        "/v1/auto": {**ANSWERS["/v1/auto"], "decided_at": NOW - 1},
        "/v1/auto/log": [{**new, "reason": "gate off"}, *ANSWERS["/v1/auto/log"]],
    }
    expect(page.get_by_test_id("decision").first).to_contain_text("Gate of sdz opened: why")
    expect(page.locator("details.earlier")).to_have_attribute("open", "")


def test_one_click_says_why_a_class_is_slow(studio):
    studio.show("vm")
    lane = studio.tab.locator('[data-testid="class-lane"][data-class="batch"]')
    button, said = lane.get_by_role("button", name="Why slow?"), lane.get_by_test_id("why")
    expect(said).to_be_hidden()
    button.click()
    expect(said.locator("[data-reason=limit]")).to_contain_text(
        "its own limit of 8.00 MB/s holds it for 90% of the time; raise it:"
    )
    expect(said).to_contain_text("Disk read, Network out, Network in nothing It asks for nothing.")
    button.click()
    expect(said).to_be_hidden()


def test_an_answer_that_was_closed_and_opened_is_asked_for_once_at_a_time(studio):
    studio.show("vm")
    lane = studio.tab.locator('[data-testid="class-lane"][data-class="batch"]')
    button, asked = lane.get_by_role("button", name="Why slow?"), []
    for _ in range(9):
        button.click()
    studio.tab.on("request", lambda one: asked.append(one.url) if "/why" in one.url else None)
    studio.tab.wait_for_timeout(3000)
    # Every two seconds at the most, however often it was opened.
    assert len(asked) <= 2
    button.click()


def test_no_picture_is_of_a_page_that_is_not_taken():
    assert {path.stem for path in STORED.iterdir()} == {f"{name}-{look}" for name, look in TAKEN}


# Those of the calls that the pages make, by the host's own document.
SHAPES = {
    path: operation.answer
    for path in ANSWERS
    for operation in OPERATIONS
    if operation.method == "GET"
    and re.fullmatch("/v1" + re.sub("{[^}]*}", "[^/]+", operation.path), path.partition("?")[0])
    and not isinstance(ANSWERS[path], str)
}


@pytest.mark.parametrize("path", SHAPES)
def test_the_still_host_answers_as_the_controller_promises(path):
    # Most guests tell of no stream.
    assert ANSWERS[path] or path.endswith("/streams")
    adapter(SHAPES[path]).validate_python(ANSWERS[path])
