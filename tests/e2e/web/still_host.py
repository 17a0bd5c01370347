# SPDX-License-Identifier: GPL-2.0-or-later
"""A host on which nothing moves, for pictures of the pages.

A real guest never gives the same figures twice. So a real sluice-web asks, over a
UNIX socket as ever, a sluiced that gives these answers. Their shapes are held
against those that the real one promises (test_web_pictures.py).
"""

import json
import math
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import unquote, urlsplit

from sluice_controller.domain.auto_words import sentences
from sluice_controller.domain.models import as_json, parse
from sluice_controller.domain.nightly import NightlyResult, summary
from sluice_controller.domain.shaped import sentence
from sluice_controller.domain.use import Use
from sluice_controller.domain.why import Facts, why
from sluice_controller.entry.api.app import openapi
from unit.controller.nightly_facts import result

NOW = 1_780_488_000.0  # 2026-06-03 12:00:00 UTC
RESOURCES = ("blk-read", "blk-write", "net-tx", "net-rx")
CLASSES = [
    ("default", "Everything else", 5, False, 0),
    ("movie", "Film streams", 1, True, 1),
    ("batch", "Nightly batch", 8, False, 2),
    ("http", "Web servers", 4, False, 3),
]
SAMPLE = {
    "requests_per_second": 120.0,
    "limit_operations_per_second": None,
    "burst_operations": None,
    "held_mean_ms": 4.0,
    "service_mean_ms": 7.0,
    "in_flight": 3,
    "dropped_per_second": 0.0,
    "drops_per_second": {},
    "marked_per_second": 0.0,
    "buffered_bytes": 0,
    "buffer_bytes_max": 0,
    "tokens_operations": None,
    "untagged_share": None,
}
# MB/s of each class and resource, and where a rate of auto-shaping or of an operator holds it.
MOVES = {
    "media": {
        "movie": {"blk-read": (0.88, None), "net-tx": (0.91, None)},
        "batch": {"blk-read": (14.2, None), "blk-write": (7.9, 8.0)},
        "default": {"blk-read": (0.31, None), "net-tx": (0.02, 4.5), "net-rx": (0.01, None)},
    },
    "web": {
        "http": {"blk-read": (3.4, 6.1), "net-tx": (16.2, 16.4), "net-rx": (0.6, None)},
        "default": {"blk-read": (0.0, 2.0), "blk-write": (0.12, None), "net-tx": (0.001, 4.5)},
    },
    "db": {},
}
# A gate holds these, on the one device of the stream.
GATED = {("media", "batch", "blk-read")}
OWN_LIMITS = {("media", "batch", "blk-write"): 8e6}


def _bytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else megabytes * 1e6


def limit(bytes_per_second: float) -> dict[str, Any]:
    bursts = {"burst_bytes": None, "operations_per_second": None, "burst_operations": None}
    return {"bytes_per_second": bytes_per_second, **bursts}


def classes() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "title": title,
            "priority": priority,
            "is_stream": is_stream,
            "colour_index": colour,
            "weight": 100,
            "unmanaged": False,
        }
        for name, title, priority, is_stream, colour in CLASSES
    ]


def grants(domain: str) -> list[dict[str, Any]]:
    described = {one.pop("name"): one for one in classes()}
    made = []
    for tag, name in enumerate(["default", *sorted(MOVES.get(domain, {}).keys() - {"default"})]):
        held = MOVES.get(domain, {}).get(name, {})
        mine = {r: OWN_LIMITS.get((domain, name, r)) for r in held}
        own = {r: limit(at) for r, at in mine.items() if at}
        effective = {r: limit(_bytes(at)) for r, (_, at) in held.items() if at is not None}
        about = {key: value for key, value in described[name].items() if key != "title"}
        parts = {"dscp": [], "limits": own, "effective_limits": effective, "queues": {}}
        parts["overload"] = None
        reserved = {"blk-read": scheduling(875e3)} if name == "movie" else {}
        made.append({"class": name, "tag": tag, **about, **parts, "scheduling": reserved})
    return made


