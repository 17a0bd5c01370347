#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# refresh.sh PATCH TREE: writes patches/PATCH anew from TREE, in which files it
# touches were edited. Its head, with the reasons, is kept. A file may belong
# to one patch of the series only, so TREE needs no other state.
#
# refresh.sh --check: says whether every patch is in the series and no file is
# touched twice, and how many lines the series changes.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
patches=$top/patches

files_of() { sed -n 's,^+++ b/\([^\t]*\).*,\1,p' "$1"; }

if [ "${1:-}" = --check ]; then
    status=0
    twice=$(cd "$patches" && cat -- *.patch | sed -n 's,^+++ b/\([^\t]*\).*,\1,p' | sort | uniq -d)
    [ -z "$twice" ] || { echo "error: touched by two patches: $twice" >&2; status=1; }
    diff <(grep -v "^#" "$patches/series" | sort) <(cd "$patches" && printf '%s\n' *.patch | sort) >&2 ||
        { echo "error: patches/series does not list exactly the patches" >&2; status=1; }
    cat "$patches"/*.patch | grep -cE '^(\+[^+]|\+$|-[^-]|-$)' |
        sed 's/$/ changed lines in the series/'
    exit "$status"
fi

patch=$patches/$1
tree=$(cd "$2" && pwd)
folder=${SLUICE_QEMU_SOURCE:?set it to the folder that fetch.sh filled}
pristine=$(mktemp -d)
trap 'rm -rf "$pristine"' EXIT
dpkg-source --no-check -x "$folder"/qemu_*.dsc "$pristine/a" >/dev/null
new=$pristine/new
sed '/^--- a\//,$d' "$patch" >"$new"
mapfile -t files < <({ files_of "$patch"; shift 2; printf '%s\n' "$@"; } | sed '/^$/d' | sort -u)
for file in "${files[@]}"; do
    diff -u --label "a/$file" --label "b/$file" "$pristine/a/$file" "$tree/$file" >>"$new" || [ $? -eq 1 ]
done
cp "$new" "$patch"
