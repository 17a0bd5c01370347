# SPDX-License-Identifier: GPL-2.0-or-later
"""The application factory."""

import contextlib
import os
import secrets
import tempfile
from datetime import timedelta
from pathlib import Path

from flask import Flask, Response, g, jsonify, render_template, request
from flask.sessions import SecureCookieSessionInterface
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix

from . import __version__, api, asking, auth, formatting, nights, pages, views
from .config import Config
from .controller import Controller
from .live import LiveHub
from .problems import Problem, bad_value, for_a_program
from .server import MAX_BODY_BYTES
from .store import SESSION_SECONDS, Store
from .throttle import SignInThrottle

LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Cookies(SecureCookieSessionInterface):
    """Sent to this page alone, and not by plain HTTP, also where a proxy on this host does TLS."""

    def get_cookie_name(self, app: Flask) -> str:
        """With a prefix by which a browser takes the cookie from this host by HTTPS alone."""
        # __Host- is for cookies of a whole host.
        prefix = "__Secure-" if request.script_root else "__Host-"
        name = super().get_cookie_name(app)
        return prefix + name if app.config["SESSION_COOKIE_SECURE"] else name

    def get_cookie_path(self, app: Flask) -> str:
        """The path that a proxy gives the page."""
        return f"{request.script_root}/"

    def get_cookie_secure(self, app: Flask) -> bool:
        """With our own TLS, or with the proxy's."""
        return request.is_secure or _proxied_tls() or super().get_cookie_secure(app)


def _proxied_tls() -> bool:
    """True if a proxy on this host says that the browser came by HTTPS."""
    said = request.headers.get("X-Forwarded-Proto", "").strip().lower() == "https"
    return said and request.remote_addr in LOOPBACK


def create_app(
    config: Config, store: Store | None = None, controller: Controller | None = None
) -> Flask:
    """The page and the REST API, ready for a WSGI server."""
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY=session_key(config.state_dir),
        SESSION_COOKIE_NAME="sluice_session",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=config.tls,
        PERMANENT_SESSION_LIFETIME=timedelta(seconds=SESSION_SECONDS),
        MAX_CONTENT_LENGTH=MAX_BODY_BYTES,
    )
    app.session_interface = Cookies()
    if config.proxies:
        hops = config.proxies
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=hops, x_proto=hops, x_prefix=hops)
    app.extensions["sluice_store"] = store or Store(config.state_dir)
    app.extensions["sluice_controller"] = controller or Controller(
        config.controller_socket, config.token_file
    )
    app.extensions["sluice_throttle"] = SignInThrottle()
    app.extensions["sluice_hub"] = LiveHub(_with_context(app, pages.fetch))

    app.before_request(_identify)
    app.after_request(_headers(config.tls))
    app.register_blueprint(auth.blueprint)
    app.register_blueprint(pages.blueprint)
    app.register_blueprint(asking.blueprint)
    app.register_blueprint(api.blueprint)
    app.register_error_handler(Problem, _show_problem)
    app.register_error_handler(HTTPException, _show_http_error)
    _prepare_templates(app)
    app.add_url_rule("/healthz", "healthz", lambda: jsonify(version=__version__))
    return app


def session_key(state_dir: Path) -> bytes:
    """The key that signs cookies: made once, readable by the owner only."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = state_dir / "session-key"
    if not path.exists():
        # The file appears whole or not at all, also after a crash; the first file stays.
        with tempfile.NamedTemporaryFile(dir=state_dir, prefix="session-key.") as made:
            made.write(secrets.token_bytes(32))
            made.flush()
            os.fsync(made.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(made.name, path)
    key = path.read_bytes()
    if len(key) < 32:
        raise RuntimeError(f"{path} holds {len(key)} bytes instead of 32; remove it and restart")
    return key


def _identify() -> None:
    g.person = None
    if request.script_root and not auth.is_path(request.script_root):
        raise bad_value("X-Forwarded-Prefix", request.script_root, "give a path, as /sluice")
    if request.endpoint not in ("static", "healthz"):
        auth.identify()


def _headers(tls: bool):
    def add(response: Response) -> Response:
        # A page may be stricter with itself than all the others.
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        if tls:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"
        if request.endpoint == "static":
            response.headers["Cache-Control"] = "no-cache"
        elif "Cache-Control" not in response.headers:
            response.headers["Cache-Control"] = "no-store"
        return response

    return add


def _show_problem(problem: Problem):
    if for_a_program():
        return problem.response()
    page = render_template("error.html", problem=problem.body)
    return page, problem.status, problem.headers


def _show_http_error(error: HTTPException):
    status = error.code or 500
    remedies = {
        404: "go to the overview and follow a link",
        405: "see /api/v1/openapi.json for what is offered",
        413: f"send at most {MAX_BODY_BYTES} bytes",
    }
    if status < 400:
        return error
    remedy = remedies.get(status, "try again; if it stays, look at sluice-web's log")
    problem = Problem(
        status,
        "http",
        error.name,
        f"{request.path}: {error.name.lower()}",
        thing="path",
        value=request.path[:200],
        remedy=remedy,
    )
    return _show_problem(problem)


def _with_context(app: Flask, function):
    def call(*args):
        with app.app_context():
            return function(*args)

    return call


def _prepare_templates(app: Flask) -> None:
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    for function in (
        formatting.rate,
        formatting.link_rate,
        formatting.size,
        formatting.milliseconds,
        formatting.age,
        formatting.iso,
        formatting.clock,
        views.colour,
        views.state_note,
        views.describe_match,
        views.describe_change,
        views.group_rate,
        views.group_burst,
        views.held,
        views.processor_wait,
        nights.share,
        nights.seconds,
        nights.reason,
    ):
        app.jinja_env.filters[function.__name__] = function
    app.jinja_env.globals.update(
        csrf_token=auth.csrf_token,
        resources=views.RESOURCE_TITLES,
        group_words=views.GROUP_WORDS,
        device_words=views.DEVICE_WORDS,
        verdict_mark=views.VERDICT_MARK,
        outcome_mark=nights.OUTCOME_MARK,
        outcome_words=nights.OUTCOME_WORDS,
        phase_titles=nights.PHASE_TITLES,
        version=__version__,
    )
    app.context_processor(lambda: {"person": g.get("person")})
