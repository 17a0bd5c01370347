#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""A self-signed certificate, made once and renewed in time."""

from __future__ import annotations

DOCUMENTATION = r"""
module: certificate
short_description: Make a self-signed certificate on the host
version_added: 0.1.0
author: The Sluice developers
description:
  - Makes a P-256 key and a certificate for it with the host's openssl. Makes both anew when the
    names change, when key and certificate do not belong together, or when the certificate is about
    to expire. The key never leaves the host.
options:
  cert:
    description: Path of the certificate.
    type: path
    required: true
  key:
    description: Path of the private key, mode 0640.
    type: path
    required: true
  group:
    description: Group that may read the key.
    type: str
    default: root
  names:
    description: Host names and addresses; the first is the common name.
    type: list
    elements: str
    required: true
  days:
    description: How long a new certificate holds.
    type: int
    default: 825
  renew_days:
    description: How many days before its end it is made anew.
    type: int
    default: 30
attributes:
  check_mode:
    description: Says whether a new one would be made.
    support: full
  diff_mode:
    description: Shows the names before and after.
    support: full
"""

EXAMPLES = r"""
- name: A certificate for the page
  sluice.appliance.certificate:
    cert: /etc/sluice/tls/web.crt
    key: /etc/sluice/tls/web.key
    group: sluice-web
    names: [kvm1.example.net, 192.0.2.11]
"""

RETURN = r"""
reason:
  description: Why a new one was or would be made; null if the present one will do.
  returned: always
  type: str
"""

import grp
import ipaddress
import os
import re

from ansible.module_utils.basic import AnsibleModule

DAY_SECONDS = 86400


def alternative_names(names: list[str]) -> list[str]:
    """Names as subjectAltName writes them, each once."""
    written = []
    for name in names:
        try:
            entry = f"IP:{ipaddress.ip_address(name)}"
        except ValueError:
            entry = f"DNS:{name}"
        if entry not in written:
            written.append(entry)
    return written


def names_in(text: str) -> list[str]:
    """The names that `openssl x509 -ext subjectAltName` prints."""
    found = []
    for kind, value in re.findall(r"(DNS|IP Address):([^,\s]+)", text):
        if kind == "DNS":
            found.append(f"DNS:{value}")
        else:
            found.append(f"IP:{ipaddress.ip_address(value)}")
    return found


class Certificate:
    """Key and certificate on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.openssl = module.get_bin_path("openssl")

    def _run(self, *arguments: str) -> tuple[int, str]:
        code, out, error = self.module.run_command([self.openssl, *arguments])
        return code, out if code == 0 else error

    def present_names(self) -> list[str]:
        """Names in the present certificate."""
        if self.openssl is None or not os.path.exists(self.params["cert"]):
            return []
        _code, text = self._run(
            "x509", "-in", self.params["cert"], "-noout", "-ext", "subjectAltName"
        )
        return names_in(text)

    def reason(self, wanted: list[str]) -> str | None:
        """Why a new one is needed."""
        cert, key = self.params["cert"], self.params["key"]
        for path in (cert, key):
            if not os.path.exists(path):
                return f"{path} does not exist"
        if self.openssl is None:
            return None
        if sorted(self.present_names()) != sorted(wanted):
            return "its names changed"
        seconds = str(self.params["renew_days"] * DAY_SECONDS)
        if self._run("x509", "-in", cert, "-noout", "-checkend", seconds)[0] != 0:
            return f"it ends within {self.params['renew_days']} days"
        of_cert = self._run("x509", "-in", cert, "-noout", "-pubkey")
        of_key = self._run("pkey", "-in", key, "-pubout")
        return None if of_cert == of_key else "key and certificate do not belong together"

    def make(self, wanted: list[str]) -> None:
        """Make both beside the old ones, then put them in place: the key first, so that an
        interruption between is seen as a pair that does not match.
        """
        cert, key = self.params["cert"], self.params["key"]
        old_mask = os.umask(0o077)
        try:
            code, text = self._run(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", str(self.params["days"]),
                "-subj", f"/CN={self.params['names'][0][:64]}",
                "-addext", f"subjectAltName={','.join(wanted)}",
                "-addext", "extendedKeyUsage=serverAuth",
                "-keyout", f"{key}.new", "-out", f"{cert}.new",
            )  # fmt: skip
        finally:
            os.umask(old_mask)
        if code:
            self.module.fail_json(
                msg=f"openssl cannot make {cert!r} ({text.strip()[-200:]}): correct"
                " sluice_web_names, or give a certificate with sluice_web_tls: files"
            )
        os.replace(f"{key}.new", key)
        os.replace(f"{cert}.new", cert)

    def settle_modes(self) -> bool:
        """Owner and modes of both; whether that changed anything."""
        changed = False
        try:
            group = grp.getgrnam(self.params["group"]).gr_gid
        except KeyError:
            if self.module.check_mode:
                return False
            self.module.fail_json(
                msg=f"group {self.params['group']!r} does not exist: install sluice-web first"
            )
        for path, mode in ((self.params["key"], 0o640), (self.params["cert"], 0o644)):
            if not os.path.exists(path):
                continue
            stat = os.stat(path)
            if (stat.st_mode & 0o7777, stat.st_gid, stat.st_uid) == (mode, group, 0):
                continue
            changed = True
            if not self.module.check_mode:
                os.chown(path, 0, group)
                os.chmod(path, mode)
        return changed


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "cert": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "group": {"type": "str", "default": "root"},
            "names": {"type": "list", "elements": "str", "required": True},
            "days": {"type": "int", "default": 825},
            "renew_days": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    certificate = Certificate(module)
    wanted = alternative_names(module.params["names"])
    before = certificate.present_names()
    reason = certificate.reason(wanted)
    if reason and not module.check_mode:
        if certificate.openssl is None:
            module.fail_json(msg="openssl is missing on this host: install the package openssl")
        certificate.make(wanted)
    changed = certificate.settle_modes() or bool(reason)
    diff = {"before": "\n".join(before) + "\n", "after": "\n".join(wanted) + "\n"}
    module.exit_json(changed=changed, reason=reason, diff=diff)


if __name__ == "__main__":
    main()
