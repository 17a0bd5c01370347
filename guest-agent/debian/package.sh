# SPDX-License-Identifier: GPL-2.0-or-later
# How tools/packaging/build.sh makes the package; its head explains the names.
# shellcheck shell=bash disable=SC2034
inputs=(guest-agent docs/man/sluice-agent.8.scd)

# The crates of Cargo.lock: there is no network in the build root.
prepare() {
    local crates
    crates=$SLUICE_CACHE/packages/crates-$(hash_of guest-agent/Cargo.lock)
    if [ ! -e "$crates/.complete" ]; then
        rm -rf "$crates"
        mkdir -p "$crates"
        cargo vendor --locked --versioned-dirs --manifest-path guest-agent/Cargo.toml "$crates/vendor"
    fi
    touch "$crates/.complete"
    cp -R "$crates/vendor" "$1/vendor"
    mkdir -p "$1/.cargo"
    printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "vendor"\n' \
        >"$1/.cargo/config.toml"
}
