#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# build.sh TREE: configures QEMU in TREE/build with what development, tests and
# the demo need (a package for production takes Debian's full feature set), and
# builds the emulator, the tools and the qtests.
set -euo pipefail

tree=$(realpath "$1")
build=$tree/build
python=$build/python

configure_once() {
    [ -e "$build/build.ninja" ] && return
    mkdir -p "$build"
    python3 -m venv "$python"
    "$python/bin/pip" -q install --disable-pip-version-check \
        'meson==1.12.1' 'tomli==2.5.0' 'pycotap==1.3.1' 'distlib==0.4.4'
    cd "$build"
    ../configure --python="$python/bin/python3" --target-list=x86_64-softmmu \
        --without-default-features --enable-kvm --enable-tcg --enable-tools \
        --enable-linux-aio --enable-linux-io-uring --enable-cap-ng --enable-pixman \
        --enable-vhost-net --enable-vhost-user --enable-slirp --enable-fdt=system \
        --enable-trace-backends=log --disable-docs --disable-install-blobs --disable-download
}

configure_once
cd "$build"
targets=(qemu-system-x86_64 qemu-img qemu-io qemu-nbd qemu-storage-daemon libqemuutil.a tests/qtest/qos-test)
while IFS= read -r target; do
    targets+=("$target")
done < <(ninja -t targets all | sed -n 's#^\(tests/qtest/sluice-[a-z-]*-test\):.*#\1#p' | sort -u)
exec ninja "${targets[@]}"
