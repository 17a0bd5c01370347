#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# turns.sh BEGIN_SECONDS SECONDS SETTLE_SECONDS LOOK_SECONDS UNIT COUNTER BEGUN UNIT
# COUNTER BEGUN: two loads of a guest take turns, and what each has done in its turn is
# counted. Each load is a service, which is frozen while the other runs; the first word
# of its COUNTER's file is a number that grows, and has grown by BEGUN when the load runs.
# Turns come in fours, A B B A, so that what changes steadily hits both alike; there are
# as many fours as begin in SECONDS. A line is: unit, microseconds, growth. It runs beside
# the loads, so it starts no other process.
set -euo pipefail

begin_seconds=$1 seconds=$2 settle_seconds=$3 look_seconds=$4
first_unit=$5 first_counter=$6 first_begun=$7
second_unit=$8 second_counter=$9 second_begun=${10}
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

# begun COUNTER BEGUN FROM: whether it has grown by so much.
begun() {
    local now
    read -r now _ <"$1"
    ((now - $3 >= $2))
}

await_both() {
    local first second end=$((${EPOCHREALTIME/./} + begin_seconds * 1000000))
    read -r first _ <"$first_counter"
    read -r second _ <"$second_counter"
    until begun "$first_counter" "$first_begun" "$first" &&
        begun "$second_counter" "$second_begun" "$second"; do
        if ((${EPOCHREALTIME/./} > end)); then
            echo "$first_unit and $second_unit do not both run after $begin_seconds s" >&2
            return 1
        fi
        pause 0.2
    done
    # They are as fast as they get.
    pause 2
}

await_both
freeze "$first_unit" 1
freeze "$second_unit" 1
end=$((${EPOCHREALTIME/./} + seconds * 1000000))
while ((${EPOCHREALTIME/./} < end)); do
    turn "$first_unit" "$first_counter"
    turn "$second_unit" "$second_counter"
    turn "$second_unit" "$second_counter"
    turn "$first_unit" "$first_counter"
done
freeze "$first_unit" 0
freeze "$second_unit" 0
