#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the test suites; see --help. The work is in run.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/venv/bin/python tools/test/run.py "$@"
