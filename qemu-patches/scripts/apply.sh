#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# apply.sh TREE: lays src/ over an unpacked QEMU source tree and applies the
# patches of `series` in order, without fuzz. A patch that does not apply stops
# it with the patch's name.
set -euo pipefail

tree=$(realpath "$1")
here=$(cd "$(dirname "$0")/.." && pwd)
[ -e "$tree/hw/block/virtio-blk.c" ] || {
    echo "error: $tree is not a QEMU source tree (no hw/block/virtio-blk.c)" >&2
    exit 1
}
cp -a "$here/src/." "$tree/"
while IFS= read -r name; do
    case $name in '' | '#'*) continue ;; esac
    patch --fuzz=0 --strip=1 --forward --no-backup-if-mismatch --directory="$tree" \
        <"$here/patches/$name" || {
        echo "error: $name does not apply to $tree; docs/reference/qemu-patches.md says how to rebase" >&2
        exit 1
    }
done <"$here/series"
