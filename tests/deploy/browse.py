# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs in the fleet's network: open a page of a host in a real browser.

    browse.py ADDRESS PATH CERTIFICATE PICTURE <password

First a request that trusts CERTIFICATE alone, as an operator does who copied it
from the host; then Chromium signs in as admin, opens the page, waits until its
live data have arrived, and stores PICTURE. Prints the page's text.
"""

import ssl
import sys
import time

import httpx

from e2e.browser import chromium, context, lane, sign_in

# An emulated host beside other work takes its time.
PAGE_SECONDS = 300

address, path, certificate, picture = sys.argv[1:]
password = sys.stdin.read().strip()
trust = ssl.create_default_context(cafile=certificate)
with httpx.Client(verify=trust, trust_env=False, timeout=PAGE_SECONDS) as client:
    client.get(f"{address}/sign-in").raise_for_status()
with chromium() as browser, context(browser) as visitor:
    visitor.set_default_timeout(1000 * PAGE_SECONDS)
    page = sign_in(visitor, address, "admin", password)
    page.on("console", lambda message: print(f"console: {message.text}", file=sys.stderr))
    page.on("pageerror", lambda error: print(f"page: {error}", file=sys.stderr))
    page.on("requestfailed", lambda r: print(f"{r.url}: {r.failure}", file=sys.stderr))
    page.goto(address + path)
    try:
        if path.startswith("/vm/"):
            lane(page, "default").wait_for()
            # A few samples, so that the picture shows the rates.
            time.sleep(5)
        if path.startswith("/nightly/"):
            # Its plots come after the page.
            page.locator("#night canvas").first.wait_for()
    finally:
        # Also of a page that does not come to this: a failure is told by its picture.
        page.screenshot(path=picture, full_page=True)
    print(page.inner_text("body"))
