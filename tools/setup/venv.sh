#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes build/venv: the locked third-party packages, the controller and the web
# (editable), with tests/ and the nightly run on the path. Wheels are kept in the cache.
. "$(dirname "$0")/common.sh"

venv=$SLUICE_TOP/build/venv
# Some wheels are built here, against libraries of this release.
made_with=$(debian_release; python3 --version)
key=$(hash_of requirements.lock controller/pyproject.toml web/pyproject.toml tools/setup/venv.sh \
    -- "$made_with" "$SLUICE_TOP")
[ "$(cat "$venv/.sluice-key" 2>/dev/null)" = "$key" ] && exit 0

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$(python3 --version) is too old; Sluice needs Python 3.11 or newer"

# make_wheels FOLDER: complete, or not marked so. Checkouts share them; others, which
# no checkout has taken for two weeks, are removed.
make_wheels() {
    if [ ! -e "$1/.complete" ]; then
        rm -rf "$1"
        mkdir -p "$1"
        "$venv/bin/pip" wheel --no-deps --require-hashes -r requirements.lock -w "$1"
    fi
    touch "$1/.complete"
    remove_unused "${1%/*}" '[0-9a-f]{16}'
}
make_venv() {
    local wheels
    wheels=$SLUICE_CACHE/wheels/$(hash_of requirements.lock -- "$made_with")
    rm -rf "$venv"
    python3 -m venv "$venv"
    with_lock wheels make_wheels "$wheels"
    "$venv/bin/pip" install --no-index --no-deps "$wheels"/*.whl
    "$venv/bin/pip" install --no-index --no-deps --no-build-isolation -e controller -e web
    "$venv/bin/python" -c '
import pathlib, sysconfig, sys
pathlib.Path(sysconfig.get_path("purelib"), "sluice-tests.pth").write_text("\n".join(sys.argv[1:]) + "\n")
' "$SLUICE_TOP/tests" "$SLUICE_TOP/controller/nightly"
    echo "$key" >"$venv/.sluice-key"
}
step python-packages make_venv
