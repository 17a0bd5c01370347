# SPDX-License-Identifier: GPL-2.0-or-later
"""The set-up scripts in a small checkout: what a build depends on, and its end.

The scripts are the real ones. Compilers are stubs that say a version and write
a file, so that what is built, and when it is built anew, shows in a moment.
"""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
SETUP = "tools/setup"
GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")


class Checkout:
    """A checkout with files of its own, and a cache that others may share."""

    def __init__(self, folder: Path, cache: Path, scripts: Iterable[str]):
        self.top = folder
        self.bin = folder.parent / "bin"
        self.cache = cache
        self.bin.mkdir(exist_ok=True)
        for script in ("common.sh", *scripts):
            self.write(f"{SETUP}/{script}", (TOP / SETUP / script).read_text())
        self.write(".gitignore", "build/\n")
        subprocess.run([*GIT, "init", "-q", str(folder)], check=True)

    def write(self, name: str, text: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, script: str) -> None:
        """A command that is found before the machine's."""
        (self.bin / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.bin / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        path = f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "HOME": str(self.top.parent), "SLUICE_CACHE": str(self.cache)}

    def run(self, *command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            command,
            cwd=self.top,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def shell(self, script: str) -> subprocess.CompletedProcess:
        return self.run("bash", "-c", f". {SETUP}/common.sh; {script}")

    def built(self, script: str, link: str) -> str:
        """Run the script; the folder that it links to."""
        name, *options = script.split()
        done = self.run("bash", f"{SETUP}/{name}", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return os.readlink(self.top / "build" / link)


@pytest.fixture
def checkout(tmp_path):
    def make(*scripts: str, name: str = "a checkout") -> Checkout:
        return Checkout(tmp_path / name, tmp_path / "the cache", scripts)

    return make


# What a build depends on


def key(checkout: Checkout, what: str) -> str:
    done = checkout.shell(f'key=$(hash_of {what}); echo "$key"')
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_key_follows_contents_names_and_words(checkout):
    one = checkout()
    file = one.write("src/a.c", "1")
    keys = [key(one, "src"), key(one, "src -- word")]
    file.write_text("2")
    keys.append(key(one, "src"))
    file.rename(file.with_name("b.c"))
    keys.append(key(one, "src"))
    one.write("src/new file.c", "not yet in git")
    keys.append(key(one, "src"))
    assert len(set(keys)) == len(keys) and all(len(each) == 16 for each in keys)
    one.write("src/build/product", "ignored")
    assert key(one, "src") == keys[-1]


def test_a_deleted_source_is_no_error(checkout):
    one = checkout()
    one.write("src/a.c", "1")
    last = one.write("src/z.c", "1")
    subprocess.run([*GIT, "-C", str(one.top), "add", "."], check=True)
    before = key(one, "src")
    last.unlink()
    assert key(one, "src") not in ("", before)


@pytest.mark.parametrize("what", ["src gone", "gone"])
def test_a_source_that_is_missing_is_said(checkout, what):
    """A folder that was renamed would silently be no part of the key any more."""
    one = checkout()
    one.write("src/a.c", "1")
    done = one.shell(f"key=$(hash_of {what}); echo built")
    assert done.returncode != 0 and "built" not in done.stdout
    assert "error: gone, on which a build depends, is not in" in done.stderr


def test_without_git_s_answer_there_is_no_key(checkout):
    """As in the sources without their .git."""
    one = checkout()
    one.write("src/a.c", "1")
    one.program("git", "echo 'fatal: not a git repository' >&2; exit 128")
    done = one.shell("key=$(hash_of src); echo built")
    assert done.returncode != 0 and "built" not in done.stdout
    assert "not a git repository" in done.stderr and "could not be read" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_checkout_of_another_user_has_the_same_key(checkout):
    """Whoever runs its scripts trusts it, as root where a job's files are a user's."""
    one = checkout()
    one.write("src/a.c", "1")
    key = one.shell("hash_of src").stdout
    for path in (one.top, *one.top.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    refused = one.run("git", "ls-files")
    assert "dubious ownership" in refused.stderr
    assert len(key) == 17 and one.shell("hash_of src").stdout == key
    # What the caller has told git stays.
    told = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    words = " ".join(f"{name}={value}" for name, value in told.items())
    asked = f"export {words}; . {SETUP}/common.sh; git config a.b; hash_of src"
    done = one.run("bash", "-c", asked)
    assert done.stdout == f"c\n{key}"


def compiler(one: Checkout, name: str, version: str) -> None:
    one.program(name, f'[ "$1" != --version ] || {{ echo "{name} {version}"; exit; }}')


def rotdisk(one: Checkout) -> None:
    for name in ("model.c", "model.h", "rotdisk.c"):
        one.write(f"tests/testbed/rotdisk/{name}", "")
    one.program("nbdkit", "echo media_bps=1; echo more")
    one.program(
        "cc",
        '''[ "$1" != --version ] || { echo "cc ${VERSION:-1}"; exit; }
while [ "$1" != -o ]; do shift; done; echo built >"$2"; echo made >>"$SLUICE_CACHE/made"''',
    )


def test_two_checkouts_that_share_a_cache_build_once(checkout):
    """The second waits, and takes what the first has made."""
    both = [checkout("rotdisk.sh", name=name) for name in ("one", "two")]
    for one in both:
        rotdisk(one)
    slow = (both[0].bin / "cc").read_text().replace("while", "sleep 0.5; while")
    both[0].program("cc", slow)
    runs = [
        subprocess.Popen(
            ["bash", f"{SETUP}/rotdisk.sh"],
            cwd=one.top,
            env=one.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in both
    ]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert (both[0].cache / "made").read_text() == "made\n"


def agent(one: Checkout) -> None:
    for name in ("guest-agent/Cargo.toml", "guest-agent/systemd/sluice-agent.service"):
        one.write(name, "")
    one.program("rustc", 'echo "rustc 1.90.0"')
    one.program("dpkg-query", "echo 2.41-1")
    one.program(
        "cargo",
        '''[ "$1" != --version ] || { echo "cargo 1.90.0"; exit; }
out=$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release
mkdir -p "$out"; echo >"$out/sluice-agent"; chmod +x "$out/sluice-agent"''',
    )


@pytest.mark.parametrize(
    ("program", "says"), [("rustc", "rustc 1.91.0"), ("dpkg-query", "2.41-2")], ids=["rust", "libc"]
)
def test_the_agent_is_built_anew_for_what_it_is_linked_with(checkout, program, says):
    one = checkout("agent.sh")
    agent(one)
    first = one.built("agent.sh", "agent")
    assert one.built("agent.sh", "agent") == first
    before = one.run("bash", f"{SETUP}/agent.sh", "key").stdout
    assert before.strip() == Path(first).name
    one.program(program, f'echo "{says}"')
    assert one.built("agent.sh", "agent") != first
    assert one.run("bash", f"{SETUP}/agent.sh", "key").stdout != before


def qemu(one: Checkout) -> None:
    scripts = "qemu-patches/scripts"
    one.write("qemu-patches/src/a.c", "")
    one.write("qemu-patches/src/configs/x.mak", "")
    one.write("qemu-patches/src/tests/qtest/sluice-a-test.c", "1")
    one.write("qemu-patches/patches/series", "")
    one.write(f"{scripts}/build-requirements.txt", "")
    one.write(f"{scripts}/fetch.sh", 'mkdir -p "$1"; echo 10.0 >"$1/version"')
    one.write(f"{scripts}/apply.sh", 'mkdir -p "${@: -1}/tests/qtest"')
    one.write(
        f"{scripts}/build.sh",
        """mkdir -p "$1/build/tests/qtest" "$2"; echo "$2" >"$1/build/venv"
echo "$4" >>"$SLUICE_CACHE/made"
[ "$4" = emulator ] || {
    cp "$1"/tests/qtest/sluice-a-test.c "$1"/build/tests/qtest/sluice-a-test
    touch "$1"/build/tests/qtest/qos-test
}
echo "exec '../configure' '--python=$2/bin/python3'" >"$1/build/config.status"
""",
    )
    compiler(one, "gcc", "14.2")


def test_qemu_is_built_anew_for_another_source_and_another_compiler(checkout):
    one = checkout("qemu.sh")
    qemu(one)
    first = one.built("qemu.sh", "qemu")
    assert one.built("qemu.sh", "qemu") == first
    compiler(one, "gcc", "14.3")
    second = one.built("qemu.sh", "qemu")
    one.write("qemu-patches/src/a.c", "2")
    assert len({first, second, one.built("qemu.sh", "qemu")}) == 3


def test_another_qtest_builds_no_qemu_and_disturbs_no_other_checkout(checkout):
    one, other = (checkout("qemu.sh", name=name) for name in ("one", "other"))
    test = "qemu-patches/src/tests/qtest/sluice-a-test.c"
    for each, text in ((one, "1"), (other, "2")):
        qemu(each)
        each.write(test, text)
    trees = {each.built("qemu.sh", "qemu") for each in (one, other)}
    for each in (one, other, one):
        programs = Path(each.built("qemu.sh --qtests", "qemu-qtests"))
        assert (programs / "sluice-a-test").read_text() == (each.top / test).read_text()
    assert len(trees) == 1
    assert (one.cache / "made").read_text().split() == ["emulator", "qtests", "qtests"]


def test_a_folder_in_the_place_of_a_link_is_said(checkout):
    """A link would come to lie in it, and the old content would be used."""
    one = checkout()
    (one.top / "build" / "qemu").mkdir(parents=True)
    done = one.shell("link_build qemu /new; echo linked")
    assert done.returncode != 0 and "linked" not in done.stdout
    assert "build/qemu is no link to the cache; remove it" in done.stderr
    assert list((one.top / "build" / "qemu").iterdir()) == []


def test_a_step_that_fails_shows_the_end_of_its_log(checkout):
    one = checkout()
    done = one.shell("build() { echo no space left; return 3; }; step some build; echo on")
    assert done.returncode == 3 and "no space left" in done.stderr and "on" not in done.stdout


# The cache


def test_the_cache_is_removed_if_it_was_made_for_it(checkout):
    one = checkout("distclean.sh")
    one.write("src/a.c", "")
    assert one.shell("link_build qemu /new").returncode == 0
    assert (one.cache / "CACHEDIR.TAG").exists()
    done = one.run("bash", f"{SETUP}/distclean.sh")
    assert done.returncode == 0 and f"removed {one.cache}" in done.stdout
    assert not one.cache.exists() and not (one.top / "build").exists()
    assert (one.top / "src" / "a.c").exists()


def test_a_folder_that_was_there_before_is_not_removed(checkout):
    """SLUICE_CACHE may be a disk with other things on it."""
    one = checkout("distclean.sh")
    (one.cache / "photos").mkdir(parents=True)
    assert one.shell("hash_of tools").returncode == 0
    done = one.run("bash", f"{SETUP}/distclean.sh")
    assert done.returncode != 0 and "was there before" in done.stderr
    assert (one.cache / "photos").exists()


def test_unused_and_unfinished_parts_go_after_two_weeks_and_nothing_else(checkout):
    one = checkout()
    key, other = "0123456789abcdef", "0123456789abcde0"
    images = one.cache / "images"
    parts = {name: images / name for name in (f"guest-{key}", f"data-{key}", f"data-{other}")}
    for path in (*parts.values(), images / "holiday photos", images / "data-old"):
        path.mkdir(parents=True)
    for name in (f"data-{key}", f"data-{other}"):
        (images / name / ".complete").touch()
    os.utime(images / f"data-{key}" / ".complete", (1, 1))
    for path in images.iterdir():
        os.utime(path, (1, 1))
    done = one.shell(f"remove_unused {str(images)!r} '(guest|data)-[0-9a-f]{{16}}'")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in images.iterdir()} == {
        f"data-{other}",
        "holiday photos",
        "data-old",
    }


# Packages

ROOT = """\
make_root() { mkdir -p "$1"; }
in_root() {
    case $* in
    *lintian*) ;;
    *) echo >"${2%%:*}/thing_$(cat VERSION).deb"; echo made >>"$SLUICE_CACHE/made" ;;
    esac
}
"""
CONTROL = "Source: sluice-thing\nBuild-Depends: debhelper\n\nPackage: sluice-thing\n"


@pytest.fixture
def packages(checkout) -> Checkout:
    """A checkout with one package, whose root is a stub that makes it."""
    one = checkout()
    one.write("tools/packaging/build.sh", (TOP / "tools/packaging/build.sh").read_text())
    one.write("tools/packaging/root.sh", ROOT)
    one.write("thing/debian/control", CONTROL)
    one.write("thing/debian/package.sh", "inputs=(thing)\n")
    one.write("thing/debian/rules", "")
    one.write("VERSION", "1.0\n")
    one.program("dpkg-scanpackages", "ls *.deb")
    subprocess.run([*GIT, "-C", str(one.top), "add", "."], check=True)
    subprocess.run([*GIT, "-C", str(one.top), "commit", "-qm", "x"], check=True)
    return one


def make_deb(one: Checkout, *options: str) -> int:
    """Build; how many builds there have been."""
    done = one.run("bash", "tools/packaging/build.sh", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return len((one.cache / "made").read_text().splitlines())


def test_a_package_is_built_once_and_anew_when_it_is_built_in_another_way(packages):
    assert [make_deb(packages), make_deb(packages)] == [1, 1]
    script = packages.top / "tools/packaging/build.sh"
    script.write_text(script.read_text().replace("urgency=medium", "urgency=low"))
    assert make_deb(packages) == 2


def test_what_an_interrupted_build_left_does_not_get_into_the_repository(packages):
    make_deb(packages)
    (built,) = (packages.cache / "packages").glob("sluice-thing-????????????????")
    new = built.with_name(f"{built.name}.new")
    built.rename(new)
    (new / "thing_0.9.deb").touch()
    assert make_deb(packages) == 2
    repository = packages.top / "build" / "deb"
    assert [path.name for path in repository.glob("*.deb")] == ["thing_1.0.deb"]
    assert (repository / "Packages").read_text() == "thing_1.0.deb\n"


def test_a_package_that_cannot_be_read_is_no_package_without_dependencies(packages):
    """A root would be made that lacks what it needs."""
    packages.program("perl", "exit 3")
    done = packages.run("bash", "tools/packaging/build.sh")
    assert done.returncode != 0
    assert not (packages.cache / "made").exists()