def scheduling(reservation: float) -> dict[str, Any]:
    return {
        "reservation_bytes_per_second": reservation,
        "policy": "token-bucket",
        "peak_bytes_per_second": None,
        "minimum_charge_bytes": None,
        "dynamic": "none",
        "charge": "all",
        "window": None,
    }


def device(kind: str, target: str, why: str | None = None, able: bool = True) -> dict[str, Any]:
    return {
        "kind": kind,
        "alias": f"ua-{target}",
        "target": target,
        "mac": f"52:54:00:00:00:0{target[-1]}" if kind == "net" else None,
        "shapeable": able,
        "reason": None if able else why,
        "shaped": why is None,
        "unshaped_because": why,
    }


ADDED = "was added after attach: sluice attach web --upgrade --restart"
MODEL = "model 'e1000' is not shaped: give the card the model virtio"
RESTART = "the domain waits for a restart: sluice attach db --restart"
DEVICES = {
    "media": [device("disk", "vda"), device("disk", "vdb"), device("net", "vnet0")],
    "web": [device("disk", "vda"), device("disk", "vdb", ADDED), device("net", "vnet1")],
    "db": [device("disk", "vda", RESTART), device("net", "vnet2", MODEL, able=False)],
    "build": [device("disk", "vda"), device("net", "vnet3")],
    "old": [device("disk", "sda", "the domain is not attached: sluice attach old")],
}


def domain(name: str) -> dict[str, Any]:
    running = name in MOVES
    active = name in ("media", "web")
    agent = {"agent_version": "0.1.0", "kernel": "6.12.48", "hostname": name, "max_tag": 7}
    return {
        "name": name,
        "uuid": f"5f0c2b1e-0000-4000-8000-{sum(name.encode()):012d}",
        "state": "running" if running else "shut off",
        "attached": name != "old",
        "active": active,
        "needs_restart": name == "db",
        "agent": {**agent, "connected": active, "error": None if active else "no answer yet"},
        "channel": channel(name),
        "devices": DEVICES[name],
        "shaped_count": sum(one["shaped"] for one in DEVICES[name]),
        "shaped_sentence": sentence(DEVICES[name]),
        "classes": grants(name),
        "ceiling": {"net-tx": limit(25e6)} if name == "web" else {},
        "cards": {},
    }


def channel(name: str) -> dict[str, Any]:
    has_map = name == "media"
    why = None if has_map else "no agent is connected"
    said = (
        "with the guest's port map in force" if has_map else f"without a port map in force: {why}"
    )
    return {
        "present": True,
        "absent_because": None,
        "port_map": has_map,
        "unused_because": why,
        "sentence": f"channel {said}",
    }


def sample(vm: str, name: str, resource: str, now: float, held: float | None) -> dict[str, Any]:
    waits = (vm, name, resource) in GATED or held is not None and now > held * 0.9
    bytes_held = _bytes(held)
    return {
        **SAMPLE,
        "bytes_per_second": now * 1e6,
        "limit_bytes_per_second": bytes_held,
        "burst_bytes": None if held is None else int(held * 50e3),
        "tokens_bytes": None if held is None else (-31_200 if waits else int(held * 50e3)),
        "backlog_requests": 12 if waits else 0,
        "backlog_bytes": 1_572_864 if waits else 0,
        "held_p99_ms": 131.0 if waits else 0.0,
    }


def live() -> dict[str, Any]:
    domains = {
        name: {
            "at": NOW,
            "page_ok": True,
            "error": None,
            "classes": {
                one: {r: sample(name, one, r, *moved.get(r, (0.0, None))) for r in RESOURCES}
                for one, moved in MOVES[name].items()
            },
        }
        for name in ("media", "web")
    }
    uplink = {
        "name": "eno1",
        "backlog_bytes": 90_000,
        "dropped_per_second": 0.0,
        "bytes_per_second": 17.2e6,
        "link_bytes_per_second": 25e6,
        "ports": ["eno1"],
        "is_beyond": False,
        "first": [],
        "first_reason": None,
    }
    return {"at": NOW, "domains": domains, "uplink": uplink}


