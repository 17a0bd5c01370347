# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or later (see LICENSE)
"""Checks ``sluice_domains``, ``sluice_classes`` and ``sluice_rules`` as a whole.

Pure: data in, list of problems out. Each problem is one sentence that names
the thing, its value and the remedy. The bounds are those of the controller's
API, which has the last word; here they are checked for every host before
anything is changed on any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .rates import parse_count, parse_rate, parse_size, shown
from .scheduling import RESOURCES, WEIGHT_MAX, read_queues, read_schedulings

# Conditions of a rule, and how long each may be.
LONGEST = {"exe": 4096, "cmdline": 1024, "user": 64, "unit": 256, "cgroup": 4096}
MATCH_KEYS = tuple(LONGEST)
MAX_CLASSES = 15
MAX_RULES = 256
# How long a guest may take to shut down: at least and at most.
SHUTDOWN_SECONDS = (1, 900)

_CLASS_NAME = re.compile(r"[a-z0-9-]{1,31}")
_STREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
# What an expression must not use, because the agent's engine takes linear time
# and has none of it; looked for where escapes and character classes are taken out.
_LITERAL = re.compile(r"\\[^1-9]|\[\^?\]?[^\]]*\]")
_BACKTRACKING = re.compile(r"\(\?(?:<?[=!]|>|\(|P=)|\\[1-9]|[*+?}]\+")
_DOMAIN_NAME = re.compile(r"[^/\s][^/\n]{0,254}")

_DOMAIN_KEYS = (
    "name",
    "state",
    "restart",
    "shutdown_seconds",
    "disable_vhost",
    "exclusive",
    "devices",
    "ceiling",
    "classes",
    "rules",
)
# What a class is for the whole host; the same wherever it is said.
_DEFINED = ("title", "priority", "weight", "unmanaged")
_CLASS_KEYS = ("name", *_DEFINED, "stream")
_GRANT_KEYS = (*_CLASS_KEYS, "dscp", "limits", "scheduling", "queues")

# key of a limit → (member of the API, reader, lowest, highest)
_LIMIT_KEYS = {
    "rate": ("bytes_per_second", parse_rate, 1024, 10**11),
    "burst": ("burst_bytes", parse_size, 1, 2**40),
    "ops": ("operations_per_second", parse_count, 1, 10**11),
    "burst_ops": ("burst_operations", parse_count, 1, 2**40),
}


class Problems(list):
    """Sentences about what is wrong."""

    def say(self, thing: str, value: object, problem: str) -> None:
        """``problem`` holds the remedy after a colon."""
        self.append(f"{thing} {shown(value)} {problem}")


def read_limit(value: object) -> dict:
    """A limit as written → the API's members. Raises ValueError.

    A text or number is a rate; a mapping has some of rate, burst, ops,
    burst_ops. No limit at all is an empty dict.
    """
    given = value if isinstance(value, Mapping) else {"rate": value}
    limit = {}
    for key, raw in given.items():
        if key not in _LIMIT_KEYS:
            raise ValueError(f"has the unknown member {key!r}: use {', '.join(_LIMIT_KEYS)}")
        if raw is None:
            continue
        member, reader, low, high = _LIMIT_KEYS[key]
        number = reader(raw)
        if number is None:
            continue
        if not low <= number <= high:
            raise ValueError(f"({member}) is out of range: give {low} to {high}")
        limit[member] = number
    for burst, rate in (
        ("burst_bytes", "bytes_per_second"),
        ("burst_operations", "operations_per_second"),
    ):
        if burst in limit and rate not in limit:
            raise ValueError(f"has {burst} without a rate: give the rate with it, or neither")
    return limit


def read_limits(value: object) -> dict:
    """{resource: limit as written} → the API's form; limitless ones are left out."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"is not a mapping: map some of {', '.join(RESOURCES)} to rates")
    limits = {}
    for resource, written in value.items():
        if resource not in RESOURCES:
            raise ValueError(f"has the unknown resource {resource!r}: use {', '.join(RESOURCES)}")
        try:
            limit = read_limit(written)
        except ValueError as error:
            raise ValueError(f"{resource}: {shown(written)} {error}") from error
        if limit:
            limits[resource] = limit
    return limits


