#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# qemu.sh [--stock] [--full|--asan|--tsan] [--qtests]: builds the patched QEMU in the cache, in
# a folder named by the hash of its sources, and links build/qemu to it. With --stock
# it does the same with the unpatched source and build/qemu-stock: the baseline of
# experiment E1. The name of a variant (build.sh) goes behind that of the link.
#
# With --qtests it builds the qtests, and links build/qemu-qtests to their programs.
# The hash of QEMU's folder does not follow their sources, which go into its tree
# under the lock: a changed line of a qtest compiles that qtest. The programs are kept
# in a folder named by the hash of theirs, so that checkouts with others are not
# disturbed.
. "$(dirname "$0")/common.sh"

root=$SLUICE_CACHE/qemu
source_folder=$root/source
tests=qemu-patches/src/tests/qtest
variant=plain link=qemu apply_options=() products=emulator
sources=(qemu-patches/src ":!$tests" qemu-patches/patches)
for option in "$@"; do
    case $option in
    --stock) link=qemu-stock apply_options=(--stock) sources=(qemu-patches/src/configs) ;;
    --full | --asan | --tsan) variant=${option#--} ;;
    --qtests) products=qtests ;;
    *) die "$option: not an option; there are --stock, --full, --asan, --tsan and --qtests" ;;
    esac
done
[ "$variant" = plain ] || link+=-$variant
compiler=gcc
case $variant in asan | tsan) compiler=clang ;; esac
# Its configuration asks for the fuzzers.
[ "$variant" != asan ] || reason=$(bash qemu-patches/scripts/fuzzer-library.sh) || die "$link: $reason"
export CCACHE_DIR=$root/ccache

fetch_source() {
    rm -rf "$source_folder"
    bash qemu-patches/scripts/fetch.sh "$source_folder"
}
build_tree() {
    local tree=$1
    # An interrupted build is continued; a broken patching is not.
    if [ ! -e "$tree/.patched" ]; then
        rm -rf "$tree"
        bash qemu-patches/scripts/apply.sh "${apply_options[@]}" "$source_folder" "$tree"
        touch "$tree/.patched"
    fi
    bash qemu-patches/scripts/build.sh "$tree" "$venv" "$variant" emulator
    touch "$tree/.built"
}
build_qtests() {
    local tree=$1 programs=$2 file name
    # Only changed files, for ninja goes by the time of a file.
    for file in "$tests"/*; do
        name=$tree/tests/qtest/$(basename "$file")
        cmp -s "$file" "$name" || cp "$file" "$name"
    done
    bash qemu-patches/scripts/build.sh "$tree" "$venv" "$variant" qtests
    rm -rf "$programs"
    mkdir -p "$programs"
    cp "$tree/build/tests/qtest"/{qos-test,sluice-*-test} "$programs/"
    touch "$programs/.complete"
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
    # A kept tree goes on with the venv that it was configured with.
    for each in "$root"/venv-*; do
        ! grep -qsF "$each/bin/" "$root"/*/build/config.status || touch "$each/.complete"
    done
    remove_unused "$root" 'venv-[0-9a-f]{16}'
}
make_qemu() {
    local key tree venv made_with programs
    mkdir -p "$root"
    [ -e "$source_folder/version" ] || step qemu-source fetch_source
    made_with=$(debian_release; first_line "$compiler" --version; cat "$source_folder/version")
    key=$(hash_of "${sources[@]}" qemu-patches/scripts/apply.sh qemu-patches/scripts/build.sh \
        qemu-patches/scripts/build-requirements.txt tools/setup/qemu.sh -- "$made_with" "$link")
    # The Python packages of configure.
    venv=$root/venv-$(hash_of qemu-patches/scripts/build-requirements.txt -- "$(python3 --version)")
    tree=$root/$key
    [ -e "$tree/.built" ] || step "$link" build_tree "$tree"
    touch "$tree/.used"
    link_build "$link" "$tree/build"
    if [ "$products" = qtests ]; then
        programs=$tree/qtests/$(hash_of "$tests")
        [ -e "$programs/.complete" ] || step "qtests${link#qemu}" build_qtests "$tree" "$programs"
        touch "$programs/.complete"
        link_build "$link-qtests" "$programs"
        remove_unused "$tree/qtests" '[0-9a-f]{16}'
    fi
    remove_old_trees
    remove_old_venvs
}
with_lock qemu make_qemu
