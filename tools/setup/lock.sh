#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Writes requirements.lock anew from the pyproject.toml files and
# tests/requirements.in, with hashes. Run it after changing any of these.
. "$(dirname "$0")/common.sh"

tool=$SLUICE_CACHE/lock-tool-$(python3 --version | tr ' ' -)
if [ ! -e "$tool/.complete" ]; then
    rm -rf "$tool"
    python3 -m venv "$tool"
    "$tool/bin/pip" -q install pip-tools
    touch "$tool/.complete"
fi
trap 'rm -f requirements.lock.new' EXIT
"$tool/bin/pip-compile" -q --generate-hashes --allow-unsafe --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header \
    --output-file requirements.lock.new \
    controller/pyproject.toml web/pyproject.toml tests/requirements.in
{
    echo '# SPDX-License-Identifier: GPL-2.0-or-later'
    echo '# Written by tools/setup/lock.sh.'
    cat requirements.lock.new
} >requirements.lock
