# SPDX-License-Identifier: GPL-2.0-or-later
# How tools/packaging/build.sh makes the package; its head explains the names.
# shellcheck shell=bash disable=SC2034
inputs=(
    controller/src docs/man/sluiced.8.scd docs/man/sluiced.toml.5.scd docs/examples
    tests/pytest.ini tests/unit/controller
    # Unit tests compare the page of groups and the models with the engine's own code.
    qemu-patches/src/include qemu-patches/src/sluice qemu-patches/src/qapi qemu-patches/tests/group-writer.h
)
