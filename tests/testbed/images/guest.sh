#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# guest.sh FOLDER: makes a Debian 13 guest in FOLDER: vmlinuz, initrd.img,
# root.img (ext4, label sluice-root) and the key id_ed25519 that opens its ssh.
# Nothing is mounted and no loop device is used.
set -euo pipefail

out=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
suite=trixie
packages=(
    linux-image-cloud-amd64 kmod busybox-static
    systemd-sysv udev iproute2 procps openssh-server
    # the programs of the demo and of the experiments
    vlc-bin vlc-plugin-base nginx-light wget fio iperf3
    # started by udev where a guest has its channel
    qemu-guest-agent
)
# Units that wait for hardware, write back to disk or talk to nobody here.
masked=(
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer
    systemd-tmpfiles-clean.timer getty.target systemd-logind.service
    systemd-pstore.service systemd-random-seed.service systemd-hwdb-update.service
    systemd-journal-catalog-update.service systemd-update-done.service ldconfig.service
    systemd-firstboot.service systemd-machine-id-commit.service systemd-binfmt.service
    proc-sys-fs-binfmt_misc.automount sys-kernel-config.mount sys-fs-fuse-connections.mount
    dev-hugepages.mount systemd-tpm2-setup.service systemd-tpm2-setup-early.service
    systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-pcrmachine.service
    systemd-hibernate-clear.service systemd-sysusers.service systemd-ask-password-wall.path
    systemd-ask-password-console.path sshd-keygen.service systemd-timesyncd.service
    systemd-pcrlock.socket systemd-pcrextend.socket systemd-creds.socket
    systemd-sysext.socket systemd-hostnamed.socket e2scrub_reap.service
)

work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/tree

make_tree() {
    python3 "$here/../../../tools/setup/apt_sources.py" "$suite" >"$work/guest.sources"
    # The machine's own way to its sources: proxies, certificates, stale snapshots.
    apt-config dump | grep -E '^Acquire::(https?|Check-Valid-Until|Check-Date|Retries)' \
        >"$work/apt.conf" || true
    mmdebstrap --mode=root --variant=minbase --format=directory \
        --include="$(IFS=,; echo "${packages[*]}")" --aptopt="$work/apt.conf" \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$suite" "$tree" "$work/guest.sources"
    # Where the packages came from is this machine's affair, not the guest's.
    rm -rf "$tree"/etc/apt/sources.list.d/* "$tree/etc/apt/sources.list" \
        "$tree/etc/apt/apt.conf.d/99mmdebstrap" "$tree"/var/lib/apt/lists/* \
        "$tree"/var/log/*.log "$tree"/var/log/apt
}

configure_tree() {
    local unit system=$tree/etc/systemd/system
    for unit in "${masked[@]}"; do
        ln -sf /dev/null "$system/$unit"
    done
    # No generator has anything to generate here, and systemd gives up for good
    # when it loses them, as it did in a very slow guest of an emulated machine.
    mkdir -p "$tree/etc/systemd/system-generators"
    for unit in "$tree"/usr/lib/systemd/system-generators/*; do
        ln -sf /dev/null "$tree/etc/systemd/system-generators/$(basename "$unit")"
    done
    ln -sf /usr/lib/systemd/system/multi-user.target "$system/default.target"
    echo sluice-guest >"$tree/etc/hostname"
    printf '127.0.0.1 localhost\n' >"$tree/etc/hosts"
    : >"$tree/etc/resolv.conf"
    # An id that is there spares the guest its first-boot work.
    tr -d - </proc/sys/kernel/random/uuid >"$tree/etc/machine-id"
    mkdir -p "$tree/opt/sluice" "$tree"/etc/systemd/{journald,system}.conf.d
    printf '[Journal]\nStorage=volatile\nForwardToConsole=no\n' \
        >"$tree/etc/systemd/journald.conf.d/guest.conf"
    # Nested in an emulated machine, a service may take minutes to start.
    printf '[Manager]\nDefaultTimeoutStartSec=15min\nDefaultDeviceTimeoutSec=15min\n' \
        >"$tree/etc/systemd/system.conf.d/guest.conf"
    # VLC refuses to run as root.
    chroot "$tree" useradd --create-home --shell /bin/bash player
}

# An installed machine leaves the power button to systemd-logind, which wants a
# message bus; libvirt's shutdown must work here too.
configure_power_button() {
    cat >"$tree/usr/local/sbin/await-power-button" <<'BUTTON'
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Powers off at the first event of the ACPI power button.
modprobe -a button evdev
for event in /sys/class/input/event*; do
    if [ "$(cat "$event/device/name")" = "Power Button" ]; then
        # One event; a read of less than its 24 bytes is refused.
        head -c 24 "/dev/input/${event##*/}" >/dev/null || exit 1
        exec systemctl poweroff
    fi
