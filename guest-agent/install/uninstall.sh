#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# sluice-agent-uninstall: takes away what install.sh installed. A stop of the agent takes its
# tags off all processes.
set -eu
[ "$(id -u)" = 0 ] || { echo "sluice-agent-uninstall: needs root: run it with sudo" >&2; exit 1; }
systemctl --quiet disable --now sluice-agent.service 2>/dev/null || true
rm -f /etc/systemd/system/sluice-agent.service /usr/local/sbin/sluice-agent \
    /etc/udev/rules.d/70-sluice-channel.rules
systemctl daemon-reload
systemctl reset-failed sluice-agent.service 2>/dev/null || true
rm -f /usr/local/sbin/sluice-agent-uninstall
echo "sluice-agent is removed"
