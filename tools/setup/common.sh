# SPDX-License-Identifier: GPL-2.0-or-later
# Shared by the set-up scripts: where things are kept, and how progress is
# shown. Source it; it sets -euo pipefail and changes to the checkout's top.
# shellcheck shell=bash
set -euo pipefail

SLUICE_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$SLUICE_TOP"

# A user who runs the scripts of a checkout trusts it. Git refuses another user's checkout all
# the same, for example root's job on a user's files, unless it is told so.
told=${GIT_CONFIG_COUNT:-0}
export GIT_CONFIG_COUNT=$((told + 1))
export "GIT_CONFIG_KEY_$told=safe.directory" "GIT_CONFIG_VALUE_$told=$(pwd -P)"
unset told

# Build trees and guest images live outside the checkout, each in a folder named by the hash of
# its inputs. build/NAME links to the right one.
SLUICE_CACHE=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
SLUICE_LOGS=$SLUICE_TOP/build/logs
export SLUICE_TOP SLUICE_CACHE SLUICE_LOGS

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
[[ $SLUICE_CACHE = /* ]] || die "SLUICE_CACHE '$SLUICE_CACHE' is not an absolute path; give one"

# A folder that is made here is ours; programs that make backups know the mark, too.
if [ ! -d "$SLUICE_CACHE" ]; then
    mkdir -p "$SLUICE_CACHE"
    printf '%s\n' 'Signature: 8a477f597d28d172789f06886806bc55' \
        '# What Sluice builds from; make distclean removes the folder.' \
        >"$SLUICE_CACHE/CACHEDIR.TAG"
fi
mkdir -p "$SLUICE_LOGS"

# hash_of FILE-OR-FOLDER… [-- WORD…]: one hash of names, contents and words. It fails rather
# than leave something out: a tree would be taken for a newer one. :!FOLDER leaves a folder out.
hash_of() {
    local paths=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        [ -e "${1#:!}" ] || die "${1#:!}, on which a build depends, is not in $SLUICE_TOP"
        paths+=("$1")
        shift
    done
    {
        # Untracked build products must not change the key: git knows the sources.
        git ls-files -co --exclude-standard -z -- "${paths[@]}" | LC_ALL=C sort -z |
            while IFS= read -r -d '' file; do
                # A deleted file that is still in git's index is left out.
                [ ! -f "$file" ] || sha256sum "$file" || exit
            done && printf '%s\n' "$@"
    } | sha256sum | cut -c1-16 ||
        die "the sources ${paths[*]} could not be read; git and sha256sum say why"
}

# debian_release: products of one release are not used on another.
debian_release() { (. /etc/os-release && echo "$ID-${VERSION_ID:-${VERSION_CODENAME:-}}"); }

# first_line COMMAND…: of its output, for example its version.
first_line() { "$@" | sed -n 1p; }

# link_build NAME TARGET: build/NAME points to TARGET.
link_build() {
    mkdir -p build
    [ -L "build/$1" ] || [ ! -e "build/$1" ] || die "build/$1 is no link to the cache; remove it"
    ln -sfn "$2" "build/$1"
}

# remove_unused FOLDER PATTERN: parts in it, each finished with a file .complete, which no
# checkout has used for two weeks, and unfinished parts.
remove_unused() {
    local part mark
    while IFS= read -r -d '' part; do
        mark=$part/.complete
        [ -e "$mark" ] || mark=$part
        [ -z "$(find "$mark" -maxdepth 0 -mtime +14)" ] || rm -rf "$part"
    done < <(find "$1" -mindepth 1 -maxdepth 1 -type d -regextype egrep -regex ".*/$2" -print0)
}

# step NAME COMMAND…: runs the command with its output in build/logs/NAME.log,
# shows elapsed time while it runs, and on failure the end of the log.
step() {
    local name=$1 log=$SLUICE_LOGS/$1.log start=$SECONDS pid status
    shift
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    if [ -t 1 ]; then
        while kill -0 "$pid" 2>/dev/null; do
            printf '\r%-28s %4d s  %-48.48s' "$name" $((SECONDS - start)) \
                "$(tail -n 1 "$log" 2>/dev/null | tr -d '\r\t' | cut -c1-48)"
            sleep 1
        done
    else
        printf '%-28s started\n' "$name"
    fi
    status=0
    wait "$pid" || status=$?
    if [ "$status" -ne 0 ]; then
        printf '\r%-28s FAILED after %d s; the end of %s:\n' "$name" $((SECONDS - start)) "$log" >&2
        tail -n 25 "$log" >&2
        exit "$status"
    fi
    printf '\r%-28s %4d s  done%-48s\n' "$name" $((SECONDS - start)) ''
}

# with_lock NAME COMMAND…: one at a time per cache, so two checkouts may share it;
# says so when it has to wait, which may be as long as a build.
with_lock() {
    local name=$1
    shift
    (
        if ! flock -n 9; then
            printf '%-28s waits for another run of it (%s)\n' "$name" "$SLUICE_CACHE/$name.lock"
            flock 9
        fi
        "$@"
    ) 9>"$SLUICE_CACHE/$name.lock"
}
