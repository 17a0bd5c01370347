#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds and runs the tests of the engine, the group, the classifier and the
# queues: each once as shipped and once under the address and undefined-behaviour
# sanitizers, those with threads also under the thread sanitizer. Prints TAP
# and, last, the sums. Their fuzzers are run by scripts/fuzz.sh.
#
#   CC                    the compiler (cc)
#   SLUICE_TEST_SEED      first seed of the random traces (1)
#   SLUICE_TEST_TRACES    how many traces (300)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/engine-tests
source_dir=$here/../src
includes=(-I"$source_dir/include" -I"$source_dir" -I"$here")
warnings=(-std=gnu11 -Wall -Wextra -Werror -Wshadow -Wundef -Wmissing-prototypes
    -Wstrict-prototypes -Wvla)
sanitizers=(-g "-fsanitize=address,undefined" -fno-sanitize-recover=all)
passed=0
failed=0
skipped=0

mkdir -p "$build"

# engine FLAVOUR FLAG…: the engine's objects, once for all tests.
engine() {
    local flavour=$1 source
    shift
    rm -rf "${build:?}/$flavour"
    mkdir -p "$build/$flavour"
    for source in "$source_dir"/sluice/*.c; do
        "${CC:-cc}" "${warnings[@]}" -O2 -pthread "$@" "${includes[@]}" \
            -c "$source" -o "$build/$flavour/$(basename "$source" .c).o"
    done
}

# compile NAME FLAVOUR OUTPUT FLAG…: tests/NAME.c with the engine's objects.
compile() {
    local name=$1 flavour=$2 output=$3
    shift 3
    "${CC:-cc}" "${warnings[@]}" -O2 -pthread "$@" "${includes[@]}" \
        "$here/$name.c" "$build/$flavour"/*.o -o "$output"
}

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

# result ok|"not ok" WHAT: one line of TAP, and our sums.
result() {
    printf '%s 1 - %s\n' "$1" "$2"
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# run_sanitized PROGRAM: the same tests again count as one more.
run_sanitized() {
    local status=0
    "$1" >"$1.tap" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        result ok "$(basename "$1"): no finding"
    else
        sed 's/^/# /' "$1.tap"
        result "not ok" "$(basename "$1"): ended with status $status"
    fi
}

engine plain
engine sanitized "${sanitizers[@]}"
engine raced -g -fsanitize=thread
for name in test-bucket test-wheel test-key-tree test-engine test-tokens test-lower test-share test-share-turns test-reservations test-policy test-correct \
    test-cost test-lock test-engine-properties test-classify test-frame test-codel test-reserve test-pool test-paid \
    test-engine-group test-group test-group-page test-group-member test-group-shares \
    test-group-damage test-group-hostile test-group-properties test-group-threads test-group-processes; do
    compile "$name" plain "$build/$name"
    compile "$name" sanitized "$build/$name-sanitized" "${sanitizers[@]}"
    run_test "$build/$name"
    run_sanitized "$build/$name-sanitized"
done
for name in test-lock test-group-threads; do
    compile "$name" raced "$build/$name-raced" -g -fsanitize=thread
    run_sanitized "$build/$name-raced"
done
printf '%d passed, %d failed' "$passed" "$failed"
[ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
printf '\n'
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
