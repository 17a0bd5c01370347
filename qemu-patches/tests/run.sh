#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds and runs the tests of the engine, the group, the classifier and the
# queues: each once as shipped and once under the address and undefined-behaviour
# sanitizers, those with threads also under the thread sanitizer. Prints TAP
# and, last, the sums. Their fuzzers are run by scripts/fuzz.sh.
#
#   CC                    the compiler (cc)
#   SLUICE_TEST_JOBS      how many compilers at a time (as many as processors)
#   SLUICE_TEST_SEED      first seed of the random traces (1)
#   SLUICE_TEST_TRACES    how many traces (300)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/engine-tests
passed=0
failed=0
skipped=0

# Objects are shared by all checkouts, in any folder.
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
export CCACHE_DIR=${CCACHE_DIR:-$cache/qemu/ccache} CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1
make -s -j "${SLUICE_TEST_JOBS:-$(nproc)}" -f "$here/Makefile" BUILD="$build"

# run_test PROGRAM: its output, and its sums added to ours.
run_test() {
    local status=0 sums
    printf '# %s\n' "$(basename "$1")"
    "$1" >"$1.tap" 2>&1 || status=$?
    cat "$1.tap"
    sums=$(tail -n 1 "$1.tap")
    if [[ $sums =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
    else
        result "not ok" "$(basename "$1") ended with status $status"
    fi
}

# result ok|"not ok" NAME: one line of TAP, and our sums.
result() {
    printf '%s 1 - %s\n' "$1" "$2"
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# run_sanitized PROGRAM: all tests of a program again, which count as one more.
run_sanitized() {
    local status=0
    "$1" >"$1.tap" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        result ok "${1#"$build"/}: no finding"
    else
        sed 's/^/# /' "$1.tap"
        result "not ok" "${1#"$build"/}: ended with status $status"
    fi
}

for source in "$here"/test-*.c; do
    name=$(basename "$source" .c)
    run_test "$build/plain/$name"
    run_sanitized "$build/sanitized/$name"
    [ ! -x "$build/raced/$name" ] || run_sanitized "$build/raced/$name"
done
printf '%d passed, %d failed' "$passed" "$failed"
[ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
printf '\n'
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
