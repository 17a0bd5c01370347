# SPDX-License-Identifier: GPL-2.0-or-later
# How tools/packaging/build.sh makes QEMU's packages.
# shellcheck shell=bash disable=SC2034,SC2154
root=qemu
# The qtests come with the tree, and nothing of them is in a package.
inputs=(qemu-patches/src ':!qemu-patches/src/tests' qemu-patches/patches qemu-patches/scripts/apply.sh)
qemu_source=$SLUICE_CACHE/qemu/source

# The source of `make qemu`.
fetch_qemu() {
    [ -e "$qemu_source/version" ] && return
    rm -rf "$qemu_source"
    bash qemu-patches/scripts/fetch.sh "$qemu_source"
}
uses() {
    mkdir -p "$SLUICE_CACHE/qemu"
    [ -e "$qemu_source/version" ] || step qemu-source with_lock qemu fetch_qemu >&2
    cat "$qemu_source/version"
}
upstream() { sed -E 's/^[0-9]+://; s/[+-].*//' "$qemu_source/version"; }
version_of() { echo "$(upstream)+sluice$1"; }

unpack() {
    bash qemu-patches/scripts/apply.sh "$qemu_source" "$1"
    mv "$1/debian/copyright" "$1/qemu-copyright"
}

# The version is part of the package's name and path. Of a release it is the
# release's; else the hash of the inputs, so that a path never changes its
# content while guests run on it.
prepare() {
    local tree=$1 path_version file
    path_version=$(upstream)-sluice$(echo "${version#*+sluice}" | sed -E 's/\+git[0-9]+\./.g/')
    echo "$path_version" >"$tree/debian/qemu-version"
    cp "$qemu_source/version" "$tree/debian/debian-version"
    sed -e "s/@QEMU_VERSION@/$path_version/g; s/@UPSTREAM@/$(upstream)/g" \
        "$tree/debian/control.in" >"$tree/debian/control"
    rm "$tree/debian/control.in"
    for file in "$tree"/debian/versioned.*; do
        sed "s/@QEMU_VERSION@/$path_version/g" "$file" >"$tree/debian/sluice-qemu-$path_version.${file##*.}"
        rm "$file"
    done
    echo "/usr/lib/sluice/qemu-$path_version /usr/lib/sluice/qemu" >"$tree/debian/sluice-qemu.links"
    cat "$tree/qemu-copyright" >>"$tree/debian/copyright"
}
