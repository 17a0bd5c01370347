# SPDX-License-Identifier: GPL-2.0-or-later
"""A real KVM host for tests and the demo, in namespaces of its own.

    from testbed import FileDisk, GuestSpec, Testbed

    with Testbed("demo", link_bps=50_000_000) as tb:
        spec = GuestSpec("media", disks=(FileDisk(media_image, readonly=True),))
        media = tb.add_guest(spec)               # defined in libvirt
        tb.start_controller()                    # sluiced
        tb.controller.call("POST", "/v1/domains/media/attach", {})
        media.start()
        media.wait_ready()
        media.ssh("ls /srv/media")
        media.spawn("while :; do cat /srv/media/f01; done >/dev/null", unit="reader")
        tb.client_run(["wget", "-qO/dev/null", f"http://{media.address}/"])
        print(tb.start_web().url)

Nothing of the machine is changed: libvirt, its folders, /run, the network and
all processes are the testbed's own, and the kernel ends them with the program
that made them, whether it ends by itself, by Ctrl-C or by SIGKILL. Several
testbeds may be up at the same time. All rates are bytes per second.

Invariants: one ``Testbed`` is used from one thread at a time, except that
``Task`` objects and ``Sandbox.run`` may be used from any; processes inside see
the process ids of the sandbox, not the machine's.
"""

import libvirt

from testbed.domain_xml import FileDisk, GuestSpec, NbdDisk
from testbed.guest import Guest, GuestError
from testbed.host import Testbed
from testbed.hypervisor import HypervisorError
from testbed.network import CLIENT_ADDRESS, CLIENTS, HOST_ADDRESS, UPLINK, LinkCounters
from testbed.paths import Missing
from testbed.rotdisk import DiskError
from testbed.sandbox import CommandFailed, Sandbox, SandboxError, Task
from testbed.services import Controller, ServiceError, Web

__all__ = [
    "CLIENTS",
    "CLIENT_ADDRESS",
    "FAILURES",
    "HOST_ADDRESS",
    "UPLINK",
    "CommandFailed",
    "Controller",
    "FileDisk",
    "Guest",
    "GuestError",
    "GuestSpec",
    "LinkCounters",
    "NbdDisk",
    "Sandbox",
    "SandboxError",
    "ServiceError",
    "Task",
    "Testbed",
    "Web",
]

# Ends of a run on a busy or broken machine that say by themselves what went wrong.
FAILURES = (
    CommandFailed,
    DiskError,
    GuestError,
    HypervisorError,
    Missing,
    SandboxError,
    ServiceError,
    libvirt.libvirtError,
)
