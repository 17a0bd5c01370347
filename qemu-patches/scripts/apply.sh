#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# apply.sh [--stock] FOLDER TREE: unpacks the source package in FOLDER to TREE,
# lays src/ over it and applies the series, without fuzz. With --stock it only
# unpacks, and lays the set of devices over it: the baseline that a patched build
# is compared with.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
stock=
[ "$1" != --stock ] || {
    stock=yes
    shift
}
folder=$1
tree=$2

[ ! -e "$tree" ] || {
    echo "error: $tree exists; remove it, or name another folder" >&2
    exit 1
}
dsc=("$folder"/qemu_*.dsc)
dpkg-source --no-check -x "${dsc[0]}" "$tree"
# dpkg-source leaves a link beside the tree; another apply may work there too.
for archive in "$folder"/qemu_*.orig.tar.*; do
    rm -f "$tree/../$(basename "$archive")"
done
[ -z "$stock" ] || {
    cp -R "$top/src/configs" "$tree/"
    exit 0
}
cp -R "$top/src/." "$tree/"
while read -r patch; do
    case $patch in '' | '#'*) continue ;; esac
    echo "applying $patch"
    patch -d "$tree" -p1 --fuzz=0 --no-backup-if-mismatch <"$top/patches/$patch"
done <"$top/patches/series"
