#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# fuzz.sh [--update-seeds] [NAME…]: runs the fuzzers, all or those named, and
# prints a line for each. The last line is: N passed, N failed[, N skipped].
#
#   engine, frame, classify     qemu-patches/tests/fuzz-NAME.c, on the pure code
#   virtio-blk, virtio-blk-iothread, virtio-net, virtio-net-own
#                               QEMU's generic device fuzzer on a device with a
#                               shaper; needs build/qemu-asan. The disks have a
#                               queue that belongs to a class; the last one's only
#                               queue does
#
#   SLUICE_FUZZ_SECONDS   how long each runs (30)
#   SLUICE_TEST_JOBS      how many run at a time (2)
#   SLUICE_FUZZ_QEMU      a QEMU's build of variant asan (build/qemu-asan)
#
# What a fuzzer finds is kept in build/fuzz with the input that shows it, and so
# are the inputs that it collects. --update-seeds runs nothing: it replaces the
# seeds, tests/fuzz-NAME-seeds, by the fewest of seeds and collected inputs that
# reach as much of the code.
#
# The device fuzzer writes random values to the device's registers and, when the
# device reads guest memory, random bytes there: rings, headers, frames. A
# monitor that reads its commands from a file makes classes of all kinds first
# (tests/fuzz_shaper.py), so that requests are held, released and dropped as the
# fuzzer steps the virtual clock. Its first inputs are drivers that get requests that
# far (tests/fuzz_device_seeds.py), and a card has a network beside it. A run in which
# no request went, was held, or came from the network, or in which a setting is not
# there, has failed (tests/fuzz_peer.py).
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
tests=$top/qemu-patches/tests
sources=$top/qemu-patches/src
output=$top/build/fuzz
qemu=$(realpath -m "${SLUICE_FUZZ_QEMU:-$top/build/qemu-asan}")/qemu-fuzz-x86_64
seconds=${SLUICE_FUZZ_SECONDS:-30}
jobs=${SLUICE_TEST_JOBS:-2}
every=(virtio-blk virtio-blk-iothread virtio-net virtio-net-own engine frame classify)
action=run
[ "${1:-}" != --update-seeds ] || {
    action=update_seeds
    shift
}
[ $# -gt 0 ] || set -- "${every[@]}"
for name in "$@"; do
    [[ " ${every[*]} " == *" $name "* ]] || {
        echo "error: fuzzer '$name' is not known; there are: ${every[*]}" >&2
        exit 2
    }
done
mkdir -p "$output"
cd "$output" || exit 2

if ! reason=$(bash "$top/qemu-patches/scripts/fuzzer-library.sh"); then
    echo "SKIPPED [$#] fuzzing: $reason"
    echo "0 passed, 0 failed, $# skipped"
    exit 0
fi

export PYTHONPATH=$top/controller/src
python3 "$tests/fuzz_shaper.py" commands commands.qmp

# device_options NAME: QEMU's for the device of that name.
device_options() {
    local disk="-device virtio-blk,shaper=sluice0,num-queues=2,shaper-queues=:own"
    local null="-blockdev driver=null-co,node-name=d0,size=1073741824,read-zeroes=on"
    local card="-netdev dgram,id=net0,local.type=unix,local.path=$output/$1-nic.socket,\
remote.type=unix,remote.path=$output/$1-net.socket -device virtio-net,netdev=net0,shaper=sluice0"
    echo "-machine q35 -nodefaults -display none \
        -object shaper,id=sluice0,page=$output/$1.page \
        -object shaper-group,id=disks,path=$output/$1-disks.group \
        -object shaper-group,id=cards,path=$output/$1-cards.group \
        -chardev file,id=qmp,path=$output/$1.monitor,input-path=$output/commands.qmp \
        -mon chardev=qmp,mode=control"
    case $1 in
    # By the clock that the fuzzer steps, some requests take no time and some a while.
    virtio-blk) echo "-object throttle-group,id=slow,x-iops-total=200 $null \
        -blockdev driver=throttle,node-name=d1,throttle-group=slow,file=d0 $disk,drive=d1" ;;
    virtio-blk-iothread) echo "-object iothread,id=io0 $null $disk,drive=d0,iothread=io0" ;;
    virtio-net) echo "$card" ;;
    virtio-net-own) echo "$card,shaper-queues=own" ;;
    esac
}

