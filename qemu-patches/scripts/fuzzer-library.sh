#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# fuzzer-library.sh: exit status 0 if clang can link fuzzers; else 1, and the
# reason on standard output. Debian has the library in a package of its own.
set -euo pipefail
command -v clang >/dev/null || {
    echo 'there is no clang; install clang and libclang-rt-dev'
    exit 1
}
library=$(clang -print-runtime-dir)/libclang_rt.fuzzer-$(uname -m).a
[ -e "$library" ] || {
    echo "clang has no fuzzer library ($library); install libclang-rt-$(clang -dumpversion | cut -d . -f 1)-dev"
    exit 1
}
