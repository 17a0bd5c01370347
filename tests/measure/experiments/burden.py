# SPDX-License-Identifier: GPL-2.0-or-later
"""BURDEN: the agent's processor time under forks and under many sockets.

Three loads, of a user who belongs to a class: 10,000 forks a minute of children that run another
program; 100,000 UDP sockets that are held; and the same, of which some are closed and opened
anew. Each run has two windows of each load, one with the agent and one without, in turns. The
agent's time is that of its process, in the guest; the guest's is that of the threads of its QEMU
that run its processors, in the host's count, so that the kernel's part (events, programs in the
kernel) shows in the difference. The agent has loaded its programs before it counts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from measure.experiments import machine
from measure.experiments.choice import Choice
from measure.experiments.rows import Rows
from measure.experiments.spread import spreads
from measure.qmp import ask
from testbed import Guest, GuestSpec, Testbed, patience, saved

TITLE = "the agent's processor time under forks and sockets"
REPEATS = 3
PART = "agent"
FORKS, HELD, CHURNED = "forks", "sockets held", "sockets churned"
SUBJECTS = (FORKS, HELD, CHURNED)
CLASS = "burdened"
FORKS_PER_SECOND = 167
PROCESSES, EACH = 10, 10_000
CHURN_PER_SECOND = 100
# Not less than the longest time between looks at many sockets.
SECONDS = 60
SETTLE_SECONDS = 10
READY_SECONDS = 300
FORK = """
sub now { open my $f, "<", "/proc/uptime" or die; (split " ", <$f>)[0] }
my ($begin, $count) = (now(), 0);
while (1) {
    if ($count >= PER_SECOND * (now() - $begin)) { select(undef, undef, undef, 0.005); next }
    my $pid = fork() // die "fork: $!";
    if (!$pid) { exec "/bin/true" }
    waitpid($pid, 0);
    $count++;
}
"""
SOCKETS = """
use Socket;
$| = 1;
sub bound {
    socket(my $socket, AF_INET, SOCK_DGRAM, 17) or die "socket: $!";
    bind($socket, sockaddr_in(0, inet_aton("127.1.0.$_[0]"))) or die "bind: $!";
    $socket;
}
for my $place (1 .. PROCESSES) {
    next if fork();
    my @all = map { bound($place) } 1 .. EACH;
    print "$place\\n";
    while (1) {
        if (!CHURN) { sleep 60; next }
        select(undef, undef, undef, PROCESSES / (CHURN || 1));
        my $at = int rand @all;
        $all[$at] = undef;
        $all[$at] = bound($place);
    }
}
1 while wait() != -1;
"""
OPENED = "/run/opened"
SPENT = (
    "pid=$(systemctl show -p MainPID --value sluice-agent); [ $pid = 0 ] ||"
    " cat /proc/$pid/task/*/schedstat"
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Window:
    """Processor time: of the agent and of the whole guest."""

    agent_s: float
    guest_s: float
    forks: int
    seconds: float


def run(repeats: int, say: Say, choice: Choice) -> dict[str, Any]:
    """Run the experiment; return the wanted rows."""
    rows = Rows(say, choice)
    with Testbed("perf-burden") as testbed:
        guest = _guest(testbed)
        for subject in SUBJECTS:
            rows.add(PART, subject, partial(_row, guest, subject, repeats, say))
        return {
            "experiment": "BURDEN",
            "title": TITLE,
            "accelerator": testbed.accelerator.name,
            "repeats": repeats,
            "note": f"{FORKS_PER_SECOND} forks/s are asked for; {PROCESSES * EACH} UDP sockets, of"
            f" which {CHURN_PER_SECOND} a second are churned. Windows of {SECONDS} s; ratios are of"
            " one processor.",
            **rows.as_dict(),
        }


def _guest(testbed: Testbed) -> Guest:
    """Return a running guest in which the user ``player`` belongs to a class."""
    guest = testbed.add_guest(GuestSpec("burden", memory_mib=1024, vcpus=1), place=57)
    call = testbed.start_controller().call
    machine.attach(testbed, guest)
    saved.start(guest)
    testbed.controller.wait_for_agent(guest.name)
    call("PUT", f"/v1/classes/{CLASS}", {"title": CLASS, "priority": 5})
    call("PUT", f"/v1/domains/{guest.name}/classes/{CLASS}", {"limits": {}})
    call("POST", "/v1/rules", {"domain": guest.name, "class": CLASS, "match": {"user": "player"}})
    return guest


def program(subject: str) -> str:
    """Return the load of this name, in Perl."""
    if subject == FORKS:
        return FORK.replace("PER_SECOND", str(FORKS_PER_SECOND))
    churn = CHURN_PER_SECOND if subject == CHURNED else 0
    numbers = {"PROCESSES": PROCESSES, "EACH": EACH, "CHURN": churn}
    text = SOCKETS
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return text


def _row(guest: Guest, subject: str, repeats: int, say: Say) -> dict[str, Any]:
    guest.ssh("cat >/run/load.pl", input=program(subject))
    # Not outside of it: runuser gives the limits of the first process.
    limited = f"ulimit -n {EACH + 100}; exec perl /run/load.pl"
    guest.ssh(f"rm -f {OPENED}")
    guest.spawn(f"exec runuser -u player -- sh -c '{limited}' >{OPENED}", unit="load")
    try:
        if subject != FORKS:
            opened = f"cat {OPENED} 2>/dev/null | wc -l"
            _await(lambda: int(guest.ssh(opened).stdout) == PROCESSES, "the sockets are not open")
        measured = [_measure(guest, subject, number, say) for number in range(repeats)]
    finally:
        guest.kill_unit("load")
    return {"part": PART, "subject": subject, "runs": repeats, **spreads(measured)}


def _await(is_so: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + patience.seconds(READY_SECONDS)
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} after {READY_SECONDS} s")
        time.sleep(1)


def _measure(guest: Guest, subject: str, number: int, say: Say) -> dict[str, float]:
    turns = (True, False) if number % 2 == 0 else (False, True)
    windows = {is_with: _window(guest, is_with) for is_with in turns}
    found = costs(windows[True], windows[False])
    say(f"{subject}, run {number + 1}: with {windows[True]}, without {windows[False]}: {found}")
    return found


def costs(present: Window, absent: Window) -> dict[str, float]:
    """Return the figures of a run."""
    guest_ratios = [one.guest_s / one.seconds for one in (present, absent)]
    return {
        "agent_ratio": present.agent_s / present.seconds,
        "added_ratio": guest_ratios[0] - guest_ratios[1],
        "absent_ratio": guest_ratios[1],
        "forks_per_second": present.forks / present.seconds,
    }


def _window(guest: Guest, is_with: bool) -> Window:
    guest.ssh(f"systemctl {'start' if is_with else 'stop'} sluice-agent")
    if is_with:
        # A second thread loads the programs, and ends.
        _await(lambda: _is_settled(guest), "the agent has no programs in the kernel")
    time.sleep(SETTLE_SECONDS)
    started, before = time.monotonic(), _spent(guest)
    time.sleep(SECONDS)
    after = _spent(guest)
    agent_s, guest_s, forks = (late - early for early, late in zip(before, after, strict=True))
    return Window(agent_s, guest_s, int(forks), time.monotonic() - started)


def _is_settled(guest: Guest) -> bool:
    told = guest.ssh(
        "pid=$(systemctl show -p MainPID --value sluice-agent); ls /proc/$pid/task | wc -l;"
        " cat /proc/$pid/fdinfo/* | grep -c ^link_id",
        check=False,
    ).stdout.split()
    return len(told) == 2 and told[0] == "1" and told[1] != "0"


def _spent(guest: Guest) -> tuple[float, float, float]:
    """Return the seconds of the agent and of the guest's processors, and the forks so far."""
    threads = guest.threads()
    busy_s = sum(threads[one["thread-id"]].ran_s for one in ask(guest, "query-cpus-fast"))
    forks, *agent = guest.ssh(f"grep ^processes /proc/stat; {SPENT}").stdout.splitlines()
    agent_s = sum(int(line.split()[0]) for line in agent) / 1e9
    return agent_s, busy_s, float(forks.split()[1])
