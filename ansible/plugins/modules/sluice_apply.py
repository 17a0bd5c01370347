#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""The declared state of a host's shaping, handed to sluiced."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sluice_apply
short_description: Apply the declared state of a host's shaping
version_added: 0.1.0
author: The Sluice developers
description:
  - Hands a document to sluiced, which changes what differs, all of it or nothing. Classes, grants,
    limits, scheduling, queues, groups, rules, streams, floors and auto-shaping are in it, in the
    words of C(sluice export).
  - Names, units and ranges are judged by sluiced alone; what check mode foresees, and the
    difference, are its answer to a dry run.
options:
  state:
    description: The document.
    type: dict
    required: true
  prune:
    description: Take away what the document does not name.
    type: bool
    default: false
  socket:
    description: The socket of sluiced; I(SLUICE_SOCKET) in the environment outranks the default.
    type: path
    default: /run/sluice/sluiced.sock
  token_file:
    description:
      - The file with its API token; I(SLUICE_TOKEN_FILE) in the environment outranks the default.
    type: path
    default: /etc/sluice/api-token
attributes:
  check_mode:
    description: Changes are foreseen, and nothing is changed.
    support: full
  diff_mode:
    description: The document before and after.
    support: full
"""

EXAMPLES = r"""
- name: Limit web1's backups
  sluice.appliance.sluice_apply:
    state:
      domains:
        web1:
          classes:
            batch:
              limits:
                blk-read: {bytes_per_second: 20MB/s}
"""

RETURN = r"""
changes:
  description: Differences by their place in the document; null where there is nothing.
  returned: always
  type: list
  elements: dict
  contains:
    thing:
      description: The place in the document.
      type: str
    before:
      description: The value before.
      type: raw
    after:
      description: The value now, or the one that would be there.
      type: raw
etag:
  description: The entity tag of the host's state.
  returned: always
  type: str
"""

import http.client
import json
import socket

from ansible.module_utils.basic import AnsibleModule, env_fallback

# sluiced waits for libvirt, and for the QEMU of each guest that runs.
TIMEOUT_SECONDS = 90


class Refused(Exception):
    """The words of sluiced, or the reason why it cannot be asked."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str) -> None:
        super().__init__("sluiced", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Called by the base class."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def token_of(path: str) -> str:
    """The API token in a file; raises Refused."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        raise Refused(
            f"token_file '{path}' cannot be read ({error.strerror}): become root, and see that the"
            " role controller ran on this host"
        ) from error


def put(path: str, token: str, query: str, document: dict) -> dict:
    """Hand the document over; the answer of sluiced. Raises Refused."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "X-Sluice-Actor": "ansible",
    }
    connection = UnixConnection(path)
    try:
        connection.request("PUT", f"/v1/state?{query}", json.dumps(document), headers)
        answer = connection.getresponse()
        text = answer.read()
    except TimeoutError as error:
        raise Refused(
            f"sluiced at socket '{path}' has not answered within {TIMEOUT_SECONDS} s, and may still"
            " be at it: see 'journalctl -u sluiced', and run this again"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise Refused(
            f"sluiced at socket '{path}' cannot be reached ({error}): start it with"
            " 'systemctl start sluiced'"
        ) from error
    finally:
        connection.close()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Refused(
            f"sluiced at socket '{path}' answered {text[:80]!r}, which is no JSON: see that the"
            " socket is sluiced's"
        ) from error
    if answer.status != 200:
        raise Refused(found.get("detail") or f"sluiced refused with status {answer.status}")
    return found


def difference(changes: list[dict]) -> dict[str, str]:
    """The changes as Ansible shows them: a line for each place that has something."""
    sides = {}
    for side in ("before", "after"):
        told = [(c["thing"], c[side]) for c in changes if c[side] is not None]
        sides[side] = "".join(f"{thing}: {json.dumps(value)}\n" for thing, value in told)
    return sides


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "dict", "required": True},
            "prune": {"type": "bool", "default": False},
            "socket": {
                "type": "path",
                "default": "/run/sluice/sluiced.sock",
                "fallback": (env_fallback, ["SLUICE_SOCKET"]),
            },
            "token_file": {
                "type": "path",
                "default": "/etc/sluice/api-token",
                "fallback": (env_fallback, ["SLUICE_TOKEN_FILE"]),
                "no_log": False,
            },
        },
        supports_check_mode=True,
    )
    given = module.params
    asked = {"prune": given["prune"], "dry_run": module.check_mode}
    query = "&".join(f"{name}={str(value).lower()}" for name, value in asked.items())
    try:
        done = put(given["socket"], token_of(given["token_file"]), query, given["state"])
    except Refused as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=done["changed"],
        changes=done["changes"],
        etag=done["etag"],
        diff=difference(done["changes"]),
    )


if __name__ == "__main__":
    main()
