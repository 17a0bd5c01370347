#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs the Debian packages that building, testing and the demo need, and
# only those that are missing. Services that packages bring are not started.
. "$(dirname "$0")/common.sh"

# What each group is for; one line per purpose, so that a reader sees why.
packages=(
    # QEMU's build
    build-essential ccache ninja-build pkg-config flex bison dpkg-dev patch xz-utils
    libglib2.0-dev libpixman-1-dev zlib1g-dev libcap-ng-dev libslirp-dev
    libaio-dev liburing-dev libfdt-dev python3-venv python3-dev
    # firmware for the guests
    seabios ipxe-qemu qemu-system-data
    # a QEMU without shaping, which attach must refuse
    qemu-system-x86
    # the host side: libvirt, network namespaces
    # (libvirt-daemon-system makes the user libvirt-qemu, which libvirtd insists on)
    libvirt-dev libvirt-daemon libvirt-daemon-system libvirt-clients dnsmasq-base
    iproute2 ethtool procps util-linux ca-certificates
    # the store's other database
    postgresql
    # guest images and the model of a disk
    mmdebstrap debian-archive-keyring e2fsprogs nbdkit nbdkit-plugin-dev
    # the demo's clients
    vlc-bin vlc-plugin-base ffmpeg httperf wget openssh-client
    # the experiments' clients
    iperf3 iputils-ping
    # browser tests, benchmarks, linters
    chromium fonts-dejavu-core valgrind shellcheck clang
)
case $(debian_release) in
debian-13) packages+=(libvirt-daemon-driver-qemu libvirt-daemon-log libclang-rt-19-dev) ;;
debian-12) packages+=(libclang-rt-14-dev) ;;
*) die "$(. /etc/os-release && echo "$PRETTY_NAME") is not supported; use Debian 12 or 13" ;;
esac

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
        missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
[ "$(id -u)" -eq 0 ] || die "missing packages: ${missing[*]}; run as root, or install them"

install_missing() {
    export DEBIAN_FRONTEND=noninteractive
    # A policy of "no" keeps package scripts from starting daemons. One of ours may
    # be left from a run that was killed; another one is the administrator's.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ] || grep -qs 'tools/setup/packages.sh' "$policy"; then
        printf '#!/bin/sh\n# Made by tools/setup/packages.sh, for as long as it runs.\nexit 101\n' \
            >"$policy"
        chmod 755 "$policy"
        # shellcheck disable=SC2064  # the name is gone when the function has returned
        trap "rm -f '$policy'" EXIT
    fi
    apt-get update
    # What an interruption loses here, the next run installs again.
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 \
        -o Dpkg::Options::=--force-unsafe-io "${missing[@]}"
}
step packages with_lock packages install_missing