done
echo "no power button"
exit 1
BUTTON
    chmod 0755 "$tree/usr/local/sbin/await-power-button"
    cat >"$tree/etc/systemd/system/power-button.service" <<'UNIT'
[Unit]
Description=Power off at the press of the power button

[Service]
ExecStart=/usr/local/sbin/await-power-button
Restart=on-failure
RestartSec=2

[Install]
WantedBy=multi-user.target
UNIT
    chroot "$tree" systemctl --quiet enable power-button.service
}

configure_ssh() {
    ssh-keygen -q -t ed25519 -N '' -C sluice-test -f "$out/id_ed25519.new"
    mv "$out/id_ed25519.new" "$out/id_ed25519"
    mv "$out/id_ed25519.new.pub" "$out/id_ed25519.pub"
    install -d -m 0700 "$tree/root/.ssh"
    install -m 0600 "$out/id_ed25519.pub" "$tree/root/.ssh/authorized_keys"
    chroot "$tree" passwd --quiet --lock root
    rm -f "$tree"/etc/ssh/ssh_host_*
    chroot "$tree" ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
    # PAM would look for services that are not there; only keys are accepted.
    cat >"$tree/etc/ssh/sshd_config.d/guest.conf" <<'SSHD'
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxSessions 64
MaxStartups 64
SSHD
}

configure_nginx() {
    cat >"$tree/etc/nginx/nginx.conf" <<'NGINX'
user www-data;
worker_processes auto;
pid /run/nginx.pid;
error_log /var/log/nginx/error.log;
events {
    worker_connections 2048;
}
http {
    sendfile on;
    tcp_nopush on;
    access_log off;
    default_type application/octet-stream;
    server {
        listen 80 default_server backlog=1024;
        root /srv/web;
        # A read that waits for a slow disk must not hold up the pages in memory.
        location /files/ {
            aio threads;
        }
    }
}
NGINX
    # Only the guest that has the web disk serves it.
    mkdir -p "$tree/etc/systemd/system/nginx.service.d"
    printf '[Unit]\nConditionPathIsMountPoint=/srv/web\n' \
        >"$tree/etc/systemd/system/nginx.service.d/guest.conf"
}

make_initrd() {
    local kernel=$1 root=$work/initrd path
    mkdir -p "$root/bin" "$root/modules"
    cp "$tree/usr/bin/busybox" "$root/bin/busybox"
    install -m 0755 "$here/initrd-init" "$root/init"
    # In the order in which they must be loaded; what the kernel has built in
    # needs no file.
    for module in virtio_blk virtio_net virtio_console ext4; do
        chroot "$tree" modprobe --show-depends -S "$kernel" "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$work/modules"
    while read -r path; do
        case $path in
        *.xz) xz -dc "$tree$path" >"$root/modules/$(basename "$path" .xz)" ;;
        *) cp "$tree$path" "$root/modules/" ;;
        esac
        basename "$path" .xz >>"$root/modules/order"
    done <"$work/modules"
    # The guest's own static busybox packs it: one tool less to install.
    (cd "$root" && find . | ./bin/busybox cpio -o -H newc -R 0:0 | gzip -1) >"$out/initrd.img"
}

make_tree
kernel=$(basename "$tree"/usr/lib/modules/*)
configure_tree
configure_power_button
configure_ssh
configure_nginx
make_initrd "$kernel"
cp "$tree/boot/vmlinuz-$kernel" "$out/vmlinuz"
rm -rf "${tree:?}"/boot/*
# No journal: a guest's root lives in a throw-away overlay.
rm -f "$out/root.img"
mke2fs -q -t ext4 -O '^has_journal' -m 0 -L sluice-root -d "$tree" "$out/root.img" 1536M
touch "$out/.complete"
