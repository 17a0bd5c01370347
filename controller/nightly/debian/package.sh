# SPDX-License-Identifier: GPL-2.0-or-later
# How tools/packaging/build.sh makes the package; its head explains the names.
# shellcheck shell=bash disable=SC2034
inputs=(
    controller/nightly tests/demo tests/testbed
    tests/pytest.ini tests/unit/nightly tests/unit/demo tests/unit/testbed
    tools/setup/apt_sources.py docs/man
)

# Its guests carry the agent of the same sources; the host itself needs none.
uses() { bash tools/setup/agent.sh key; }
prepare() {
    bash tools/setup/agent.sh
    mkdir -p "$1/agent"
    cp build/agent/sluice-agent build/agent/sluice-agent.service \
        build/agent/70-sluice-channel.rules "$1/agent/"
}
