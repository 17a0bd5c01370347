#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# fuzz.sh [--smoke|--update-seeds] [NAME…]: runs the fuzzers, all or those named, and
# prints a line for each. The last line is: N passed, N failed[, N skipped].
#
# With --smoke no clang is needed, and no build with sanitizers: stored inputs are
# tried, then changes of them without a look at the code they reach (tests/fuzz-replay.c).
# The pure code has gcc's sanitizers. The devices are those of the plain build, which
# is linked with QEMU's fuzzer (tests/fuzz_link.py).
#
#   engine, frame, classify, channel, portmap
#                               qemu-patches/tests/fuzz-NAME.c, on the pure code
#   virtio-blk, virtio-blk-iothread, virtio-net, virtio-net-own
#                               QEMU's generic device fuzzer on a device with a
#                               shaper; needs build/qemu-asan (with --smoke
#                               build/qemu and its qtests). The disks have a
#                               queue that belongs to a class; the last one's only
#                               queue does
#   sluice-channel              src/tests/sluice/channel-fuzz.c, on a QEMU
#                               with a channel, built as for the devices
#
#   SLUICE_FUZZ_SECONDS   how long each runs (30; with --smoke 3 for the changes)
#   SLUICE_TEST_JOBS      how many run at a time (2)
#   SLUICE_FUZZ_QEMU      a QEMU's build of variant asan (build/qemu-asan), with
#                         --smoke of variant plain (build/qemu)
#
# The findings of a fuzzer are kept in build/fuzz with the input that shows them, and so
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
jobs=${SLUICE_TEST_JOBS:-2}
every=(virtio-blk virtio-blk-iothread virtio-net virtio-net-own sluice-channel
    engine frame classify channel portmap)
action=run
case ${1:-} in
--update-seeds) action=update_seeds ;;
--smoke) action=smoke ;;
esac
[ "$action" = run ] || shift
if [ "$action" = smoke ]; then
    seconds=${SLUICE_FUZZ_SECONDS:-3} grace_seconds=120
    built=$(realpath -m "${SLUICE_FUZZ_QEMU:-$top/build/qemu}")
    qemu=$output/qemu-fuzz
else
    seconds=${SLUICE_FUZZ_SECONDS:-30} grace_seconds=600
    built=$(realpath -m "${SLUICE_FUZZ_QEMU:-$top/build/qemu-asan}")
    qemu=$built/qemu-fuzz-x86_64
fi
[ $# -gt 0 ] || set -- "${every[@]}"
for name in "$@"; do
    [[ " ${every[*]} " == *" $name "* ]] || {
        echo "error: fuzzer '$name' is not known; there are: ${every[*]}" >&2
        exit 2
    }
done
mkdir -p "$output"
cd "$output" || exit 2

if [ "$action" != smoke ] && ! reason=$(bash "$top/qemu-patches/scripts/fuzzer-library.sh"); then
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
remote.type=unix,remote.path=$output/$1-net.socket -device virtio-net,netdev=net0,shaper=sluice0,\
shaper-dscp=both"
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
    sluice-channel) echo "-device sluice-channel,addr=5,shaper=sluice0,calls=1000000" ;;
    esac
}

