# SPDX-License-Identifier: GPL-2.0-or-later
"""The person behind a request: a session with a CSRF token, or a bearer token.

The cookie holds the id of a session that the store knows. Signing out ends the session
there, so a copy of the cookie is worth nothing from then on.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from functools import wraps
from urllib.parse import urlsplit

from flask import Blueprint, current_app, g, redirect, render_template, request, session, url_for

from . import formatting
from .problems import Problem, for_a_program
from .store import Person, Store
from .throttle import SignInThrottle, network_of
from .tokens import SCOPES

blueprint = Blueprint("auth", __name__)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def _store() -> Store:
    return current_app.extensions["sluice_store"]


def _throttle() -> SignInThrottle:
    return current_app.extensions["sluice_throttle"]


def identify() -> None:
    """Before each request: find the person that it comes from, into ``g.person``."""
    g.person = None
    if request.headers.get("Authorization"):
        token = _bearer_token()
        g.person = _store().token_owner(token, now=time.time()) if token else None
        if g.person is None:
            raise _bad_token(_store().token_end(token))
        return
    g.person = session_person()


def _bearer_token() -> str:
    scheme, _, token = request.headers["Authorization"].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _bad_token(end: tuple[str, float] | None) -> Problem:
    """401; ``end`` is the name of a token that expired, and when."""
    remedy = "make one on the users page, or with sluice-web token add"
    said = "The bearer token is unknown or was revoked"
    if end:
        said = f"The token {end[0]} expired at {formatting.iso(end[1])}"
    return Problem(
        401,
        "token-expired" if end else "bad-token",
        "Token not accepted",
        said,
        thing="Authorization",
        value=end[0] if end else None,
        remedy=remedy,
        headers={"WWW-Authenticate": "Bearer"},
    )


def session_person() -> Person | None:
    """The person of the session cookie, if the session still holds."""
    session_id = session.get("id")
    if not isinstance(session_id, str):
        return None
    return _store().session_owner(session_id, now=time.time())


def still_held() -> Callable[[], bool]:
    """A function that tells, after the request, if its person may go on: for answers that last."""
    store = _store()
    if g.person.via_token:
        token = _bearer_token()
        return lambda: store.token_owner(token, now=time.time()) is not None
    session_id = session["id"]
    return lambda: store.session_owner(session_id, now=time.time()) is not None


def csrf_token() -> str:
    """The session's token; templates put it into forms and the page's head."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
    return session["csrf"]


def check_csrf() -> None:
    """Raise Problem unless a changing request of a session carries its token."""
    if request.method in SAFE_METHODS or (g.person and g.person.via_token):
        return
    given = request.headers.get("X-CSRF-Token") or request.form.get("csrf_token", "")
    own = session.get("csrf", "")
    if not own or not hmac.compare_digest(given.encode(), own.encode()):
        raise Problem(
            403,
            "csrf",
            "The page is out of date",
            "The request does not carry this session's token",
            thing="X-CSRF-Token",
            remedy="reload the page and try again",
        )


def require(role: str, *, by_token: bool = True) -> Callable:
    """Decorator for pages: sign in first, and have at least this role.

    Without ``by_token`` in a session only: a token cannot prevent its own revocation.
    """

    def decorate(view: Callable) -> Callable:
        @wraps(view)
        def guarded(*args, **kwargs):
            if g.person is None:
                if for_a_program(usual=False):
                    raise not_signed_in()
                here = request.script_root + request.full_path.rstrip("?")
                return redirect(
                    url_for("auth.sign_in", next=here if request.method == "GET" else None)
                )
            if g.person.via_token and not by_token:
                raise _needs_session()
            check_role(role)
            check_csrf()
            return view(*args, **kwargs)

        return guarded

    return decorate


def check_role(role: str, what: str = "this") -> None:
    """Raise Problem unless the person may do this."""
    if not g.person.may(role):
        raise not_allowed(g.person, role, what)


