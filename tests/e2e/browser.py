# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Chromium for page tests: launch, sign in, drive the page of a VM.

with chromium() as browser, context(browser) as visitor:
    page = sign_in(visitor, "http://127.0.0.1:8480", "admin", password)
    open_vm(page, "media")
    drag_process(page, pid=812, class_name="batch")
    page.get_by_test_id("assign-once").click()
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    StorageState,
    expect,
    sync_playwright,
)

from testbed import patience

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
# Headless and quiet: nothing that reaches for an address outside the host.
FLAGS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# What is expected of a page comes sooner; on a busy machine 5 s were not enough.
PAGE_SECONDS, MOST_PAGE_SECONDS = 20.0, 60.0


def page_milliseconds() -> float:
    """How long a page may take: a failure is told within a minute on any machine."""
    return 1000 * min(MOST_PAGE_SECONDS, patience.seconds(PAGE_SECONDS))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, closed at the end whatever happens. Its contexts share nothing."""
    expect.set_options(timeout=page_milliseconds())
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=[*FLAGS, *sandbox]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def context(
    browser: Browser,
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    scripts: bool = True,
    session: StorageState | None = None,
) -> Iterator[BrowserContext]:
    """A visitor, with the cookies of a session that is signed in, or with none."""
    opened = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        ignore_https_errors=True,
        java_script_enabled=scripts,
        storage_state=session,
    )
    opened.set_default_timeout(page_milliseconds())
    try:
        yield opened
    finally:
        opened.close()


def sign_in(context: BrowserContext, address: str, user: str, password: str) -> Page:
    """A page that is signed in and shows the overview."""
    page = context.new_page()
    page.goto(f"{address.rstrip('/')}/sign-in")
    page.get_by_test_id("sign-in-user").fill(user)
    page.get_by_test_id("sign-in-password").fill(password)
    page.get_by_test_id("sign-in-submit").click()
    expect(page.get_by_test_id("headline")).to_be_visible()
    return page


def open_vm(page: Page, domain: str) -> None:
    """Open the page of a VM and wait for its lanes."""
    origin = "/".join(page.url.split("/")[:3])
    page.goto(f"{origin}/vm/{domain}")
    expect(lane(page, "default")).to_be_visible()


def lane(page: Page, class_name: str):
    """The lane of a class."""
    return page.locator(f'[data-testid="class-lane"][data-class="{class_name}"]')


def limit_input(page: Page, class_name: str, resource: str):
    """The input of one limit."""
    return page.locator(
        f'[data-testid="limit-input"][data-class="{class_name}"][data-resource="{resource}"]'
    )


def set_limit(page: Page, class_name: str, resource: str, text: str) -> None:
    """Type a limit and set it with Enter."""
    field = limit_input(page, class_name, resource)
    field.fill(text)
    field.press("Enter")
    expect(page.get_by_test_id("toast").last).to_contain_text(class_name)


def answer(page: Page, yes: bool) -> None:
    """Answer what the page asks before something goes that is in use."""
    question = page.get_by_test_id("ask")
    expect(question).to_be_visible()
    question.get_by_test_id("ask-yes" if yes else "ask-no").click()
    expect(question).to_have_count(0)


def process_row(page: Page, pid: int):
    """The row of a guest's process."""
    return page.locator(f'[data-testid="process-row"][data-pid="{pid}"]')


def drag_process(page: Page, pid: int, class_name: str) -> None:
    """Drag a process onto a class's lane with the mouse and drop it there."""
    row = process_row(page, pid)
    row.scroll_into_view_if_needed()
    start = row.locator("td.command").bounding_box()
    page.mouse.move(start["x"] + 20, start["y"] + start["height"] / 2)
    page.mouse.down()
    # The drag begins before the page scrolls, else it would begin at another row.
    page.mouse.move(start["x"] + 30, start["y"] + start["height"] / 2 + 3, steps=3)
    target = lane(page, class_name)
    target.scroll_into_view_if_needed()
    end = target.bounding_box()
    page.mouse.move(end["x"] + 80, end["y"] + end["height"] / 2, steps=4)
    page.mouse.up()
