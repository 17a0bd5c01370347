# SPDX-License-Identifier: GPL-2.0-or-later
"""A reading of `sluice top`, in the shapes of the API's answers."""

SAMPLE = {
    "bytes_per_second": 0.0,
    "requests_per_second": 0.0,
    "limit_bytes_per_second": None,
    "limit_operations_per_second": None,
    "backlog_requests": 0,
    "held_p99_ms": 0.0,
    "dropped_per_second": 0.0,
    "drops_per_second": None,
    "untagged_share": None,
    "tokens_bytes": None,
    "tokens_operations": None,
}


def sample(**changes):
    return {**SAMPLE, **changes}


def grant(name, **limits):
    return {"class": name, "limits": limits, "effective_limits": limits}


def domain(name, *classes, **changes):
    return {
        "name": name,
        "state": "running",
        "attached": True,
        "active": True,
        "needs_restart": False,
        "agent": {"connected": True, "error": None},
        "devices": [{}],
        "shaped_count": 1,
        "shaped_sentence": "1 of 1 shaped",
        "classes": [grant("default"), *classes],
        "ceiling": {},
        **changes,
    }


def process(pid, of_class=None, **changes):
    return {
        "pid": pid,
        "user": "root",
        "comm": "cat",
        "cmdline": "",
        "class": of_class,
        "rule": None,
        "cpu_ratio": 0.0,
        "read_bps": 0.0,
        "write_bps": 0.0,
        **changes,
    }


def live(**classes):
    return {"at": 0.0, "page_ok": True, "error": None, "classes": classes}


def reading():
    """media, which rsync loads up to its limit, and web1, off, with a limit all the same."""
    limited = sample(
        bytes_per_second=19.6e6,
        requests_per_second=150.0,
        limit_bytes_per_second=20e6,
        tokens_bytes=-65536,
        held_p99_ms=65.536,
        backlog_requests=12,
    )
    batch = {"blk-read": limited, "net-tx": sample(bytes_per_second=1.23e6)}
    stopped = {"connected": False, "error": "the domain is off"}
    return {
        "live": {
            "at": 0.0,
            "domains": {"media": live(default={"blk-read": sample()}, batch=batch)},
            "uplink": None,
        },
        "domains": [
            domain("media", grant("batch", **{"blk-read": {"bytes_per_second": 2e7}})),
            domain(
                "web1",
                grant("batch", **{"net-tx": {"bytes_per_second": 5e6}}),
                state="shutoff",
                attached=False,
                active=False,
                agent=stopped,
            ),
        ],
        "processes": {
            "media": {
                "truncated": False,
                "processes": [
                    process(1, cmdline="/sbin/init"),
                    process(
                        812,
                        "batch",
                        cmdline="/usr/bin/rsync -a /srv /backup",
                        rule="3",
                        read_bps=19.6e6,
                        cpu_ratio=0.25,
                    ),
                ],
            }
        },
    }