def not_allowed(person: Person, role: str, what: str = "this") -> Problem:
    """403, for a person or for a token that may do less than its owner."""
    if person.via_token:
        remedy = f"use a token of scope {role}" if role in SCOPES else f"sign in as an {role}"
        who = f"The token {person.actor} may do what a {person.role} may"
        if person.stream:
            who += f" of the stream {person.stream}"
    else:
        remedy, who = f"ask an admin for the role {role}", f"{person.name} is a {person.role}"
    return Problem(
        403,
        "not-allowed",
        "Not allowed",
        detail=f"{who}; {what} needs the role {role}: {remedy}.",
        thing="role",
        value=person.role,
        remedy=remedy,
    )


def check_own(name: str) -> None:
    """Raise Problem unless it is about oneself, or an admin asks."""
    if name != g.person.name:
        check_role("admin")


def _needs_session() -> Problem:
    return Problem(
        403,
        "needs-session",
        "Not with a token",
        detail="Users, passwords and tokens are not changed with a token: who had taken one could"
        " not be kept out by revoking it. Sign in on the page Users.",
        thing="Authorization",
        remedy="sign in on the page Users",
    )


def not_signed_in() -> Problem:
    """401 for programs, which cannot be redirected."""
    return Problem(
        401,
        "not-signed-in",
        "Not signed in",
        "There is no session and no token",
        thing="Authorization",
        remedy="sign in, or send Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": "Bearer"},
    )


def local_target(target: str) -> str:
    """A path of this page to go to after sign-in; the overview in place of anything else."""
    root = url_for("pages.overview")
    return target if target.startswith(root) and is_path(target) else root


def is_path(text: str) -> bool:
    """True of a path that a browser takes for none of another host."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    local = text.startswith("/") and not text.startswith(("//", "/\\"))
    return local and text.isprintable() and not parts.scheme and not parts.netloc


def sign_in_as(person: Person, now: float) -> bool:
    """Start a fresh session; False if this is no longer the person's password."""
    _end_session()
    session_id = _store().open_session(person, now=now)
    if session_id is None:
        return False
    session["id"] = session_id
    csrf_token()
    return True


def _end_session() -> None:
    session_id = session.get("id")
    session.clear()
    if isinstance(session_id, str):
        _store().close_session(session_id)


@blueprint.route("/sign-in", methods=["GET", "POST"])
def sign_in():
    """The form, and its answer."""
    target = local_target(request.values.get("next", ""))
    if request.method == "GET":
        if g.person:
            return redirect(target)
        return render_template("sign_in.html", target=target, error=None, user="")
    check_csrf()
    user = request.form.get("user", "").strip()[:64]
    keys = f"address {network_of(request.remote_addr or '?')}", f"user {user}"
    now = time.monotonic()
    wait = _throttle().begin(list(keys), now)
    if wait > 0:
        error = f"Too many tries; wait {wait:.0f} seconds, then try again."
        page = render_template("sign_in.html", target=target, error=error, user=user)
        return page, 429, {"Retry-After": f"{wait:.0f}"}
    person = _store().check_password(user, request.form.get("password", ""))
    if person is None or not sign_in_as(person, time.time()):
        _store().record_refusal(time.time(), request.remote_addr or "?", user)
        error = (
            "User and password do not belong together. Forgotten? On the host:"
            " sluice-web reset-password USER"
        )
        return render_template("sign_in.html", target=target, error=error, user=user), 401
    _throttle().succeeded(*keys, now)
    _store().record(time.time(), person.name, "sign in", request.remote_addr or "?")
    return redirect(target, 303)


@blueprint.post("/sign-out")
def sign_out():
    """End the session, wherever its cookie was copied to."""
    check_csrf()
    if g.person and not g.person.via_token:
        _store().record(time.time(), g.person.name, "sign out", request.remote_addr or "?")
    _end_session()
    return redirect(url_for("auth.sign_in"), 303)
