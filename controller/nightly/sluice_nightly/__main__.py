# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m sluice_nightly``: the installed command sluice-nightly."""

import sys

from sluice_nightly.cli import main

if __name__ == "__main__":
    sys.exit(main())
