# SPDX-License-Identifier: GPL-2.0-or-later
"""One night, from the lock to the result."""

import os
import platform
import re
import subprocess
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from demo import judge, report
from demo.run import KNOWN as KNOWN_OF_DEMO
from demo.run import Run
from demo.scene import Scene
from sluice_nightly import images, shelf
from sluice_nightly.config import Config
from sluice_nightly.decide import Reason, may_start, others_need_it
from sluice_nightly.facts import Host
from sluice_nightly.result import MOST_PAGE_CHARACTERS, About, result
from sluice_nightly.shelf import Shelf
from sluice_nightly.watch import Ended, Ending, Watcher
from testbed import accelerator, paths

Say = Callable[[str], None]
LABEL = "night"
# Making the images takes minutes on a quick host, once.
PREPARE_SECONDS = 3000.0
PROGRAMS = ("nbdkit", "httperf", "wget", "cvlc", "libvirtd", "virtlogd", "tc", "nsenter", "ssh")
# Faults of a run that are none of ours, reported in their own words.
KNOWN = (*KNOWN_OF_DEMO, images.ImageError, subprocess.SubprocessError)


@dataclass(frozen=True)
class Night:
    """The outcome."""

    result: dict[str, Any]
    page: str | None
    problems: list[str]


def _version(command: list[str], pattern: str) -> str:
    """Ask a program for its version; empty if it does not say."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(pattern, done.stdout)
    return found[1] if found else ""


def software() -> dict[str, str]:
    """Versions of the tested programs; empty for a missing one."""
    found = {"sluice": "", "qemu": ""}
    for name, program, pattern in (
        ("sluice", lambda: paths.program("sluice"), r"^sluice (\S+)"),
        ("qemu", paths.emulator, r"version (\S+)"),
    ):
        try:
            found[name] = _version([str(program()), "--version"], pattern)
        except paths.Missing:
            continue
    return {**found, "libvirt": _version(["libvirtd", "--version"], r"libvirt\) (\S+)")}


def about() -> About:
    """Name the run and the host."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    host = {
        "name": platform.node() or "localhost",
        "kernel": platform.release(),
        "cpus": os.cpu_count() or 1,
        "memory_mib": pages * size // 2**20,
    }
    return About(uuid.uuid4().hex, time.time(), host, software())


def missing_programs(config: Config) -> list[Reason]:
    """Return the programs to install before a run."""
    environment = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    reasons = []
    for name in PROGRAMS:
        if not any(os.access(f"{folder}/{name}", os.X_OK) for folder in environment.split(":")):
            reasons.append(Reason("missing-program", f"The program {name} is not installed"))
    checks = [paths.emulator, paths.agent, paths.rotdisk_plugin]
    if not config.installed:
        checks.append(lambda: paths.image("root.img"))
    for check in (*checks, lambda: paths.program("sluiced"), lambda: paths.program("sluice")):
        try:
            check()
        except paths.Missing as problem:
            reasons.append(Reason("missing-program", f"The file {problem}"))
    return reasons


def choose_accelerator(config: Config) -> accelerator.Accelerator:
    """Return the accelerator; ValueError if KVM is a must and does not work."""
    wanted = config.run.accelerator
    os.environ.pop("SLUICE_TESTBED_ACCELERATOR", None)
    if wanted == "tcg":
        found = accelerator.Accelerator("tcg", "run.accelerator asks for it")
    else:
        found = accelerator.choose(config.run.probe_s)
        if found.name != "kvm":
            # A host that was slow once is asked again the next night.
            accelerator.note().unlink(missing_ok=True)
        if wanted == "kvm" and found.name != "kvm":
            raise NoKvm(found.reason)
    # The testbed takes the same, and does not ask a second time.
    os.environ["SLUICE_TESTBED_ACCELERATOR"] = found.name
    return found


class NoKvm(Exception):
    """KVM does not work and the settings ask for it."""


class NotNow(Exception):
    """Others began to need the host while images were made."""

    def __init__(self, reasons: list[Reason]):
        super().__init__(reasons)
        self.reasons = reasons