def history(name: str) -> dict[str, Any]:
    """Fifteen minutes in steps of two seconds; limits came six minutes ago."""
    at = [NOW - 900 + 2 * step for step in range(451)]
    series: dict[str, list[float | None]] = {}
    for one, moved in MOVES[name].items():
        for resource, (now, held) in moved.items():
            wave = [1 + 0.05 * math.sin(step * 1.7) for step in range(451)]
            late = [time >= NOW - 360 for time in at]
            is_gated = (name, one, resource) in GATED
            before = now * (1.9 if held or is_gated else 1)
            rates = [now if shaped else before for shaped in late]
            series[f"{one}/{resource}/bytes_per_second"] = [
                rate * 1e6 * w for rate, w in zip(rates, wave, strict=True)
            ]
            limits = [_bytes(held) if shaped else None for shaped in late]
            series[f"{one}/{resource}/limit_bytes_per_second"] = limits
            waits = is_gated or held is not None and now > held * 0.9
            series[f"{one}/{resource}/backlog_bytes"] = [1.5e6 * w if waits else 0.0 for w in wave]
            series[f"{one}/{resource}/held_p99_ms"] = [131 * w if waits else 0.0 for w in wave]
    return {"step": 2.0, "at": at, "series": series}


FILM = "/usr/bin/vlc -I dummy /srv/films/the-mill.ts --sout #std{access=udp,dst=10.78.0.1}"
# pid, parent, command line, user, class, rule, share of a processor, MB/s read and written
PROCESSES = [
    (1, 0, "/sbin/init", "root", None, None, 0, 0, 0),
    (190, 1, "/usr/lib/systemd/systemd-journald", "root", None, None, 0, 0, 0.01),
    (266, 1, "/usr/bin/dbus-daemon --system --nofork", "messagebus", None, None, 0, 0, 0),
    (288, 1, "sshd: /usr/sbin/sshd -D [listener]", "root", None, None, 0, 0, 0),
    (706, 1, "/usr/sbin/sluice-agent", "root", None, None, 0.03, 0, 0),
    (783, 288, "sshd-session: olga [priv]", "root", None, None, 0, 0, 0),
    (803, 783, "-bash", "olga", None, None, 0, 0, 0),
    (911, 803, "tar --create --file /srv/home.tar /home", "olga", None, None, 0.02, 0.31, 0),
    (812, 1, FILM, "vlc", "movie", "rule-1", 0.21, 0.88, 0),
    (840, 1, "/bin/sh /usr/local/bin/nightly-batch", "batch", "batch", "rule-2", 0, 0, 0),
    (842, 840, "cat /srv/data/part-00 part-01", "batch", "batch", "rule-2", 0.11, 7.2, 0),
    (843, 840, "cat /srv/data/part-02 part-03", "batch", "batch", "rule-2", 0.1, 7.0, 0),
    (844, 840, "sort --output /srv/data/sorted", "batch", "batch", "rule-2", 0.45, 0, 7.9),
    (907, 803, "rsync --archive /home /srv/mirror", "olga", "batch", None, 0.02, 0, 0),
]


def processes() -> dict[str, Any]:
    rows = []
    for pid, parent, line, user, one, rule, cpu, read, write in PROCESSES:
        exe = line.split()[0] if line.startswith("/") else ""
        rows.append(
            {
                "pid": pid,
                "ppid": parent,
                "start_time_ticks": pid * 10,
                "comm": line.split()[0].rpartition("/")[2][:15],
                "exe": exe,
                "cmdline": line,
                "user": user,
                "unit": "",
                "cgroup": "/system.slice",
                "class": one,
                "rule": rule,
                "inherited": pid in (842, 843, 844),
                "threads": 1,
                "cpu_ratio": cpu,
                "rss_bytes": 856_000 + pid * 4096,
                "read_bps": read * 1e6,
                "write_bps": write * 1e6,
            }
        )
    return {"at": NOW, "age_seconds": 0.4, "truncated": False, "processes": rows}


