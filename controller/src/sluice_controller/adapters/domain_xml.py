# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain XML in, domain XML out: the changes of attach and detach, and no others.

Pure functions over text. `attach` returns the new XML and a record of each
change; `detach` takes such a record back out of an XML that may have been
edited since. Where nothing was edited the caller restores the stored original
instead, byte for byte. The record is in the XML's metadata too, for the host
to which the domain migrates.

Changes of attach, with their reasons:
* `<emulator>`: only the patched QEMU knows the shaper;
* `<qemu:commandline>`: the shaper object, with its counters page, and the device
  `sluice-channel` (`channel_device.py`) where the emulator has it;
* an alias per shapeable device and a `<qemu:override>` that sets its property
  `shaper`: libvirt has no element of its own for it;
* `<driver name='qemu'/>` on interfaces: the kernel's vhost would carry the
  packets past the backend;
* the channel `org.sluice.agent.0`;
* `<metadata>`: the record of all this.
"""

from __future__ import annotations

from typing import Any

from lxml import etree

from ..domain.errors import BadValue, Conflict, sluice
from ..domain.guests import Description, Device
from . import channel_device, domain_metadata, qemu_arguments, throttles
from .attach_record import Changes, carried_record

SHAPER_ID = "sluice0"
CHANNEL = "org.sluice.agent.0"
ALIAS_PREFIX = "ua-sluice-"
DISK_QUEUE_SIZE = "1024"
# QEMU waits for each port's queues, all in one call: 31 ports are 64 of them, and cost
# each of its turns a microsecond or more. Port 0 is a console's; two are spare.
SERIAL_PORTS = "4"

_Q = qemu_arguments.Q


def parse(xml: str) -> etree._Element:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    try:
        return etree.fromstring(xml.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise BadValue("domain XML", xml[:60], f"is not XML ({error})", "correct it") from error


def _text(root: etree._Element) -> str:
    return etree.tostring(root, encoding="unicode") + "\n"


# Reading


def _shaper(root: etree._Element) -> tuple[str | None, str | None]:
    for properties in qemu_arguments.found(root, "-object", "shaper"):
        return properties.get("id"), properties.get("page")
    return None, None


def _channel(root: etree._Element) -> etree._Element | None:
    for channel in root.findall("devices/channel"):
        target = channel.find("target")
        if target is not None and target.get("name") == CHANNEL:
            return channel
    return None


def _attribute(element: etree._Element, path: str, name: str) -> str | None:
    found = element.find(path)
    return None if found is None else found.get(name)


def _disk_reason(disk: etree._Element) -> str | None:
    if disk.get("device", "disk") not in ("disk", "lun"):
        return f"a {disk.get('device')} is not shaped"
    if disk.get("type") in ("vhostuser", "vhostvdpa"):
        return f"type '{disk.get('type')}' bypasses QEMU's backend"
    bus = _attribute(disk, "target", "bus")
    if bus != "virtio":
        return f"bus '{bus}' is not shaped: use bus='virtio'"
    return None


def _interface_reason(interface: etree._Element) -> str | None:
    if interface.get("type") in ("hostdev", "vhostuser", "vdpa"):
        return f"type '{interface.get('type')}' bypasses QEMU's backend"
    model = _attribute(interface, "model", "type")
    if model not in ("virtio", "virtio-transitional", "virtio-non-transitional"):
        return f"model '{model}' is not shaped: use model type='virtio'"
    return None


def _devices(root: etree._Element) -> list[tuple[str, etree._Element, str | None]]:
    """(kind, element, why it cannot be shaped or None), in document order."""
    found = []
    for element in root.findall("devices/*"):
        if element.tag == "disk":
            found.append(("disk", element, _disk_reason(element)))
        elif element.tag == "interface":
            found.append(("net", element, _interface_reason(element)))
    return found


def _name(kind: str, element: etree._Element, index: int) -> str:
    """How a change record names a device: by parts that survive libvirt's rewriting."""
    if kind == "disk":
        return f"disk:{_attribute(element, 'target', 'dev')}"
    mac = _attribute(element, "mac", "address")
    return f"net:{mac or index}"


def _named_devices(root: etree._Element) -> list[tuple[str, str, etree._Element, str | None]]:
    counts = {"disk": 0, "net": 0}
    named = []
    for kind, element, reason in _devices(root):
        named.append((kind, _name(kind, element, counts[kind]), element, reason))
        counts[kind] += 1
    return named


