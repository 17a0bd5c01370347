# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Whether a host is fit for Sluice. Pure: what was found and what is wanted in,
sentences out. Each names the thing, its value and the remedy.
"""

from __future__ import annotations

MIB = 1 << 20

# The part whose packages are installed where they are missing, and never upgraded.
PREREQUISITES = "prerequisites"

# Which bit of the processor each vendor's kernel module needs.
KVM_MODULES = {"svm": "kvm_amd", "vmx": "kvm_intel"}


def release_problems(found: dict, wanted: dict) -> list[str]:
    """Distribution, architecture, service manager, the user's rights."""
    problems = []
    release = f"{found['release_id']} {found['release_version']}"
    if release not in wanted["releases"]:
        problems.append(
            f"release {release!r} ({found['release_name']}) is not supported: install one of"
            f" {', '.join(wanted['releases'])}, or take the host out of the inventory's group"
        )
    if found["architecture"] not in wanted["architectures"]:
        problems.append(
            f"architecture {found['architecture']!r} is not supported: use a host with"
            f" {', '.join(wanted['architectures'])}"
        )
    if found["init"] != "systemd":
        problems.append(
            f"process 1 is {found['init']!r} and not systemd: boot the host with systemd"
        )
    if found["uid"] != 0:
        problems.append(
            f"user id {found['uid']} is not root: let Ansible become root (become, or"
            " ansible_user=root)"
        )
    return problems


def virtualisation_problems(found: dict, wanted: dict) -> list[str]:
    """Hardware virtualisation, unless TCG will do."""
    if wanted["allow_tcg"]:
        return []
    remedy = "or set sluice_allow_tcg: true for guests under TCG (much slower)"
    if not found["kvm_flag"]:
        return [
            "virtualisation 'none': the processor shows neither vmx nor svm; enable it in the"
            f" firmware, or nested virtualisation on the host below, {remedy}"
        ]
    if found["kvm_error"]:
        return [
            f"virtualisation {found['kvm_flag']!r}: /dev/kvm does not make a virtual machine"
            f" ({found['kvm_error']}); see 'dmesg | grep kvm', {remedy}"
        ]
    return []


def space_problems(found: dict, wanted: dict) -> list[str]:
    """Free space, summed up for folders on the same file system."""
    needs: dict[str, dict] = {}
    for path, need in wanted["free_bytes"].items():
        place = found["filesystems"].get(path)
        if place is None:
            continue
        entry = needs.setdefault(place["mount"], {**place, "need": 0, "paths": []})
        entry["need"] += need
        entry["paths"].append(path)
    problems = []
    for mount, entry in sorted(needs.items()):
        if entry["free_bytes"] < entry["need"]:
            problems.append(
                f"file system {mount!r} has {entry['free_bytes'] // MIB} MiB free, and"
                f" {', '.join(entry['paths'])} need {-(-entry['need'] // MIB)} MiB there: free some"
                " (apt-get clean, journalctl --vacuum-size=100M), or enlarge it"
            )
        if entry["free_inodes"] is not None and entry["free_inodes"] < wanted["free_inodes"]:
            problems.append(
                f"file system {mount!r} has {entry['free_inodes']} free inodes and needs"
                f" {wanted['free_inodes']}: delete files there"
            )
    return problems


def is_there(name: str, part: str, found: dict, wanted: dict) -> bool:
    """Whether a package is installed, and at the version that is offered where one is known."""
    name = name.partition(":")[0]
    version = found["installed"].get(name)
    if version is None or part == PREREQUISITES:
        return version is not None
    return version == (found["offered"].get(name) or wanted["expected"].get(name) or version)


def install_space(found: dict, wanted: dict) -> dict[str, int]:
    """Bytes that packages need, by folder: those of all parts that are not there whole.

    Nothing for folders of which the inventory itself says what they need.
    """
    needs: dict[str, int] = {}
    for part, names in wanted["installs"].items():
        if all(is_there(name, part, found, wanted) for name in names):
            continue
        for path, mib in wanted["install_mib"].get(part, {}).items():
            if path not in wanted["free_bytes"]:
                needs[path] = needs.get(path, 0) + int(mib) * MIB
    return needs


