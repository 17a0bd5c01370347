# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that go on where an earlier run has booted them.

A boot costs an emulated guest most of a minute of a slow machine's time. So a guest is booted
once, its memory and disk are kept in the cache, and each later start goes on from there, in any
testbed. A kept guest has a name made from all that it depends on: the definition, the emulator,
the images and the agent. A boot by itself is ``Guest.start``.
"""

import fcntl
import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt

from testbed import paths
from testbed.guest import Guest, GuestError

# A few kinds of guests, each for the checkouts that are in use; 150 to 300 MB each.
KEPT = 8
# Another number hides guests that older code has kept.
FORMAT = 1


def start(guest: Guest) -> None:
    """Start a defined guest, booted, with ssh; it has a fixed ``place`` (``add_guest``).

    Its clock is set, and a missing boot happens now. GuestError if it does not go on: the kept
    guest is then removed, and the next start boots.
    """
    if not guest.placement.uuid:
        raise ValueError(f"guest {guest.name} has no place of its own; give one to add_guest")
    definition = _definition(guest)
    folder = _root() / _name(guest, definition)
    with _locked():
        if not (folder / ".complete").exists():
            _boot(guest, folder)
        (folder / ".complete").touch()
        _prune()
        with _removed_if_of_no_use(guest, folder):
            _go_on(guest, folder, definition)
    guest.ssh(f"date -s @{time.time():.3f}")


def _root() -> Path:
    folder = paths.cache_folder() / "guests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _locked() -> Iterator[None]:
    """One boot at a time, and none that another run waits for twice."""
    with (_root() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _removed_if_of_no_use(guest: Guest, folder: Path) -> Iterator[None]:
    """Removes a kept guest that no run can use, as after a crash or on a full disk."""
    try:
        yield
    except (GuestError, OSError, libvirt.libvirtError) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise GuestError(
            f"guest {guest.name} does not go on where {folder} has kept it: {problem}; that is "
            "removed, and the next start boots it again"
        ) from None


def _go_on(guest: Guest, folder: Path, definition: str) -> None:
    # Its contents are the same, but not every byte of its file system.
    if guest.placement.agent_image:
        shutil.copyfile(folder / "agent.img", guest.placement.agent_image)
    guest.restore(folder, definition)
    guest.wait_ready()


def _boot(guest: Guest, folder: Path) -> None:
    """Boot the guest, let its boot come to an end, and keep it; it does not run then."""
    shutil.rmtree(folder, ignore_errors=True)
    guest.start()
    guest.wait_ready()
    guest.ssh("systemctl is-system-running --wait; sync", check=False, timeout_seconds=120)
    guest.save(folder)
    if guest.placement.agent_image:
        shutil.copyfile(guest.placement.agent_image, folder / "agent.img")


def _definition(guest: Guest) -> str:
    return guest.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)


def _name(guest: Guest, definition: str) -> str:
    placement = guest.placement
    files = [placement.emulator, placement.kernel, placement.initrd, paths.image("root.img")]
    facts = [f"{FORMAT} {_processor(placement.accelerator)}"]
    facts += [f"{file.resolve()} {_stamp(file)}" for file in files]
    agent = (paths.agent(), paths.agent_unit(), paths.agent_rule())
    facts += [_content(file) for file in agent]
    own = {str(guest.folder): "RUN", str(paths.TOP): "TOP"}
    facts.append(comparable(definition, own))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def comparable(definition: str, folders: dict[str, str]) -> str:
    """A definition without differences from run to run: metadata, and folders by a word."""
    domain = ET.fromstring(definition)
    for metadata in domain.findall("metadata"):
        domain.remove(metadata)
    text = ET.tostring(domain, encoding="unicode")
    for folder, word in folders.items():
        text = text.replace(folder, word)
    return text


def _processor(accelerator: str) -> str:
    """Under KVM a guest sees the machine's processor; an emulated one sees QEMU's."""
    if accelerator != "kvm":
        return accelerator
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith("model name")), accelerator)


def _stamp(file: Path) -> str:
    found = file.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def _content(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _prune() -> None:
    """Remove incomplete ones, and of the rest all but the newest."""
    folders = [one for one in _root().iterdir() if one.is_dir()]
    marks = {one: one / ".complete" for one in folders}
    used = sorted(
        (one for one in folders if marks[one].exists()),
        key=lambda one: marks[one].stat().st_mtime,
        reverse=True,
    )
    for folder in set(folders) - set(used[:KEPT]):
        shutil.rmtree(folder, ignore_errors=True)