def describe(xml: str) -> Description:
    root = parse(xml)
    shaper_id, page = _shaper(root)
    channel = _channel(root)
    overridden = _overridden(root, shaper_id)
    devices, images = [], []
    for kind, element, reason in _devices(root):
        if kind == "disk" and reason is None:
            images.append(_image(element))
        target = _attribute(element, "target", "dev")
        if kind == "net":
            target = target or _attribute(element, "mac", "address")
        alias = _attribute(element, "alias", "name")
        mac = (_attribute(element, "mac", "address") or "").lower() if kind == "net" else ""
        devices.append(
            Device(kind, alias, target, reason is None, reason, alias in overridden, mac or None)
        )
    return Description(
        emulator=root.findtext("devices/emulator"),
        shaper_id=shaper_id,
        page_path=page,
        agent_socket=None if channel is None else _attribute(channel, "source", "path"),
        devices=tuple(devices),
        images=tuple(images),
        throttles=tuple(throttles.found(root)),
        has_channel=channel_device.is_in(root),
        no_channel_because=channel_device.why_not(root),
        carried=domain_metadata.text(root, domain_metadata.SHAPING),
        tuned=domain_metadata.attribute(root, domain_metadata.SHAPING, domain_metadata.TUNED),
    )


def _image(disk: etree._Element) -> str | None:
    """A path on this host, or PROTOCOL:NAME of a network, if the disk has one of them."""
    kind = disk.get("type", "")
    if kind == "network":
        protocol, name = (_attribute(disk, "source", one) for one in ("protocol", "name"))
        return protocol and f"{protocol}:{name or ''}"
    if kind == "volume":
        pool, volume = (_attribute(disk, "source", one) for one in ("pool", "volume"))
        return pool and f"volume:{pool}/{volume or ''}"
    attribute = {"file": "file", "block": "dev"}.get(kind)
    return attribute and _attribute(disk, "source", attribute)


def _overridden(root: etree._Element, shaper_id: str | None) -> set[str | None]:
    """Aliases of the devices whose property `shaper` an override sets, to this one if given."""
    return {
        device.get("alias")
        for device in root.findall(f"{_Q}override/{_Q}device")
        for item in device.findall(f"{_Q}frontend/{_Q}property")
        if item.get("name") == "shaper" and shaper_id in (None, item.get("value"))
    }


# Attaching


def _refuse_unfit(root: etree._Element, name: str, disable_vhost: bool) -> None:
    if _shaper(root)[0] is not None:
        raise Conflict(
            "domain",
            name,
            "is attached already",
            f"detach it first: {sluice('detach', name)}",
        )
    if root.get("type") not in ("kvm", "qemu"):
        raise BadValue(
            "domain type",
            root.get("type"),
            "is not run by QEMU",
            "use a domain of type kvm or qemu",
        )
    devices = _named_devices(root)
    if not any(reason is None for *_, reason in devices):
        raise BadValue(
            "domain",
            name,
            "has no virtio disk or interface",
            "give it a disk with bus='virtio' or an interface with model type='virtio'",
        )
    for kind, device, element, reason in devices:
        if kind == "net" and reason is None and not disable_vhost:
            driver = _attribute(element, "driver", "name")
            if driver == "vhost":
                raise Conflict(
                    "interface",
                    device.removeprefix("net:"),
                    "uses vhost, which carries packets past the shaper",
                    f"attach with disable_vhost: {sluice('attach', name, '--disable-vhost')}",
                )


def attach(
    xml: str,
    *,
    emulator: str,
    page_path: str,
    name: str,
    disable_vhost: bool = False,
    acpi_required: bool = False,
    has_channel: bool = False,
) -> tuple[str, Changes]:
    """`has_channel`: the emulator has the device `sluice-channel`."""
    root = parse(xml)
    _refuse_unfit(root, name, disable_vhost)
    if acpi_required and root.find("features/acpi") is None:
        raise BadValue(
            "domain features",
            name,
            "lack acpi, and this libvirt then passes -no-acpi, which QEMU 10 refuses",
            "add <features><acpi/></features> with 'virsh edit'",
        )
    changes = Changes()
    _set_emulator(root, emulator, changes)
    aliases = [
        _prepare(kind, device, element, index, changes)
        for index, (kind, device, element, reason) in enumerate(_named_devices(root))
        if reason is None
    ]
    _add_channel(root, changes)
    _add_command_line(root, page_path, aliases, changes)
    if has_channel:
        changes.said.append(channel_device.add(root, SHAPER_ID))
    # The record of an earlier attach says nothing about this one.
    domain_metadata.remove(root, domain_metadata.ATTACHED, domain_metadata.SHAPING)
    domain_metadata.put(root, domain_metadata.ATTACHED, changes.as_carried())
    return _text(_with_qemu_namespace(root)), changes


