#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# refresh.sh TREE NAME.patch FILE…: writes patches/NAME.patch anew from what the
# named QEMU files of an edited TREE differ from the state before that patch.
# The patch's rationale (everything above its first diff) is kept.
# Example: refresh.sh build/qemu/.. virtio-blk-shape-requests.patch hw/block/virtio-blk.c
set -euo pipefail

[ $# -ge 3 ] || {
    sed -n '3,7s/^# //p' "$0" >&2
    exit 2
}
tree=$(realpath "$1") name=$2
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
pristine=${SLUICE_QEMU_PRISTINE:-$cache/qemu-source/source}
[ -d "$pristine" ] || {
    echo "error: no unpatched source in $pristine; run make qemu, or set SLUICE_QEMU_PRISTINE" >&2
    exit 1
}
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
for file in "$@"; do
    mkdir -p "$before/a/$(dirname "$file")" "$before/b/$(dirname "$file")"
    cp "$pristine/$file" "$before/a/$file"
    cp "$tree/$file" "$before/b/$file"
done
# Bring the left side to the state just before this patch.
while IFS= read -r earlier; do
    case $earlier in '' | '#'*) continue ;; "$name") break ;; esac
    patch --quiet --fuzz=0 -p1 -d "$before/a" --force <"$here/patches/$earlier" >/dev/null 2>&1 || true
done <"$here/series"
header=$(sed '/^--- a\//,$d' "$here/patches/$name" 2>/dev/null || true)
{
    [ -z "$header" ] || printf '%s\n\n' "$header"
    (cd "$before" && diff -uNr a b || true) | sed -e '/^diff /d' -e 's/^\(---\|+++\) \([^\t]*\)\t.*/\1 \2/'
} >"$here/patches/$name.new"
mv "$here/patches/$name.new" "$here/patches/$name"
echo "wrote patches/$name; add it to series if it is new, then run apply.sh on a fresh tree"
