#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# qtest.sh [BUILD]: QEMU's own qtests of virtio-blk and virtio-net, without a
# shaper and with one attached to every device, and the qtests of the shaper,
# on the build tree BUILD (build/qemu). The last line is: N passed, N failed. Their
# programs are in BUILD-qtests (`make qtests`), else in BUILD/tests/qtest.
#
# Tests start QEMU through a wrapper, which adds the firmware's folders and,
# with a shaper, `-object` and `-global shaper=`: the tests are the stock ones.
#
#   SLUICE_TEST_JOBS   how many programs run at a time (2)
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
given=${1:-$top/build/qemu}
build=$(cd "$given" && pwd -P) || exit 1
[ -d "$given-qtests" ] && programs=$(cd "$given-qtests" && pwd -P) || programs=$build/tests/qtest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
limit_seconds=900
jobs=${SLUICE_TEST_JOBS:-2}
begun=0

# wrapper NAME OPTION…: prints the path of a QEMU that adds the options.
wrapper() {
    local folder=$work/$1
    shift
    mkdir -p "$folder"
    {
        echo '#!/bin/sh'
        printf 'exec %q "$@" -L /usr/share/seabios -L /usr/share/qemu -L /usr/lib/ipxe/qemu' \
            "$build/qemu-system-x86_64"
        [ $# -eq 0 ] || printf ' %q' "$@"
        echo
    } >"$folder/qemu-system-x86_64"
    chmod +x "$folder/qemu-system-x86_64"
    echo "$folder/qemu-system-x86_64"
}

# run NAME WRAPPER PROGRAM [OPTION…]: runs one test program, counts its tests.
run() {
    local name=$1 qemu=$2 folder=$work/$1 log=$work/$1.log status=0 started=$SECONDS
    shift 2
    mkdir -p "$folder"
    (cd "$build" && QTEST_QEMU_BINARY=$qemu QTEST_QEMU_IMG=$build/qemu-img \
        TMPDIR=$folder timeout "$limit_seconds" "$@" --tap -k) >"$log" 2>&1 </dev/null || status=$?
    local ok bad skip
    ok=$(grep -E '^ *ok [0-9]+' "$log" | grep -vc '# SKIP')
    skip=$(grep -cE '^ *ok [0-9]+.*# SKIP' "$log")
    bad=$(grep -cE '^ *not ok [0-9]+' "$log")
    # A crash, a time-out or a program without tests is a failure of its own.
    [ "$status" -eq 0 ] && [ "$ok" -gt 0 ] || bad=$((bad > 0 ? bad : 1))
    {
        printf '%-28s %3d passed, %d failed, %d skipped, %d s\n' \
            "$name" "$ok" "$bad" "$skip" $((SECONDS - started))
        if [ "$bad" -gt 0 ]; then
            printf 'exit status %d; the end of its output:\n' "$status"
            grep -vE '^ *ok ' "$log" | tail -n 30
        fi
    } >"$work/$name.verdict"
    cat "$work/$name.verdict"
}

# begin NAME WRAPPER PROGRAM [OPTION…]: runs it beside others.
begin() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    begun=$((begun + 1))
    run "$@" &
}

plain=$(wrapper plain)
for kind in blk net; do
    # Every path through the graph to the tests that the device itself has.
    mapfile -t tests < <(cd "$build" && QTEST_QEMU_BINARY=$plain "$programs/qos-test" -l 2>/dev/null |
        grep -E "/virtio-$kind(-tests|-pci-tests)?/" | grep -vE "vhost-user")
    options=()
    for test in "${tests[@]}"; do options+=(-p "$test"); done
    begin "virtio-$kind" "$plain" "$programs/qos-test" "${options[@]}"
    shaped=$(wrapper "shaped-$kind" -object "shaper,id=stock-tests,page=$work/$kind.page" \
        -global virtio-blk-device.shaper=stock-tests -global virtio-net-device.shaper=stock-tests)
    begin "virtio-$kind-shaped" "$shaped" "$programs/qos-test" "${options[@]}"
done
for program in "$top"/qemu-patches/src/tests/qtest/sluice-*-test.c; do
    name=$(basename "$program" .c)
    begin "$name" "$plain" "$programs/$name"
done
wait
# A program without a verdict has failed.
read -r passed failed skipped < <(awk -v begun="$begun" '
    FNR == 1 { passed += $2; failed += $4; skipped += $6; told++ }
    END { print passed + 0, failed + begun - told, skipped + 0 }' "$work"/*.verdict)
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