def _set_emulator(root: etree._Element, emulator: str, changes: Changes) -> None:
    devices = root.find("devices")
    element = devices.find("emulator")
    if element is None:
        element = etree.Element("emulator")
        devices.insert(0, element)
    else:
        changes.emulator = element.text
    element.text = emulator
    changes.said.append(f"emulator {changes.emulator or '(none)'} → {emulator}")


def _prepare(kind: str, device: str, element: etree._Element, index: int, changes: Changes) -> str:
    """Makes a device shapeable; returns its alias."""
    alias = element.find("alias")
    if alias is None or not (alias.get("name") or "").startswith("ua-"):
        if alias is None:
            alias = etree.SubElement(element, "alias")
        alias.set("name", f"{ALIAS_PREFIX}{kind}{index}")
        changes.aliases.append(device)
        changes.said.append(f"{device} alias {alias.get('name')}")
    if kind == "net":
        _drop_vhost(device, element, changes)
    else:
        _enlarge_queue(device, element, changes)
    return alias.get("name")


def _drop_vhost(device: str, element: etree._Element, changes: Changes) -> None:
    driver = element.find("driver")
    if driver is None:
        driver = etree.SubElement(element, "driver")
        changes.drivers_created.append(device)
    elif driver.get("name") != "qemu":
        changes.drivers_named[device] = driver.get("name")
    else:
        return
    driver.set("name", "qemu")
    changes.said.append(f"{device} driver qemu (vhost would carry packets past the shaper)")


def _enlarge_queue(device: str, element: etree._Element, changes: Changes) -> None:
    """A large ring, so that held requests of one class do not fill it for the others."""
    driver = element.find("driver")
    if driver is None:
        driver = etree.SubElement(element, "driver", name="qemu")
        changes.disk_drivers_created.append(device)
    if driver.get("queue_size") is None:
        driver.set("queue_size", DISK_QUEUE_SIZE)
        changes.queue_sizes.append(device)
        changes.said.append(f"{device} queue_size {DISK_QUEUE_SIZE}")


def _add_channel(root: etree._Element, changes: Changes) -> None:
    devices = root.find("devices")
    if _channel(root) is not None:
        raise Conflict(
            "channel", CHANNEL, "exists already", "remove it from the domain with 'virsh edit'"
        )
    serial = [c for c in devices.findall("controller") if c.get("type") == "virtio-serial"]
    changes.serial_controller_absent = not serial
    if not serial:
        controller = {"type": "virtio-serial", "index": "0", "ports": SERIAL_PORTS}
        etree.SubElement(devices, "controller", controller)
    channel = etree.SubElement(devices, "channel", type="unix")
    etree.SubElement(channel, "target", type="virtio", name=CHANNEL)
    changes.said.append(f"channel {CHANNEL} added")


def _with_qemu_namespace(root: etree._Element) -> etree._Element:
    """lxml cannot add a prefix to an existing element: rebuild the root with it."""
    if root.nsmap.get("qemu") == qemu_arguments.QEMU_NS:
        return root
    fresh = etree.Element(
        root.tag, dict(root.attrib), nsmap={**root.nsmap, "qemu": qemu_arguments.QEMU_NS}
    )
    fresh.text, fresh.tail = root.text, root.tail
    fresh.extend(list(root))
    etree.cleanup_namespaces(fresh, keep_ns_prefixes=["qemu"])
    return fresh


def _add_command_line(
    root: etree._Element, page_path: str, aliases: list[str], changes: Changes
) -> None:
    value = qemu_arguments.added(root, "-object", "shaper", id=SHAPER_ID, page=page_path)
    changes.said.append(f"command line -object {value}")
    override = _child(root, f"{_Q}override")
    for alias in aliases:
        frontend = _child(_child(override, f"{_Q}device", alias=alias), f"{_Q}frontend")
        etree.SubElement(frontend, f"{_Q}property", name="shaper", type="string", value=SHAPER_ID)
        changes.said.append(f"device {alias} shaper={SHAPER_ID}")


def _child(parent: etree._Element, tag: str, **attributes: str) -> etree._Element:
    """The child with this tag and these attributes; a new one where there is none."""
    for element in parent.findall(tag):
        if all(element.get(name) == value for name, value in attributes.items()):
            return element
    return etree.SubElement(parent, tag, **attributes)


