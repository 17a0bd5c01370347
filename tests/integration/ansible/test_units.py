# SPDX-License-Identifier: GPL-2.0-or-later
"""What the roles write is in force when they are done, whatever interrupted an earlier run.

The roles' own tasks, the packages' own units, and a systemd that starts them
with their whole sandbox (see ``testbed.booted_root``).
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ansible_collection
from ansible_collection import recap
from testbed.booted_root import BootedRoot, control_groups
from testbed.debian_root import TOP, build, wanted_by

pytestmark = pytest.mark.skipif(
    control_groups() is None, reason="this kernel shows no control groups of version 2"
)
NAMES = ("sluice-controller", "sluice-web")
# Installed by the test alone: its packages are those of a whole host.
NIGHTLY_UNITS = ("sluice-nightly.service", "sluice-nightly.timer")
RUN_SECONDS = 900
PLAY = """
- name: Set up a host
  hosts: booted
  gather_facts: false
  tasks:
    - name: The controller
      ansible.builtin.include_role:
        name: sluice.appliance.controller
        tasks_from: configure
      when: "'controller' in parts"
    - name: The page
      ansible.builtin.include_role:
        name: sluice.appliance.web
        tasks_from: page
      when: "'web' in parts"
    - name: The nightly run
      ansible.builtin.include_role:
        name: sluice.appliance.perf_nightly
        tasks_from: timer
      when: "'nightly' in parts"
"""
GIVEN = {
    "sluice_web_tls": "none",
    "sluice_web_bind": "127.0.0.1:8480",
    "sluice_web_admin_password": "as-good-as-any",
    "sluice_nightly_on_calendar": "*-*-* 03:30",
    "sluice_controller_config": {"log_level": "info"},
    # A test names its own part, for the sake of time.
    "parts": ["controller", "web", "nightly"],
}
CONTROLLER = {"parts": ["controller"]}
WEB = {"parts": ["web"]}
NIGHTLY = {"parts": ["nightly"]}
# Runs where Ansible decides what comes next: nothing of the task has been sent.
KILLED_AT = """
import os
import signal

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "killed_at"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_task_start(self, task, is_conditional):
        if os.environ["KILLED_AT"] and task.get_name().endswith(os.environ["KILLED_AT"]):
            os.killpg(os.getpgrp(), signal.SIGKILL)
"""
REMOVAL = """
- name: Take it away
  hosts: booted
  gather_facts: false
  tasks:
    - name: As the role does
      ansible.builtin.include_role:
        name: sluice.appliance.remove
        tasks_from: "{{ item }}"
      loop: [nightly, files, record]
