#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# run.sh [--instructions]: builds and runs the engine's benchmark beside QEMU's
# own throttle core, shows a table, and writes build/bench/engine.json. Fails if
# a figure misses its bar (bars.py) or is not there. With --instructions it only
# counts these, which a busy machine does not change.
#
#   SLUICE_QEMU_BUILD     QEMU build tree (build/qemu)
#   SLUICE_QEMU_SOURCE    its source tree (the folder above it)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
output=$top/build/bench
qemu_build=$(realpath -m "${SLUICE_QEMU_BUILD:-$top/build/qemu}")
qemu_source=$(realpath -m "${SLUICE_QEMU_SOURCE:-$qemu_build/..}")
throttle=$qemu_build/libqemuutil.a.p/util_throttle.c.o

for file in "$throttle" "$qemu_build/compile_commands.json" \
    "$qemu_source/include/qemu/throttle.h"; do
    [ -e "$file" ] || {
        printf 'error: %s is missing: run "make qemu", or set SLUICE_QEMU_BUILD and SLUICE_QEMU_SOURCE\n' \
            "$file" >&2
        exit 1
    }
done

mkdir -p "$output"
exec python3 "$here/report.py" --qemu-build "$qemu_build" \
    --throttle "$throttle" --output "$output" "$@"
