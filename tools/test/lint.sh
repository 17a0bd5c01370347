#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Linters and format checks; changes nothing. Every finding is printed; the
# exit code tells whether there was any.
. "$(dirname "$0")/../setup/common.sh"

failed=0
check() {
    local name=$1
    shift
    if "$@"; then printf '%-12s ok\n' "$name"; else
        printf '%-12s FAILED\n' "$name"
        failed=1
    fi
}
every_file_has_a_licence() {
    local bare
    bare=$(git ls-files -z -- '*.c' '*.h' '*.py' '*.rs' '*.sh' '*.js' '*.css' '*.html' '*.md' \
        '*.toml' '*.json' '*.patch' '*.yml' '*.j2' Makefile .ci/run "${maintainers[@]}" |
        xargs -0 grep -L 'SPDX-License-Identifier' |
        grep -vE 'package(-lock)?\.json$|\.lock$|\.md$' || true)
    [ -z "$bare" ] || { printf 'no SPDX line: %s\n' "$bare"; return 1; }
}
# ansible-lint finds its own configuration, and the collection's root, where it runs.
the_collection_is_clean() {
    bash tools/setup/collection.sh
    (
        cd ansible || exit
        export PATH=$SLUICE_TOP/build/venv/bin:$PATH
        export ANSIBLE_COLLECTIONS_PATH=$SLUICE_TOP/build/ansible
        yamllint --strict . && ansible-lint -q --nocolor --strict
    )
}
# Scripts of the packages, which run as root on every host.
maintainers=('*/debian/*.preinst' '*/debian/*.postinst' '*/debian/*.prerm' '*/debian/*.postrm')
listed=$(git ls-files '*.sh' .ci/run "${maintainers[@]}")
mapfile -t scripts <<<"$listed"

check ruff build/venv/bin/ruff check .
check format build/venv/bin/ruff format --check .
check shellcheck shellcheck -x -e SC1091,SC2317 "${scripts[@]}"
check ansible the_collection_is_clean
check agent bash tools/setup/agent.sh lint
check licences every_file_has_a_licence
build/venv/bin/python tools/test/words.py .
exit "$failed"
