#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# deploy.sh [OPTION…]: the tests of tests/deploy. The chapter on the how-to page has a machine
# of its own and needs no other chapter, so it runs beside them, and its output comes last. With
# options (-k, --keep, --fleet, …) there is one run, with them.
set -euo pipefail
cd "$(dirname "$0")/../.."
pytest=(build/venv/bin/python -m pytest -v -rs -p no:cacheprovider tests/deploy)
[ $# -eq 0 ] || exec "${pytest[@]}" "$@"

mkdir -p build/deploy
log=build/deploy/howto.log
"${pytest[@]}" -k test_7 >"$log" 2>&1 &
howto=$!
# Its machine ends with it. A job in the background would not hear of Ctrl-C.
trap 'kill "$howto" 2>/dev/null || true' EXIT
echo "beside the others: the chapter on the how-to page, $log"
status=0
"${pytest[@]}" -k "not test_7" || status=$?
if kill -0 "$howto" 2>/dev/null; then
    echo "waiting for the chapter on the how-to page: tail -f $log"
fi
wait "$howto" || status=$?
trap - EXIT
cat "$log"
exit "$status"