"""
UNITS = ("sluiced.service", "sluice-web.service", "sluice-nightly.timer")


class Host:
    """The booted tree, and the control node."""

    def __init__(self, root: BootedRoot, folder: Path):
        self.root, self.folder = root, folder
        (folder / "play.yml").write_text(PLAY)
        (folder / "removal.yml").write_text(REMOVAL)
        (folder / "callbacks").mkdir()
        (folder / "callbacks" / "killed_at.py").write_text(KILLED_AT)

    def _start(
        self, *options: str, play: str = "play.yml", killed_at: str = "", **variables
    ) -> subprocess.Popen:
        host = {
            "ansible_ssh_executable": str(self.root.ssh),
            "ansible_ssh_transfer_method": "piped",
            "ansible_python_interpreter": "/usr/bin/python3",
            "__sluice_checked": True,
            **GIVEN,
            **variables,
        }
        inventory = self.folder / "inventory.yml"
        inventory.write_text(json.dumps({"all": {"hosts": {"booted": host}}}))
        playbook = str(ansible_collection.paths.VENV_BIN / "ansible-playbook")
        return subprocess.Popen(
            [playbook, "-i", str(inventory), play, *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=ansible_collection.environment(
                ANSIBLE_PIPELINING="1",
                ANSIBLE_CALLBACK_PLUGINS=str(self.folder / "callbacks"),
                ANSIBLE_CALLBACKS_ENABLED="killed_at",
                KILLED_AT=killed_at,
            ),
        )

    def set_up(self, *options: str, **variables) -> int:
        """Run the roles; return how many tasks changed something."""
        with self._start(*options, **variables) as process:
            said = process.communicate(timeout=RUN_SECONDS)[0]
        assert process.returncode == 0, said
        return recap(said)["booted"]["changed"]

    def take_away(self, **variables) -> str:
        """Run what follows the packages' removal; return what Ansible said."""
        with self._start(play="removal.yml", **variables) as process:
            said = process.communicate(timeout=RUN_SECONDS)[0]
        assert process.returncode == 0, said
        return said

    def set_up_until(self, task: str, **variables) -> None:
        """Run the roles; Ansible is killed when it comes to a task, before it is begun."""
        with self._start(killed_at=task, **variables) as process:
            said = process.communicate(timeout=RUN_SECONDS)[0]
        assert process.returncode == -signal.SIGKILL, f"no task {task!r}: {said}"

    def module(self, name: str, **arguments) -> dict:
        """Run one module of the collection; return its answer."""
        program = str(ansible_collection.paths.VENV_BIN / "ansible")
        words = ["-i", str(self.folder / "inventory.yml"), "-m", f"sluice.appliance.{name}"]
        done = subprocess.run(
            [program, "booted", *words, "-a", json.dumps(arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            env=ansible_collection.environment(ANSIBLE_PIPELINING="1"),
        )
        return json.loads(done.stdout.partition("=> ")[2])

    def address_problems(self, bind: str) -> list[str]:
        """What the preflight says of an address for the page."""
        answer = self.module("preflight", releases=["debian 13"], virtualisation=False, bind=bind)
        return [one for one in answer["problems"] if one.startswith("address ")]

    def starts(self) -> dict[str, str]:
        """Which start of each unit this is."""
        return {
            unit: self.root.out(f"systemctl show --property=InvocationID --value {unit}")
            for unit in UNITS
        }

    def answers(self, port: int) -> bool:
        """Whether the page does, there."""
        ask = f'urllib.request.urlopen("http://127.0.0.1:{port}/sign-in").status'
        script = f"python3 -c 'import urllib.request; print({ask})'"
        return self.root.run(script, check=False).stdout.strip() == "200"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    packages = build(*NAMES)
    folder = tmp_path_factory.mktemp("booted")
    with BootedRoot(folder, wanted_by(packages, ("Depends",))) as root:
        for unit in NIGHTLY_UNITS:
            text = (TOP / "tests/nightly/debian" / unit).read_text()
            root.path(f"/usr/lib/systemd/system/{unit}").write_text(text)
        root.run(f"dpkg --install {' '.join(f'/debs/{name}_*.deb' for name in NAMES)}")
        host = Host(root, folder)
        host.set_up()
        yield host


def test_a_second_run_changes_and_restarts_nothing(host):
    starts = host.starts()
    assert all(starts.values())
    assert host.set_up() == 0
    assert host.starts() == starts
    assert host.root.out("ls /run/sluice-ansible 2>&1 || :").endswith("No such file or directory")


def test_check_mode_says_what_would_be_restarted_and_restarts_nothing(host):
    starts = host.starts()
    # The file, and the unit that reads it.
    warning = {"sluice_controller_config": {"log_level": "warning"}}
    assert host.set_up("--check", **CONTROLLER, **warning) == 2
    assert host.set_up("--check", **CONTROLLER) == 0
    assert host.starts() == starts


def test_the_pages_new_address_is_served_after_an_interruption(host):
    address = {**WEB, "sluice_web_bind": "127.0.0.1:8481"}
    host.set_up_until("Start the web page at boot", **address)
    assert host.answers(8480) and not host.answers(8481)
    assert host.set_up(**address) == 1
    assert host.answers(8481) and not host.answers(8480)
    assert host.set_up(**address) == 0


def test_the_controllers_new_settings_are_in_force_after_an_interruption(host):
    before = host.starts()["sluiced.service"]
    settings = {**CONTROLLER, "sluice_controller_config": {"log_level": "debug"}}
    host.set_up_until("Start the controller at boot", **settings)
    assert host.starts()["sluiced.service"] == before
    # Twice interrupted is no other than once.
    host.set_up_until("Start the controller at boot", **settings)
    host.set_up(**settings)
    now = host.starts()
    assert now["sluiced.service"] != before
    assert host.set_up(**settings) == 0
    assert host.starts() == now


def test_the_timers_new_time_is_in_force_after_an_interruption(host):
    given = {**NIGHTLY, "sluice_nightly_on_calendar": "*-*-* 04:44"}
    show = "systemctl show --property=TimersCalendar sluice-nightly.timer"
    host.set_up_until("Start the timer at boot", **given)
    assert "03:30" in host.root.out(show)
    host.set_up(**given)
    assert "04:44" in host.root.out(show)
    # Taken back in a run that is interrupted, too.
    given = {**NIGHTLY, "sluice_nightly_on_calendar": ""}
    host.set_up_until("Start the timer at boot", **given)
    host.set_up(**given)
    assert "02:00" in host.root.out(show)
    assert host.set_up(**given) == 0


def test_a_restart_that_fails_is_made_up_for(host):
    """The unit waits for its next try with what it was started with; that is not in force."""
    override = "/etc/systemd/system/sluiced.service.d/broken.conf"
    host.root.run(
        f"mkdir -p $(dirname {override}); printf '[Service]\\nExecStartPre=false\\n' >{override}"
    )
    settings = {**CONTROLLER, "sluice_controller_config": {"log_level": "error"}}
    with host._start(**settings) as process:
        said = process.communicate(timeout=RUN_SECONDS)[0]
    assert process.returncode != 0
    assert "see 'journalctl -u sluiced.service' on this host" in said
    host.root.run(f"rm -r $(dirname {override}); systemctl daemon-reload")
    host.set_up(**settings)
    assert host.root.out("systemctl is-active sluiced.service") == "active"
    assert host.set_up(**settings) == 0


def test_the_address_that_the_page_has_is_free_for_it_and_no_other(host):
    host.set_up(**WEB)
    root = host.root
    assert host.address_problems("127.0.0.1:8480") == []
    assert host.address_problems("0.0.0.0:8480") == []
    assert host.address_problems("127.0.0.1:8499") == []
    root.run("setsid python3 -m http.server -b 127.0.0.1 8499 >/dev/null 2>&1 & echo $! >/tmp/pid")
    root.run(
        "for i in $(seq 100); do"
        " python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8499))' && exit;"
        " sleep 0.1; done; exit 1"
    )
    # Although the page runs; and where it runs itself nobody else is asked about.
    for bind in ("127.0.0.1:8499", "0.0.0.0:8499"):
        (found,) = host.address_problems(bind)
        assert f"address '{bind}' for the web page cannot be used (Address already in use)" in found
    root.run("kill $(cat /tmp/pid)")
    (found,) = host.address_problems("192.0.2.77:8480")
    assert "Cannot assign requested address" in found


def test_the_page_serves_a_port_that_is_kept_for_root(host):
    low = {**WEB, "sluice_web_bind": "127.0.0.1:443"}
    host.set_up(**low)
    assert host.answers(443)
    assert host.set_up(**low) == 0
    process = "$(systemctl show --property=MainPID --value sluice-web)"
    # CAP_NET_BIND_SERVICE, bit 10, and nothing else.
    assert host.root.out(f"grep CapEff /proc/{process}/status").split()[1] == f"{1 << 10:016x}"
    host.set_up(**WEB)
    assert host.answers(8480)
    assert host.root.out(f"grep CapEff /proc/{process}/status").split()[1] == f"{0:016x}"
    assert not host.root.path("/etc/systemd/system/sluice-web.service.d").exists()


def test_a_folder_that_the_unit_may_not_write_to_is_named_in_one_line(host):
    config = host.root.path("/etc/sluice/sluiced.toml")
    before = config.read_text()
    config.write_text('state_dir = "/srv/none"\n')
    journal = "journalctl --no-pager --output=cat --unit=sluiced.service --lines=20"
    host.root.run(
        "systemctl restart sluiced.service;"
        f" for i in $(seq 300); do {journal} | grep -q '/srv/none' && break; sleep 0.2; done;"
        " systemctl stop sluiced.service"
    )
    said = host.root.out(journal)
    assert "sluiced: state_dir '/srv/none' cannot be made (Read-only file system): give" in said
    assert "Traceback" not in said
    config.write_text(before)


def test_the_database_is_where_the_inventory_says(host):
    given = {**CONTROLLER, "sluice_controller_config": {"state_dir": "/srv/data/sluice"}}
    host.set_up(**given)
    # The role itself waits for the answer after these tasks.
    ask = "for i in $(seq 300); do sluice status 2>&1 && exit; sleep 0.2; done; exit 1"
    assert "database sqlite:////srv/data/sluice/sluice.db" in host.root.out(ask)
    assert host.root.out("stat -c '%U %a' /srv/data/sluice") == "root 750"
    assert host.set_up(**given) == 0


def test_the_nightly_run_may_write_where_the_inventory_says(host):
    given = {**NIGHTLY, "sluice_nightly_config": {"paths.state": "/srv/nightly"}}
    host.set_up(**given)
    assert host.set_up(**given) == 0
    # The run itself needs a whole host; its sandbox is the question.
    stand_in = "/run/systemd/system/sluice-nightly.service.d/test.conf"
    for folder, outcome in (("/srv/nightly", "success"), ("/srv/other", "exit-code")):
        text = f"[Service]\\nExecStart=\\nExecStart=/bin/touch {folder}/lock\\n"
        host.root.run(
            f"mkdir -p {folder} $(dirname {stand_in}); printf '{text}' >{stand_in};"
            "systemctl daemon-reload; systemctl start sluice-nightly.service || :"
        )
        show = "systemctl show --property=Result --value sluice-nightly.service"
        assert host.root.out(show) == outcome
    host.root.run(f"rm -r $(dirname {stand_in}); systemctl daemon-reload")


def test_an_operator_joins_the_group_once(host):
    host.root.run("useradd --no-create-home alice")
    # What another test has written goes first.
    host.set_up(**CONTROLLER)
    given = {**CONTROLLER, "sluice_operators": ["alice"]}
    assert host.set_up(**given) == 1
    assert "sluice" in host.root.out("id -nG alice").split()
    assert host.set_up(**given) == 0


def test_what_runs_as_a_user_that_is_to_be_deleted_is_stopped(host):
    """As a service that D-Bus starts once more while its package is purged."""
    root, unit = host.root, "/run/systemd/system/late.service"
    root.run("useradd --system late")
    text = "[Service]\\nType=exec\\nUser=late\\nExecStart=/bin/sleep 3600\\n"
    root.run(f"printf '{text}' >{unit}; systemctl daemon-reload; systemctl start late")
    root.run(f"rm {unit}; systemctl daemon-reload")
    assert root.run("userdel late", check=False).returncode == 8
    answer = host.module("user_services", users=["late", "nobody-of-this-name"])
    assert answer["changed"] and answer["stopped"] == ["late.service"]
    assert not host.module("user_services", users=["late"])["changed"]
    root.run("userdel late")
    assert root.out("systemctl is-active sluiced.service") == "active"


@pytest.fixture
def removed(host) -> Host:
    """The packages are gone after a failure; what the roles wrote is there."""
    root, dropin = host.root, "/run/systemd/system/sluice-web.service.d/fails.conf"
    if root.path("/usr/bin/sluice-web").exists():
        root.run("systemctl stop sluice-web")
        text = "[Service]\\nExecStart=\\nExecStart=/bin/false\\nRestart=no\\n"
        root.run(f"mkdir -p $(dirname {dropin}); printf '{text}' >{dropin}")
        root.run("systemctl daemon-reload; systemctl start sluice-web", check=False)
        root.run(f"rm {dropin}; systemctl daemon-reload")
        assert root.run("systemctl is-failed sluice-web", check=False).stdout == "failed\n"
    root.run("dpkg --purge sluice-web sluice-controller")
    return host


def test_systemd_tells_nothing_of_a_failed_unit_that_is_purged(removed):
    assert removed.root.out("systemctl list-units --all --plain --no-legend 'sluice-web*'") == ""


def test_removal_takes_all_of_it_away_and_the_data_where_it_is_told_to(removed):
    root, there = removed.root, ["/srv/data/sluice", "/srv/nightly"]
    root.run("touch /srv/nightly/of-the-operator; mkdir -p /srv/nightly/results")
    root.run("systemctl start sluice-nightly.timer")
    said = removed.take_away()
    assert root.run("systemctl is-active sluice-nightly.timer", check=False).stdout == "inactive\n"
    dropins = root.out("find /etc/systemd/system -name 'sluice*.d'")
    assert dropins == "" and not root.path("/run/sluice-ansible").exists()
    assert all(folder in said for folder in there), said
    assert root.path("/srv/data/sluice/sluice.db").exists()
    removed.take_away(sluice_remove_data=True)
    assert not root.path("/srv/data/sluice").exists()
    assert root.out("ls /srv/nightly") == "of-the-operator"
    assert root.run("getent group sluice sluice-web", check=False).stdout == ""
    assert root.run("getent passwd sluice-web alice", check=False).stdout.startswith("alice:")
    assert not root.path("/var/lib/sluice-ansible").exists()
    assert recap(removed.take_away(sluice_remove_data=True))["booted"]["changed"] == 0
