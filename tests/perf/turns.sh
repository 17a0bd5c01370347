#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# turns.sh SECONDS SETTLE_SECONDS LOOK_SECONDS UNIT COUNTER UNIT COUNTER: two loads of a
# guest take turns, and what each has done in its turn is counted. Each load is a
# service, which is frozen while the other runs; the first word of its COUNTER's
# file is a number that grows. Turns come in fours, A B B A, so that what changes
# steadily hits both alike; there are as many fours as begin in SECONDS. A line is:
# unit, microseconds, growth. It runs beside the loads, so it starts no other process.
set -euo pipefail

seconds=$1 settle_seconds=$2 look_seconds=$3
shift 3
# EPOCHREALTIME has the locale's decimal point.
LC_ALL=C
# Nobody ever writes to it: reading from it waits, as sleep does.
exec {silence}<> <(:)

freeze() {
    echo "$2" >"/sys/fs/cgroup/system.slice/$1.service/cgroup.freeze"
}

pause() {
    read -r -t "$1" -u "$silence" || true
}

turn() {
    local before after first last
    freeze "$1" 0
    pause "$settle_seconds"
    before=${EPOCHREALTIME/./}
    read -r first _ <"$2"
    pause "$look_seconds"
    after=${EPOCHREALTIME/./}
    read -r last _ <"$2"
    freeze "$1" 1
    echo "$1 $((after - before)) $((last - first))"
}

freeze "$1" 1
freeze "$3" 1
end=$((${EPOCHREALTIME/./} + seconds * 1000000))
while ((${EPOCHREALTIME/./} < end)); do
    turn "$1" "$2"
    turn "$3" "$4"
    turn "$3" "$4"
    turn "$1" "$2"
done
freeze "$1" 0
freeze "$3" 0
