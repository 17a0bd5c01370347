#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# newest.sh WORK [BUILD-VENV]: tries the series on the newest QEMU that Debian
# packages in any suite, in the folder WORK: says for every hunk whether it
# applies, then builds and runs the qtests. The report is WORK/report.txt too.
# Exit status: 0 all well; 1 something does not apply, build or pass.
#
# A hunk that needs fuzz is reported and applied all the same, so that one run
# says as much as it can; the series itself is never applied so.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
venv=${2:-$work/venv}
report=$work/report.txt
suites=(experimental sid forky trixie-backports trixie)
: >"$report"

say() { printf '%s\n' "$*" | tee -a "$report"; }

# Prints "VERSION SUITE" per suite, newest first.
list_versions() {
    local suite version
    for suite in "${suites[@]}"; do
        version=$(bash "$top/scripts/fetch.sh" --version "$work/lists" "$suite" any 2>>"$work/fetch.log") || continue
        printf '%s %s\n' "$version" "$suite"
    done | sort -rV -k1,1
}

# Sets suite and version, and puts that source into WORK/source. An index may
# name a version that its archive no longer has, or not yet: then the next newest is tried.
fetch_newest() {
    local listed
    : >"$work/fetch.log"
    listed=$(list_versions)
    while read -r version suite; do
        [ -n "$version" ] || continue
        say "$suite has QEMU $version"
        [ "$(cat "$work/source/version" 2>/dev/null)" != "$version" ] || return 0
        rm -rf "$work/source"
        if bash "$top/scripts/fetch.sh" "$work/source" "$suite" any >>"$work/fetch.log" 2>&1; then
            return 0
        fi
        say "  but its source cannot be fetched ($(grep -E '^(E|error):' "$work/fetch.log" | grep -oE '[0-9]{3} .*' | sed 's/ \[.*//' | tail -n 1))"
    done <<<"$listed"
    say "error: no suite's QEMU can be fetched; see $work/fetch.log"
    return 1
}

# apply_patch FILE: hunk by hunk. Counts in exact, fuzzy, failed.
apply_patch() {
    local log=$work/$1.log line
    patch -d "$tree" -p1 --fuzz=0 --dry-run --forward <"$top/patches/$1" >"$log" 2>&1
    local bad
    bad=$(grep -cE 'FAILED|No file to patch' "$log")
    if [ "$bad" -eq 0 ]; then
        patch -d "$tree" -p1 --fuzz=0 --no-backup-if-mismatch <"$top/patches/$1" >"$log" 2>&1
        say "  $1: applies$(grep -q offset "$log" && echo ', moved')"
        exact=$((exact + $(hunks "$1")))
        return
    fi
    patch -d "$tree" -p1 --fuzz=3 --forward --no-backup-if-mismatch \
        --reject-file="$work/$1.rej" <"$top/patches/$1" >"$log" 2>&1
    say "  $1: $bad of $(hunks "$1") hunks do not apply exactly"
    while IFS= read -r line; do say "    $line"; done < <(
        awk '/^patching file/ { file = $3 } /Hunk #.*(FAILED|fuzz)/ { print file ": " $0 } /No file/' "$log"
    )
    local rejected
    rejected=$(grep -cE 'FAILED|No file to patch' "$log")
    exact=$((exact + $(hunks "$1") - bad)) fuzzy=$((fuzzy + bad - rejected)) failed=$((failed + rejected))
}

hunks() { grep -c '^@@' "$top/patches/$1"; }

apply_series() {
    local patch
    tree=$work/tree
    exact=0 fuzzy=0 failed=0
    rm -rf "$tree" "$work"/*.rej
    dpkg-source --no-check -x "$work"/source/qemu_*.dsc "$tree" >"$work/unpack.log" 2>&1 || return 1
    cp -R "$top/src/." "$tree/"
    while read -r patch; do
        case $patch in '' | '#'*) continue ;; esac
        apply_patch "$patch"
    done <"$top/patches/series"
    say "hunks: $exact apply, $fuzzy with fuzz, $failed do not"
    [ "$failed" -eq 0 ]
}

fetch_newest || exit 1
say "QEMU $version from $suite:"
apply_series || {
    say "not built: settle the hunks above (docs/how-to/rebase.md)"
    exit 1
}
if ! bash "$top/scripts/build.sh" "$tree" "$venv" >"$work/build.log" 2>&1; then
    say "does not build; the first errors of $work/build.log:"
    grep -E 'error:|ERROR|undefined reference' "$work/build.log" | head -n 20 | tee -a "$report"
    exit 1
fi
say "builds"
bash "$top/scripts/qtest.sh" "$tree/build" | tee -a "$report"
status=${PIPESTATUS[0]}
[ "$status" -eq 0 ] && [ "$fuzzy" -eq 0 ]
