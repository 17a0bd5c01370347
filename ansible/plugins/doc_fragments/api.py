# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""What all modules that talk to sluiced have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Options and notes of the API's modules."""

    DOCUMENTATION = r"""
options:
  socket:
    description:
      - UNIX socket of sluiced on the managed host.
      - Where it is not given, the environment variable C(SLUICE_SOCKET) there is used.
    type: path
    default: /run/sluice/sluiced.sock
  token_file:
    description:
      - File with sluiced's API token on the managed host.
      - Where it is not given, the environment variable C(SLUICE_TOKEN_FILE) there is used.
    type: path
    default: /etc/sluice/api-token
attributes:
  check_mode:
    description: >-
      Changes nothing and says what would change. Where sluiced is not installed yet, everything
      counts as a change.
    support: full
  diff_mode:
    description: Shows what is before and after.
    support: full
notes:
  - Runs on the KVM host as root, or as a member of the group C(sluice).
  - A refused change changes nothing; the message is sluiced's own.
"""
