# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Whether a certificate and a key on the control node can serve a page."""

from __future__ import annotations

import ssl

VAULT = b"$ANSIBLE_VAULT;"


def _no_password() -> str:
    # OpenSSL would ask the terminal otherwise.
    raise ValueError("the key is encrypted")


def pair_problem(cert: str, key: str) -> str | None:
    """What is wrong with two PEM files, or None.

    A file that ansible-vault encrypted is decrypted only when it is copied, so it
    is not looked at here.
    """
    for path in (cert, key):
        with open(path, "rb") as file:
            if file.read(len(VAULT)) == VAULT:
                return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return "do not belong together: give the key that the certificate was made for"
        return f"cannot be used ({error.reason or 'not PEM'}): give a certificate and a key in PEM"
    except ValueError as error:
        return f"cannot be used ({error}): give the key without a password, from a vault"
    return None
