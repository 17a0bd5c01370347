#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# repository.sh FOLDER DPKG_STATUS DEBS PACKAGE…: makes FOLDER/repository, a flat
# APT repository of the Debian packages that a machine with this dpkg status
# needs for PACKAGE… (names of Debian's or of packages in the folder DEBS), with
# what they depend on (the roles install nothing that is only recommended). Our
# own packages are not in it.
#
# Nothing of this machine's APT state is read but its sources, and nothing is
# changed; an interrupted download goes on where it stopped.
set -euo pipefail

out=$(realpath "$1")
status=$(realpath "$2")
debs=$(realpath -m "$3")
shift 3
here=$(cd "$(dirname "$0")" && pwd)
suite=trixie
state=$out/apt
mkdir -p "$state"/{lists/partial,archives/partial,sources,etc} "$out/repository"

python3 "$here/../../../tools/setup/apt_sources.py" "$suite" >"$state/sources/debian.sources"
if [ -e "$debs/Packages" ]; then
    printf 'Types: deb\nURIs: copy:%s\nSuites: ./\nTrusted: yes\n' "$debs" >"$state/sources/own.sources"
fi
# The machine's own way to its sources stays (proxies, certificates); where apt
# keeps things and what it takes for installed does not.
cat >"$state/apt.conf" <<CONF
Dir::State "$state";
Dir::State::lists "$state/lists";
Dir::State::status "$status";
Dir::State::extended_states "$state/extended_states";
Dir::Cache "$state";
Dir::Cache::archives "$state/archives";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$state/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$state/etc";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
CONF
export APT_CONFIG=$state/apt.conf
apt-get -q update
apt-get -q -y --download-only install "$@"

rm -f "$out"/repository/*
find "$state/archives" -maxdepth 1 -name '*.deb' | while IFS= read -r deb; do
    case $(dpkg-deb -f "$deb" Package) in
    sluice-*) continue ;;
    esac
    ln -f "$deb" "$out/repository/"
done
(cd "$out/repository" && dpkg-scanpackages -m . >Packages 2>"$state/scan.log")
rm -rf "$state/lists"
touch "$out/.complete"
