# SPDX-License-Identifier: GPL-2.0-or-later
"""First process of a testbed's namespaces: ``holder.py PLAN`` under unshare(1).

It is process 1 of a PID namespace, so when it ends, for any reason, the kernel ends every
process of the testbed, and with the last of them go the network namespaces, the interfaces and
the mounts. It ends when its standard input closes, and that happens however the program that
holds the other end dies. So nothing has to be cleaned up after a crash.

PLAN is JSON: {"binds": [[source, target], …], "shadow": folder}. It runs with
the machine's own Python and imports nothing but the standard library.
"""

import json
import os
import select
import signal
import subprocess
import sys


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=20)


def make_inside(target: str, shadow: str) -> None:
    """Make a folder that the machine does not have, without the machine having it.

    Its parent is covered by an overlay whose upper layer is in memory.
    """
    parent = os.path.dirname(target)
    layers = {name: os.path.join(shadow, name, parent.strip("/")) for name in ("upper", "work")}
    if not os.path.isdir(layers["upper"]):
        for layer in layers.values():
            os.makedirs(layer)
        options = f"lowerdir={parent},upperdir={layers['upper']},workdir={layers['work']}"
        mount("-t", "overlay", "-o", options, "overlay", parent)
    os.mkdir(target)


def set_up(binds: list[list[str]], shadow: str) -> None:
    """Give the namespaces their own /proc, /sys, /run and the planned binds."""
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "sysfs", "sysfs", "/sys")
    mount("-t", "tmpfs", "-o", "mode=0755,size=16m", "tmpfs", shadow)
    for source, target in binds:
        if not os.path.isdir(target):
            make_inside(target, shadow)
        mount("--bind", source, target)
    # Sources may lie under /run, so it goes last.
    mount("-t", "tmpfs", "-o", "mode=0755,size=256m", "tmpfs", "/run")
    os.makedirs("/run/lock", exist_ok=True)
    with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as knob:
        knob.write("1")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=20)


def reap() -> None:
    """Collect orphans: daemons leave their children to process 1."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def child_ends() -> int:
    """Return a descriptor that can be read when a child has ended.

    The program that ended a guest waits for it to be collected.
    """
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


def main() -> int:
    # Still the outer /proc, so this is the process id that the outside sees.
    outer_pid = os.readlink("/proc/self")
    with open(sys.argv[1]) as text:
        plan = json.load(text)
    try:
        set_up(plan["binds"], plan["shadow"])
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"error {problem}", flush=True)
        return 1
    ended = child_ends()
    print(f"ready {outer_pid}", flush=True)
    while True:
        readable, _, _ = select.select([sys.stdin, ended], [], [], 1.0)
        if ended in readable:
            os.read(ended, 4096)
        reap()
        if sys.stdin in readable and not os.read(0, 4096):
            return 0


if __name__ == "__main__":
    sys.exit(main())
