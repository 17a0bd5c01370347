#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# pack.sh ARCHIVE FILE...: packs the files (the program, its unit, its manual) and the scripts
# beside this one into ARCHIVE. The bytes depend on the files alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
archive=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/sluice-agent"
cp "$@" "$here/install.sh" "$here/uninstall.sh" "$work/sluice-agent/"
chmod 0755 "$work"/sluice-agent/*.sh "$work/sluice-agent/sluice-agent"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w \
    --mtime="@${SOURCE_DATE_EPOCH:-0}" -cf - sluice-agent | gzip -9n >"$archive"
