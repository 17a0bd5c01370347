# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs on a machine: print what is on it, one JSON object per line.

First the files under FOLDER…: ``{path, type, mode, uid, gid, sha256, target,
xattrs}``. Then what a deployment also changes and no file shows well:
``state:`` paths for network interfaces, mounts, listening sockets, running
services, the packet filter, and what dpkg and APT know of each package (their
own files keep it in no fixed order).

    python3 - /etc /usr <collect.py

It changes nothing and needs root to read everything.
"""

import hashlib
import json
import os
import stat
import subprocess
import sys

TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
    stat.S_IFBLK: "block",
    stat.S_IFCHR: "character",
}


def describe(path):
    """Return the entry of one path, or None if it has gone meanwhile."""
    try:
        found = os.lstat(path)
        entry = {
            "path": path,
            "type": TYPES[stat.S_IFMT(found.st_mode)],
            "mode": f"{stat.S_IMODE(found.st_mode):04o}",
            "uid": found.st_uid,
            "gid": found.st_gid,
        }
        names = sorted(os.listxattr(path, follow_symlinks=False))
        if names:
            entry["xattrs"] = {
                name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names
            }
        if entry["type"] == "link":
            entry["target"] = os.readlink(path)
        if entry["type"] == "file":
            with open(path, "rb", buffering=0) as content:
                entry["sha256"] = hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    return entry


def walk(top):
    """Yield every path from ``top`` down, on its own file system."""
    yield top
    device = os.lstat(top).st_dev
    for folder, folders, files in os.walk(top):
        folders[:] = [
            name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == device
        ]
        for name in folders + files:
            yield os.path.join(folder, name)


def run(*command):
    """Return a command's output; nothing if there is no such command."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except FileNotFoundError:
        return ""


def state():
    """Yield (name, value) of what runs and of what the kernel was told."""
    for name in os.listdir("/sys/class/net"):
        master = os.path.realpath(f"/sys/class/net/{name}/master")
        yield f"interface/{name}", os.path.basename(master) if os.path.exists(master) else ""
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            _source, where, kind, *_rest = line.split()
            if not where.startswith("/run/user/"):
                yield f"mount{where}", kind
    for line in run("ss", "-Hln", "-A", "tcp,udp").splitlines():
        kind, _state, _receive, _send, local, *_rest = line.split()
        yield f"listening/{kind}/{local}", ""
    for line in run(
        "systemctl", "list-units", "--plain", "--no-legend", "--type=service,timer,socket"
    ).splitlines():
        unit, _load, active, *_rest = line.split()
        # Sessions come and go with the one who looks.
        if not unit.startswith(("user@", "user-runtime-dir@")):
            yield f"unit/{unit}", active
    yield from packages()
    yield "packet-filter", hashlib.sha256(run("nft", "list", "ruleset").encode()).hexdigest()


def packages():
    """Yield each package with its state and version, and those that APT may take away."""
    form = "${binary:Package}\t${db:Status-Abbrev}\t${Version}\n"
    for line in run("dpkg-query", "-W", "-f", form).splitlines():
        name, status, version = line.split("\t")
        yield f"package/{name}", f"{status.strip()} {version}"
    for name in run("apt-mark", "showauto").split():
        yield f"automatic/{name}", ""


def main():
    for top in sys.argv[1:]:
        for path in walk(top):
            entry = describe(path)
            if entry:
                print(json.dumps(entry))
    for name, value in state():
        print(json.dumps({"path": f"state:{name}", "type": "state", "target": value}))


if __name__ == "__main__":
    main()
