#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the Debian packages into build/deb, which is a flat APT repository. Archives and packages
# for rpm that a build leaves beside its .deb lie there, too.
#
#   build.sh [--new-roots] [NAME…]    NAME: sluice-controller or controller, …;
#                                     without one, all of them. New roots have
#                                     Debian's newest packages, so all is built
#                                     anew in them
#   build.sh --list                   the names
#
# A package is a folder with debian/ in it and, beside debian/control, the file
# debian/package.sh, with these definitions for this script:
#
#   root=base            the Debian 13 root to build in; packages that name the
#                        same share it, with the union of their Build-Depends
#   inputs=(PATH…)       files of the checkout that are copied to the build tree
#                        (at their own place; debian/ goes to its top)
#   uses NAME            other words that the result depends on, one a line
#                        (may fetch needs of the build; default: none)
#   unpack TREE          makes TREE (default: copies inputs)
#   prepare TREE         last changes, TREE/debian is there (default: none)
#   version_of VERSION   the Debian version (default: VERSION itself)
#
# A build finds ccache's folder in CCACHE_DIR, and in /keep the files that earlier builds of the
# package left there to save time.
#
# Build-Depends is read from debian/control or control.in. Roots and finished packages are kept
# in the cache under the hash of their inputs. The build in a root has no network: uses or
# prepare fetch its needs.
. "$(dirname "$0")/../setup/common.sh"
. tools/packaging/root.sh

# The parts of this script that shape a package: a change builds all anew.
recipe() { declare -f load make_tree write_changelog build_one in_root make_root; }
maintainer='Sluice developers <maintainers@sluice.invalid>'
kept=$SLUICE_CACHE/packages
deb=$SLUICE_TOP/build/deb
# Tools of every build root.
tools=(build-essential ccache debhelper lintian)

folders() { git ls-files -co --exclude-standard '*debian/package.sh' | sed 's,/debian/package.sh$,,'; }
control_of() { if [ -e "$1/debian/control.in" ]; then echo "$1/debian/control.in"; else echo "$1/debian/control"; fi; }
name_of() { sed -n 's/^Source: //p' "$(control_of "$1")"; }

# Its settings, in the calling (sub)shell.
load() {
    root=base inputs=()
    uses() { :; }
    unpack() {
        mkdir -p "$1"
        git ls-files -co --exclude-standard -z -- "${inputs[@]}" | tar --null -T - -cf - | tar -C "$1" -xf -
    }
    prepare() { :; }
    version_of() { echo "$1"; }
    folder=$1 package=$(name_of "$1")
    # shellcheck disable=SC1091
    . "$1/debian/package.sh"
}

