# SPDX-License-Identifier: GPL-2.0-or-later
"""The module ``certificate`` with the real openssl."""

import subprocess

import pytest

from ansible_collection import run_module


@pytest.fixture
def make(tmp_path):
    def make(**arguments):
        given = {"names": ["kvm1.example.net", "192.0.2.11", "::1"], **arguments}
        return run_module(
            "certificate",
            cert=str(tmp_path / "web.crt"),
            key=str(tmp_path / "web.key"),
            **given,
        )

    return make


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_certificate_is_made_once(make, tmp_path):
    foreseen = make(check=True)
    assert (foreseen["changed"], list(tmp_path.iterdir())) == (True, [])
    assert make()["changed"] is True
    assert make() == {**make(), "changed": False, "reason": None}
    text = openssl("x509", "-in", str(tmp_path / "web.crt"), "-noout", "-text")
    assert "DNS:kvm1.example.net, IP Address:192.0.2.11, IP Address:0:0:0:0:0:0:0:1" in text
    assert "CN = kvm1.example.net" in text
    assert (tmp_path / "web.key").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "web.crt").stat().st_mode & 0o7777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.crt", "web.key"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"names": ["kvm2"]}, "its names changed"), ({"renew_days": 900}, "it ends within 900 days")],
)
def test_it_is_made_anew_in_time(make, change, reason):
    make()
    assert make(**change)["reason"] == reason


def test_halves_that_do_not_belong_together_are_replaced(make, tmp_path):
    make()
    openssl("genpkey", "-algorithm", "ED25519", "-out", str(tmp_path / "web.key"))
    assert make()["reason"] == "key and certificate do not belong together"
    (tmp_path / "web.crt").unlink()
    assert make()["reason"] == f"{tmp_path}/web.crt does not exist"
    assert make()["changed"] is False


def test_modes_are_put_right(make, tmp_path):
    make()
    (tmp_path / "web.key").chmod(0o644)
    answer = make()
    assert (answer["changed"], answer["reason"]) == (True, None)
    assert (tmp_path / "web.key").stat().st_mode & 0o7777 == 0o640


def test_a_group_that_is_not_there_is_named(make):
    assert "group 'no-such-group' does not exist" in make(group="no-such-group")["msg"]
