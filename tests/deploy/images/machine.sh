#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# machine.sh FOLDER: makes a Debian 13 machine in FOLDER, as an installer leaves
# it, with nothing of libvirt: vmlinuz, initrd.img, root.img (ext4), and
# dpkg-status, from which the packages that a deployment adds are worked out.
# The same image is the guest of the machines. Nothing is mounted and no loop
# device is used.
#
# The kernel command line makes an instance of it: systemd.hostname=, ip= and
# bridge= (systemd-network-generator), root=, and the ssh key of the run as the
# credential ssh.authorized_keys.root.
set -euo pipefail

out=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
setup=$here/../../../tools/setup
suite=trixie
packages=(
    # the plain kernel, as on a real host: the cloud one has fewer modules
    linux-image-amd64 kmod busybox-static apparmor
    systemd-sysv udev dbus libpam-systemd iproute2 procps
    openssh-server python3 sudo ca-certificates
)
# They would take dpkg's lock or the processors in the middle of a test.
masked=(
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer
    e2scrub_all.timer e2scrub_reap.service systemd-networkd-wait-online.service
    getty.target
)

work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/tree

make_tree() {
    python3 "$setup/apt_sources.py" "$suite" >"$work/machine.sources"
    # The machine's own way to its sources: proxies, certificates, stale snapshots.
    apt-config dump | grep -E '^Acquire::(https?|Check-Valid-Until|Check-Date|Retries)' \
        >"$work/apt.conf" || true
    mmdebstrap --mode=root --variant=minbase --format=directory \
        --include="$(IFS=,; echo "${packages[*]}")" --aptopt="$work/apt.conf" \
        "$suite" "$tree" "$work/machine.sources"
    # Where the packages came from is this machine's affair.
    rm -rf "$tree"/etc/apt/sources.list.d/* "$tree/etc/apt/sources.list" \
        "$tree/etc/apt/apt.conf.d/99mmdebstrap" "$tree"/var/lib/apt/lists/* \
        "$tree"/var/log/*.log "$tree"/var/log/apt
}

configure_tree() {
    local unit
    for unit in "${masked[@]}"; do
        ln -sf /dev/null "$tree/etc/systemd/system/$unit"
    done
    chroot "$tree" systemctl --quiet set-default multi-user.target
    chroot "$tree" systemctl --quiet enable systemd-networkd.service systemd-network-generator.service
    echo machine >"$tree/etc/hostname"
    printf '127.0.0.1 localhost\n' >"$tree/etc/hosts"
    : >"$tree/etc/resolv.conf"
    # The operator: signs in with a key and becomes root by sudo.
    chroot "$tree" useradd --create-home --shell /bin/bash ops
    install -d -m 0700 -o 1000 -g 1000 "$tree/home/ops/.ssh"
    install -m 0440 /dev/stdin "$tree/etc/sudoers.d/ops" <<<'ops ALL=(ALL) NOPASSWD: ALL'
    printf 'PasswordAuthentication no\nMaxStartups 64\n' >"$tree/etc/ssh/sshd_config.d/machine.conf"
    # The machine boots from the initrd beside its image, so making the one in
    # /boot anew with each package would only burn emulated processors.
    sed -i 's/^update_initramfs=.*/update_initramfs=no/' "$tree/etc/initramfs-tools/update-initramfs.conf"
    printf '/dev/vda / ext4 rw,noatime 0 1\n' >"$tree/etc/fstab"
    # The installed machine's own: each instance makes a new one at its first boot.
    : >"$tree/etc/machine-id"
}

# An initrd of a few modules and busybox: initramfs-tools' own takes three times
# as long to boot under emulation.
make_initrd() {
    local kernel=$1 root=$work/initrd path module
    mkdir -p "$root/bin" "$root/modules"
    cp "$tree/usr/bin/busybox" "$root/bin/busybox"
    install -m 0755 "$here/initrd-init" "$root/init"
    for module in virtio_pci virtio_blk virtio_net ext4; do
        chroot "$tree" modprobe --show-depends -S "$kernel" "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$work/modules"
    while read -r path; do
        case $path in
        *.xz) xz -dc "$tree$path" >"$root/modules/$(basename "$path" .xz)" ;;
        *) cp "$tree$path" "$root/modules/" ;;
        esac
        basename "$path" .xz >>"$root/modules/order"
    done <"$work/modules"
    (cd "$root" && find . | ./bin/busybox cpio -o -H newc -R 0:0 | gzip -1) >"$out/initrd.img"
}

make_tree
kernel=$(basename "$tree"/usr/lib/modules/*)
configure_tree
make_initrd "$kernel"
cp "$tree/boot/vmlinuz-$kernel" "$out/vmlinuz"
cp "$tree/var/lib/dpkg/status" "$out/dpkg-status"
rm -f "$out/root.img"
mke2fs -q -t ext4 -m 0 -L machine -d "$tree" "$out/root.img" 24G
touch "$out/.complete"
