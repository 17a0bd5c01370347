#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# count.sh COUNTER BEGUN_BYTES SECONDS PATIENCE_SECONDS: reads a counter of bytes a
# hundred times a second, from when it has grown by BEGUN_BYTES, for so many seconds.
# It runs in a guest, beside a load, so it starts no other process meanwhile. Each
# line is: microseconds before the reading, microseconds after it, bytes.
# Exit status 1: the counter did not grow in PATIENCE_SECONDS.
set -euo pipefail

counter=$1 begun_bytes=$2 seconds=$3 patience_seconds=$4
# EPOCHREALTIME has the locale's decimal point.
LC_ALL=C
# Nobody ever writes to it: reading from it waits, as sleep does.
exec {silence}<> <(:)

read -r first <"$counter"
deadline=$((${EPOCHREALTIME/./} + patience_seconds * 1000000))
end=0
while :; do
    before=${EPOCHREALTIME/./}
    read -r bytes <"$counter"
    after=${EPOCHREALTIME/./}
    if ((end == 0 && bytes - first >= begun_bytes)); then
        end=$((after + seconds * 1000000))
    fi
    if ((end > 0)); then
        echo "$before $after $bytes"
        ((after < end)) || exit 0
    elif ((after > deadline)); then
        echo "$counter has not grown by $begun_bytes in $patience_seconds s" >&2
        exit 1
    fi
    read -r -t 0.01 -u "$silence" || true
done
