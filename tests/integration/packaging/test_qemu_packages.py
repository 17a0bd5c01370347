# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's packages in a fresh Debian 13 with libvirt and AppArmor.

To build QEMU with a server's features takes ten minutes on two processors, so
these tests take what `make deb` left in build/deb and do not run without it.
The kernel's part of AppArmor is not used here: profiles are compiled with the
additions, not loaded; `make test-deploy` runs guests under them.
"""

from collections.abc import Iterator

import pytest

from testbed.debian_root import DEB, DebianRoot, difference, stanzas, wanted_by

LIBVIRT = ("apparmor", "libvirt-daemon-system")
IGNORED = {
    "/var/lib/dpkg/*": "dpkg's own book of what is installed",
    "/var/lib/apt/*": "APT's own book",
    "/var/cache/apt/*": "APT's cache",
    "/var/cache/apparmor/*": "the compiler's cache",
    "/var/log/*": "logs of the installation",
    "/run/systemd*": "marks of systemctl, gone at the next boot",
    "/proc/*": "no file of the tree",
    "/dev/*": "bound while a command runs",
    "/debs": "where the test shows the packages",
    "/tmp/*": "the test's own",
    "/root/*": "the test's own",
}
LOCAL = "/etc/apparmor.d/local/usr.sbin.libvirtd"
LINE = "include if exists <abstractions/sluice-libvirtd>"
QEMU = "/usr/lib/sluice/qemu/bin/qemu-system-x86_64"


def _packages() -> list[dict[str, str]]:
    index = DEB / "Packages"
    every = stanzas(index.read_text()) if index.exists() else []
    return [p for p in every if p["Package"].startswith("sluice-qemu")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    packages = _packages()
    if not packages:
        pytest.skip("build/deb has no sluice-qemu; run make deb first")
    wanted = wanted_by(packages, ("Depends", "Recommends")) | set(LIBVIRT)
    with DebianRoot(tmp_path_factory.mktemp("packaging"), wanted) as root:
        # What the administrator has there comes back as it was.
        root.path(LOCAL).write_text("# mine\n/srv/tools/* PUx,\n")
        root.before = root.manifest(IGNORED)
        root.run("dpkg -i /debs/sluice-qemu*.deb")
        yield root


def test_the_emulator_knows_shapers(root):
    assert "shaper" in root.run(f"{QEMU} -object help").stdout.split()
    assert "shaper=" in root.run(f"{QEMU} -device virtio-blk-pci,help").stdout
    assert "shaper=" in root.run(f"{QEMU} -device virtio-net-pci,help").stdout
    assert "sluice" in root.run(f"{QEMU} --version").stdout.splitlines()[0]


def test_the_link_names_the_versioned_path(root):
    target = root.run("readlink -f /usr/lib/sluice/qemu").stdout.strip()
    assert target.startswith("/usr/lib/sluice/qemu-10.0.")
    assert f"sluice {target.removeprefix('/usr/lib/sluice/qemu-')}" in (
        root.run(f"{QEMU} --version").stdout
    )


def test_it_has_what_a_host_needs(root):
    said = root.run(
        f"echo quit | {QEMU} -machine none -display none -monitor stdio"
        " -object rng-random,id=r -object tls-creds-anon,id=t,endpoint=server"
        " -spice unix=on,addr=/tmp/spice,disable-ticketing=on -chardev spicevmc,id=v,name=vdagent;"
        "for option in accel device netdev; do"
        f" {QEMU} -$option help; done; {QEMU} -tpmdev help || true"
    ).stdout
    for feature in (
        "kvm",
        "tcg",
        "vhost-user-blk-pci",
        "usb-redir",
        "usb-host",
        "qxl-vga",
        "virtio-9p-pci",
        "virtio-vga",
        "vhost-vdpa",
        "emulator",
    ):
        assert feature in said, feature
    assert "failed to open module" not in said


def test_modules_without_their_library_are_no_obstacle(root):
    modules = root.run("ls /usr/lib/sluice/qemu/lib/qemu").stdout.split()
    assert {"block-rbd.so", "block-iscsi.so", "block-nfs.so", "block-ssh.so"} <= set(modules)
    assert root.run(f"{QEMU} -drive if=none,file=rbd:a/b,id=d", check=False).returncode == 1


def test_a_guest_starts_as_far_as_its_firmware(root):
    said = root.run(
        f"timeout -k 1 60 {QEMU} -accel tcg -display none -nodefaults -m 64 -no-reboot"
        " -object shaper,id=s,page=/tmp/s.page -device isa-debugcon,iobase=0x402,chardev=c"
        " -drive if=none,id=d,file=null-co://,format=raw"
        " -device virtio-blk-pci,drive=d,shaper=s"
        " -chardev file,id=c,path=/tmp/seabios & qemu=$!;"
        "for i in $(seq 300); do grep -q 'No bootable device' /tmp/seabios && break;"
        " sleep 0.2; done; kill $qemu; wait $qemu || true; cat /tmp/seabios"
    ).stdout
    assert "SeaBIOS" in said
    assert "virtio-blk" in said


def test_libvirts_profiles_compile_with_the_additions(root):
    assert LINE in root.path(LOCAL).read_text().splitlines()[0]
    for profile in ("usr.sbin.libvirtd", "usr.lib.libvirt.virt-aa-helper"):
        root.run(f"apparmor_parser --skip-kernel-load --skip-cache -Q /etc/apparmor.d/{profile}")
    compiled = root.run(
        "apparmor_parser --preprocess /etc/apparmor.d/usr.sbin.libvirtd;"
        "sed 's/LIBVIRT_TEMPLATE/libvirt-test/' /etc/apparmor.d/libvirt/TEMPLATE.qemu >/tmp/guest;"
        "apparmor_parser --skip-kernel-load --skip-cache -Q /tmp/guest;"
        "apparmor_parser --preprocess /tmp/guest"
    ).stdout
    assert "/usr/lib/sluice/qemu-*/bin/qemu-system-x86_64 PUx," in compiled
    assert "/usr/lib/sluice/qemu-*/lib/qemu/*.so mr," in compiled
    assert "owner /run/sluice/pages/* rw," in compiled
    assert "/run/sluice/groups/*.group rw," in compiled


def test_qemu_can_make_its_page_without_the_controller(root):
    owner = "stat -c '%U %G %a' /run/sluice/pages"
    assert root.run(owner).stdout.split() == ["root", "libvirt-qemu", "3770"]
    # As at a boot.
    said = root.run(f"rm -r /run/sluice; systemd-tmpfiles --create --prefix=/run/sluice; {owner}")
    assert said.stdout.splitlines()[-1] == "root libvirt-qemu 3770"
    root.run("runuser -u libvirt-qemu -- touch /run/sluice/pages/web1.page")
    root.run("rm /run/sluice/pages/web1.page")


def test_the_line_returns_when_libvirt_is_installed_anew(root):
    path = root.path(LOCAL)
    path.write_text(path.read_text().replace(LINE, "# "))
    root.run("dpkg-trigger --by-package=libvirt-daemon /etc/apparmor.d/usr.sbin.libvirtd")
    root.run("dpkg --configure --pending")
    assert LINE in path.read_text().splitlines()[0]
    path.write_text(
        "".join(
            line
            for line in path.read_text().splitlines(True)
            if line[0:2] != "# " or line == "# mine\n"
        )
    )


def test_a_version_in_use_stays(root):
    name = root.run("dpkg-query -W -f '${Package}\\n' 'sluice-qemu-*'").stdout.strip()
    said = root.run(
        f"{QEMU} -machine none -display none & sleep 1;"
        f"dpkg --purge sluice-qemu {name} && exit 3;"
        "kill %1; dpkg -i /debs/sluice-qemu*.deb",
        check=False,
    )
    assert said.returncode == 0, said.stdout
    assert "error: guests run on /usr/lib/sluice/qemu-" in said.stdout


def test_purge_leaves_nothing(root):
    name = root.run("dpkg-query -W -f '${Package}\\n' 'sluice-qemu-*'").stdout.strip()
    root.run(f"dpkg --purge sluice-qemu {name}")
    assert difference(root.before, root.manifest(IGNORED)) == []
