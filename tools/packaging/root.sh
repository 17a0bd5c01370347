#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Debian 13 trees to build and test packages in. Source it after common.sh.
#
#   make_root TREE PACKAGE…      a minimal Debian 13 with these packages in TREE
#   in_root TREE [HOST:INSIDE…] -- COMMAND…
#                                runs COMMAND in TREE, without a network, in
#                                namespaces of its own; folders are bound in
# shellcheck shell=bash

# make_root TREE PACKAGE…: complete or not at all; from where this machine's
# own APT configuration has its packages.
make_root() {
    local tree=$1 work=$1.work
    shift
    [ "$(id -u)" -eq 0 ] || die "making a Debian 13 root needs root (mmdebstrap, chroot)"
    rm -rf "$work" "$tree"
    mkdir -p "$work"
    python3 tools/setup/apt_sources.py trixie >"$work/trixie.sources"
    apt-config dump | grep -E '^Acquire::(https?|Check-Valid-Until|Check-Date|Retries)' \
        >"$work/apt.conf" || true
    mmdebstrap --mode=root --variant=minbase --format=directory \
        --include="$(IFS=,; echo "$*")" --aptopt="$work/apt.conf" \
        --dpkgopt=force-unsafe-io \
        trixie "$work/tree" "$work/trixie.sources"
    # Where packages came from is this machine's affair.
    rm -rf "$work/tree"/etc/apt/sources.list.d/* "$work/tree/etc/apt/sources.list" \
        "$work/tree/etc/apt/apt.conf.d/99mmdebstrap" "$work/tree"/var/lib/apt/lists/*
    : >"$work/tree/etc/resolv.conf"
    # No service is started in a tree.
    printf '#!/bin/sh\nexit 101\n' >"$work/tree/usr/sbin/policy-rc.d"
    chmod 755 "$work/tree/usr/sbin/policy-rc.d"
    mv "$work/tree" "$tree"
    rm -rf "$work"
}

# in_root TREE [HOST:INSIDE…] -- COMMAND…
in_root() {
    local tree=$1 binds=()
    shift
    while [ "$1" != -- ]; do
        binds+=("$1")
        shift
    done
    shift
    # The processes and mounts of the namespaces end with their first process.
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount --pid --net --ipc --uts --fork --kill-child bash -euc '
        tree=$1 count=$2
        shift 2
        mount --make-rprivate /
        mount --bind "$tree" "$tree"
        mount -t proc proc "$tree/proc"
        mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm" 2>/dev/null || true
        for node in null zero full random urandom tty; do
            [ -e "$tree/dev/$node" ] || : >"$tree/dev/$node"
            mount --bind "/dev/$node" "$tree/dev/$node"
        done
        for ((i = 0; i < count; i++)); do
            mkdir -p "$tree/${1#*:}"
            mount --bind "${1%%:*}" "$tree/${1#*:}"
            shift
        done
        ip link set lo up
        exec env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
            PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
            chroot "$tree" "$@"
    ' in_root "$tree" "${#binds[@]}" "${binds[@]}" "$@"
}
