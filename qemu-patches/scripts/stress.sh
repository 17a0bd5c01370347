#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# stress.sh PART BUILD [CYCLES [PATTERN]]: the qtests of the life cycle, many times
# over, on a build with sanitizers. The last line is: N passed, N failed.
#
#   lifecycle  BUILD of variant asan: every event with requests held, CYCLES
#              times per way of handling them (334: a thousand in three ways;
#              cards have one way, and go through it three times as often);
#              fails on any error, and on memory that is lost
#   threads    BUILD of variant tsan: one shaper in several I/O threads, CYCLES
#              times ten rounds (10); fails on a race in Sluice's code
#
# Only tests with a path that matches PATTERN, an extended regular expression: so two
# processors can have half of them each.
#
# Tests run one by one, so that the log says how long each took. A test that skips
# itself has failed here, and so has a program whose tests cannot be listed.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
part=${1:?PART is lifecycle or threads}
build=$(cd "${2:?BUILD is missing}" && pwd -P) || exit 2
# As `make qemu-asan` and `make qemu-tsan` link them.
[ -d "$2-qtests" ] && programs=$(cd "$2-qtests" && pwd -P) || programs=$build/tests/qtest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
test_seconds=3600
pattern=${4:-.}

printf '#!/bin/sh\nexec %q "$@" -L /usr/share/seabios -L /usr/share/qemu -L /usr/lib/ipxe/qemu\n' \
    "$build/qemu-system-x86_64" >"$work/qemu-system-x86_64"
chmod +x "$work/qemu-system-x86_64"

# fail NAME FILE: counts it, and shows the end of the file.
fail() {
    failed=$((failed + 1))
    printf 'FAIL %s; the end of its output:\n' "$1"
    tail -n 40 "$2"
}

# list_tests PROGRAM: sets `paths` to those of its tests that are wanted; to none
# where it cannot say which it has.
list_tests() {
    local status=0
    TSAN_OPTIONS=die_after_fork=0 QTEST_QEMU_BINARY=$work/qemu-system-x86_64 \
        "$programs/$1" -l >"$work/list" 2>"$work/list-errors" </dev/null || status=$?
    mapfile -t paths < <(grep ^/ "$work/list")
    if [ "$status" -ne 0 ] || [ ${#paths[@]} -eq 0 ]; then
        fail "listing the tests of $programs/$1: exit status $status, ${#paths[@]} tests" \
            "$work/list-errors"
        paths=()
        return
    fi
    mapfile -t paths < <(grep ^/ "$work/list" | grep -E -- "$pattern")
}

# run_test PROGRAM PATH CYCLES [VARIABLE=VALUE…]
run_test() {
    local program=$1 path=$2 cycles=$3 start=$SECONDS status=0
    shift 3
    (cd "$build" && env "$@" QTEST_QEMU_BINARY="$work/qemu-system-x86_64" \
        QTEST_QEMU_IMG="$build/qemu-img" TMPDIR="$work" SLUICE_CYCLES="$cycles" \
        timeout "$test_seconds" "$programs/$program" --tap -k -p "$path") \
        >"$work/log" 2>&1 </dev/null || status=$?
    if [ "$status" -eq 0 ] && grep -q '^ok ' "$work/log" &&
        ! grep -qiE '^ok .*# *SKIP' "$work/log"; then
        passed=$((passed + 1))
        printf 'ok   %5d cycles %4d s  %s\n' "$cycles" $((SECONDS - start)) "$path"
    else
        fail "$(printf '%5d cycles %4d s  %s; exit status %d' \
            "$cycles" $((SECONDS - start)) "$path" "$status")" "$work/log"
    fi
}

lifecycle() {
    local cycles=$1 program path times
    export LSAN_OPTIONS=suppressions=$top/tests/lsan.supp:print_suppressions=0
    for program in sluice-blk-lifecycle-test sluice-blk-range-test sluice-net-lifecycle-test \
        sluice-packed-test; do
        list_tests "$program"
        for path in "${paths[@]}"; do
            case $path in
            # Of the others each test is run once, by qtest.sh.
            */range/stop-cont/* | */range/reset*) ;;
            */range/*) continue ;;
            esac
            times=$cycles
            case $path in */sluice/net/*) times=$((3 * cycles)) ;; esac
            case $path in
            # QEMU loses a little with each snapshot, which only complete stacks
            # tell from our memory, and these make everything slow.
            */snapshot/* | */background-snapshot*) run_test "$program" "$path" $(((times + 99) / 100)) \
                ASAN_OPTIONS=fast_unwind_on_malloc=0 ;;
            # Each cycle has twenty changes.
            */change-classes/*) run_test "$program" "$path" $(((times + 9) / 10)) ;;
            # Fifty to a cycle, and two cycles to go round the ring.
            */packed/blk/stop-cont) run_test "$program" "$path" $((times / 50 + 2)) ;;
            *) run_test "$program" "$path" "$times" ;;
            esac
        done
    done
}

threads() {
    local path
    list_tests sluice-iothread-test
    for path in "${paths[@]}"; do
        run_test sluice-iothread-test "$path" "$1" \
            "TSAN_OPTIONS=halt_on_error=0 die_after_fork=0 exitcode=0 log_path=$work/tsan"
    done
    if python3 "$top/tests/tsan_reports.py" "$work"/tsan.*; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

case $part in
lifecycle) lifecycle "${3:-334}" ;;
threads) threads "${3:-10}" ;;
*)
    echo "error: part '$part' is not known; use lifecycle or threads" >&2
    exit 2
    ;;
esac
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
