# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m deploy up``: hold two machines until Ctrl-C, for work by hand.

``make test-deploy ARGS="--fleet FOLDER -k …"`` then runs tests against them.
"""

import argparse
import signal
import sys
import time

from deploy.fleet import HOSTS, Fleet
from deploy.machine import MachineError
from testbed.paths import Missing
from testbed.sandbox import CommandFailed, SandboxError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy",
        description="Boot the machines of `make test-deploy` and hold them until Ctrl-C.",
        epilog="example: python -m deploy up --machines 1",
    )
    parser.add_argument("command", choices=["up"])
    parser.add_argument("--machines", type=int, default=2, choices=[1, 2], metavar="N")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Fleet("fleet", HOSTS[: arguments.machines]) as fleet:
            print(f"fleet {fleet.folder}: booting", flush=True)
            for name, seconds in fleet.wait_ready().items():
                print(f"{name} ready after {seconds:.0f} s", flush=True)
            print(fleet.shell_hint(), flush=True)
            while all(machine.task.running() for machine in fleet.machines.values()):
                time.sleep(1)
            print("a machine has ended", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except (CommandFailed, MachineError, Missing, SandboxError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
