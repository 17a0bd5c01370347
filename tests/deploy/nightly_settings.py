# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of the nightly run on an emulated host: the least of everything.

What a real host refuses to start beside is lifted: emulated, it is always busy.
"""

READY = "/var/lib/sluice-nightly/ready"
SETTINGS = {
    "run.accelerator": "kvm",
    "run.probe_s": 300,
    "run.link_mbit": 50,
    "run.readers": 1,
    "run.wgets": 1,
    "run.overload": 1,
    "run.control_s": 5,
    "run.unshaped_s": 5,
    "run.auto_s": 10,
    "run.media_mib": 512,
    "run.web_mib": 384,
    "run.patience": 20,
    "run.limit_s": 5400,
    "start.pressure_cpu": 100,
    "start.pressure_io": 100,
    "start.pressure_memory": 100,
    "start.load_per_processor": 100,
    "start.disk_spare_mib": 256,
    "start.memory_spare_mib": 256,
}