def nightly_space(found: dict, wanted: dict) -> dict[str, int]:
    """Bytes that the nightly run needs, by folder: its images until they are there, and a run.

    Nothing where the inventory itself says what that folder needs.
    """
    need = wanted["nightly"]
    if not need or need["state"] in wanted["free_bytes"]:
        return {}
    absent = sum(
        part["mib"] for part in need["parts"] if not found["nightly_files"] >= {*part["files"]}
    )
    return {need["state"]: (absent + need["run_mib"]) * MIB}


def memory_problems(found: dict, wanted: dict) -> list[str]:
    """A host with less memory in all than a nightly run takes and leaves free never has one."""
    need = wanted["nightly"].get("memory_mib", 0)
    if found["memory_mib"] >= need:
        return []
    return [
        f"memory of {found['memory_mib']} MiB in all is too little for the nightly run, which needs"
        f" {need} MiB free: take the host out of sluice_nightly, or lower run.media_mib,"
        " run.web_mib or start.memory_spare_mib in sluice_nightly_config"
    ]


def package_problems(found: dict) -> tuple[list[str], list[str]]:
    """What dpkg's database says: problems, and what the change phase will finish."""
    problems = [
        f"package {name!r} is half-installed: run 'apt-get install --reinstall {name}' on the"
        " host, or purge it"
        for name in found["broken_packages"]
    ]
    repairs = [
        f"package {name!r} is not unpacked to the end: it will be unpacked anew"
        for name in found["restorable_packages"]
    ]
    repairs += [
        f"package {name!r} is not configured yet: 'dpkg --configure -a' will be run"
        for name in found["unfinished_packages"]
    ]
    if found["dpkg_journal"] and not repairs:
        repairs.append("dpkg was interrupted: 'dpkg --configure -a' will be run")
    if found["source_error"]:
        problems.append(
            f"package source {found['source_error']}: correct sluice_apt_repository, or see that"
            " the host reaches it"
        )
    return problems, repairs


def port_problems(found: dict) -> list[str]:
    """Addresses that somebody else listens on, or that the host does not have."""
    return [
        f"address {address!r} for the web page cannot be used ({reason}): stop what listens"
        " there, or set sluice_web_bind"
        for address, reason in sorted(found["port_errors"].items())
    ]


def folder_problems(found: dict) -> list[str]:
    """Folders that were given to one program and hold other things."""
    return [
        f"folder {path!r} for Sluice's data holds {', '.join(names[:3])}"
        f"{' and more' if len(names) > 3 else ''}: give an empty folder, or one to be made"
        for path, names in sorted(found["others_things"].items())
        if names
    ]


def setting_problems(found: dict) -> list[str]:
    """Settings that only the host can judge."""
    problems = [
        f"user {name!r} of sluice_operators does not exist: create it on the host, or take it out"
        for name in found["missing_users"]
    ]
    if found["missing_interface"]:
        problems.append(
            f"interface {found['missing_interface']!r} of sluice_uplink does not exist: give one"
            " that 'ip link' shows on the host, or an empty string for none"
        )
    if found["calendar_error"]:
        problems.append(
            f"sluice_nightly_on_calendar {found['calendar_error']} is no time: write for example"
            " '*-*-* 03:30', see systemd.time(7)"
        )
    return problems


def judge(found: dict, wanted: dict) -> tuple[list[str], list[str]]:
    """All problems of a host, and what will be repaired."""
    problems = release_problems(found, wanted)
    if wanted["virtualisation"]:
        problems += virtualisation_problems(found, wanted)
    free_bytes = {
        **wanted["free_bytes"],
        **install_space(found, wanted),
        **nightly_space(found, wanted),
    }
    problems += space_problems(found, {**wanted, "free_bytes": free_bytes})
    problems += memory_problems(found, wanted)
    more, repairs = package_problems(found)
    problems += more + port_problems(found) + folder_problems(found) + setting_problems(found)
    return problems, repairs
