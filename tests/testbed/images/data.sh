#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# data.sh FOLDER: makes the demo's data disks in FOLDER.
#
#   movie.img       ext4, label MOVIE: five minutes each of movie-7.ts, movie-3.ts
#                   and movie-1.5.ts, named by their Mbit/s. A disk of its own,
#                   because read-ahead is set for a whole disk
#   media-data.img  ext4, label MEDIA: f01 … f12 of 160 MiB each: several times
#                   a guest's memory, so reading them in turn never finds them
#                   in its cache
#   web-data.img    ext4, label WEB: page.bin of 94 KiB, and files/001 … 150 of
#                   8 MiB each, which wget fetches uncached
#
# Every block is really written with bytes that do not compress, so that no
# layer below can skip it as a hole.
set -euo pipefail

out=$(realpath "$1")
work=$(mktemp -d "$out/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mib=$((1024 * 1024))

# random_bytes SEED BYTES: the same bytes on each machine.
random_bytes() {
    openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$1")" -iv "$(printf '%032x' 0)" \
        -in /dev/zero 2>/dev/null | head -c "$2" || true
}

# film NAME SIZE VIDEO_KBIT AUDIO_KBIT MUX_KBIT: a picture that moves everywhere, with
# noise, so that the encoder needs its rate; the multiplexer pads to the last exactly.
film() {
    ffmpeg -nostdin -v error -y \
        -f lavfi -i "testsrc2=size=$2:rate=25" -f lavfi -i sine=frequency=440:sample_rate=48000 \
        -t 300 -vf noise=alls=24:allf=t \
        -c:v mpeg2video -b:v "$3k" -minrate "$3k" -maxrate "$3k" -bufsize 1835k -g 25 -bf 0 \
        -pix_fmt yuv420p -c:a mp2 -b:a "$4k" \
        -f mpegts -muxrate "$5k" -pcr_period 20 "$work/movie/movie-$1.ts"
}

# A smaller picture costs a slow machine less to play.
make_movie() {
    mkdir "$work/movie"
    film 7 720x576 6200 192 7000
    film 3 480x384 2500 128 3000
    film 1.5 352x288 1150 96 1500
    mke2fs -q -t ext4 -O '^has_journal' -m 0 -L MOVIE -d "$work/movie" "$out/movie.img" 464M
}

# fill IMAGE COMMANDS: debugfs says nothing useful in its exit code.
fill() {
    local image=$1 commands=$2
    debugfs -w -f "$commands" "$image" >"$work/debugfs.log" 2>&1
    if grep -vE '^(debugfs|debugfs [0-9].*|Allocated inode: .*)' "$work/debugfs.log" | grep -q .; then
        cat "$work/debugfs.log" >&2
        return 1
    fi
    e2fsck -fn "$image" >"$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; return 1; }
}

make_media() {
    local number name
    random_bytes 1 $((160 * mib)) >"$work/block"
    {
        for number in $(seq 12); do
            printf -v name 'f%02d' "$number"
            echo "write $work/block $name"
        done
    } >"$work/media"
    mke2fs -q -t ext4 -O '^has_journal' -m 0 -L MEDIA "$out/media-data.img" 2080M
    fill "$out/media-data.img" "$work/media"
}

make_web() {
    local number name
    random_bytes 2 $((8 * mib)) >"$work/block"
    random_bytes 3 $((94 * 1024)) >"$work/page"
    {
        echo "write $work/page page.bin"
        echo "mkdir files"
        echo "cd files"
        for number in $(seq 150); do
            printf -v name '%03d' "$number"
            echo "write $work/block $name"
        done
    } >"$work/web"
    mke2fs -q -t ext4 -O '^has_journal' -m 0 -L WEB "$out/web-data.img" 1300M
    fill "$out/web-data.img" "$work/web"
}

make_movie
make_media
make_web
touch "$out/.complete"
