#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds and runs the tests of the engine, the group, the classifier and the
# queues: each once as shipped and once under the address and undefined-behaviour
# sanitizers, the one with threads also under the thread sanitizer; with clang at
# hand, also ten seconds of fuzzing. Prints TAP and, last, the sums.
#
#   CC                    the compiler (cc)
#   SLUICE_TEST_SEED      first seed of the random traces (1)
#   SLUICE_TEST_TRACES    how many traces (300)
#   SLUICE_FUZZ_SECONDS   how long to fuzz (10; 0: not at all)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/engine-tests
source_dir=$here/../src
seconds=${SLUICE_FUZZ_SECONDS:-10}
includes=(-I"$source_dir/include" -I"$source_dir" -I"$here")
warnings=(-std=gnu11 -Wall -Wextra -Werror -Wshadow -Wundef -Wmissing-prototypes
    -Wstrict-prototypes -Wvla)
sanitizers=(-g "-fsanitize=address,undefined" -fno-sanitize-recover=all)
passed=0
failed=0

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
    if [[ $sums =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
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

# Debian has the fuzzer's library in a package of its own (libclang-rt-*-dev).
fuzzer_library() {
    command -v clang >/dev/null &&
        [ -e "$(clang -print-runtime-dir)/libclang_rt.fuzzer-$(uname -m).a" ]
}

# fuzz NAME MAX_BYTES: runs fuzz-NAME.c for some seconds.
fuzz() {
    local program=$build/fuzz-$1
    if [ "$seconds" = 0 ] || ! fuzzer_library; then
        printf 'ok 1 # SKIP fuzzing: clang has no fuzzer library, or 0 seconds wanted\n'
        return
    fi
    clang "${warnings[@]}" -O1 "${sanitizers[@]}" -fsanitize=fuzzer \
        "${includes[@]}" "$here/fuzz-$1.c" "$source_dir"/sluice/*.c -o "$program"
    # Found inputs go to the first folder, the seeds are only read.
    local folders=("$build/fuzz-$1-corpus")
    mkdir -p "${folders[@]}"
    local seeds
    for seeds in "$here/fuzz-$1-seeds" "$build/fuzz-$1-seeds"; do
        [ ! -d "$seeds" ] || folders+=("$seeds")
    done
    if "$program" -max_total_time="$seconds" -max_len="$2" \
        -artifact_prefix="$build/" "${folders[@]}" >"$program.log" 2>&1; then
        result ok "$1/property: fuzzing ($(tail -n 1 "$program.log"))"
    else
        tail -n 30 "$program.log" | sed 's/^/# /'
        result "not ok" "$1/property: fuzzing"
    fi
}

engine plain
engine sanitized "${sanitizers[@]}"
engine raced -g -fsanitize=thread
for name in test-bucket test-wheel test-engine test-share test-policy test-correct test-cost \
    test-engine-properties test-classify test-frame test-codel test-reserve test-pool \
    test-engine-group test-group test-group-page test-group-member test-group-shares \
    test-group-damage test-group-properties test-group-threads test-group-processes; do
    compile "$name" plain "$build/$name"
    compile "$name" sanitized "$build/$name-sanitized" "${sanitizers[@]}"
    run_test "$build/$name"
    run_sanitized "$build/$name-sanitized"
done
compile test-group-threads raced "$build/test-group-threads-raced" -g -fsanitize=thread
run_sanitized "$build/test-group-threads-raced"
# The frames of the unit test are what the fuzzer begins with.
rm -rf "$build/fuzz-frame-seeds"
mkdir "$build/fuzz-frame-seeds"
SLUICE_TEST_TRACES=1 SLUICE_TEST_SEEDS=$build/fuzz-frame-seeds "$build/test-frame" >/dev/null
fuzz frame 512
fuzz engine 2048
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