# build_depends CONTROL: the packages' names; of alternatives the first.
build_depends() {
    perl -MDpkg::Control::HashCore -e '
        my $c = Dpkg::Control::HashCore->new(); $c->load($ARGV[0]);
        for (split /,/, $c->{"Build-Depends"} // "") { print "$1\n" if /^\s*([a-z0-9][a-z0-9+.-]*)/ }
    ' "$1"
}
root_packages() {
    local each
    {
        printf '%s\n' "${tools[@]}"
        for each in $(folders); do
            (
                load "$each" || exit
                [ "$root" != "$1" ] || build_depends "$(control_of "$each")"
            ) || exit
        done
    } | LC_ALL=C sort -u
}
# root_of NAME: prints the root's folder; made if it is not there.
root_of() {
    local wanted key
    wanted=$(root_packages "$1") && key=$(hash_of tools/packaging/root.sh -- "$wanted") || return
    echo "$kept/roots/$1-$key"
}
need_root() {
    local tree wanted packages
    tree=$(root_of "$1")
    [ -d "$tree" ] && { touch "$tree"; return; }
    wanted=$(root_packages "$1")
    mapfile -t packages <<<"$wanted"
    step "build-root-$1" with_lock "packages-root-$1" make_root_once "$tree" "${packages[@]}"
}
make_root_once() {
    [ -d "$1" ] || make_root "$@"
}

# The version of Sluice; after the last release with the time of the last change and the hash of
# the inputs.
#
#   sluice_version KEY CHANGED PATH…
sluice_version() {
    local key=$1 changed=$2 version
    version=$(cat VERSION)
    shift 2
    if [ "$(git tag --points-at HEAD --list "v$version")" ] && [ -z "$(git status --porcelain -- "$@")" ]; then
        echo "$version"
        return
    fi
    echo "$version+git$(date -u -d "@$changed" +%Y%m%d%H%M%S).${key:0:8}"
}
changed_at() {
    local at
    at=$(git log -1 --format=%ct -- "$@")
    echo "${at:-$(git log -1 --format=%ct)}"
}

write_changelog() {
    local tree=$1 version=$2 changed=$3
    {
        printf '%s (%s) trixie; urgency=medium\n\n' "$package" "$version"
        printf '  * Built from the sources of Sluice %s.\n\n' "$(cat VERSION)"
        printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$changed")"
    } >"$tree/debian/changelog"
}

make_tree() {
    local tree=$1 version=$2 changed=$3 file
    unpack "$tree"
    rm -rf "$tree/debian"
    cp -R "$folder/debian" "$tree/debian"
    rm "$tree/debian/package.sh"
    prepare "$tree"
    write_changelog "$tree" "$version" "$changed"
    mkdir -p "$tree/debian/source"
    echo '3.0 (native)' >"$tree/debian/source/format"
    for file in control control.in; do
        [ -e "$tree/debian/$file" ] && sed -i "s/@MAINTAINER@/$maintainer/" "$tree/debian/$file"
    done
    # A file mode that git does not keep.
    chmod 755 "$tree/debian/rules"
}

build_one() {
    local out=$1 tree=$2 version=$3 changed=$4 work
    # Another checkout may have built it while this one waited for the lock.
    [ ! -d "$out" ] || return 0
    work=$(dirname "$tree")
    rm -rf "$work"
    mkdir -p "$work" "$kept/ccache" "$kept/keep/$package"
    make_tree "$tree" "$version" "$changed"
    in_root "$build_root" "$work:/build" "$kept/ccache:/ccache" "$kept/keep/$package:/keep" -- \
        env CCACHE_DIR=/ccache CCACHE_COMPILERCHECK=content \
        DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" \
        nice -n 5 bash -c "cd /build/${tree##*/} && dpkg-buildpackage -nc -b -us -uc"
    # An interrupted copy may have left packages of another version.
    rm -rf "$out.new"
    mkdir -p "$out.new"
    find "$work" -maxdepth 1 '(' -name '*.deb' -o -name '*.rpm' -o -name '*.tar.gz' ')' -exec cp -t "$out.new" {} +
    mv "$out.new" "$out"
    rm -rf "$work"
}

# Silence is the only good answer.
lint() {
    local out=$1 said base status=0
    base=$(root_of base)
    said=$(in_root "$base" "$out:/debs" -- \
        bash -c 'lintian --allow-root /debs/*.deb' 2>&1) || status=$?
    if [ -n "$said" ] || [ "$status" -ne 0 ]; then
        printf '%s\nlintian ended with %s\n' "$said" "$status"
        return 1
    fi
    touch "$out/.complete"
}

# build FOLDER: in a subshell of its own; puts its packages into build/deb.
build() (
    load "$1"
    local words key version changed out build_root sources renewed
    words=$(uses)
    renewed=$(cat "$kept/renewed" 2>/dev/null) || renewed=0
    # Not the root's whole list: build tools of another package change nothing here.
    sources=("${inputs[@]}" "$folder/debian" VERSION)
    key=$(hash_of "${sources[@]}" -- "$(recipe)" "${tools[*]}" "$words" \
        "$(git tag --points-at HEAD --list 'v*')" "$renewed")
    # A package built in another way, or against newer packages, is newer, too.
    changed=$(changed_at "${sources[@]}" tools/packaging)
    [ "$changed" -gt "$renewed" ] || changed=$renewed
    version=$(version_of "$(sluice_version "$key" "$changed" "${sources[@]}" tools/packaging)")
    out=$kept/$package-$key
    if [ ! -e "$out/.complete" ]; then
        build_root=$(root_of "$root")
        need_root "$root"
        [ -d "$out" ] || step "$package" with_lock "packages-$package" \
            build_one "$out" "$kept/$package-$key.build/$package" "$version" "$changed"
        need_root base
        step "$package-lintian" lint "$out"
    fi
    touch "$out/.complete"
    put_in_place "$out"
)

# Only the newest of each package stays in build/deb.
put_in_place() {
    local file earlier=$deb/.$package.list
    mkdir -p "$deb"
    [ ! -e "$earlier" ] || (cd "$deb" && xargs -r rm -f <"$earlier")
    # Listed before it is there, so the next build removes the rest of an interruption.
    for file in "$1"/*; do basename "$file"; done >"$earlier"
    cp --reflink=auto "$1"/* "$deb/"
}

index() {
    (cd "$deb" && dpkg-scanpackages --multiversion . >Packages.new && mv Packages.new Packages)
}
remove_old() {
    remove_unused "$kept" '(sluice-[a-z0-9-]+|crates)-[0-9a-f]{16}(\.build|\.new)?'
    find "$kept/roots" -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -rf {} + 2>/dev/null || true
}

# Held, shared, as long as anything that is started here is in a root.
mkdir -p "$kept"
exec 8>"$kept/in-use.lock"
wanted=()
for argument in "$@"; do
    case $argument in
    --list)
        for one in $(folders); do name_of "$one"; done
        exit 0
        ;;
    --new-roots)
        flock -n 8 || die "another build is in the roots; wait for its end"
        rm -rf "$kept/roots"
        date +%s >"$kept/renewed"
        ;;
    -*) die "unknown option $argument; see the head of $0" ;;
    *) wanted+=("$argument") ;;
    esac
done

# chosen_folders: of the packages wanted, or of all of them.
chosen_folders() {
    local each name one
    for each in $(folders); do
        name=$(name_of "$each")
        [ ${#wanted[@]} -gt 0 ] || echo "$each"
        for one in "${wanted[@]}"; do
            case $name in "$one" | "sluice-$one") echo "$each" ;; esac
        done
    done
}
mapfile -t chosen < <(chosen_folders)
if [ ${#chosen[@]} -eq 0 ] || [ ${#chosen[@]} -lt ${#wanted[@]} ]; then
    die "no such package among ${wanted[*]}; there are: $(for one in $(folders); do name_of "$one"; done | xargs)"
fi
flock -s 8
mkdir -p "$kept/roots"
for one in "${chosen[@]}"; do build "$one"; done
step packages-index index
remove_old
printf '%d packages in build/deb\n' "$(find "$deb" -name '*.deb' | wc -l)"
