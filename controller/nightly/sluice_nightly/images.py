# SPDX-License-Identifier: GPL-2.0-or-later
"""The images of a night: a guest and three disks, made on the host once.

The guest is a Debian 13, bootstrapped from where the host itself has its
packages; the disks are filled with data made on the spot. Both recipes are the
testbed's (tests/testbed/images). Each part has a folder of its own, named by
the hash of its recipe, and is there whole or not at all; ``images/`` links to
the parts in use. For hosts that reach no archive, a part whose files lie in
STATE/ready is taken from there, where they stay until it is whole, and from the
folder of ``--from`` it is copied.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sluice_nightly.config import Config
from testbed import paths

Say = Callable[[str], None]
RECIPES = paths.PACKAGES / "testbed" / "images"
# A run's writes: overlays of the guests' roots, and logs.
RUN_MIB = 512
EVERY_S = 15.0
# Images that somebody has put here are taken instead of being made.
READY = "ready"
# A recipe has a PID and a mount namespace of its own, whose first process dies
# with this one, however this one dies; the kernel ends and unmounts the rest.
TIED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


class ImageError(Exception):
    """An image could not be made; the text ends with the recipe's output."""


@dataclass(frozen=True)
class Part:
    """A recipe and its product; ``mib`` is the most space that the making takes."""

    name: str
    recipe: str
    inputs: tuple[str, ...]
    files: tuple[str, ...]
    mib: int

    def lies_in(self, folder: Path) -> bool:
        """True if all of its files are there."""
        return all((folder / name).exists() for name in self.files)

    def folder(self, images: Path) -> Path:
        """Return the folder of this recipe's product."""
        digest = hashlib.sha256()
        for name in (self.recipe, *self.inputs):
            digest.update((RECIPES / name).read_bytes())
        return images / f"{self.name}-{digest.hexdigest()[:16]}"


PARTS = (
    Part(
        "guest",
        "guest.sh",
        ("initrd-init",),
        ("vmlinuz", "initrd.img", "root.img", "id_ed25519"),
        1600,
    ),
    Part("data", "data.sh", (), ("media-data.img", "web-data.img", "movie.img"), 4300),
)


def _missing(images: Path) -> list[Part]:
    return [part for part in PARTS if not part.folder(images).exists()]


def needed_mib(config: Config) -> int:
    """Return the space for making the missing parts; 0 in a checkout."""
    if not config.installed:
        return 0
    missing = _missing(config.paths.state / "images")
    return sum(part.mib for part in missing if not part.lies_in(config.paths.state / READY))


def ready(config: Config) -> bool:
    """True if nothing is left to make."""
    if not config.installed:
        return True
    images = config.paths.state / "images"
    linked = all((images / name).exists() for part in PARTS for name in part.files)
    return linked and not _missing(images)


def prepare(config: Config, say: Say, source: Path | None = None) -> None:
    """Make, move or copy the missing parts; ImageError if that fails."""
    if not config.installed:
        return
    given = config.paths.state / READY
    images = config.paths.state / "images"
    images.mkdir(parents=True, exist_ok=True)
    sweep(images)
    for part in _missing(images):
        folder = part.folder(images)
        new = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        taken = False
        try:
            if source and part.lies_in(source):
                _copy(part, source, new, say)
            elif part.lies_in(given):
                _take(part, given, new, say)
                taken = True
            else:
                _make(part, new, say)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        new.rename(folder)
        for name in part.files if taken else ():
            # A file that cannot be removed only takes room.
            with contextlib.suppress(OSError):
                (given / name).unlink()
    _link(images)


def _copy(part: Part, source: Path, new: Path, say: Say) -> None:
    say(f"images: copying {part.name} from {source}")
    for name in part.files:
        _cp("--dereference", source / name, new / name)
    _close_key(new)


def _take(part: Part, given: Path, new: Path, say: Say) -> None:
    """Both folders have it until the part is whole: it may be the operator's only copy."""
    say(f"images: taking {part.name} from {given}")
    for name in part.files:
        try:
            os.link(given / name, new / name, follow_symlinks=False)
        except OSError:
            # On a file system of its own, or a link to one.
            _cp("--no-dereference", given / name, new / name)
    _close_key(new)


def _cp(links: str, source: Path, new: Path) -> None:
    command = ["cp", "--sparse=always", "--reflink=auto", links, str(source), str(new)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ImageError(f"copying {source}: {done.stderr.strip()}")


def _close_key(folder: Path) -> None:
    """ssh refuses a key that others may read."""
    key = folder / "id_ed25519"
    if key.exists():
        key.chmod(0o600)


def _make(part: Part, new: Path, say: Say) -> None:
    """Run the recipe, saying every few seconds that it goes on."""
    say(f"images: making {part.name}, which takes minutes")
    log = new / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*TIED, "bash", str(RECIPES / part.recipe), str(new)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        started = time.monotonic()
        try:
            while process.poll() is None:
                try:
                    process.wait(EVERY_S)
                except subprocess.TimeoutExpired:
                    say(f"images: {part.name}, {time.monotonic() - started:.0f} s: {_last(log)}")
        finally:
            _end(process)
    absent = [name for name in part.files if not (new / name).exists()]
    if process.returncode or absent:
        tail = "\n".join(log.read_text(errors="replace").strip().splitlines()[-15:])
        raise ImageError(f"making {part.name} ended with {process.returncode}:\n{tail}")
    say(f"images: {part.name} made in {time.monotonic() - started:.0f} s")


def _end(process: subprocess.Popen) -> None:
    """End the recipe with all that it started, if it still runs."""
    if process.poll() is None:
        process.kill()
        process.wait()


def _last(log: Path) -> str:
    lines = log.read_text(errors="replace").replace("\r", "\n").strip().splitlines()
    return lines[-1][:80] if lines else "begun"


def _link(images: Path) -> None:
    """Point the names at the parts in use, and drop parts of older recipes."""
    kept = set()
    for part in PARTS:
        folder = part.folder(images)
        kept.add(folder.name)
        for name in part.files:
            link = images / f".{name}"
            link.unlink(missing_ok=True)
            link.symlink_to(Path(folder.name) / name)
            link.replace(images / name)
    for entry in images.iterdir():
        if _is_part(entry.name) and not entry.is_symlink() and entry.name not in kept:
            shutil.rmtree(entry, ignore_errors=True)


def _is_part(name: str) -> bool:
    """True for a folder of a recipe's product; paths.state may hold foreign files."""
    return any(re.fullmatch(rf"{part.name}-[0-9a-f]{{16}}", name) for part in PARTS)


def sweep(images: Path) -> list[Path]:
    """Remove the rest of an interrupted making; return the removed paths."""
    if not images.is_dir():
        return []
    links = {f".{name}" for part in PARTS for name in part.files}
    names = [entry.name for entry in images.iterdir()]
    unfinished = [name for name in names if name.endswith(".new") and _is_part(name[:-4])]
    left = [images / name for name in (*unfinished, *links.intersection(names))]
    for entry in left:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return left
