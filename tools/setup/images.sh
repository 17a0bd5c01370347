#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes build/images: the Debian 13 test guest (kernel, initrd, root disk, ssh
# key) and the data disks of the demo. Each part is kept in the cache under the
# hash of its recipe; build/images links to them. Versions that no checkout has
# used for two weeks are removed.
. "$(dirname "$0")/common.sh"

recipes=tests/testbed/images
guest=$SLUICE_CACHE/images/guest-$(hash_of "$recipes/guest.sh" "$recipes/initrd-init")
data=$SLUICE_CACHE/images/data-$(hash_of "$recipes/data.sh")

# make_part FOLDER SCRIPT: runs the script unless the folder is complete.
make_part() {
    local folder=$1 script=$2
    [ -e "$folder/.complete" ] && return
    rm -rf "$folder"
    mkdir -p "$folder"
    nice -n 5 bash "$recipes/$script" "$folder"
}

link_parts() {
    local name
    mkdir -p build/images
    for name in vmlinuz initrd.img root.img id_ed25519; do
        ln -sfn "$guest/$name" "build/images/$name"
    done
    for name in media-data.img web-data.img movie.img; do
        ln -sfn "$data/$name" "build/images/$name"
    done
}

if [ ! -e "$guest/.complete" ]; then
    [ "$(id -u)" -eq 0 ] || die "making the guest image needs root (mmdebstrap, chroot)"
    step guest-image with_lock images make_part "$guest" guest.sh
fi
[ -e "$data/.complete" ] || step data-disks with_lock images make_part "$data" data.sh
link_parts
touch "$guest/.complete" "$data/.complete"
remove_unused "$SLUICE_CACHE/images" '(guest|data)-[0-9a-f]{16}'
