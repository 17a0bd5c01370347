# SPDX-License-Identifier: GPL-2.0-or-later
"""The controller's OpenAPI document, as it holds under /api/v1. Pure."""

from collections.abc import Callable

from .tokens import REPORTER, SCOPES

_TOKENS = "Made on the page Users or with sluice-web token add. Scopes: " + "; ".join(
    f"{scope}: {says}" for scope, says in SCOPES.items()
)


def of_the_page(document: dict, address: str, role_of: Callable[[str, list[str]], str]) -> dict:
    """The document with this server's address, its ways to sign in, and the role for each call."""
    paths = {
        path: {
            method: {
                **one,
                "description": _needs(role_of(method.upper(), path.split("/")[1:]), path),
            }
            for method, one in methods.items()
        }
        for path, methods in document["paths"].items()
    }
    schemes = {
        "token": {"type": "http", "scheme": "bearer", "description": _TOKENS},
        "session": {"type": "apiKey", "in": "cookie", "name": "sluice_session"},
    }
    return {
        **document,
        "servers": [{"url": address}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {**document["components"], "securitySchemes": schemes},
    }


def _needs(role: str, path: str) -> str:
    """The role, or the token, that a call needs."""
    if role == "host":
        return "On the host only, at sluiced's socket."
    said = f"Needs the role or token scope {role}"
    if path.endswith("/reports"):
        said += f", or a token of scope {REPORTER} for this stream"
    return f"{said}."
