# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains that change the host, or outlive a database: they stay as shaped as they were.

Two hosts, each with libvirt and sluiced, and QEMU's real migration between
them. The guests need not have booted: what is looked at is their shapers.
"""

import json
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path

import libvirt
import libvirt_qemu
import pytest

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.counters import read_header
from testbed import GuestSpec, Testbed, patience

SECONDS = 60
SHAPING = "urn:sluice:shaping:1"
FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    # The hosts share the disks; libvirt cannot know it of a folder.
    | libvirt.VIR_MIGRATE_UNSAFE
)
GRANT = {
    "limits": {
        "blk-read": {"bytes_per_second": 2e6, "burst_bytes": 300_000},
        "net-tx": {"bytes_per_second": 5e6},
    },
    "dscp": [46],
    "scheduling": {"blk-write": {"policy": "leaky-bucket"}},
    "queues": {"net-rx": {"aqm": "codel", "connections_per_second": 200}},
}


def until(question, seconds=SECONDS):
    deadline = time.monotonic() + patience.seconds(seconds)
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


@pytest.fixture(scope="module")
def hosts():
    """Two hosts with their controllers, and a folder that both see."""
    with Testbed("from") as source, Testbed("to") as target:
        source.start_controller()
        target.start_controller()
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            yield source, target, Path(folder)


def domain_on(host, name):
    return host.hypervisor.connection.lookupByName(name)


def shaper_on(host, name):
    """What is set in the shaper, without what it has counted."""
    text = json.dumps({"execute": "query-shapers"})
    answer = libvirt_qemu.qemuMonitorCommand(domain_on(host, name), text, 0)
    (shaper,) = json.loads(answer)["return"]
    for row in shaper["classes"]:
        del row["stats"]
    return {"classes": shaper["classes"], "ceiling": shaper["ceiling"]}


def definition_on(host, name):
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return domain_on(host, name).XMLDesc(flags)


def carried_on(host, name):
    try:
        text = domain_on(host, name).metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, SHAPING, 0)
    except libvirt.libvirtError:
        return ""
    return text


def shape(host, name):
    """Attaches and starts a domain, and waits until it carries what it is given."""
    call = host.controller.call
    call("POST", f"/v1/domains/{name}/attach", {})
    call("PUT", "/v1/classes/batch", {"title": "At night", "priority": 7, "weight": 50})
    call("PUT", f"/v1/domains/{name}/classes/batch", GRANT)
    call("PUT", f"/v1/domains/{name}/ceiling", {"net-tx": {"bytes_per_second": 9e6}})
    body = {"domain": name, "class": "batch", "match": {"exe": "/usr/bin/rsync"}}
    call("POST", "/v1/rules", body)
    domain_on(host, name).create()
    until(lambda: len(shaper_on(host, name)["classes"]) == 2)
    until(lambda: "rsync" in carried_on(host, name))


def migrate(source, target, folder, name):
    uri = f"unix://{folder}/migration.sock"
    parameters = {libvirt.VIR_MIGRATE_PARAM_URI: uri}
    domain_on(source, name).migrate3(target.hypervisor.connection, parameters, FLAGS)


def taken_over(host, name):
    audit = host.controller.call("GET", "/v1/audit?limit=100")
    return [e for e in audit if (e["action"], e["thing"]) == ("take over", name)]


def granted(host, name, class_name):
    rows = host.controller.call("GET", f"/v1/domains/{name}")["classes"]
    return next((row for row in rows if row["class"] == class_name), None)


def test_there_and_back(hosts):
    """Shaped on the other host as before; back with what was changed there."""
    source, target, folder = hosts
    name = "there-and-back"
    source.add_guest(GuestSpec(name, memory_mib=128, vcpus=1, agent=False))
    plain = definition_on(source, name)
    shape(source, name)
    before, grant = shaper_on(source, name), granted(source, name, "batch")

    migrate(source, target, folder, name)
    until(lambda: taken_over(target, name))
    until(lambda: shaper_on(target, name) == before)
    assert granted(target, name, "batch") == grant
    (rule,) = target.controller.call("GET", f"/v1/rules?domain={name}")
    assert (rule["domain"], rule["class"]) == (name, "batch")
    classes = {c["name"]: c for c in target.controller.call("GET", "/v1/classes")}
    assert classes["batch"]["title"] == "At night"

    path = f"/v1/domains/{name}/classes/batch/limits/blk-read"
    target.controller.call("PUT", path, {"bytes_per_second": 1e6})
    until(lambda: "1000000" in carried_on(target, name))
    changed = shaper_on(target, name)
    assert changed != before

    migrate(target, source, folder, name)
    until(lambda: taken_over(source, name))
    until(lambda: shaper_on(source, name) == changed)
    limits = granted(source, name, "batch")["limits"]
    assert limits["blk-read"]["bytes_per_second"] == 1_000_000

    # Edited in the meantime by nobody: the definition is what it was before attach.
    source.controller.call("POST", f"/v1/domains/{name}/detach", {})
    assert definition_on(source, name) == plain
    domain_on(source, name).destroy()


def test_detach_on_the_other_host(hosts):
    source, target, folder = hosts
    name = "stays-there"
    source.add_guest(GuestSpec(name, memory_mib=128, vcpus=1, agent=False))
    plain = definition_on(source, name)
    shape(source, name)
    migrate(source, target, folder, name)
    until(lambda: target.controller.request("GET", f"/v1/domains/{name}").is_success)
    until(lambda: taken_over(target, name))
    answer = target.controller.call("POST", f"/v1/domains/{name}/detach", {})
    assert not answer["attached"] and answer["active"]
    assert definition_on(target, name) == plain
    domain_on(target, name).destroy()


def test_a_class_that_would_lift_the_limits_there_is_refused_and_the_limits_hold(hosts):
    source, target, folder = hosts
    name = "held"
    source.add_guest(GuestSpec(name, memory_mib=128, vcpus=1, agent=False))
    shape(source, name)
    before = shaper_on(source, name)
    classes = target.controller.call
    classes("PUT", "/v1/classes/batch", {"title": "Free here", "priority": 7, "unmanaged": True})
    migrate(source, target, folder, name)

    def refused():
        audit = target.controller.call("GET", "/v1/audit?limit=100")
        return [e for e in audit if (e["action"], e["thing"]) == ("take over refused", name)]

    (entry,) = until(refused)
    assert "unmanaged on this host" in entry["after"]
    until(lambda: shaper_on(target, name) == before)
    assert granted(target, name, "batch") is None
    body = {"title": "At night", "priority": 7, "weight": 50}
    target.controller.call("PUT", "/v1/classes/batch", body)
    until(lambda: taken_over(target, name))
    assert shaper_on(target, name) == before
    domain_on(target, name).destroy()


def tune(host, name):
    """Has auto-shaping hold the domain's batch to 1 MB/s of disk reads, as after a restart.

    Without a stream that plays it does so for half a minute.
    """
    call = host.controller.call
    call("PUT", "/v1/classes/movie", {"title": "Movie", "is_stream": True})
    call("PUT", f"/v1/domains/{name}/classes/movie", {})
    body = {"domain": name, "class": "movie", "nominal_bytes_per_second": 1e6}
    call("PUT", "/v1/streams/film", body)
    call("PUT", "/v1/auto", {"enabled": True, "method": "rates"})
    host.controller.stop()
    held = {"level": 1e6, "caps": [[name, "batch", "blk-read", 1e6]]}
    url = f"sqlite:///{host.controller.state_dir / 'sluice.db'}"
    with closing(SqlStore(url)) as store, store.transaction() as unit:
        unit.put_value("auto-state", {"disk": held})
    host.controller.start()


def limits_in_shaper(host, name, class_name):
    (row,) = [c for c in shaper_on(host, name)["classes"] if c["class"] == class_name]
    return row["limits"]


def test_what_auto_shaping_held_there_is_the_operators_limit_here(hosts):
    source, target, folder = hosts
    name = "tuned"
    source.add_guest(GuestSpec(name, memory_mib=128, vcpus=1, agent=False))
    shape(source, name)
    own, before = granted(source, name, "batch")["limits"], limits_in_shaper(source, name, "batch")
    tune(source, name)
    try:
        until(lambda: "tuned=" in carried_on(source, name))
        assert limits_in_shaper(source, name, "batch") != before
        migrate(source, target, folder, name)
        until(lambda: taken_over(target, name))
        assert granted(target, name, "batch")["limits"] == own
        until(lambda: limits_in_shaper(target, name, "batch") == before)
    finally:
        source.controller.call("PUT", "/v1/auto", {"enabled": False})
        source.controller.call("DELETE", "/v1/streams/film")
    domain_on(target, name).destroy()


@pytest.mark.parametrize("carries", [True, False])
def test_a_lost_database_takes_no_class_from_a_running_domain(hosts, carries):
    source, _target, _folder = hosts
    name = f"outlives-{'carrying' if carries else 'bare'}"
    source.add_guest(GuestSpec(name, memory_mib=128, vcpus=1, agent=False))
    plain = definition_on(source, name)
    shape(source, name)
    before = shaper_on(source, name)
    text = json.dumps({"execute": "query-shapers"})
    answer = libvirt_qemu.qemuMonitorCommand(domain_on(source, name), text, 0)
    page = source.sandbox.path(json.loads(answer)["return"][0]["page"])
    generation = read_header(page.read_bytes()).generation

    source.controller.stop()
    shutil.rmtree(source.controller.state_dir)
    if not carries:
        both = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        domain_on(source, name).setMetadata(kind, None, None, SHAPING, both)
    source.controller.start()
    until(lambda: taken_over(source, name))
    until(lambda: '"batch"' in carried_on(source, name))
    assert shaper_on(source, name) == before
    limits = granted(source, name, "batch")["limits"]
    assert limits["blk-read"]["burst_bytes"] == 300_000
    assert limits["net-tx"]["burst_bytes"] is None
    # Not even a command that says the same again.
    assert read_header(page.read_bytes()).generation == generation
    assert bool(source.controller.call("GET", f"/v1/rules?domain={name}")) == carries

    source.controller.call("POST", f"/v1/domains/{name}/detach", {})
    assert definition_on(source, name) == plain
    domain_on(source, name).destroy()