def stream(name: str, vm: str, one: str, verdict: str, reason: str, since: float) -> dict[str, Any]:
    return {
        "name": name,
        "domain": vm,
        "class": one,
        "nominal_bytes_per_second": 875e3,
        "nominal": {
            "bytes_per_second": 875e3,
            "source": "declared",
            "sentence": "875 kB/s, declared",
        },
        "verdict": verdict,
        "since": since,
        "reason": reason,
        "source": "client",
        "source_at": NOW - 2,
        "guest": [],
        "processor_pressure": 0.06,
        "processor_wait_ms_per_second": 12.0,
        "last_report": None,
    }


def told_streams(name: str) -> list[dict[str, Any]]:
    """The streams that a guest's programs report by themselves."""
    return [
        {
            "class": one["class"],
            "name": "vlc",
            "source": "program",
            "frames_per_second": 25.0,
            "frames": 133_500,
            "late": 0,
            "lost": 0,
            "pace_bytes_per_second": None,
            "at": NOW - 2,
            "verdict": "perfect",
            "reason": "all of 125 frames in time in 5 s",
            "stream": one["name"],
            "fresh": True,
        }
        for one in STREAMS[:1]
        if one["domain"] == name
    ]


STREAMS = [
    stream("movie", "media", "movie", "perfect", "reads come back in 31 ms", NOW - 5340),
    stream("evening-news", "media", "movie", "good", "one gap of 412 ms", NOW - 260),
]


def auto() -> dict[str, Any]:
    limits = [
        {"domain": vm, "class": one, "resource": resource, "bytes_per_second": _bytes(at)}
        for vm, of_classes in MOVES.items()
        for one, moved in of_classes.items()
        for resource, (_, at) in moved.items()
        if at is not None and (vm, one, resource) not in OWN_LIMITS
    ]
    held = [
        {"domain": vm, "class": one, "resource": resource, "bytes_per_second": at * 1e6}
        for vm, one, resource in GATED
        for at, _ in [MOVES[vm][one][resource]]
    ]
    found: dict[str, Any] = {
        "enabled": True,
        "dry_run": False,
        "state": "settled",
        "method": "gate",
        "settled_after_seconds": 36.5,
        "limits": limits,
        "devices": [
            gated_device("sda", ["media"], [waiting("movie", 118.0)], held),
            gated_device("md0", ["media", "build"], [waiting("evening-news", 214.0, True)]),
            open_device("nvme0n1", ["db"]),
        ],
        "without_gate": [{"domain": "web", "because": BEFORE_GATES}],
        "round_trips": True,
        "device_names": {},
        "names_without_disk": [],
        "assumed": [],
        "beyond": {
            "bytes_per_second": None,
            "because": None,
            "streams": [],
            "without_signal": [],
        },
        "eased": [
            eased("build", weight=128, own_weight=1024, processors_per_vcpu=0.5),
            eased("db", refused="has no cgroup of its own (error 55)"),
        ],
        "floors_bytes_per_second": dict.fromkeys(RESOURCES, 1e6),
        "decided_at": NOW - 40,
    }
    return {**found, "sentences": sentences(found)}


BEFORE_GATES = "its QEMU is from before the gate: sluice attach web --restart"


def waiting(stream: str, waits_ms: float, is_elsewhere: bool = False) -> dict[str, Any]:
    times = {"waits_ms": waits_ms, "bears_ms": 300.0}
    return {"stream": stream, **times, "is_elsewhere": is_elsewhere}


def gated_device(
    name: str, domains: list[str], streams: list[Any], held: list[Any] | None = None
) -> dict[str, Any]:
    """A device whose gate is set if it holds somebody."""
    return {
        "name": name,
        "domains": domains,
        "named_by": [],
        "target_ms": 54.0 if held else None,
        "open_because": None if held else "cuts help none of its streams",
        "adjust": 0.45 if held else 1.0,
        "window_bytes": 3 << 20 if held else 0,
        "background_bytes_per_second": 14.5e6,
        "streams": streams,
        "held": held or [],
    }