def _check_keys(problems: Problems, thing: str, value: object, known: tuple) -> bool:
    if not isinstance(value, Mapping):
        problems.say(thing, value, f"is not a mapping: give members {', '.join(known)}")
        return False
    for key in value:
        if key not in known:
            problems.say(f"{thing}.{key}", value[key], f"is not known: use {', '.join(known)}")
    return True


def _entries(problems: Problems, thing: str, value: object) -> list:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return list(value)
    problems.say(thing, value, "is not a list: begin each entry with '- '")
    return []


def _check_bool(problems: Problems, thing: str, entry: Mapping, key: str) -> None:
    if key in entry and not isinstance(entry[key], bool):
        problems.say(f"{thing}.{key}", entry[key], "is neither true nor false: give one of them")


def _check_limits(problems: Problems, thing: str, value: object) -> None:
    try:
        read_limits(value)
    except ValueError as error:
        problems.append(f"{thing} {error}")


def _check_scheduling(problems: Problems, thing: str, entry: Mapping) -> None:
    """Scheduling beside the limits, and queues; unsound limits are told already."""
    try:
        limits = read_limits(entry.get("limits"))
    except ValueError:
        limits = {}
    try:
        read_schedulings(entry.get("scheduling") or {}, limits)
    except ValueError as error:
        problems.append(f"{thing}.scheduling {error}")
    try:
        read_queues(entry.get("queues") or {})
    except ValueError as error:
        problems.append(f"{thing}.queues {error}")


def _check_stream(problems: Problems, thing: str, stream: object) -> None:
    if stream is None or isinstance(stream, bool):
        return
    if not _check_keys(problems, thing, stream, ("name", "rate")):
        return
    if not isinstance(stream.get("name"), str) or not _STREAM_NAME.fullmatch(stream["name"]):
        problems.say(
            f"{thing}.name",
            stream.get("name"),
            "is not a stream's name: use 1 to 63 letters, digits, '-', '_' and '.'",
        )
    try:
        rate = parse_rate(stream.get("rate"))
        if rate is None:
            raise ValueError("is missing: give the stream's nominal rate, for example 7Mbit/s")
        if not 1024 <= rate <= 10**11:
            raise ValueError(f"is out of range: give 1024 to {10**11} bytes per second")
    except ValueError as error:
        problems.say(f"{thing}.rate", stream.get("rate"), str(error))


def _check_class(problems: Problems, thing: str, entry: Mapping) -> str | None:
    """What a class is everywhere; returns its name if that is sound."""
    name = entry.get("name")
    if not isinstance(name, str) or not _CLASS_NAME.fullmatch(name):
        problems.say(
            f"{thing}.name", name, "is not a class name: use 1 to 31 of the characters a-z, 0-9, -"
        )
        name = None
    priority = entry.get("priority", 5)
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        problems.say(f"{thing}.priority", priority, "is not a priority: give 0 (first) to 9")
    weight = entry.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= WEIGHT_MAX:
        problems.say(f"{thing}.weight", weight, f"is not a weight: give 1 to {WEIGHT_MAX}")
    _check_bool(problems, thing, entry, "unmanaged")
    title = entry.get("title", "x")
    if not isinstance(title, str) or not 1 <= len(title) <= 80 or not title.isprintable():
        problems.say(f"{thing}.title", title, "is not a title: give 1 to 80 printable characters")
    _check_stream(problems, f"{thing}.stream", entry.get("stream"))
    if name == "default" and entry.get("stream"):
        problems.say(
            f"{thing}.stream", entry["stream"], "cannot hold for 'default': make a class for it"
        )
    return name


def _check_match(problems: Problems, thing: str, match: object) -> None:
    if not isinstance(match, Mapping) or not any(v is not None for v in match.values()):
        problems.say(thing, match, f"holds no condition: give some of {', '.join(MATCH_KEYS)}")
        return
    for key, value in match.items():
        where = f"{thing}.{key}"
        if key not in MATCH_KEYS:
            problems.say(where, value, f"is not known: use some of {', '.join(MATCH_KEYS)}")
        elif value is None or (key == "user" and _is_uid(value)):
            continue
        elif not isinstance(value, str) or not 1 <= len(value) <= LONGEST[key] or "\0" in value:
            problems.say(
                where, value, f"is not usable text: give 1 to {LONGEST[key]} characters in quotes"
            )
        elif key in ("exe", "cgroup") and not value.startswith("/"):
            problems.say(where, value, "is not an absolute path: begin it with /")
        elif key == "unit" and ("/" in value or "." not in value):
            problems.say(
                where, value, "is not a unit's name: give it with its suffix, such as nginx.service"
            )
        elif key == "cmdline":
            _check_expression(problems, where, value)


