#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# fetch.sh FOLDER: downloads Debian's newest QEMU 10.0 source package of the
# suite trixie into FOLDER and unpacks it, Debian's patches applied, as
# FOLDER/source. Where Debian comes from is taken from this machine's own APT
# configuration, in a private one, so that the machine's is left alone.
# FOLDER/version holds the version.
set -euo pipefail

suite=${SLUICE_QEMU_SUITE:-trixie}
series=${SLUICE_QEMU_SERIES:-10.0.}
folder=$(realpath "$1")
top=$(cd "$(dirname "$0")/../.." && pwd)

apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/sources.list.d"
python3 "$top/tests/testbed/images/apt_sources.py" "$suite" |
    sed 's/^Types: deb$/Types: deb-src/' >"$apt/sources.list.d/source.sources"
options=(
    -o Dir::Etc::SourceList=/dev/null
    -o Dir::Etc::SourceParts="$apt/sources.list.d"
    -o Dir::State::Lists="$apt/lists"
    -o APT::Sandbox::User=root
)

apt-get "${options[@]}" update
version=$(apt-cache "${options[@]}" showsrc --only-source qemu |
    sed -n "s/^Version: \(.*:$series.*\)/\1/p" | sort -V | tail -n 1)
[ -n "$version" ] || {
    echo "error: suite $suite offers no QEMU ${series}x source; its sources are in $apt/sources.list.d" >&2
    exit 1
}
cd "$folder"
apt-get "${options[@]}" source --download-only "qemu=$version"
rm -rf source
dpkg-source --no-check --extract qemu_*.dsc source
echo "$version" >version
rm -rf "$apt"