def open_device(name: str, domains: list[str]) -> dict[str, Any]:
    return {**gated_device(name, domains, []), "open_because": "no stream reads it"}


def eased(domain: str, **values: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("weight", "own_weight", "processors_per_vcpu", "refused"))
    return {"domain": domain, **nothing, **values}


def auto_past() -> dict[str, Any]:
    """The disk was under pressure until the gate came six minutes ago; nobody was before that."""
    at = [NOW - 900 + 2 * step for step in range(451)]
    wave = [1 + 0.05 * math.sin(step * 1.7) for step in range(451)]
    ago = [NOW - time for time in at]
    series: dict[str, list[float | None]] = {
        "disk/pressure": [
            w * (2.2 if 360 < s < 540 else 0.3 if s >= 540 else 0.52)
            for w, s in zip(wave, ago, strict=True)
        ],
        "network/pressure": [0.2 * w for w in wave],
        "processors/pressure": [
            0.06 * w if s < 700 else None for w, s in zip(wave, ago, strict=True)
        ],
        "sda/target_ms": [None if s > 360 else 16.0 if s > 300 else 54.0 for s in ago],
        "md0/target_ms": [6.0 if 150 < s < 330 else None for s in ago],
        "nvme0n1/target_ms": [None] * 451,
    }
    return {"step": 2.0, "at": at, "series": series}


def decision(
    ago: float, text: str, reason: str, stream: str = "movie", dry_run: bool = False
) -> dict[str, Any]:
    about = {"stream": stream, "reason": reason, "dry_run": dry_run}
    return {"at": NOW - ago, "sentence": text, "action": None, **about}


def rate_change(ago: float, text: str, kind: str, before: float | None, after: float) -> Any:
    """A decision on a guest from before the gate."""
    action = {"domain": "web", "class": "http", "resource": "blk-read"}
    rates = {"from_bytes_per_second": before, "to_bytes_per_second": after}
    return {**decision(ago, text, f"disk {kind}"), "action": {**action, **rates}}


def gate_words(stream: str, waits: int, device: str, keeps: str, moves: str) -> str:
    return (
        f"{stream} waits {waits} of 300 ms that it can bear; the background may keep {keeps} of"
        f" work in {device}, and moves {moves} now"
    )


def auto_log() -> list[dict[str, Any]]:
    """Newest first: a fault that comes again, rooms, two gates, a rehearsal before all."""
    rows = [
        decision(40 + 3 * number, "Fault on evening-news without a cause here: the player"
                 f" reports {2 + number} stalls; nothing was changed", "stream unexplained",
                 "evening-news")
        for number in range(13)
    ]  # fmt: skip
    rows.append(
        decision(150, "evening-news waits for something else than the others on md0: it waits 214"
                 " of 300 ms that it can bear, though they had as little as a gate leaves them; its"
                 " gate is open, tried again in 30 s", "gate elsewhere", "evening-news")
    )  # fmt: skip
    level = 6.1
    for number in range(5):
        below = round(level * 0.92, 1)
        text = (
            "Room beside movie: disk wait 31 ms, at most 58 ms, with a read due each 150 ms;"
            f" web/http blk-read {below} → {level} MB/s"
        )
        rows.append(rate_change(180 + 25 * number, text, "room", below * 1e6, level * 1e6))
        level = below
    risk = (
        "Stall risk on movie: disk wait 604 ms, at most 811 ms, with a read due each 150 ms;"
        " web/http blk-read unlimited → 3.00 MB/s, web/default blk-read unlimited → 2.00 MB/s"
    )
    news, movie = "evening-news", "movie"
    return [
        *rows,
        decision(300, gate_words(movie, 96, "sda", "54 ms", "14.5 MB/s"), "gate moved"),
        decision(330, "Gate on md0: " + gate_words(news, 288, "md0", "6.0 ms", "9.70 MB/s"),
                 "gate on", news),
        rate_change(356, risk, "risk", None, 3e6),
        decision(360, "Gate on sda: " + gate_words(movie, 290, "sda", "16 ms", "27.1 MB/s"),
                 "gate on"),
        decision(640, "Stall risk on movie: media waits 262 ms of each second for a processor, 200"
                 " ms can be borne; build, db get 1/8 of their weight", "processors risk"),
        decision(820, "Gate on sda: " + gate_words(movie, 291, "sda", "16 ms", "26.8 MB/s"),
                 "gate on", dry_run=True),
    ]  # fmt: skip