# build NAME: the fuzzer of the pure code of that name.
build() {
    local compiler=(clang "-fsanitize=fuzzer,address,undefined")
    [ "$action" != smoke ] ||
        compiler=(gcc "-fsanitize=address,undefined" "$tests/fuzz-replay.c")
    "${compiler[@]}" -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wundef -Wmissing-prototypes \
        -Wstrict-prototypes -Wvla -O1 -g \
        -fno-sanitize-recover=all -I"$sources/include" -I"$sources" -I"$tests" \
        "$tests/fuzz-$1.c" "$sources"/sluice/*.c -o "fuzz-$1"
}

# fuzzer NAME OPTION…: runs it with libFuzzer's options, or those of fuzz-replay.c.
# Leaks are looked for in our code only: QEMU keeps its memory until it ends. It
# blocks the signal of libFuzzer's own time limit.
fuzzer() {
    local name=$1 options=() watch=() target=generic-fuzz
    shift
    [ "$name" != sluice-channel ] || target=sluice-channel
    if [ "$action" != smoke ]; then
        options=(-timeout=300 -report_slow_units=60 -handle_ill=0 -rss_limit_mb=4096)
        # Drivers are long: they are varied from the beginning.
        [ "$name" = virtio-blk-iothread ] || options+=(-len_control=0)
    fi
    [ "$name" != virtio-blk-iothread ] || [ "$action" != run ] ||
        watch=(python3 "$tests/fuzz_watch.py")
    case $name in
    virtio-* | sluice-channel)
        QEMU_FUZZ_OBJECTS='virtio*' QEMU_FUZZ_ARGS=$(device_options "$name" | tr '\n' ' ') \
            ASAN_OPTIONS=detect_leaks=0:handle_sigill=1 timeout -k 10 $((seconds + grace_seconds)) \
            "${watch[@]}" python3 "$tests/fuzz_shaper.py" groups "$output/$name" \
            "$qemu" --fuzz-target="$target" "${options[@]}" "$@"
        ;;
    *)
        [ "$action" = smoke ] || options=(-max_len="$([ "$name" = engine ] && echo 2048 || echo 600)")
        # So that the replay keeps the input of a finding of a sanitizer.
        ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=abort_on_error=1 \
            ./"fuzz-$name" "${options[@]}" "$@"
        ;;
    esac
}

# link_qemu: the plain build with the fuzzer, unless it is there.
link_qemu() {
    local made_of
    made_of="$built $(cat "$tests/fuzz_link.py" "$tests/fuzz-replay.c" | sha256sum)"
    [ "$(cat "$qemu.of" 2>/dev/null)" != "$made_of" ] || return 0
    python3 "$tests/fuzz_link.py" "$built" "$qemu" || return
    ln -sfn "$built/qemu-bundle" qemu-bundle
    echo "$made_of" >"$qemu.of"
}

prepare() {
    case $1 in
    virtio-* | sluice-channel)
        if [ "$action" = smoke ]; then
            (flock 9 && link_qemu) 9>"$qemu.lock" || return
        fi
        [ -x "$qemu" ] || {
            echo "$qemu is missing; make qemu-asan builds it"
            return 1
        }
        # An I/O thread that the fuzzer gives guest memory beyond the RAM waits for
        # the main thread, which may wait for it: there no driver goes first.
        [ "$1" = virtio-blk-iothread ] || [ "$1" = sluice-channel ] ||
            python3 "$tests/fuzz_device_seeds.py" "$1" "drivers-$1"
        ;;
    *) build "$1" ;;
    esac
}

# with_peer NAME COMMAND…: runs it beside the network and the judge of a device.
with_peer() {
    local name=$1 status=0 peer
    shift
    case $name in
    virtio-*) ;;
    sluice-channel)
        "$@" 2>&1 | tee "$name.run"
        status=${PIPESTATUS[0]}
        grep -a '^channel: ' "$name.run" >"$name.peer"
        # All of it must have been done: no number is 0.
        if [ "$action" != update_seeds ] &&
            ! grep -qE '^channel: [1-9][^,]*(, [1-9][^,]*)*$' "$name.peer"; then
            status=$((status ? status : 1))
        fi
        return "$status"
        ;;
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
    wait "$peer" || [ "$action" = update_seeds ] || status=$((status ? status : 1))
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

# smoke NAME: tries stored inputs, then changes of them, and prints the verdict.
smoke() {
    local name=$1 status=0 folder folders=()
    rm -f "$name-crash"
    {
        prepare "$name" || status=$?
        for folder in "$tests/fuzz-$name-seeds" "drivers-$name"; do
            [ ! -d "$folder" ] || folders+=("$folder")
        done
        [ "$status" -ne 0 ] ||
            with_peer "$name" fuzzer "$name" "$seconds" "$name-crash" "${folders[@]}" || status=$?
    } >"$name.log" 2>&1 </dev/null
    if [ "$status" -eq 0 ] && grep -aq '^Done [1-9]' "$name.log"; then
        echo "ok   $name: $(grep -a '^Done ' "$name.log") $(tail -n 1 "$name.peer" 2>/dev/null)"
    else
        echo "FAIL $name: exit status $status$([ ! -e "$name-crash" ] || echo "; the input is" \
            "$output/$name-crash"); the end of $output/$name.log:"
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

{
    for ((first = 0; first < jobs; first++)); do
        lane "$first" "$@" &
    done
    # The runner is told what processor time a program took that was waited for, no other.
    wait
} | tee verdicts
passed=$(grep -c '^ok ' verdicts)
failed=$(grep -c '^FAIL ' verdicts)
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -eq $# ]
