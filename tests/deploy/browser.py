# SPDX-License-Identifier: GPL-2.0-or-later
"""The web page of a host, as a browser in the fleet's network shows it."""

from pathlib import Path

from deploy.control import ControlNode
from deploy.fleet import Fleet
from deploy.machine import PATIENCE_SECONDS, Machine
from testbed import paths

SCRIPT = Path(__file__).with_name("browse.py")
PORT = 8480


def browse(fleet: Fleet, control: ControlNode, host: Machine, path: str, picture: str) -> str:
    """Sign in as the first admin of a host, open a page, keep its picture; return its text."""
    password = (control.passwords / host.name).read_text()
    return browse_as(fleet, host, f"https://{host.address}:{PORT}", password, path, picture)


def browse_as(
    fleet: Fleet, host: Machine, address: str, password: str, path: str, picture: str
) -> str:
    """The same at an address that leads to the host, with a password.

    The host's certificate is the only one that is trusted.
    """
    certificate = fleet.folder / f"{host.name}.crt"
    certificate.write_text(host.out("cat /etc/sluice/tls/web.crt") + "\n")
    shown = paths.BUILD / "deploy" / picture
    shown.parent.mkdir(parents=True, exist_ok=True)
    command = [str(paths.VENV_BIN / "python"), "-I", str(SCRIPT)]
    command += [address, path, str(certificate), str(shown)]
    return fleet.sandbox.run(command, input=password, timeout_seconds=PATIENCE_SECONDS).stdout
