#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes build/venv: the locked third-party packages, the controller and the web
# (editable), and tests/ on the path. Wheels are kept in the cache.
. "$(dirname "$0")/common.sh"

venv=$SLUICE_TOP/build/venv
key=$(hash_of requirements.lock controller/pyproject.toml web/pyproject.toml -- "$(python3 --version)" "$SLUICE_TOP")
[ "$(cat "$venv/.sluice-key" 2>/dev/null)" = "$key" ] && exit 0

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$(python3 --version) is too old; Sluice needs Python 3.11 or newer"

make_venv() {
    local wheels
    wheels=$SLUICE_CACHE/wheels/$(hash_of requirements.lock -- "$(python3 --version)")
    rm -rf "$venv"
    python3 -m venv "$venv"
    if [ ! -e "$wheels/.complete" ]; then
        rm -rf "$wheels"
        mkdir -p "$wheels"
        "$venv/bin/pip" wheel --no-deps --require-hashes -r requirements.lock -w "$wheels"
        touch "$wheels/.complete"
    fi
    "$venv/bin/pip" install --no-index --no-deps "$wheels"/*.whl
    "$venv/bin/pip" install --no-index --no-deps --no-build-isolation -e controller -e web
    "$venv/bin/python" -c '
import pathlib, sysconfig, sys
pathlib.Path(sysconfig.get_path("purelib"), "sluice-tests.pth").write_text(sys.argv[1] + "\n")
' "$SLUICE_TOP/tests"
    echo "$key" >"$venv/.sluice-key"
}
step python-packages make_venv
