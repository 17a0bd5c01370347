# SPDX-License-Identifier: GPL-2.0-or-later
"""What sluice-web refuses to start with, and how it says so."""

import contextlib
import os
import shutil
import sqlite3
import subprocess

import pytest

from sluice_web import cli
from sluice_web.certificate import Certificate
from sluice_web.config import Config, ConfigError
from sluice_web.store import Store

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


def pair(folder, name, *options):
    """A certificate and its key."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-subj", f"/CN={name}", "-days", "1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *(options or ["-noenc"])], check=True, capture_output=True)
    return cert, key


def started(folder, cert, key, capsys):
    options = ["--state-dir", str(folder / "state")]
    status = cli.main([*options, "--tls-cert", str(cert), "--tls-key", str(key)])
    return status, capsys.readouterr().err


@needs_openssl
def test_a_certificate_with_its_key_will_do(tmp_path):
    cert, key = pair(tmp_path, "page")
    assert Certificate.of(Config(tls_cert=cert, tls_key=key)).context()
    assert Certificate.of(Config()) is None


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n"])
def test_what_is_no_certificate_is_said_before_anything_is_served(tmp_path, capsys, text):
    (tmp_path / "page.crt").write_text(text)
    (tmp_path / "page.key").write_text(text)
    status, said = started(tmp_path, tmp_path / "page.crt", tmp_path / "page.key", capsys)
    assert status == cli.CANNOT_WORK
    assert f"--tls-cert {tmp_path}/page.crt" in said and "give a certificate chain in PEM" in said
    assert not (tmp_path / "state").exists()


@needs_openssl
def test_the_key_of_another_certificate_will_not_do(tmp_path, capsys):
    cert, _ = pair(tmp_path, "page")
    _, key = pair(tmp_path, "other")
    status, said = started(tmp_path, cert, key, capsys)
    assert status == cli.CANNOT_WORK and "MISMATCH" in said


@needs_openssl
def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path, capsys):
    cert, key = pair(tmp_path, "page", "-passout", "pass:geheim")
    status, said = started(tmp_path, cert, key, capsys)
    assert status == cli.CANNOT_WORK and "without a passphrase" in said


def test_a_key_that_cannot_be_read_is_no_matter_of_the_state_folder(tmp_path):
    # Not by permissions, which do not keep root out.
    key = tmp_path / "page.key"
    key.symlink_to(key)
    with pytest.raises(ConfigError, match=r"--tls-cert .* cannot be read \(Too many levels"):
        Config(tls_cert=key, tls_key=key)


@pytest.mark.parametrize("name", ["none.pem", "a-file/x.pem", "a-folder"])
def test_a_file_that_is_not_there_is_named(tmp_path, name):
    (tmp_path / "a-file").write_text("")
    (tmp_path / "a-folder").mkdir()
    with pytest.raises(ConfigError, match="--tls-cert .*: no such file; give the path of a PEM"):
        Config(tls_cert=tmp_path / name, tls_key=tmp_path / "a-file")


def test_a_state_folder_that_cannot_be_made_may_come_later(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["--state-dir", str(tmp_path / "file" / "x"), "users"]) == cli.FAILED_NOW
    assert "check --state-dir" in capsys.readouterr().err


def test_data_of_another_user_is_no_matter_of_waiting(tmp_path, capsys):
    folder = tmp_path / "state"
    folder.mkdir(mode=0)
    mine = os.geteuid()
    if mine == 0:
        # Nothing is closed to root.
        os.seteuid(65534)
    try:
        status = cli.main(["--state-dir", str(folder), "users"])
    finally:
        os.seteuid(mine)
    said = capsys.readouterr().err
    assert status == cli.CANNOT_WORK
    assert f"{folder}" in said and "Permission denied" in said and "run commands as that" in said


def test_a_store_that_is_none_is_said_in_words(tmp_path, capsys):
    (tmp_path / "web.sqlite").write_text("This is a letter to my aunt. " * 99)
    assert cli.main(["--state-dir", str(tmp_path), "users"]) == cli.CANNOT_WORK
    said = capsys.readouterr().err
    assert f"{tmp_path}/web.sqlite: file is not a database" in said and "put back a copy" in said


@pytest.mark.parametrize("version", ["0002", None])
def test_a_store_of_another_version_is_kept_and_said_in_words(tmp_path, capsys, version):
    Store(tmp_path)
    path = tmp_path / "web.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM alembic_version")
        if version:
            connection.execute("INSERT INTO alembic_version VALUES (?)", (version,))
        connection.commit()
    before = path.read_bytes()
    assert cli.main(["--state-dir", str(tmp_path), "users"]) == cli.CANNOT_WORK
    said = capsys.readouterr().err
    assert f"{path} has the schema {version or 'of a version before migrations'}" in said
    assert "install the version of sluice-web that wrote it" in said and "newer" not in said
    assert path.read_bytes() == before


def test_a_store_that_somebody_keeps_locked_may_be_free_later(tmp_path, capsys, monkeypatch):
    Store(tmp_path)
    monkeypatch.setattr("sluice_web.store.LOCK_WAIT_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(tmp_path / "web.sqlite")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert cli.main(["--state-dir", str(tmp_path), "users"]) == cli.FAILED_NOW
    assert "database is locked" in capsys.readouterr().err


@needs_openssl
def test_options_are_checked_without_serving(tmp_path, capsys):
    cert, key = pair(tmp_path, "page")
    _, other = pair(tmp_path, "other")
    options = ["--check-config", "--state-dir", str(tmp_path / "state"), "--tls-cert", str(cert)]
    assert cli.main([*options, "--tls-key", str(key)]) == 0
    assert cli.main([*options, "--tls-key", str(other)]) == cli.CANNOT_WORK
    assert cli.main([*options, "--tls-key", str(key), "--bind", "8480"]) == cli.CANNOT_WORK
    said = capsys.readouterr()
    assert said.out == "sluice-web: the configuration can work\n"
    assert "MISMATCH" in said.err and "--bind 8480: not HOST:PORT" in said.err
    assert not (tmp_path / "state").exists()
