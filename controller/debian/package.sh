# SPDX-License-Identifier: GPL-2.0-or-later
# How tools/packaging/build.sh makes the package; its head explains the names.
# shellcheck shell=bash disable=SC2034
inputs=(
    controller/src docs/man/sluiced.8.scd docs/man/sluiced.toml.5.scd requirements.lock docs/examples
    tests/pytest.ini tests/unit/controller
    # A unit test compares the page of groups with the engine's own code.
    qemu-patches/src/include qemu-patches/src/sluice
)

# What Debian 13 lacks comes from the lock file.
prepare() { vendor "$1/vendor" flask-smorest; }
