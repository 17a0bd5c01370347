#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# fetch.sh [--version] FOLDER [SUITE [SERIES]]: puts the newest source package
# of QEMU SERIES (10.0; "any" for the newest of all) from Debian's suite SUITE
# (trixie) into FOLDER: qemu_*.dsc with its parts, and `version`. With --version
# it only prints that version.
#
# The place it comes from is the machine's own: the APT source that carries
# this machine's release is used for the suite, with lists of its own, so nothing
# of the machine's APT configuration changes.
set -euo pipefail
only_version=
[ "$1" != --version ] || {
    only_version=yes
    shift
}
suite=${2:-trixie}
series=${3:-10.0}
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
apt=$folder/apt

rm -rf "$apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts"
python3 "$here/../../tools/setup/apt_sources.py" "$suite" |
    sed 's/^Types: deb$/Types: deb-src/' >"$apt/parts/source.sources"
options=(
    -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts"
    -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache"
    -o Acquire::Retries=3 -o APT::Sandbox::User=root
)
apt-get "${options[@]}" update >&2

case $series in
any) wanted=. ;;
*) wanted="^1:${series//./\\.}\\." ;;
esac
# shellcheck disable=SC2016  # APT expands $(FILENAME)
version=$(apt-get "${options[@]}" indextargets --format '$(FILENAME)' 'Created-By: Sources' |
    xargs -r /usr/lib/apt/apt-helper cat-file |
    awk -v RS= '/^Package: qemu\n/ { match($0, /\nVersion: [^\n]+/); print substr($0, RSTART + 10, RLENGTH - 10) }' |
    grep -E "$wanted" | sort -V | tail -n 1) || true
[ -n "$version" ] || {
    echo "error: $suite has no QEMU $series; see docs/reference/qemu-patches.md, 'To another QEMU'" >&2
    exit 1
}
if [ -n "$only_version" ]; then
    rm -rf "$apt"
    echo "$version"
    exit
fi
cd "$folder"
apt-get "${options[@]}" source --download-only "qemu=$version"
rm -rf "$apt"
echo "$version" >version
