#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# install.sh: installs or upgrades the agent from the folder of this script, in a guest of any
# distribution with systemd. As root. sluice-agent-uninstall takes it away again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=/usr/local/sbin
units=/etc/systemd/system
rules=/etc/udev/rules.d

fail() {
    echo "sluice-agent: $1" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "install.sh needs root: run it with sudo"
[ "$(uname -m)" = x86_64 ] || fail "this archive is for x86_64; the guest is $(uname -m)"
# A file of /usr/sbin belongs to the package, which upgrades it. On some systems /usr/sbin
# is /usr/local/sbin's neighbour by another name: only a real file there counts.
[ ! -e /usr/sbin/sluice-agent ] ||
    fail "the package sluice-agent is installed: upgrade that, or remove it first"
[ -d /run/systemd/system ] ||
    fail "the guest runs no systemd: copy sluice-agent to $bin and have the init system start it"
mkdir -p "$bin" "$units" "$rules" 2>/dev/null || true
[ -w "$bin" ] || fail "$bin cannot be written: on an image-based system add the files to the image"

# A file that runs is replaced, not written over.
cp "$here/sluice-agent" "$bin/.sluice-agent.new"
chmod 0755 "$bin/.sluice-agent.new"
"$bin/.sluice-agent.new" --version >/dev/null || fail "the program does not start on this kernel"
mv "$bin/.sluice-agent.new" "$bin/sluice-agent"
cp "$here/uninstall.sh" "$bin/sluice-agent-uninstall"
chmod 0755 "$bin/sluice-agent-uninstall"
sed "s,/usr/sbin/sluice-agent,$bin/sluice-agent,g" "$here/sluice-agent.service" \
    >"$units/sluice-agent.service"
cp "$here/70-sluice-channel.rules" "$rules/"
# SELinux: the labels of the places, not of the archive.
! command -v restorecon >/dev/null 2>&1 ||
    restorecon "$bin/sluice-agent" "$bin/sluice-agent-uninstall" "$units/sluice-agent.service" \
        "$rules/70-sluice-channel.rules"

# The device of the channel, if there is one, is enabled by the rule.
udevadm control --reload
udevadm trigger --action=add --subsystem-match=pci --attr-match=device=0x10fc
systemctl daemon-reload
systemctl --quiet enable sluice-agent.service
systemctl restart sluice-agent.service
echo "sluice-agent $("$bin/sluice-agent" --version | cut -d ' ' -f 2) is installed and runs"
