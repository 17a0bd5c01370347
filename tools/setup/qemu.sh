#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Fetches, patches and builds QEMU in the cache; build/qemu links to the build
# tree. The key is what it is made of: our files, and the source's version once
# it is known (kept for a day, so that a second run need not ask).
. "$(dirname "$0")/common.sh"

scripts=qemu-patches/scripts
fetched=$SLUICE_CACHE/qemu-source

fetch_source() {
    rm -rf "$fetched.new"
    mkdir -p "$fetched.new"
    bash "$scripts/fetch.sh" "$fetched.new"
    rm -rf "$fetched"
    mv "$fetched.new" "$fetched"
}

build_tree() {
    local tree=$1
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -a "$fetched/source" "$tree/source"
    bash "$scripts/apply.sh" "$tree/source"
    bash "$scripts/build.sh" "$tree/source"
    touch "$tree/.complete"
}

main() {
    local key tree
    [ -e "$fetched/version" ] || step qemu-source fetch_source
    key=$(hash_of qemu-patches/src qemu-patches/patches qemu-patches/series \
        "$scripts/apply.sh" "$scripts/build.sh" -- "$(cat "$fetched/version")")
    tree=$SLUICE_CACHE/qemu/$key
    [ -e "$tree/.complete" ] || step qemu-build build_tree "$tree"
    link_build qemu "$tree/source/build"
}
with_lock qemu main
