#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Copies the page's charts (uPlot), locked in web/package-lock.json, into
# sluice_web/static/vendor. They come from npm once per lock file; the cache keeps
# them after that.
. "$(dirname "$0")/common.sh"

vendor=$SLUICE_TOP/web/src/sluice_web/static/vendor
key=$(hash_of web/package.json web/package-lock.json web/.npmrc tools/setup/web-assets.sh)
[ "$(cat "$vendor/.sluice-key" 2>/dev/null)" = "$key" ] && exit 0
kept=$SLUICE_CACHE/web-assets/$key

install_npm() {
    command -v npm >/dev/null && return
    [ "$(id -u)" -eq 0 ] || die "npm is missing; run as root, or install it"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 npm
}

fetch() {
    [ -e "$kept/.complete" ] && return
    install_npm
    rm -rf "$kept"
    mkdir -p "$kept/work"
    cp web/package.json web/package-lock.json web/.npmrc "$kept/work/"
    (cd "$kept/work" && npm ci --omit=dev --ignore-scripts --no-audit --no-fund)
    local modules=$kept/work/node_modules
    cp "$modules/uplot/dist/uPlot.iife.min.js" "$modules/uplot/dist/uPlot.min.css" "$kept/"
    cp "$modules/uplot/LICENSE" "$kept/uPlot-LICENSE"
    rm -rf "$kept/work"
    touch "$kept/.complete"
}

put_in_place() {
    with_lock web-assets fetch
    rm -rf "$vendor"
    mkdir -p "$vendor"
    cp "$kept"/[!.]* "$vendor/"
    echo "$key" >"$vendor/.sluice-key"
}
step web-assets put_in_place
