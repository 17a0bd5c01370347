#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes the Ansible collection usable from the checkout: build/ansible is a
# collections path in which sluice.appliance is a link to ansible/. Use it with
# ANSIBLE_COLLECTIONS_PATH=build/ansible.
. "$(dirname "$0")/common.sh"

mkdir -p build/ansible/ansible_collections/sluice
ln -sfn "$SLUICE_TOP/ansible" build/ansible/ansible_collections/sluice/appliance
