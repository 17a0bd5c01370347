# SPDX-License-Identifier: GPL-2.0-or-later
"""Namespaces of one testbed, and processes inside them.

A sandbox is a PID, a mount and a network namespace, held by ``holder.py``.
Further network namespaces (clients) are named ones of ``ip netns``, whose
names live in the sandbox's own /run, so several testbeds never see each other.

Every process runs in a session of its own and is ended by its group. Closing
the sandbox ends all that is left.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from testbed import patience

HOLDER = Path(__file__).with_name("holder.py")
START_SECONDS = 30.0


class SandboxError(Exception):
    """The namespaces could not be made; the text says why."""


class CommandFailed(Exception):
    """A command ended with an error or took too long; the text has its output."""


class Task:
    """A process started in a sandbox, together with its children."""

    def __init__(self, process: subprocess.Popen, name: str, log: IO | None):
        self.process = process
        self.name = name
        self._log = log

    @property
    def stdout(self) -> IO | None:
        return self.process.stdout

    @property
    def stdin(self) -> IO | None:
        return self.process.stdin

    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end; CommandFailed if it does not come in time."""
        try:
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"{self.name} still runs after {timeout_seconds:g} s") from None

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; no error if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self, grace_seconds: float = 5.0) -> int:
        """Ask the group to end, then make it; return the exit code."""
        if self.running():
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self.process.wait(10)
            # The entering process is gone; a child of its group may live on.
            self.signal(signal.SIGKILL)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream:
                stream.close()
        return self.process.returncode


class Sandbox:
    """PID, mount and network namespace with private libvirt folders and /run."""

    def __init__(self, folder: Path, binds: Mapping[Path, Path]):
        """``binds`` maps a folder of the machine to the folder shown in its place."""
        self.folder = folder
        self._binds = binds
        self._unshare: subprocess.Popen | None = None
        self.holder_pid = 0

    def open(self) -> None:
        """Make the namespaces."""
        if os.geteuid() != 0:
            raise SandboxError("the testbed needs root for its namespaces; run it as root")
        plan = self.folder / "namespaces.json"
        pairs = [[str(source), str(target)] for target, source in self._binds.items()]
        shadow = self.folder / "shadow"
        shadow.mkdir()
        plan.write_text(json.dumps({"binds": pairs, "shadow": str(shadow)}))
        command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        command += ["--propagation", "private", sys.executable, "-I", str(HOLDER), str(plan)]
        with (self.folder / "logs" / "holder.log").open("wb") as log:
            self._unshare = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        word, _, rest = self._first_line().partition(" ")
        if word != "ready":
            self.close()
            reason = rest.strip() or "no answer"
            raise SandboxError(f"cannot make the namespaces: {reason}{_end_of(log.name)}")
        self.holder_pid = int(rest)

    def _first_line(self) -> str:
        """Read the holder's answer, for at most START_SECONDS."""
        descriptor = self._unshare.stdout.fileno()
        deadline = time.monotonic() + patience.seconds(START_SECONDS)
        text = ""
        while not text.endswith("\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                break
            piece = os.read(descriptor, 4096)
            if not piece:
                break
            text += piece.decode(errors="replace")
        return text

    def close(self) -> None:
        """End every process; with them go the namespaces. Safe to repeat."""
        if not self._unshare:
            return
        self._unshare.stdin.close()
        try:
            self._unshare.wait(20)
        except subprocess.TimeoutExpired:
            # unshare passes its own death on to the holder (--kill-child).
            self._unshare.kill()
            self._unshare.wait(20)
        self._unshare.stdout.close()
        self._unshare = None
        self.holder_pid = 0

    def path(self, inner: str | Path) -> Path:
        """Return the path by which the outside reaches a file of the sandbox."""
        return Path(f"/proc/{self.holder_pid}/root") / str(inner).lstrip("/")

    def argv(self, command: Sequence[str], netns: str | None = None) -> list[str]:
        """Return the command line that runs ``command`` inside."""
        if not self.holder_pid:
            raise SandboxError("the sandbox is not open")
        enter = ["nsenter", f"--target={self.holder_pid}", "--mount", "--net", "--pid"]
        enter += [f"--wd={os.getcwd()}", "--"]
        if netns:
            # Not `ip netns exec`: that would mount a /sys of its own each time.
            enter += ["nsenter", f"--net=/run/netns/{netns}", "--"]
        return [*enter, *map(str, command)]

    def popen(
        self,
        command: Sequence[str],
        *,
        name: str,
        log: Path | None = None,
        netns: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        pass_fds: Sequence[int] = (),
        outside: Sequence[str] = (),
    ) -> Task:
        """Start a process inside; its output goes to ``log`` unless stdout says else.

        ``outside`` are words before the command that enters the sandbox.
        """
        stream = log.open("ab") if log else None
        sink = stream or subprocess.DEVNULL
        process = subprocess.Popen(
            [*outside, *self.argv(command, netns)],
            stdin=stdin,
            stdout=sink if stdout is None else stdout,
            stderr=sink,
            env=clean_environment(env),
            start_new_session=True,
            pass_fds=pass_fds,
        )
        return Task(process, name, stream)

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_seconds: float = 30.0,
        netns: str | None = None,
        check: bool = True,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        shown: str | None = None,
    ) -> subprocess.CompletedProcess:
        """Run a command to its end; CommandFailed on error (if ``check``) or time-out.

        ``shown`` stands for the command in an error.
        """
        process = subprocess.Popen(
            self.argv(command, netns),
            stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(env),
            text=True,
            errors="replace",
            start_new_session=True,
        )
        shown = shown or f"`{' '.join(map(str, command))}`"
        limit_seconds = patience.seconds(timeout_seconds)
        try:
            out, err = process.communicate(input, limit_seconds)
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"{shown} still runs after {limit_seconds:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            # Not drained: another process may hold the other ends for long (ssh hands them to
            # the process that shares its connection).
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        if check and process.returncode:
            text = (err.strip() or out.strip())[-2000:]
            raise CommandFailed(f"{shown} ended with {process.returncode}: {text}")
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def _end_of(log: str) -> str:
    """Return the last lines of a log for an error's text; empty if it has none."""
    lines = Path(log).read_text(errors="replace").strip().splitlines()[-8:]
    return "\n".join([f"\n--- end of {log}:", *lines]) if lines else ""


def clean_environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """Return a small environment: no proxies, no display, no user's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TERM") if name in os.environ}
    path = kept.get("PATH", "/usr/bin:/bin")
    if "/usr/sbin" not in path.split(":"):
        kept["PATH"] = path + ":/usr/sbin:/sbin"
    return {**kept, "LC_ALL": "C.UTF-8", **(extra or {})}
