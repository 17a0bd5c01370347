# SPDX-License-Identifier: GPL-2.0-or-later
# Third-party code in packages, by the lock files, for what Debian 13 lacks.
# Sourced by build.sh; needs the network, so package.sh calls it in prepare.
# shellcheck shell=bash

# vendor FOLDER NAME…: these Python packages, as requirements.lock has them,
# without their dependencies, into FOLDER.
vendor() {
    local into=$1 one locked=$1.lock
    shift
    mkdir -p "$into"
    for one in "$@"; do
        # From the name's own line to the last of its hashes.
        sed -n "/^$one==/,/[^\\\\]\$/p" requirements.lock >"$locked"
        [ -s "$locked" ] || die "requirements.lock has no $one; add it to a pyproject.toml and run make lock"
        build/venv/bin/pip install --no-deps --no-compile --require-hashes --target "$into" -r "$locked"
    done
    rm "$locked"
}
