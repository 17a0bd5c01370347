#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds build/rotdisk/rotdisk.so, the nbdkit plugin with the model of a
# rotating disk. It is small: built in the cache under the hash of its source.
. "$(dirname "$0")/common.sh"

source=tests/testbed/rotdisk
made_with=$(debian_release; first_line cc --version)
out=$SLUICE_CACHE/rotdisk/$(hash_of "$source/model.c" "$source/model.h" "$source/rotdisk.c" \
    tools/setup/rotdisk.sh -- "$made_with")

build_plugin() {
    # Another checkout may have built it while this one waited for the lock.
    [ ! -e "$out/rotdisk.so" ] || return 0
    mkdir -p "$out"
    cc -O2 -g -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -pthread \
        -o "$out/rotdisk.so.new" "$source/model.c" "$source/rotdisk.c" -lm
    # It loads, and the constants are in order.
    nbdkit --dump-plugin "$out/rotdisk.so.new" | grep '^media_bps='
    mv "$out/rotdisk.so.new" "$out/rotdisk.so"
}
[ -e "$out/rotdisk.so" ] || step rotdisk with_lock rotdisk build_plugin
# A folder of that name may be left from an earlier layout of build/.
[ -L build/rotdisk ] || rm -rf build/rotdisk
link_build rotdisk "$out"