# build NAME: the fuzzer of the pure code of that name.
build() {
    clang -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wundef -Wmissing-prototypes \
        -Wstrict-prototypes -Wvla -O1 -g "-fsanitize=fuzzer,address,undefined" \
        -fno-sanitize-recover=all -I"$sources/include" -I"$sources" -I"$tests" \
        "$tests/fuzz-$1.c" "$sources"/sluice/*.c -o "fuzz-$1"
}

# fuzzer NAME OPTION…: runs it with libFuzzer's options. Leaks are looked for
# in our code only: QEMU keeps what it has until it ends. It blocks the signal of
# libFuzzer's own time limit.
fuzzer() {
    local name=$1 lengths=() watch=()
    shift
    # Drivers are long: they are varied from the beginning.
    [ "$name" = virtio-blk-iothread ] || lengths=(-len_control=0)
    [ "$name" != virtio-blk-iothread ] || [ "$action" != run ] ||
        watch=(python3 "$tests/fuzz_watch.py")
    case $name in
    virtio-*)
        QEMU_FUZZ_OBJECTS='virtio*' QEMU_FUZZ_ARGS=$(device_options "$name" | tr '\n' ' ') \
            ASAN_OPTIONS=detect_leaks=0:handle_sigill=1 timeout -k 10 $((seconds + 600)) \
            "${watch[@]}" python3 "$tests/fuzz_shaper.py" groups "$output/$name" \
            "$qemu" --fuzz-target=generic-fuzz -timeout=300 -report_slow_units=60 -handle_ill=0 \
            -rss_limit_mb=4096 "${lengths[@]}" "$@"
        ;;
    engine) ./fuzz-engine -max_len=2048 "$@" ;;
    *) ./"fuzz-$name" -max_len=600 "$@" ;;
    esac
}

prepare() {
    case $1 in
    virtio-*)
        [ -x "$qemu" ] || {
            echo "$qemu is missing; make qemu-asan builds it"
            return 1
        }
        # An I/O thread that the fuzzer gives guest memory beyond the RAM waits for
        # the main thread, which may wait for it: there no driver goes first.
        [ "$1" = virtio-blk-iothread ] ||
            python3 "$tests/fuzz_device_seeds.py" "$1" "drivers-$1"
        ;;
    *) build "$1" ;;
    esac
}

# with_peer NAME COMMAND…: runs it beside what a device needs and is judged by.
with_peer() {
    local name=$1 status=0 peer
    shift
    case $name in
    virtio-*) ;;
    *)
        "$@"
        return
        ;;
    esac
    rm -f "$name.page" "$name"-*.socket
    python3 "$tests/fuzz_peer.py" "$name" "$output" \
        "$tests/fuzz-frame-seeds" >"$name.peer" 2>&1 &
    peer=$!
    "$@" || status=$?
    kill "$peer"
    wait "$peer" || [ "$action" != run ] || status=$((status ? status : 1))
    cat "$name.peer"
    return "$status"
}

# run NAME: fuzzes for some seconds and prints the verdict. Inputs that reach
# something new go to the first folder; the seeds are only read.
run() {
    local name=$1 status=0 runs stuck slow folders=("corpus-$1")
    mkdir -p "corpus-$name"
    [ ! -d "$tests/fuzz-$name-seeds" ] || folders+=("$tests/fuzz-$name-seeds")
    case $name in
    virtio-*)
        mkdir -p "drivers-$name"
        folders+=("drivers-$name")
        ;;
    esac
    {
        prepare "$name" && with_peer "$name" fuzzer "$name" -max_total_time="$seconds" \
            -artifact_prefix="$name-" "${folders[@]}"
    } >"$name.log" 2>&1 </dev/null || status=$?
    runs=$(grep -aoE 'Done [0-9]+ runs in [0-9]+ second' "$name.log" | tail -n 1)
    if [ "$status" -eq 0 ] && [ -n "$runs" ]; then
        stuck=$(grep -a '^fuzz_watch: ' "$name.log" | tail -n 1)
        slow=$(grep -aoE '^Slowest unit: [0-9]+ s' "$name.log" | tail -n 1)
        echo "ok   $name: ${runs}s, $(grep -aoE 'cov: [0-9]+ ft: [0-9]+' "$name.log" | tail -n 1)" \
            "$(tail -n 1 "$name.peer" 2>/dev/null)${stuck:+; ${stuck#*: }}${slow:+; ${slow,}}"
    else
        echo "FAIL $name: exit status $status; the end of $output/$name.log:"
        tail -n 30 "$name.log"
    fi
}

# update_seeds NAME. Without its counters libFuzzer tells only which branches an
# input takes, not how often, and a few dozen inputs take them all.
update_seeds() {
    local name=$1 seed
    rm -rf "merged-$name"
    mkdir -p "merged-$name" "corpus-$name" "$tests/fuzz-$name-seeds"
    {
        prepare "$name" && with_peer "$name" fuzzer "$name" -set_cover_merge=1 -use_counters=0 \
            "merged-$name" "$tests/fuzz-$name-seeds" "corpus-$name"
    } >"merge-$name.log" 2>&1 </dev/null || {
        echo "FAIL $name: the end of $output/merge-$name.log:"
        tail -n 30 "merge-$name.log"
        return
    }
    rm -f "$tests/fuzz-$name-seeds"/*
    for seed in "merged-$name"/*; do
        cp "$seed" "$tests/fuzz-$name-seeds/$(basename "$seed" | cut -c1-12)"
    done
    echo "ok   $name: $(find "merged-$name" -type f | wc -l) seeds, $(cat "merged-$name"/* | wc -c) bytes"
}

# lane FIRST NAME…: every so-many-th of the names, one after the other.
lane() {
    local i=$1
    shift
    while [ "$i" -lt $# ]; do
        i=$((i + 1))
        "$action" "${!i}"
        i=$((i + jobs - 1))
    done
}

for ((first = 0; first < jobs; first++)); do
    lane "$first" "$@" &
done | tee verdicts
passed=$(grep -c '^ok ' verdicts)
failed=$(grep -c '^FAIL ' verdicts)
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -eq $# ]
