# SPDX-License-Identifier: GPL-2.0-or-later
"""Installing the agent through a guest's QEMU guest agent, whatever that answers.

tests/e2e/test_agent_install.py does it in a real guest.
"""

import base64
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_controller.adapters.database import SqlStore
from sluice_controller.domain.errors import Conflict, NotFound, Unavailable
from sluice_controller.domain.guests import InstallBody
from sluice_controller.services.agent_install import NEEDED, PIECE_BYTES, AgentInstaller

SCRIPT_RUNS = {"exited": False}


def ended(code: int, out: str = "", err: str = "") -> dict:
    coded = {"out-data": out, "err-data": err}
    return {
        "exited": True,
        "exitcode": code,
        **{k: base64.b64encode(v.encode()).decode() for k, v in coded.items() if v},
    }


@dataclass
class Answers:
    """A guest's agent that keeps what is written; `states` of the script, one for each look."""

    states: list[dict] = field(default_factory=lambda: [ended(0, "sluice-agent 1 runs\n")])
    blocked: str = ""
    room_bytes: int = 2**40
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    opened: str = ""

    def ask(self, domain, command, arguments):
        self.asked.append(command)
        return getattr(self, command.replace("-", "_"))(**arguments)

    def guest_info(self):
        names = [{"name": n, "enabled": n != self.blocked} for n in (*NEEDED, "guest-ping")]
        return {"supported_commands": names}

    def guest_file_open(self, path, mode):
        self.files[path], self.opened = b"", path
        return 7

    def guest_file_write(self, handle, **content):
        assert handle == 7
        bytes_ = base64.b64decode(content["buf-b64"])[: self.room_bytes]
        self.files[self.opened] += bytes_
        return {"count": len(bytes_)}

    def guest_file_close(self, handle):
        self.opened = ""
        return {}

    def guest_exec(self, path, arg, **_capture):
        assert path == "/bin/sh" and arg[-1] in self.files and not self.opened
        return {"pid": 12}

    def guest_exec_status(self, pid):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = SqlStore(f"sqlite:///{tmp_path_factory.mktemp('install') / 'sluice.db'}")
    yield store
    store.close()


@pytest.fixture
def installer(store, tmp_path):
    """A function that makes an installer into a guest that answers so."""
    archive = tmp_path / "agent.tar.gz"
    archive.write_bytes(b"archive")

    def make(answers: Answers, live="running") -> AgentInstaller:
        seconds = count()
        guest = SimpleNamespace(live=live, state="running" if live else "shut off")
        host = SimpleNamespace(guest=lambda name: guest)
        return AgentInstaller(
            store, host, answers, archive, lambda: next(seconds), lambda: 0.0, lambda _s: False
        )

    return make


def test_the_archive_arrives_whole_and_its_script_is_heard(installer):
    answers = Answers(states=[SCRIPT_RUNS, SCRIPT_RUNS, ended(0, "noise\nsluice-agent 2 runs\n")])
    assert installer(answers).install("web1", InstallBody()) == {
        "domain": "web1",
        "said": "sluice-agent 2 runs",
    }
    assert list(answers.files.values()) == [b"archive"]


@given(size=st.integers(0, 3 * PIECE_BYTES))
def test_an_archive_of_any_size_arrives_in_pieces(store, tmp_path_factory, size):
    archive = tmp_path_factory.getbasetemp() / "any-size"
    archive.write_bytes(b"x" * size)
    answers = Answers()
    guest = SimpleNamespace(live="running", state="running")
    host = SimpleNamespace(guest=lambda name: guest)
    AgentInstaller(
        store, host, answers, archive, lambda: 0.0, lambda: 0.0, lambda _s: False
    ).install("web1", InstallBody())
    assert list(answers.files.values()) == [b"x" * size]


@pytest.mark.parametrize("command", NEEDED)
def test_a_blocked_command_is_named_before_anything_is_written(installer, command):
    answers = Answers(blocked=command)
    with pytest.raises(Conflict, match=f"'{command}' is blocked"):
        installer(answers).install("web1", InstallBody())
    assert not answers.files


def test_a_full_guest_is_said_and_the_file_is_closed(installer):
    answers = Answers(room_bytes=3)
    with pytest.raises(Unavailable, match="took 3 of 7 bytes"):
        installer(answers).install("web1", InstallBody())
    assert answers.asked[-1] == "guest-file-close"


def test_a_failing_script_says_its_last_line_without_control_characters(installer):
    answers = Answers(states=[ended(1, "a\n", "x\nneeds \x1b[31mroot\n")])
    with pytest.raises(Conflict, match="needs \ufffd\\[31mroot"):
        installer(answers).install("web1", InstallBody())


@pytest.mark.parametrize("answer", [None, [], {}, 7, "x", [{}], {"supported_commands": [7]}])
@pytest.mark.parametrize(
    "command", ["guest_info", "guest_file_write", "guest_exec", "guest_exec_status"]
)
def test_a_guest_that_answers_with_nonsense_is_named(installer, command, answer):
    answers = Answers()
    setattr(answers, command, lambda **_arguments: answer)
    with pytest.raises(Unavailable, match="domain 'web1' answers guest-.* with nonsense"):
        installer(answers).install("web1", InstallBody())


@pytest.mark.parametrize("said", ["abc", "\u00e9", 7, None, [], {}])
def test_output_that_is_no_base64_is_no_failure_of_sluiced(installer, said):
    state = {"exited": True, "exitcode": 0, "out-data": said}
    assert installer(Answers(states=[state])).install("web1", InstallBody())["said"] == ""


def test_a_script_without_an_end_is_given_up(installer):
    with pytest.raises(Unavailable, match="has not ended within 120 s"):
        installer(Answers(states=[SCRIPT_RUNS])).install("web1", InstallBody())


def test_a_guest_that_is_off_is_refused(installer):
    with pytest.raises(Conflict, match="'web1' is shut off"):
        installer(Answers(), live=None).install("web1", InstallBody())


def test_a_missing_archive_names_its_package(installer):
    one = installer(Answers())
    one.archive.unlink()
    with pytest.raises(NotFound, match="sluice-agent-archive"):
        one.install("web1", InstallBody())


def test_only_so_many_wait_at_a_time(installer):
    one = installer(Answers())
    while one._slots.acquire(blocking=False):
        pass
    with pytest.raises(Conflict, match="other guests are being installed"):
        one.install("web1", InstallBody())
