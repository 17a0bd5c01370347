# SPDX-License-Identifier: GPL-2.0-or-later
"""The page below a path of a reverse proxy, in a real browser."""

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import expect

from e2e.browser import answer, lane, set_limit, sign_in
from e2e.web.conftest import BIN, free_port, until
from testbed import patience

PREFIX = "/sluice"
OF_A_HOP = {"connection", "transfer-encoding", "keep-alive"}


class Handler(BaseHTTPRequestHandler):
    """Takes the path off, says so, and hands everything on as it comes."""

    behind = ""

    def forward(self) -> None:
        if not self.path.startswith(f"{PREFIX}/"):
            self.send_error(404)
            return
        said = {"X-Forwarded-For": self.client_address[0], "X-Forwarded-Proto": "http"}
        headers = {**self.headers, **said, "X-Forwarded-Prefix": PREFIX}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = self.behind + self.path.removeprefix(PREFIX)
        client = httpx.Client(verify=False, timeout=None)
        with client, client.stream(self.command, address, headers=headers, content=body) as found:
            self.send_response(found.status_code)
            for name, value in found.headers.multi_items():
                if name not in OF_A_HOP:
                    self.send_header(name, value)
            self.end_headers()
            for part in found.iter_raw():
                self.wfile.write(part)
                self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

    def log_message(self, *_args) -> None:
        """Nothing."""


@pytest.fixture
def below(service) -> Iterator[str]:
    """The page's address at a proxy, in front of a sluice-web that believes it."""
    port = free_port()
    command = [
        BIN / "sluice-web",
        f"--bind=127.0.0.1:{port}",
        "--proxies=1",
        f"--controller-socket={service.folder / 'run' / 'sluiced.sock'}",
        f"--token-file={service.folder / 'etc' / 'api-token'}",
        f"--state-dir={service.folder / 'web'}",
    ]
    web = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    handler = type("Here", (Handler,), {"behind": f"http://127.0.0.1:{port}"})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        healthy = f"{handler.behind}/healthz"
        until(lambda: httpx.get(healthy, verify=False).status_code == 200, "sluice-web")
        yield f"http://127.0.0.1:{proxy.server_address[1]}{PREFIX}"
    finally:
        web.terminate()
        web.wait(patience.seconds(15))
        proxy.shutdown()
        proxy.server_close()


def test_a_limit_is_set_below_the_path_and_no_request_leaves_it(service, visit, batch, below):
    context = visit(session=None).context
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = sign_in(context, below, "admin", service.password)
    page.get_by_role("link", name="test").click()
    expect(page.get_by_test_id("data-age")).to_be_visible()
    set_limit(page, batch, "blk-read", "2 MB/s")
    lane(page, batch).get_by_role("button", name="Take away").click()
    answer(page, yes=False)
    for name in ("Streams", "Classes", "Groups", "Nightly", "Audit", "Users", "Overview"):
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        expect(page.locator("h1")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_test_id("sign-in-user")).to_be_visible()
    assert {"/events?", "/api/v1/", "/static/"} <= {
        part for url in asked for part in ("/events?", "/api/v1/", "/static/") if part in url
    }
    assert [url for url in asked if not url.startswith(f"{below}/")] == []
