#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# build.sh TREE [VENV [VARIANT [PRODUCTS]]]: configures TREE/build if need be and
# builds the programs that Sluice uses. VENV is where the Python environment for configure is
# kept. PRODUCTS is emulator (with qemu-img), qtests (those of virtio and ours), or
# all (default).
#
# VARIANT is the purpose of the build:
#   plain   (default) use, and all tests, with no other machines and devices than
#           these use (src/configs/devices/x86_64-softmmu/sluice.mak)
#   full    the same with all of QEMU's: its own tests
#   asan    clang with the address and undefined-behaviour sanitizers, and
#           QEMU's fuzzer: stress and fuzzing
#   tsan    clang with the thread sanitizer: several I/O threads
#
# With ccache installed, a build in a new folder costs little more than its
# changes: paths inside the tree are looked up relative to it.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
tree=$(cd "$1" && pwd)
venv=${2:-$tree/../venv}
variant=${3:-plain}
which=${4:-all}
jobs=${JOBS:-$(nproc)}

configure_options=(
    --target-list=x86_64-softmmu --without-default-features
    --enable-kvm --enable-tcg --enable-tools --enable-slirp
    --enable-linux-aio --enable-linux-io-uring --enable-cap-ng
    --enable-pixman --enable-vhost-net --enable-vhost-user --enable-fdt=system
    --disable-docs --disable-install-blobs --disable-download
    --disable-debug-info
    # libvirt passes no -L; the firmware is that of the distribution's packages.
    --firmwarepath=/usr/share/qemu:/usr/share/seabios:/usr/lib/ipxe/qemu
)
emulator=(qemu-system-x86_64 qemu-img)
qtests=(tests/qtest/qos-test)
compiler=gcc
[ "$variant" = full ] ||
    configure_options+=(--without-default-devices --with-devices-x86_64=sluice)
case $variant in
plain | full)
    qtests+=(tests/vhost-user-bridge)
    # An addition to QEMU moves all that is linked behind it. Where a hot loop then
    # lies in its cache lines is luck that is to be no part of a comparison with the
    # stock build: every function begins a line, in both.
    configure_options+=(--extra-cflags=-falign-functions=64)
    ;;
asan)
    compiler=clang
    emulator+=(qemu-fuzz-x86_64)
    configure_options+=(--enable-asan --enable-ubsan --enable-fuzzing --extra-cflags=-g1)
    ;;
tsan)
    compiler=clang
    configure_options+=(--enable-tsan --extra-cflags=-g1)
    ;;
*)
    echo "error: variant '$variant' is not known; use plain, full, asan or tsan" >&2
    exit 2
    ;;
esac
for test in "$top"/src/tests/qtest/*-test.c; do
    # A stock tree, or one without the whole series, does not know ours.
    ! grep -q "'$(basename "$test" .c)'" "$tree/tests/qtest/meson.build" ||
        qtests+=("tests/qtest/$(basename "$test" .c)")
done
case $which in
emulator) products=("${emulator[@]}") ;;
qtests) products=("${qtests[@]}") ;;
all) products=("${emulator[@]}" "${qtests[@]}") ;;
*)
    echo "error: products '$which' are not known; use emulator, qtests or all" >&2
    exit 2
    ;;
esac

if command -v ccache >/dev/null; then
    export CCACHE_BASEDIR=$tree CCACHE_NOHASHDIR=1
    export CCACHE_COMPILERCHECK=content CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime
    compiler="ccache $compiler"
fi
configure_options+=(--cc="$compiler" --host-cc="$compiler")

if ! "$venv/bin/python3" -c 'import mesonbuild, pycotap, distlib' 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --no-deps --require-hashes -r "$top/scripts/build-requirements.txt"
fi
if [ ! -e "$tree/build/build.ninja" ]; then
    mkdir -p "$tree/build"
    (cd "$tree/build" && ../configure --python="$venv/bin/python3" "${configure_options[@]}")
fi
nice -n 5 ninja -C "$tree/build" -j "$jobs" "${products[@]}"

# Run from its build tree, QEMU looks for data files only below qemu-bundle.
for folder in /usr/share/qemu /usr/share/seabios /usr/lib/ipxe/qemu; do
    mkdir -p "$tree/build/qemu-bundle$(dirname "$folder")"
    ln -sfn "$folder" "$tree/build/qemu-bundle$folder"
done
