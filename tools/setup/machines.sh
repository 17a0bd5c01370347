#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes build/machines for `make test-deploy`: the image of a Debian 13 machine, and a
# repository of the Debian packages that a deployment installs there. Both are kept in the cache
# under the hash of their inputs. The repository follows the dependencies of build/deb and the
# packages of the roles.
. "$(dirname "$0")/common.sh"

recipes=tests/deploy/images
root=$SLUICE_CACHE/machines
machine=$root/machine-$(hash_of "$recipes/machine.sh" "$recipes/initrd-init")

make_part() {
    local folder=$1 script=$2
    shift 2
    [ -e "$folder/.complete" ] && return
    mkdir -p "$folder"
    # Leftovers of an interrupted making; finished parts of a download are used.
    rm -rf "$folder"/work.*
    nice -n 5 bash "$recipes/$script" "$folder" "$@"
}

# The packages of a deployment: ours, and those of the roles
# (tests/deploy/images/packages.list).
wanted() {
    sed -n 's/^Package: //p' build/deb/Packages
    sed 's/#.*//' "$recipes/packages.list" | tr -s ' \n' '\n' | grep . || true
}
# The relations that decide on Debian's packages.
relations() {
    sed -nE 's/^(Package|Depends|Pre-Depends): //p' build/deb/Packages
    cat "$recipes/packages.list"
}

[ -e build/deb/Packages ] || die "build/deb/Packages is missing; run \`make deb\` first"
if [ ! -e "$machine/.complete" ]; then
    [ "$(id -u)" -eq 0 ] || die "making the machine image needs root (mmdebstrap, chroot)"
    step machine-image with_lock images make_part "$machine" machine.sh
fi
repository=$root/repository-$(hash_of "$recipes/repository.sh" -- "$machine" "$(relations)")
if [ ! -e "$repository/.complete" ]; then
    mapfile -t packages < <(wanted | LC_ALL=C sort -u)
    step machine-packages with_lock images make_part "$repository" repository.sh \
        "$machine/dpkg-status" "$SLUICE_TOP/build/deb" "${packages[@]}"
fi
mkdir -p build/machines
for name in root.img vmlinuz initrd.img dpkg-status; do
    ln -sfn "$machine/$name" "build/machines/$name"
done
ln -sfn "$repository/repository" build/machines/repository
touch "$machine/.complete" "$repository/.complete"
remove_unused "$root" '(machine|repository)-[0-9a-f]{16}'