RULES = [
    {
        "id": number,
        "domain": vm,
        "class": one,
        "match": match,
        "created_at": NOW - 86_400 * number,
        "refused": [],
    }
    for number, vm, one, match in (
        (1, "media", "movie", {"exe": "/usr/bin/vlc"}),
        (2, None, "batch", {"user": "batch"}),
        (3, "web", "http", {"unit": "nginx.service"}),
    )
]
GROUPS = [
    {
        "name": name,
        "resource": resource,
        "unit": unit,
        "rate_per_second": rate,
        "burst": rate // 20,
        "domains": [{"domain": vm, "weight": weight} for vm, weight in of_domains],
        "members": [
            {
                "pid": 4000 + number,
                "label": f"{vm} sluice-disks {resource}",
                "weight": weight,
                "waiting": vm == "media",
                "requests": 100,
                "units": 10**9,
            }
            for number, (vm, weight) in enumerate(of_domains)
        ],
    }
    for name, resource, unit, rate, of_domains in (
        ("disks", "blk", "bytes", 40_000_000, [("media", 300), ("web", 100)]),
        ("frames", "net-tx", "operations", 20_000, []),
    )
]
AUDIT = [
    {"at": NOW - ago, "actor": actor, "action": action, "thing": thing, "before": old, "after": new}
    for ago, actor, action, thing, old, new in (
        (300, "olga", "set limit", "media/batch/blk-write", None, limit(8e6)),
        (4000, "olga", "set class", "batch", {"priority": 5}, {"priority": 8}),
        (9000, "cli", "attach", "db", None, {"disable_vhost": False, "restart": False}),
        (90_000, "sluiced", "take over", "web", None, {"notes": ["http had priority 3"]}),
    )
]  # fmt: skip
OUTCOMES = ["passed", "passed", "refused", "passed", "failed", "passed"]
BUSY = "The guests web1 and db2 move 84.2 MB/s on their disks; at most 5 MB/s is allowed."


def nights() -> list[dict[str, Any]]:
    made = [
        {"id": number, **as_json(summary(parse(NightlyResult, result(number, outcome, BUSY))))}
        for number, outcome in enumerate(OUTCOMES, 1)
    ]
    return made[::-1]


def night(number: int) -> dict[str, Any]:
    shown = next(one for one in nights() if one["id"] == number)
    whole = result(number, OUTCOMES[number - 1], BUSY)
    return {**shown, "has_page": whole["measured"] is not None, "result": whole}


def verdicts() -> list[dict[str, Any]]:
    """An hour of reports, with a bad time before the limits came."""

    def word(ago: int) -> str:
        return "poor" if 360 <= ago < 540 else "good" if 540 <= ago < 700 else "perfect"

    return [
        {"at": NOW - ago, "verdict": word(ago), "window_ms": 10_000} for ago in range(3590, 0, -10)
    ]


NAMES = ["media", "web", "db", "build", "old"]
LIBVIRT = {"uri": "qemu:///system", "connected": True, "error": None}


