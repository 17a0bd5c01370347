#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the patched QEMU in the cache, in a folder named by the hash of its
# sources, and links build/qemu to it. With --stock it does the same with the
# unpatched source and build/qemu-stock: the baseline of experiment E1.
. "$(dirname "$0")/common.sh"

root=$SLUICE_CACHE/qemu
source_folder=$root/source
variant=plain
case ${1:-} in
'') link=qemu apply_options=() sources=(qemu-patches/src qemu-patches/patches) ;;
--stock) link=qemu-stock apply_options=(--stock) sources=() ;;
--asan) link=qemu-asan variant=asan apply_options=() sources=(qemu-patches/src qemu-patches/patches) ;;
--tsan) link=qemu-tsan variant=tsan apply_options=() sources=(qemu-patches/src qemu-patches/patches) ;;
*) die "$1: not an option; there are --stock, --asan and --tsan" ;;
esac
compiler=gcc
[ "$variant" = plain ] || compiler=clang
# Its configuration asks for the fuzzers.
[ "$variant" != asan ] || reason=$(bash qemu-patches/scripts/fuzzer-library.sh) || die "$link: $reason"
export CCACHE_DIR=$root/ccache

fetch_source() {
    rm -rf "$source_folder"
    bash qemu-patches/scripts/fetch.sh "$source_folder"
}
build_tree() {
    local tree=$1
    # What is left of an interrupted build is built on; a broken patching is not.
    if [ ! -e "$tree/.patched" ]; then
        rm -rf "$tree"
        bash qemu-patches/scripts/apply.sh "${apply_options[@]}" "$source_folder" "$tree"
        touch "$tree/.patched"
    fi
    bash qemu-patches/scripts/build.sh "$tree" "$venv" "$variant"
    touch "$tree/.built"
}
remove_old_trees() {
    # The newest ten stay: other checkouts may use them.
    find "$root" -mindepth 2 -maxdepth 2 -name .used -printf '%T@ %h\n' | sort -rn |
        tail -n +11 | cut -d ' ' -f 2- | while IFS= read -r tree; do
        rm -rf "$tree"
    done
    # Of a build that was interrupted, and of sources that are no more.
    find "$root" -mindepth 1 -maxdepth 1 -type d -mtime +14 -regextype egrep \
        -regex '.*/[0-9a-f]{16}' ! -exec test -e '{}/.used' ';' -exec rm -rf {} +
}
remove_old_venvs() {
    local each
    # A tree that is kept goes on with the one that it was configured with.
    for each in "$root"/venv-*; do
        ! grep -qsF "$each/bin/" "$root"/*/build/config.status || touch "$each/.complete"
    done
    remove_unused "$root" 'venv-[0-9a-f]{16}'
}
make_qemu() {
    local key tree venv made_with
    mkdir -p "$root"
    [ -e "$source_folder/version" ] || step qemu-source fetch_source
    made_with=$(debian_release; first_line "$compiler" --version; cat "$source_folder/version")
    key=$(hash_of "${sources[@]}" qemu-patches/scripts/apply.sh qemu-patches/scripts/build.sh \
        qemu-patches/scripts/build-requirements.txt tools/setup/qemu.sh -- "$made_with" "$link")
    # What configure uses of Python.
    venv=$root/venv-$(hash_of qemu-patches/scripts/build-requirements.txt -- "$(python3 --version)")
    tree=$root/$key
    [ -e "$tree/.built" ] || step "$link" build_tree "$tree"
    touch "$tree/.used"
    link_build "$link" "$tree/build"
    remove_old_trees
    remove_old_venvs
}
with_lock qemu make_qemu
