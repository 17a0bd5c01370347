#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the guest agent, one static binary, into the cache; build/agent links
# to its folder. `agent.sh test` runs its tests, `agent.sh lint` its linters, and
# `agent.sh key` prints the hash of all that the binary depends on.
. "$(dirname "$0")/common.sh"

rust_at_least=1.85
target=x86_64-unknown-linux-gnu
crate=$SLUICE_TOP/guest-agent
kept=$SLUICE_CACHE/agent

rust_is_new_enough() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$version" ] && [ "$(printf '%s\n' "$rust_at_least" "${version%%[-+]*}" | sort -V | head -n 1)" = "$rust_at_least" ]
}
# Debian 12 keeps its own Rust at 1.63 and carries a current one beside it.
is_debian_12() { [ "$(. /etc/os-release && echo "$ID-$VERSION_ID")" = debian-12 ]; }
install_packages() {
    [ "$(id -u)" -eq 0 ] || die "missing; as root: apt-get install $*"
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 "$@")
    "${install[@]}" || { apt-get update && "${install[@]}"; }
}
install_rust() {
    if is_debian_12; then install_packages cargo-web rustc-web; else install_packages cargo rustc; fi
}
install_linters() {
    if is_debian_12; then install_packages rust-web-clippy rustfmt-web; else install_packages rust-clippy rustfmt; fi
}
need_linters() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    step rust-linters install_linters
}
need_rust() {
    rust_is_new_enough && return
    step rust install_rust
    hash -r
    rust_is_new_enough || die "$(cargo --version) is too old; the agent needs Rust $rust_at_least or newer"
}

export RUSTFLAGS="-C target-feature=+crt-static"
# The C library is in the binary.
toolchain() {
    debian_release
    rustc --version
    dpkg-query -W -f '${Version}\n' libc6-dev libbpf-dev clang
    echo "$RUSTFLAGS"
}
key() {
    local with
    with=$(toolchain)
    hash_of guest-agent tools/setup/agent.sh -- "$with"
}
# Compiler output is shared by all versions of the sources, and cargo does not see
# that the C library is another. The lock is held as long as anything runs here.
use_target_folder() {
    local with
    with=$(toolchain)
    CARGO_TARGET_DIR=$kept/target-$(printf '%s' "$with" | sha256sum | cut -c1-8)
    export CARGO_TARGET_DIR
    mkdir -p "$kept"
    exec 8>"$kept/in-use.lock"
    flock -s 8
    [ ! -d "$CARGO_TARGET_DIR" ] || touch "$CARGO_TARGET_DIR/.complete"
}
# Cargo goes by the times of files: output that another checkout made since counts as newer than these
# sources, though it is of others.
take_sources_as_new() { find "$crate" -name '*.rs' -exec touch {} +; }
take_over_output() {
    local owner=$CARGO_TARGET_DIR/.checkout
    [ "$(cat "$owner" 2>/dev/null)" != "$crate" ] || return 0
    mkdir -p "$CARGO_TARGET_DIR"
    take_sources_as_new
    printf '%s\n' "$crate" >"$owner"
}
# The last step, as it gives the lock away: unless somebody else is at it.
remove_old() {
    ! flock -n 8 || remove_unused "$kept" '(target(-[0-9a-f]{8})?|[0-9a-f]{16}(\.new)?)'
}

build() {
    local out=$1
    # Another checkout may have built it while this one waited for the lock.
    [ ! -x "$out/sluice-agent" ] || return 0
    rm -rf "$out.new"
    take_sources_as_new
    cargo build --release --locked --target "$target" --manifest-path "$crate/Cargo.toml"
    mkdir -p "$out.new"
    cp "$CARGO_TARGET_DIR/$target/release/sluice-agent" "$crate/systemd/"* "$out.new/"
    rm -rf "$out"
    mv "$out.new" "$out"
}

need_rust >&2
use_target_folder
case ${1:-build} in
build)
    out=$kept/$(key)
    [ -x "$out/sluice-agent" ] || with_lock agent step agent build "$out"
    touch "$out/.complete"
    link_build agent "$out"
    remove_old
    ;;
key) key ;;
test)
    take_over_output
    # Agents see all processes of a machine: of two at a time each would adopt the other's orphans.
    RUST_TEST_THREADS=1 cargo test --locked --target "$target" --manifest-path "$crate/Cargo.toml"
    ;;
lint)
    need_linters
    take_over_output
    cargo fmt --check --manifest-path "$crate/Cargo.toml"
    cargo clippy --locked --all-targets --target "$target" --manifest-path "$crate/Cargo.toml" -- -D warnings
    ;;
*) die "unknown argument $1; use build, key, test or lint" ;;
esac