# Answers to a GET; a text is the detail of a 503.
def why_batch() -> dict[str, Any]:
    """Of the class batch of media: its writes are at its own limit."""
    at_limit = Use(8e6, 61.0, 0.9, 1.0, None, 4, limit_bytes_per_second=8e6, burst_bytes=400_000)
    uses = {"blk-write": at_limit}
    found = [why(Facts("media", "batch", one, uses.get(one, Use()))) for one in RESOURCES]
    return {"at": NOW, "domain": "media", "class": "batch", "resources": as_json(found)}


ANSWERS: dict[str, Any] = {
    "/v1/status": {
        "version": "0.1.0",
        "started_at": NOW - 90_000,
        "libvirt": LIBVIRT,
        "sample_hz": 10,
        "database": "sqlite",
        "host": {"name": "kvm1", "accelerator_note": ""},
        "uplinks": ["eno1", "eno2"],
    },
    "/v1/settings": {
        "history_seconds": 86_400,
        "uplink": "eno1",
        "link_bytes_per_second": None,
        "uplink_first": False,
        "emulator": "/usr/bin/qemu",
    },
    "/v1/domains": [domain(name) for name in NAMES],
    "/v1/classes": classes(),
    "/v1/groups": GROUPS,
    "/v1/rules": RULES,
    "/v1/openapi.json": openapi(),
    "/v1/live": live(),
    "/v1/streams": STREAMS,
    "/v1/auto": auto(),
    "/v1/auto/log": auto_log(),
    "/v1/auto/past": auto_past(),
    "/v1/audit": AUDIT,
    "/v1/nightly": nights(),
    "/v1/nightly/5": night(5),
    "/v1/domains/media/classes/batch/why": why_batch(),
    "/v1/domains/media/processes": processes(),
    "/v1/domains/media/assignments": [
        {"pid": 907, "start_time_ticks": 9070, "class": "batch", "created_at": NOW - 60}
    ],
    "/v1/domains/db/processes": "No agent answers in db: the VM waits for a restart.",
    **{f"/v1/domains/{name}": domain(name) for name in NAMES},
    **{f"/v1/domains/{name}/streams": told_streams(name) for name in NAMES},
    **{f"/v1/history?domain={name}": history(name) for name in MOVES},
    **{f"/v1/streams/{one['name']}/history": verdicts() for one in STREAMS},
}
LISTS = ("domains", "groups", "rules", "streams", "auto/log", "audit", "nightly")
# A host on which nothing was set up yet.
EMPTY: dict[str, Any] = {
    **ANSWERS,
    "/v1/live": {"at": NOW, "domains": {}, "uplink": None},
    "/v1/auto": {
        **auto(),
        **{"enabled": False, "state": "off", "settled_after_seconds": None, "decided_at": None},
        **dict.fromkeys(("limits", "devices", "without_gate", "eased", "sentences"), []),
    },
    "/v1/auto/past": {"step": 2.0, "at": [], "series": {}},
    "/v1/classes": classes()[:1],
    "/v1/settings": {**ANSWERS["/v1/settings"], "uplink": None},
    **{f"/v1/{kind}": [] for kind in LISTS},
}


class StillHost(ThreadingUnixStreamServer):
    """Gives the answers over a UNIX socket. They may be changed while it runs; none: 503."""

    daemon_threads = True

    def __init__(self, socket: str) -> None:
        self.answers = ANSWERS
        super().__init__(socket, Handler)


class Handler(BaseHTTPRequestHandler):
    """One connection of sluice-web."""

    protocol_version = "HTTP/1.1"
    server: StillHost

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        key = f"{path}?{parts.query.split('&')[0]}" if path == "/v1/history" else path
        found, status = self.server.answers.get(key), 200
        if not self.server.answers:
            found = "libvirt does not answer at qemu:///system; is libvirtd running?"
        if isinstance(found, str):
            found, status = {"title": "Not available", "detail": found}, 503
        elif found is None:
            detail = f"{path}: there is no such thing; go to the overview and follow a link."
            found, status = {"title": "No such thing", "detail": detail}, 404
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "sluice-web"

    def log_message(self, *args: object) -> None:
        """Nothing: a picture is what is looked at."""
