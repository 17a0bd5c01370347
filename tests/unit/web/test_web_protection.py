# SPDX-License-Identifier: GPL-2.0-or-later
"""The sentence on what protects a stream."""

from sluice_web.protection import protection

STREAM = {"name": "film", "domain": "media", "class": "movie"}
OFF = {"enabled": False}


def held(domain: str, name: str, resource: str, megabytes: float) -> dict:
    rate = megabytes * 1e6
    return {"domain": domain, "class": name, "resource": resource, "bytes_per_second": rate}


def auto(*limits: dict, dry_run: bool = False) -> dict:
    return {"enabled": True, "dry_run": dry_run, "limits": list(limits)}


def live(rates: dict, waiting: tuple = ()) -> dict:
    """MB/s by (VM, class, resource), and which of these wait."""
    domains: dict = {}
    for (domain, name, resource), megabytes in rates.items():
        classes = domains.setdefault(domain, {"classes": {}})["classes"]
        classes.setdefault(name, {})[resource] = {
            "bytes_per_second": megabytes * 1e6,
            "backlog_requests": 3 if (domain, name, resource) in waiting else 0,
        }
    return {"domains": domains}


def limited(domain: str, name: str, limits: dict, active: bool = True) -> dict:
    return {"name": domain, "active": active, "classes": [{"class": name, "limits": limits}]}


def test_a_limit_is_named_with_its_vm_and_rate():
    said = protection(STREAM, auto(held("web", "batch", "blk-read", 22)), [], {})
    assert said == "Auto-shaping holds batch on web at 22.0 MB/s disk read"


def test_three_are_named_and_of_four_two():
    limits = [held("web", f"c{number}", "blk-read", 9) for number in range(4)]
    three = protection(STREAM, auto(*limits[:3]), [], {})
    assert three.count(" on web at ") == 3 and "more" not in three
    four = protection(STREAM, auto(*limits), [], {})
    assert four.count(" on web at ") == 2 and four.endswith(", and 2 more")


def test_those_that_bite_are_named():
    limits = [
        held("web", "idle", "blk-read", 5),
        held("web", "near", "net-tx", 10),
        held("db", "waits", "blk-read", 3),
        held("db", "half", "blk-read", 10),
    ]
    now = {
        ("web", "near", "net-tx"): 9.9,
        ("db", "waits", "blk-read"): 2.0,
        ("db", "half", "blk-read"): 5.0,
    }
    said = protection(STREAM, auto(*limits), [], live(now, (("db", "waits", "blk-read"),)))
    assert said == (
        "Auto-shaping holds waits on db at 3.00 MB/s disk read,"
        " near on web at 10.0 MB/s network out, and 2 more"
    )


def test_a_dry_run_is_never_said_to_protect():
    said = protection(STREAM, auto(held("web", "batch", "blk-read", 22), dry_run=True), [], {})
    assert "dry run" in said


def test_fixed_limits_protect_where_a_vm_is_shaped():
    domains = [
        limited("web", "http", {"net-tx": {"bytes_per_second": 5e6}}),
        limited("db", "batch", {"blk-read": {"operations_per_second": 200}}),
        limited("off", "batch", {"blk-read": {"bytes_per_second": 1e6}}, active=False),
    ]
    assert protection(STREAM, OFF, domains, {}) == (
        "Fixed limits: http on web at 5.00 MB/s network out, batch on db at 200 ops/s disk read"
    )


def test_nothing_protects_where_there_is_no_limit():
    assert protection(STREAM, OFF, [], {}).startswith("Nothing")


def test_a_streams_own_limit_does_not_protect_it():
    own = limited("media", "movie", {"blk-read": {"bytes_per_second": 1e6}})
    assert protection(STREAM, OFF, [own], {}).startswith("Nothing")
    said = protection(STREAM, auto(held("media", "movie", "blk-read", 1)), [], {})
    assert said == "Auto-shaping is watching"
    # One class may be granted to several VMs: in another VM it is a neighbour.
    said = protection(STREAM, auto(held("web", "movie", "blk-read", 1)), [], {})
    assert said.startswith("Auto-shaping holds movie on web")
