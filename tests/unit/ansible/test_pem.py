# SPDX-License-Identifier: GPL-2.0-or-later
"""Certificates and keys on the control node, made by openssl."""

import subprocess

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils.pem import pair_problem


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two pairs, and the first one's key with a password."""
    folder = tmp_path_factory.mktemp("pem")
    for name in ("one", "two"):
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-days", "2"),
            *("-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"),
        )
    openssl(
        *("pkey", "-in", f"{folder}/one.key", "-aes256", "-passout", "pass:geheim"),
        *("-out", f"{folder}/locked.key"),
    )
    (folder / "text.key").write_text("no PEM at all\n")
    (folder / "vaulted.key").write_text("$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    return folder


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        ("one.crt", "two.key", "do not belong together: give the key that the certificate"),
        ("one.crt", "text.key", "give a certificate and a key in PEM"),
        ("text.key", "one.key", "give a certificate and a key in PEM"),
        ("one.key", "one.key", "give a certificate and a key in PEM"),
        ("one.crt", "locked.key", "(the key is encrypted): give the key without a password"),
    ],
)
def test_what_the_page_cannot_be_served_with_is_named(made, cert, key, words):
    assert words in pair_problem(str(made / cert), str(made / key))


def test_a_pair_is_no_problem(made):
    assert pair_problem(str(made / "one.crt"), str(made / "one.key")) is None


def test_what_a_vault_holds_is_not_looked_at(made):
    assert pair_problem(str(made / "one.crt"), str(made / "vaulted.key")) is None
