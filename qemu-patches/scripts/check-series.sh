#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# check-series.sh [SOURCE [WORK]]: shows that each patch of the series builds
# alone: applies them one by one, exactly, to the source package in SOURCE (the
# cache's), and after each compiles every object that it touches and links QEMU.
# Also counts the lines that the series changes. WORK (a new folder) is removed.
# With ccache this costs a few minutes. The last line is: N passed, N failed.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
source=${1:-$cache/qemu/source}
work=${2:-$(mktemp -d)}
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
lines_max=600
passed=0 failed=0
export CCACHE_DIR=${CCACHE_DIR:-$cache/qemu/ccache}

result() {
    printf '%-4s %s\n' "$1" "$2"
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# Not by tee /dev/stderr, which empties a log that both outputs go to.
said=$(bash "$top/scripts/refresh.sh" --check)
printf '%s\n' "$said"
lines=$(grep -oE '^[0-9]+' <<<"$said")
if [ -n "$lines" ] && [ "$lines" -le "$lines_max" ]; then
    result ok "$lines changed lines, of $lines_max allowed"
else
    result FAIL "${lines:-no} changed lines, of $lines_max allowed"
fi

bash "$top/scripts/apply.sh" --stock "$source" "$work/tree" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    result FAIL "the source package in $source does not unpack"
    exit 1
}
# As apply.sh does: our files are there from the first patch on.
cp -R "$top/src/." "$work/tree/"
while read -r patch; do
    case $patch in '' | '#'*) continue ;; esac
    start=$SECONDS
    if ! patch -d "$work/tree" -p1 --fuzz=0 --no-backup-if-mismatch <"$top/patches/$patch" >"$work/log" 2>&1; then
        cat "$work/log"
        result FAIL "$patch does not apply"
        break
    fi
    if bash "$top/scripts/build.sh" "$work/tree" "$cache/qemu/venv" plain emulator >"$work/log" 2>&1 &&
        "$work/tree/build/qemu-system-x86_64" --version >/dev/null; then
        result ok "$patch builds ($((SECONDS - start)) s)"
    else
        tail -n 30 "$work/log"
        result FAIL "$patch does not build"
    fi
done <"$top/patches/series"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