def measure(
    config: Config, say: Say, done: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    """Run the demo's three phases; return its report, which ``done`` has before cleaning up."""
    with Scene(config.plan(), say, label=LABEL, with_web=False) as scene:
        run = Run(scene, say)
        try:
            outcome = run.phases()
            say("ending the loads")
            outcome = replace(outcome, httperf=run.stop_loads())
            found = judge.check(outcome.phases, outcome.attempt.settled_after_s, config.bars())
            facts = report.document(scene, outcome, found)
            done(facts)
            return facts
        finally:
            run.stop()


class Attempt:
    """Images, accelerator, measurement; a result comes of it in any case."""

    def __init__(self, config: Config, who: About, ending: Ending, host: Host, force: bool):
        self._config, self._who, self._ending, self._host = config, who, ending, host
        self._force = force
        self._chosen: accelerator.Accelerator | None = None
        self._facts: Mapping[str, Any] | None = None

    def _done(self, facts: Mapping[str, Any]) -> None:
        """Measurements stand, however the cleaning up goes."""
        self._facts = facts
        self._ending.over()

    def _watched(self, limit_s: float) -> Watcher:
        return Watcher(self._config, self._host, self._ending, force=self._force, limit_s=limit_s)

    def _measure(self, say: Say) -> Mapping[str, Any]:
        were_ready = images.ready(self._config)
        with self._watched(PREPARE_SECONDS):
            images.prepare(self._config, say)
        if not were_ready and not self._force:
            self._look_again()
        with self._watched(self._config.run.limit_s):
            self._chosen = choose_accelerator(self._config)
            say(f"accelerator {self._chosen.name}: {self._chosen.reason}")
            return measure(self._config, say, self._done)

    def _look_again(self) -> None:
        """Making images takes long, and loads the host itself: its guests alone count now."""
        reasons = others_need_it(self._host.first(), self._config.start)
        if reasons:
            raise NotNow(reasons)

    def _result(
        self, outcome: str, reasons: list[Reason], facts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        chosen = asdict(self._chosen) if self._chosen else None
        return result(self._who, time.time(), outcome, reasons, chosen, facts)

    def run(self, say: Say) -> tuple[dict[str, Any], str | None]:
        """Return the result and its page."""
        try:
            facts = self._measure(say)
        except NoKvm as problem:
            reason = Reason("no-kvm", f"KVM does not work here: {problem}")
            return self._result("refused", [reason]), None
        except NotNow as others:
            return self._result("refused", others.reasons), None
        except Ended:
            return self._result("aborted", self._ending.reasons), None
        except Exception as problem:
            if self._facts is not None:
                say(f"the run was measured, but what it left was not taken away whole: {problem}")
                return self._measured(self._facts)
            # Ended from outside, parts of the run die while it is being told.
            if self._ending.reasons:
                return self._result("aborted", self._ending.reasons), None
            if not isinstance(problem, KNOWN):
                traceback.print_exc()
            sentence = str(problem).strip() or type(problem).__name__
            return self._result("error", [Reason("run-failed", sentence)]), None
        return self._measured(facts)

    def _measured(self, facts: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        page = report.page(facts)
        found = self._result("passed" if facts["succeeded"] else "failed", [], facts)
        return found, page if len(page) <= MOST_PAGE_CHARACTERS else None


def _bury(store: Shelf, say: Say) -> None:
    """Keep the result of a run that ended without a word."""
    unfinished = store.unfinished()
    if unfinished:
        try:
            dead = About(**unfinished)
        except TypeError:
            dead = None
        # Killed after that, it has a result already.
        if dead and not store.has(dead.run_id):
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(dead.started_at))
            sentence = f"The run of {when} ended without a word: killed, or the host went down"
            say(sentence)
            reasons = [Reason("killed", sentence)]
            store.keep(result(dead, dead.started_at, "aborted", reasons), None)
    store.end()


def night(config: Config, say: Say, *, force: bool) -> Night:
    """Run one night; raise shelf.Busy if another is on. ``force`` skips the checks of the host."""
    store, ending, who = Shelf(config), Ending(), about()
    with store.lock():
        for line in shelf.clean(config):
            say(line)
        _bury(store, say)
        ending.install()
        try:
            found, page = _decide_and_run(config, store, who, ending, force, say)
        except Ended:
            found, page = result(who, time.time(), "aborted", ending.reasons), None
        ending.over()
        store.keep(found, page)
        store.end()
        problems = store.post()
    return Night(found, page, problems)


def _decide_and_run(
    config: Config, store: Shelf, who: About, ending: Ending, force: bool, say: Say
) -> tuple[dict[str, Any], str | None]:
    missing = missing_programs(config)
    if missing:
        return result(who, time.time(), "refused", missing), None
    host = Host(config)
    if not force:
        say(f"looking at the host for {config.start.watch_s:g} s")
        reasons = may_start(host.first(), config)
        for note in host.notes:
            say(note)
        if reasons:
            return result(who, time.time(), "refused", reasons), None
    store.begin(asdict(who))
    return Attempt(config, who, ending, host, force).run(say)
