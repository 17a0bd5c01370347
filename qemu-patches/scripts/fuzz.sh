#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# fuzz.sh BUILD [SECONDS [OUTPUT]]: QEMU's generic device fuzzer on virtio-blk
# and virtio-net with a shaper, SECONDS (600) each, on a build of variant asan.
# What it finds is kept in OUTPUT (build/fuzz), with the input that shows it. The
# last line is: N passed, N failed.
#
# The fuzzer writes random values to the device's registers and, when the device
# reads guest memory, random bytes there: rings, headers, frames. A monitor that
# reads its commands from a file limits the default class first, so that requests
# are held, released and dropped as the fuzzer steps the virtual clock.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:?BUILD is missing}" && pwd -P) || exit 2
seconds=${2:-600}
output=$(mkdir -p "${3:-$top/build/fuzz}" && cd "${3:-$top/build/fuzz}" && pwd)
passed=0 failed=0
commands=$output/commands.qmp
cat >"$commands" <<'END'
{"execute": "qmp_capabilities"}
{"execute": "shaper-set-class", "arguments": {"id": "sluice0", "class": "default", "tag": 0, "limits": [{"resource": "blk-read", "bytes-per-second": 100000, "burst-bytes": 1}, {"resource": "blk-write", "operations-per-second": 100, "burst-operations": 1}, {"resource": "net-tx", "bytes-per-second": 10000, "burst-bytes": 1}, {"resource": "net-rx", "bytes-per-second": 10000, "burst-bytes": 1}]}}
{"execute": "shaper-set-class", "arguments": {"id": "sluice0", "class": "bulk", "tag": 2, "limits": [{"resource": "blk-read", "bytes-per-second": 1}]}}
{"execute": "shaper-set-ceiling", "arguments": {"id": "sluice0", "limits": [{"resource": "blk-write", "bytes-per-second": 1000000}]}}
END
common="-machine q35 -nodefaults -display none -object shaper,id=sluice0 \
    -chardev file,id=qmp,path=/dev/null,input-path=$commands -mon chardev=qmp,mode=control"

# fuzz NAME OBJECTS ARGUMENTS
fuzz() {
    local name=$1 status=0 runs
    mkdir -p "$output/corpus-$name"
    QEMU_FUZZ_OBJECTS=$2 QEMU_FUZZ_ARGS="$common $3" \
        ASAN_OPTIONS=detect_leaks=0 \
        nice -n 10 "$build/qemu-fuzz-x86_64" --fuzz-target=generic-fuzz \
        -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 \
        -artifact_prefix="$output/$name-" "$output/corpus-$name" \
        >"$output/$name.log" 2>&1 </dev/null || status=$?
    runs=$(grep -aoE 'Done [0-9]+ runs in [0-9]+ second' "$output/$name.log" | tail -n 1)
    if [ "$status" -eq 0 ] && [ -n "$runs" ]; then
        passed=$((passed + 1))
        echo "ok   $name: ${runs}s, $(grep -aoE 'cov: [0-9]+ ft: [0-9]+' "$output/$name.log" | tail -n 1)"
    else
        failed=$((failed + 1))
        echo "FAIL $name: exit status $status; the end of $output/$name.log:"
        tail -n 30 "$output/$name.log"
    fi
}

fuzz virtio-blk 'virtio*' \
    "-blockdev driver=null-co,node-name=d0,size=1073741824,read-zeroes=on \
     -device virtio-blk,drive=d0,shaper=sluice0"
fuzz virtio-blk-iothread 'virtio*' \
    "-object iothread,id=io0 \
     -blockdev driver=null-co,node-name=d0,size=1073741824,read-zeroes=on \
     -device virtio-blk,drive=d0,shaper=sluice0,iothread=io0"
fuzz virtio-net 'virtio*' \
    "-netdev hubport,hubid=0,id=net0 -device virtio-net,netdev=net0,shaper=sluice0"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
