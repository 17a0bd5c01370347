# SPDX-License-Identifier: GPL-2.0-or-later
"""What the packages' scripts keep and delete, in a folder that stands for the machine.

The scripts are the packages' own; only the folders that they name are moved.
"""

import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
# Not in what a domain says of its page: that is content, not a place.
PLACE = re.compile(r"(?<![\w./*-])(?<!page=)/(?=(?:etc|run|var|usr/lib/tmpfiles\.d)/)")
NAMES = ["web1", "with space", "with'quote", 'with"quote', "with`tick", "with $HOME * star"]
PAGE = "<qemu:arg value='shaper,id=sluice,page=/run/sluice/pages/1.page'/>"


@pytest.fixture
def machine(tmp_path) -> Path:
    root = tmp_path / "machine"
    for folder in ("etc/libvirt/qemu", "run/libvirt/qemu", "run/sluice/pages", "run/sluice/groups"):
        (root / folder).mkdir(parents=True)
    # Users and units are the real machine's.
    commands = root / "bin"
    commands.mkdir()
    for name in ("getent", "groupdel", "systemctl", "aa-enabled"):
        (commands / name).write_text("#!/bin/sh\nexit 1\n")
        (commands / name).chmod(0o755)
    return root


def run(machine: Path, script: str, *arguments: str) -> subprocess.CompletedProcess:
    text = PLACE.sub('"$ROOT"/', (TOP / script).read_text())
    environment = {"PATH": f"{machine}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ROOT": str(machine)}
    return subprocess.run(
        ["sh", "-c", text, script, *arguments],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def define(machine: Path, folder: str, name: str, text: str) -> None:
    (machine / folder / f"{name}.xml").write_text(f"<domain>{text}</domain>\n")


@pytest.mark.parametrize("folder", ["etc/libvirt/qemu", "run/libvirt/qemu"])
@pytest.mark.parametrize("name", NAMES)
def test_purge_keeps_the_pages_of_an_attached_domain_whatever_its_name(machine, name, folder):
    define(machine, folder, name, PAGE)
    (machine / "run/sluice/pages/1.page").touch()
    (machine / "run/sluice/groups/1.group").touch()
    done = run(machine, "controller/debian/sluice-controller.postrm", "purge")
    assert done.returncode == 0, done.stderr
    assert (machine / "run/sluice/pages/1.page").exists()
    assert (machine / "run/sluice/groups/1.group").exists()


def test_purge_takes_the_pages_when_no_domain_is_attached(machine):
    define(machine, "etc/libvirt/qemu", "plain one", "")
    done = run(machine, "controller/debian/sluice-controller.postrm", "purge")
    assert done.returncode == 0, done.stderr
    assert not (machine / "run/sluice").exists()


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("controller/debian/sluice-controller.postrm", "groupdel"),
        ("web/debian/sluice-web.postrm", "userdel"),
    ],
)
@pytest.mark.parametrize(("number", "deleted"), [(999, True), (1000, False), (5000, False)])
def test_purge_deletes_only_accounts_that_packages_make(machine, script, command, number, deleted):
    (machine / "bin/getent").write_text(f"#!/bin/sh\necho $2:x:{number}:\n")
    (machine / f"bin/{command}").write_text('#!/bin/sh\ntouch "$ROOT/deleted-$1"\n')
    for name in ("getent", command):
        (machine / "bin" / name).chmod(0o755)
    done = run(machine, script, "purge")
    assert done.returncode == 0, done.stderr
    assert bool([*machine.glob("deleted-sluice*")]) == deleted


def test_removal_names_every_attached_domain_once(machine):
    for name in NAMES:
        define(machine, "etc/libvirt/qemu", name, PAGE)
        define(machine, "run/libvirt/qemu", name, PAGE)
    done = run(machine, "controller/debian/sluice-controller.prerm", "remove")
    assert done.returncode == 0
    assert f"these domains stay attached: {', '.join(sorted(NAMES))}\n" in done.stderr


def test_removal_of_a_qemu_names_the_domains_that_need_it(machine):
    emulator = "/usr/lib/sluice/qemu-@QEMU_VERSION@/bin/qemu-system-x86_64"
    define(machine, "etc/libvirt/qemu", "plain one", "")
    for name in NAMES:
        define(machine, "etc/libvirt/qemu", name, f"<emulator>{emulator}</emulator>")
    done = run(machine, "qemu-patches/debian/versioned.prerm", "remove")
    assert done.returncode == 0
    assert f"will not start: {', '.join(sorted(NAMES))}\n" in done.stderr


def additions(machine: Path, text: str) -> Path:
    file = machine / "etc/apparmor.d/local/usr.sbin.libvirtd"
    file.parent.mkdir(parents=True)
    (machine / "etc/apparmor.d/usr.sbin.libvirtd").touch()
    file.write_text(text)
    return file


@pytest.mark.parametrize("text", ["", "/srv/** r,\n"])
def test_the_line_for_libvirtd_comes_and_goes_and_the_rest_stays(machine, text):
    file = additions(machine, text)
    run(machine, "qemu-patches/debian/sluice-qemu.postinst", "configure")
    assert "sluice-libvirtd" in file.read_text() and file.read_text().endswith(text)
    done = run(machine, "qemu-patches/debian/sluice-qemu.postrm", "remove")
    assert done.returncode == 0
    assert file.read_text() == text


def test_what_cannot_be_written_does_not_replace_the_administrators_file(machine):
    file = additions(machine, "/srv/** r,\n")
    run(machine, "qemu-patches/debian/sluice-qemu.postinst", "configure")
    before = file.read_text()
    # As on a full disk: reading goes on, writing fails.
    (machine / "bin/grep").write_text(
        '#!/bin/sh\ncase $1 in -vF) exit 2 ;; esac\nexec /bin/grep "$@"\n'
    )
    (machine / "bin/grep").chmod(0o755)
    done = run(machine, "qemu-patches/debian/sluice-qemu.postrm", "remove")
    assert done.returncode != 0
    assert file.read_text() == before


STATE = "var/lib/sluice-nightly"


def nights(machine: Path, *names: str) -> Path:
    state = machine / STATE
    for name in names:
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).touch()
    return state


def test_purge_of_the_nightly_run_leaves_nothing_that_is_made_again(machine):
    state = nights(
        *(machine, "images/root.img", "runs/night-1/logs/demo.log", "lock"),
        *("running.json", "running.tmp", "accelerator.json", "accelerator.81.tmp"),
    )
    done = run(machine, "controller/nightly/debian/sluice-nightly.postrm", "purge")
    assert (done.returncode, done.stdout) == (0, "")
    assert not state.exists()


def test_purge_of_the_nightly_run_keeps_the_results_and_says_where(machine):
    state = nights(machine, "images/root.img", "results/0.json")
    done = run(machine, "controller/nightly/debian/sluice-nightly.postrm", "purge")
    assert done.returncode == 0 and f"are kept in {state}; to remove them: rm -r" in done.stdout
    assert [path.name for path in state.iterdir()] == ["results"]
