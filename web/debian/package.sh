# SPDX-License-Identifier: GPL-2.0-or-later
# How tools/packaging/build.sh makes the package; its head explains the names.
# shellcheck shell=bash disable=SC2034
inputs=(web/src web/package-lock.json docs/man/sluice-web.8.scd tests/pytest.ini tests/unit/web)

# By them the libraries are fetched and laid out.
uses() { hash_of web/package.json web/.npmrc tools/setup/web-assets.sh; }

# The page's libraries, which git does not keep.
prepare() {
    bash tools/setup/web-assets.sh
    cp -R web/src/sluice_web/static/vendor "$1/web/src/sluice_web/static/"
}
