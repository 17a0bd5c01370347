#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Removes build/ and the cache of build trees and guest images, with all that is in it. A folder
# of SLUICE_CACHE that was there before stays.
. "$(dirname "$0")/common.sh"

usual=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
[ -e "$SLUICE_CACHE/CACHEDIR.TAG" ] || [ "$SLUICE_CACHE" = "$usual" ] ||
    die "$SLUICE_CACHE was there before it became the cache; remove from it what you do not need"
rm -rf "$SLUICE_CACHE" build
echo "removed $SLUICE_CACHE and build"