def _is_uid(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_expression(problems: Problems, thing: str, value: str) -> None:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        problems.say(thing, value, f"is not a regular expression ({error}): correct it")
        return
    found = _BACKTRACKING.search(_LITERAL.sub("x", value))
    if found:
        problems.say(
            thing,
            value,
            f"uses '{found[0]}', which the agent does not know: write it without look-around,"
            " back-references and possessive repeats",
        )


def _check_dscp(problems: Problems, thing: str, value: object, taken: dict, owner: str) -> None:
    for code in _entries(problems, thing, value):
        if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= 63:
            problems.say(thing, code, "is not a DSCP value: give integers from 0 to 63")
        elif code & 3 == 3:
            problems.say(
                thing, code, "belongs to Sluice's own tags: use one whose last bits are not 11"
            )
        elif code in taken:
            problems.say(
                thing,
                code,
                f"is a duplicate: it already selects class {taken[code]!r}; each value may"
                " select one class of a domain",
            )
        else:
            taken[code] = owner


class _Whole:
    """What one entry says about another."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.definitions: dict[str, tuple[str, dict]] = {}
        self.granted: dict[str, set] = {}
        self.streams: dict[str, str] = {}
        self.rules = 0

    def define(self, thing: str, entry: Mapping, name: str) -> None:
        """Classes belong to the host: two places must not say different things."""
        said = {key: entry[key] for key in _DEFINED if key in entry}
        if "stream" in entry:
            said["stream"] = bool(entry["stream"])
        where, known = self.definitions.setdefault(name, (thing, {}))
        for key, value in said.items():
            if known.setdefault(key, value) != value:
                self.problems.say(
                    f"{thing}.{key}",
                    value,
                    f"contradicts {known[key]!r} at {where}: a class is the same for all domains"
                    " of a host",
                )

    def stream(self, thing: str, entry: Mapping) -> None:
        stream = entry.get("stream")
        if not isinstance(stream, Mapping) or not isinstance(stream.get("name"), str):
            return
        first = self.streams.setdefault(stream["name"], thing)
        if first != thing:
            self.problems.say(
                f"{thing}.stream.name",
                stream["name"],
                f"is a duplicate: {first} has it already; give each stream a name of its own",
            )


def _check_domain(whole: _Whole, thing: str, entry: Mapping) -> None:
    problems = whole.problems
    for key in ("restart", "disable_vhost", "exclusive"):
        _check_bool(problems, thing, entry, key)
    seconds, (least, most) = entry.get("shutdown_seconds", 90), SHUTDOWN_SECONDS
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not least <= seconds <= most:
        problems.say(
            f"{thing}.shutdown_seconds", seconds, f"is no number of seconds: give {least} to {most}"
        )
    if entry.get("state", "attached") not in ("attached", "detached"):
        problems.say(f"{thing}.state", entry["state"], "is not known: give attached or detached")
    for device in _entries(problems, f"{thing}.devices", entry.get("devices")):
        if not isinstance(device, str) or not device:
            problems.say(f"{thing}.devices", device, "is not a device: give for example vda")
    _check_limits(problems, f"{thing}.ceiling", entry.get("ceiling"))
    names = _check_grants(whole, thing, entry)
    for index, rule in enumerate(_entries(problems, f"{thing}.rules", entry.get("rules"))):
        where = f"{thing}.rules[{index}]"
        if _check_keys(problems, where, rule, ("class", "match")):
            _check_rule(whole, where, rule, names, f"classes of domain {entry.get('name')!r}")


def _check_grants(whole: _Whole, thing: str, entry: Mapping) -> set:
    problems, names, taken = whole.problems, set(), {}
    for index, item in enumerate(_entries(problems, f"{thing}.classes", entry.get("classes"))):
        where = f"{thing}.classes[{index}]"
        if not _check_keys(problems, where, item, _GRANT_KEYS):
            continue
        name = _check_class(problems, where, item)
        _check_limits(problems, f"{where}.limits", item.get("limits"))
        _check_scheduling(problems, where, item)
        _check_dscp(problems, f"{where}.dscp", item.get("dscp"), taken, str(name))
        if name is None:
            continue
        if name in names:
            problems.say(f"{where}.name", name, "is a duplicate: name each class of a domain once")
        names.add(name)
        whole.define(where, item, name)
        whole.stream(where, item)
    if len(names - {"default"}) > MAX_CLASSES:
        problems.say(
            f"{thing}.classes", len(names), f"are too many: a domain has tags for {MAX_CLASSES}"
        )
    return names


def _check_rule(whole: _Whole, thing: str, rule: Mapping, names: set, place: str) -> None:
    whole.rules += 1
    name = rule.get("class")
    if name == "default":
        whole.problems.say(
            f"{thing}.class", name, "takes no rules: what no rule matches is in it already"
        )
    elif name not in names:
        known = ", ".join(sorted(names - {"default"})) or "none"
        whole.problems.say(
            f"{thing}.class",
            name,
            f"is an unknown class: it is not among the {place} ({known}); add it there or"
            " correct the name",
        )
    _check_match(whole.problems, f"{thing}.match", rule.get("match"))


def _check_domains(whole: _Whole, domains: object) -> dict[str, set]:
    granted: dict[str, set] = {}
    for index, entry in enumerate(_entries(whole.problems, "sluice_domains", domains)):
        thing = f"sluice_domains[{index}]"
        if not _check_keys(whole.problems, thing, entry, _DOMAIN_KEYS):
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not _DOMAIN_NAME.fullmatch(name):
            whole.problems.say(
                f"{thing}.name", name, "is not a domain's name: give the name 'virsh list' shows"
            )
        elif name in granted:
            whole.problems.say(f"{thing}.name", name, "is a duplicate: name each domain once")
        _check_domain(whole, thing, entry)
        classes = entry.get("classes")
        items = classes if isinstance(classes, (list, tuple)) else []
        granted[str(name)] = {i.get("name") for i in items if isinstance(i, Mapping)}
    return granted


def problems_of(domains: object, classes: object = None, rules: object = None) -> list[str]:
    """Every problem of the three variables, in their order."""
    problems = Problems()
    whole = _Whole(problems)
    defined: set[str] = set()
    for index, entry in enumerate(_entries(problems, "sluice_classes", classes)):
        thing = f"sluice_classes[{index}]"
        if not _check_keys(problems, thing, entry, _CLASS_KEYS):
            continue
        if isinstance(entry.get("stream"), Mapping):
            problems.say(
                f"{thing}.stream",
                entry["stream"],
                "belongs to a domain's class: give true or false here",
            )
            continue
        name = _check_class(problems, thing, entry)
        if name in defined:
            problems.say(f"{thing}.name", name, "is a duplicate: define each class once")
        if name is not None:
            defined.add(name)
            whole.define(thing, entry, name)
    granted = _check_domains(whole, domains)
    for index, rule in enumerate(_entries(problems, "sluice_rules", rules)):
        thing = f"sluice_rules[{index}]"
        if not _check_keys(problems, thing, rule, ("domain", "class", "match")):
            continue
        domain = rule.get("domain")
        if domain is None:
            names = defined.union(*granted.values()) if granted else defined
            _check_rule(whole, thing, rule, names, "classes of this host")
        elif domain not in granted:
            problems.say(
                f"{thing}.domain",
                domain,
                f"is an unknown domain: sluice_domains has {', '.join(sorted(granted)) or 'none'};"
                " add it there or correct the name",
            )
        else:
            _check_rule(whole, thing, rule, granted[domain], f"classes of domain {domain!r}")
    if whole.rules > MAX_RULES:
        problems.say("rules", whole.rules, f"are too many: a host holds {MAX_RULES}")
    return list(problems)


def class_definitions(domains: list, classes: list) -> list[dict]:
    """Each class once, with what is said of it anywhere. The data is sound."""
    merged: dict[str, dict] = {}
    granted = [item for entry in domains or [] for item in entry.get("classes") or []]
    for item in [*(classes or []), *granted]:
        definition = merged.setdefault(item["name"], {"name": item["name"]})
        definition.update({key: item[key] for key in _DEFINED if key in item})
        if "stream" in item:
            definition["stream"] = bool(item["stream"])
    return list(merged.values())