# Detaching


def record_in(xml: str, name: str) -> dict[str, Any] | None:
    """The record of attach that the domain carries; Conflict if it is broken."""
    return carried_record(parse(xml), name)


def same(one: str, other: str) -> bool:
    """Whether two definitions differ at most in white space and in the shaping they carry."""
    return _comparable(one) == _comparable(other)


def _comparable(xml: str) -> bytes:
    root = parse(xml)
    domain_metadata.remove(root, domain_metadata.SHAPING)
    for element in root.iter():
        for edge in ("text", "tail"):
            if not (getattr(element, edge) or "").strip():
                setattr(element, edge, None)
    return etree.tostring(root, method="c14n2")


def attached_alike(one: str, other: str) -> bool:
    """Whether attach has put the same into two definitions of a domain."""
    return _put_in(one) == _put_in(other)


def _put_in(xml: str) -> tuple:
    root = parse(xml)
    shaped = sorted(alias or "" for alias in _overridden(root, None))
    record = domain_metadata.text(root, domain_metadata.ATTACHED)
    channel = qemu_arguments.found(root, "-device", channel_device.DRIVER)
    return root.findtext("devices/emulator"), _shaper(root), channel, shaped, record


def detach(xml: str, record: dict[str, Any]) -> str:
    """Takes the changes of an earlier attach back out of a domain's XML."""
    root = parse(xml)
    changes = Changes(**record)
    _restore_emulator(root, changes)
    for kind, device, element, _reason in _named_devices(root):
        _restore_device(kind, device, element, changes)
    _remove_channel(root, changes)
    _remove_command_line(root)
    domain_metadata.remove(root, domain_metadata.ATTACHED, domain_metadata.SHAPING)
    etree.cleanup_namespaces(root)
    return _text(root)


def _restore_emulator(root: etree._Element, changes: Changes) -> None:
    element = root.find("devices/emulator")
    if element is None:
        return
    if changes.emulator is None:
        _remove(element)
    else:
        element.text = changes.emulator


def _remove(element: etree._Element) -> None:
    """Removes an element and hands its trailing white space on."""
    parent = element.getparent()
    previous = element.getprevious()
    if element.tail:
        if previous is not None:
            previous.tail = (previous.tail or "") + element.tail
        else:
            parent.text = (parent.text or "") + element.tail
    parent.remove(element)


def _restore_device(kind: str, device: str, element: etree._Element, changes: Changes) -> None:
    alias = element.find("alias")
    if device in changes.aliases and alias is not None:
        _remove(alias)
    driver = element.find("driver")
    if driver is None:
        return
    if kind == "net" and device in changes.drivers_named:
        _set_or_drop(driver, "name", changes.drivers_named[device])
    if kind == "disk" and device in changes.queue_sizes:
        _set_or_drop(driver, "queue_size", None)
    created = changes.drivers_created if kind == "net" else changes.disk_drivers_created
    if device in created:
        _remove(driver)


def _set_or_drop(element: etree._Element, name: str, value: str | None) -> None:
    if value is None:
        element.attrib.pop(name, None)
    else:
        element.set(name, value)


def _remove_channel(root: etree._Element, changes: Changes) -> None:
    channel = _channel(root)
    if channel is not None:
        _remove(channel)
    uses_serial = any(
        _attribute(element, "target", "type") == "virtio" or element.tag == "smartcard"
        for element in root.findall("devices/*")
        if element.tag in ("channel", "console")
    )
    if changes.serial_controller_absent and not uses_serial:
        for controller in root.findall("devices/controller"):
            if controller.get("type") == "virtio-serial":
                _remove(controller)


def _remove_command_line(root: etree._Element) -> None:
    for option, driver in (("-device", channel_device.DRIVER), ("-object", "shaper")):
        for argument in qemu_arguments.of(root, option, driver):
            _remove(argument)
    line = root.find(f"{_Q}commandline")
    if line is not None:
        _remove_if_empty(line)
    inside = f"{_Q}override/{_Q}device/{_Q}frontend/{_Q}property[@name='shaper']"
    for item in root.findall(inside):
        # Its frontend, device and override.
        above = list(item.iterancestors())[:3]
        _remove(item)
        for element in above:
            _remove_if_empty(element)


def _remove_if_empty(element: etree._Element) -> None:
    if len(element) == 0:
        _remove(element)
