#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# packages.sh PURPOSE…: installs the Debian packages that the purposes need, and only missing
# packages. Services that packages bring are not started. `packages.sh --list PURPOSE…` prints
# the packages and installs nothing.
. "$(dirname "$0")/common.sh"

# One list per purpose, and no package in two of them.
declare -A list=(
    [compile]="build-essential pkg-config python3-venv python3-dev ca-certificates"
    # Python's libvirt module is compiled here.
    [python]="libvirt-dev"
    # The part of the agent that runs in a kernel.
    [agent]="clang libbpf-dev"
    [qemu]="ccache ninja-build flex bison dpkg-dev patch xz-utils
        libglib2.0-dev libpixman-1-dev zlib1g-dev libcap-ng-dev libslirp-dev
        libaio-dev liburing-dev libfdt-dev"
    # Guest images, and the model of a disk.
    [images]="mmdebstrap debian-archive-keyring e2fsprogs nbdkit nbdkit-plugin-dev ffmpeg"
    # Firmware for the guests, libvirt and network namespaces. libvirt-daemon-system
    # makes the user libvirt-qemu, which libvirtd insists on.
    [host]="seabios ipxe-qemu qemu-system-data
        libvirt-daemon libvirt-daemon-system libvirt-clients dnsmasq-base
        iproute2 ethtool procps util-linux"
    [demo]="vlc-bin vlc-plugin-base httperf wget openssh-client"
    # Browser tests, the store's other database, and a QEMU without shaping, which
    # attach must refuse.
    [test]="chromium fonts-dejavu-core postgresql qemu-system-x86"
    [sanitizers]=""
    [loads]="iperf3 iputils-ping"
    [bench]="valgrind"
    [lint]="shellcheck"
)
# Further lists of a purpose.
declare -A needs=(
    [python]=compile [qemu]=compile [agent]=compile [images]=compile
    [demo]="python qemu agent images host"
    [test]="demo loads"
    [sanitizers]="qemu agent"
    [perf]="demo loads" [bench]=qemu
    # All there is to run.
    [test-long]="test sanitizers perf bench"
    [lint]=python
)
case $(debian_release) in
debian-13)
    list[host]+=" libvirt-daemon-driver-qemu libvirt-daemon-log"
    list[sanitizers]+=" libclang-rt-19-dev"
    ;;
debian-12) list[sanitizers]+=" libclang-rt-14-dev" ;;
*) die "$(. /etc/os-release && echo "$PRETTY_NAME") is not supported; use Debian 12 or 13" ;;
esac

# packages_for PURPOSE…: one a line; of a purpose that several need, more than once.
packages_for() {
    local purpose more
    for purpose in "$@"; do
        [ -n "${list[$purpose]:-}${needs[$purpose]:-}" ] ||
            die "packages for '$purpose' are not known; there are: $(printf '%s\n' "${!list[@]}" "${!needs[@]}" | sort -u | xargs)"
        tr -s ' \n' '\n' <<<"${list[$purpose]:-}"
        read -ra more <<<"${needs[$purpose]:-}"
        packages_for "${more[@]}"
    done
}
only_list=
[ "${1:-}" != --list ] || {
    only_list=yes
    shift
}
[ $# -gt 0 ] || die "packages.sh needs a purpose, for example demo or test"
wanted=$(packages_for "$@")
wanted=$(grep . <<<"$wanted" | LC_ALL=C sort -u)
[ -z "$only_list" ] || {
    echo "$wanted"
    exit
}
# shellcheck disable=SC2086  # names
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^installed //p' | LC_ALL=C sort -u) || true
mapfile -t missing < <(LC_ALL=C comm -23 <(echo "$wanted") <(echo "$installed"))
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
    # The next run installs packages that an interruption loses.
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 \
        -o Dpkg::Options::=--force-unsafe-io "${missing[@]}"
}
step packages with_lock packages install_missing
