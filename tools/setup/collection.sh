#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# collection.sh [--own]: makes the Ansible collection usable from the checkout.
# build/ansible is a collections path in which sluice.appliance is a link to
# ansible/, and beside it, unless --own, is the collection that it needs. Use it
# with ANSIBLE_COLLECTIONS_PATH=build/ansible.
. "$(dirname "$0")/common.sh"

mkdir -p build/ansible/ansible_collections/{sluice,community}
ln -sfn "$SLUICE_TOP/ansible" build/ansible/ansible_collections/sluice/appliance
[ "${1:-}" != --own ] || exit 0

lock=tools/setup/collections.lock
kept=$SLUICE_CACHE/collections/$(hash_of "$lock" tools/setup/collection.sh)
member=ansible_collections/community/crypto

# 54 MB come once from the index of Python packages, 2 MB of them are kept.
fetch() {
    if [ ! -e "$kept/.complete" ]; then
        rm -rf "$kept"
        mkdir -p "$kept/wheel"
        build/venv/bin/pip -q download --no-deps --require-hashes -r "$lock" -d "$kept/wheel"
        python3 - "$kept"/wheel/*.whl "$kept" "$member/" <<'PYTHON'
import sys
import zipfile

wheel, folder, member = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(folder, [n for n in archive.namelist() if n.startswith(member)])
PYTHON
        rm -rf "$kept/wheel"
    fi
    touch "$kept/.complete"
    remove_unused "${kept%/*}" '[0-9a-f]{16}'
}
with_lock collections fetch
ln -sfn "$kept/$member" build/ansible/ansible_collections/community/crypto
