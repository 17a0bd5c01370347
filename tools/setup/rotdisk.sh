#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds build/rotdisk/rotdisk.so, the nbdkit plugin with the model of a
# rotating disk. It is small: built in the cache under the hash of its source.
. "$(dirname "$0")/common.sh"

source=tests/testbed/rotdisk
out=$SLUICE_CACHE/rotdisk/$(hash_of "$source/model.c" "$source/model.h" "$source/rotdisk.c" -- \
    "$(cc --version | head -n 1)")

build_plugin() {
    mkdir -p "$out"
    cc -O2 -g -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -pthread \
        -o "$out/rotdisk.so.new" "$source/model.c" "$source/rotdisk.c" -lm
    # It loads, and the constants are in order.
    nbdkit --dump-plugin "$out/rotdisk.so.new" | grep -q '^media_bps='
    mv "$out/rotdisk.so.new" "$out/rotdisk.so"
}
[ -e "$out/rotdisk.so" ] || step rotdisk build_plugin
# A folder of that name may be left from an earlier layout of build/.
[ -L build/rotdisk ] || rm -rf build/rotdisk
link_build rotdisk "$out"
