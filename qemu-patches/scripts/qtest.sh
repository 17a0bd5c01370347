#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# qtest.sh [BUILD]: QEMU's own qtests of virtio-blk and virtio-net, without a
# shaper and with one attached to every device, and the qtests of the shaper,
# on the build tree BUILD (build/qemu). The last line is: N passed, N failed.
#
# Tests start QEMU through a wrapper, which adds the firmware's folders and,
# with a shaper, `-object` and `-global shaper=`: the tests are the stock ones.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$top/build/qemu}" && pwd -P) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
limit_seconds=900

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
    local name=$1 qemu=$2 log=$work/$1.log status=0
    shift 2
    (cd "$build" && QTEST_QEMU_BINARY=$qemu QTEST_QEMU_IMG=$build/qemu-img \
        TMPDIR=$work timeout "$limit_seconds" "$@" --tap -k) >"$log" 2>&1 </dev/null || status=$?
    local ok bad skip
    ok=$(grep -E '^ *ok [0-9]+' "$log" | grep -vc '# SKIP')
    skip=$(grep -cE '^ *ok [0-9]+.*# SKIP' "$log")
    bad=$(grep -cE '^ *not ok [0-9]+' "$log")
    # A crash, a time-out or a program without tests is a failure of its own.
    [ "$status" -eq 0 ] && [ "$ok" -gt 0 ] || bad=$((bad > 0 ? bad : 1))
    printf '%-28s %3d passed, %d failed, %d skipped\n' "$name" "$ok" "$bad" "$skip"
    if [ "$bad" -gt 0 ]; then
        printf 'exit status %d; the end of its output:\n' "$status"
        grep -vE '^ *ok ' "$log" | tail -n 30
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

plain=$(wrapper plain)
shaped=$(wrapper shaped -object "shaper,id=stock-tests,page=$work/page" \
    -global virtio-blk-device.shaper=stock-tests \
    -global virtio-net-device.shaper=stock-tests)

for kind in blk net; do
    # Every path through the graph to the tests that the device itself has.
    mapfile -t tests < <(cd "$build" && QTEST_QEMU_BINARY=$plain tests/qtest/qos-test -l 2>/dev/null |
        grep -E "/virtio-$kind(-tests|-pci-tests)?/" | grep -vE "vhost-user")
    options=()
    for test in "${tests[@]}"; do options+=(-p "$test"); done
    run "virtio-$kind" "$plain" tests/qtest/qos-test "${options[@]}"
    run "virtio-$kind-shaped" "$shaped" tests/qtest/qos-test "${options[@]}"
done
for program in "$top"/qemu-patches/src/tests/qtest/sluice-*-test.c; do
    name=$(basename "$program" .c)
    run "$name" "$plain" "tests/qtest/$name"
done
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
