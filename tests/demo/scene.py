# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's host: two guests on one modelled disk and one link, under Sluice."""

import contextlib
from collections.abc import Callable

from demo import plan as names
from demo.api import ControllerApi, WebApi
from demo.plan import Plan
from demo.scale import FILMS_MBIT, Scale
from testbed import Guest, GuestError, GuestSpec, Testbed, loads, network, paths
from testbed.network import UPLINK
from testbed.processors import Group
from testbed.rotdisk import RotatingDisk

Say = Callable[[str], None]


class SceneError(Exception):
    """The scene could not be set; the text names the failure."""


class Scene:
    """Everything that the phases run on. A context manager."""

    def __init__(
        self,
        plan: Plan,
        say: Say,
        *,
        label: str = "demo",
        with_web: bool = True,
        processors: Group | None = None,
    ):
        """Without the web, its page's requests go straight to sluiced.

        ``processors`` is the control group that all of this is started in, if there is one.
        """
        self.plan = plan
        self.processors = processors or Group(label)
        self._label = label
        self._with_web = with_web
        self._say = say
        self._open = contextlib.ExitStack()
        self.testbed: Testbed | None = None
        self.disk: RotatingDisk | None = None
        self.api: WebApi | ControllerApi | None = None

    def __enter__(self) -> "Scene":
        try:
            self._set_up()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._open.close()

    @property
    def media(self):
        return self.testbed.guests[names.MEDIA]

    @property
    def web_guest(self):
        return self.testbed.guests[names.WEB]

    def _set_up(self) -> None:
        self.testbed = self._open.enter_context(Testbed(self._label))
        accelerator = self.testbed.accelerator
        self._say(f"accelerator {accelerator.name}: {accelerator.reason}")
        volumes = {"movie": "movie.img", "media": "media-data.img", "web": "web-data.img"}
        images = {name: paths.image(file) for name, file in volumes.items()}
        self.disk = RotatingDisk(self.testbed, images)
        self.disk.start()
        self._add_guests()
        self._say("starting sluiced, attaching both guests")
        controller = self.testbed.start_controller()
        for guest in (names.MEDIA, names.WEB):
            done = controller.cli("attach", guest)
            if done.returncode:
                raise SceneError(f"sluice attach {guest}: {done.stderr or done.stdout}")
        self._say("starting both guests")
        for guest in (self.media, self.web_guest):
            guest.start()
        self.api = self._start_api()
        self._open.callback(self.api.close)
        for guest in (self.media, self.web_guest):
            seconds = self._wait_for(guest)
            self._say(f"guest {guest.name} is up ({seconds:.0f} s)")
        for guest in (self.media, self.web_guest):
            # It answers before it has booted, and its boot is no load of the demo's.
            guest.ssh("systemctl is-system-running --wait", check=False, timeout_seconds=120)
        loads.tune_for_large_files(self.web_guest, names.WEB_MOUNT)
        self._classify()

    def _wait_for(self, guest: Guest) -> float:
        """Wait until a guest has booted; start it again, once, if it does not."""
        try:
            return guest.wait_ready()
        except GuestError as problem:
            reason = str(problem).splitlines()[0]
            self._say(f"{reason}; it is started again")
        guest.stop()
        guest.start()
        return guest.wait_ready()

    def polling(self, share: float) -> tuple[str, ...]:
        """Return the words that bound a command that polls to a share of one processor."""
        return self.processors.bounded("polling", share)

    def resize(self, scale: Scale) -> None:
        """Give link, disk and the readers' volume the sizes of a scale."""
        queue_bytes = network.LINK_QUEUE_BYTES
        network.limit_uplink(self.testbed.sandbox, scale.link_bytes_per_s, queue_bytes)
        self.disk.set_speed(scale.disk_bytes_per_s)
        loads.tune_for_large_files(self.media, names.READERS_MOUNT, scale.read_ahead_kib)
        self.declare_stream(scale.film_bytes_per_s)

    def _start_api(self) -> WebApi | ControllerApi:
        if not self._with_web:
            controller = self.testbed.controller
            socket = self.testbed.sandbox.path(controller.socket)
            return ControllerApi(socket, controller.token_file)
        self._say("starting the web")
        web = self.testbed.start_web()
        return WebApi(web.url, web.user, web.password)

    def _add_guests(self) -> None:
        disk = self.disk
        media = (disk.volume("movie"), disk.volume("media"))
        web = (disk.volume("web"),)
        # Two emulated processors wait for one another whenever the machine has not two to
        # spare; under KVM they are two threads of one program.
        count = 2 if self.testbed.accelerator.name == "kvm" else 1
        for name, mib, disks in (
            (names.MEDIA, self.plan.media_mib, media),
            (names.WEB, self.plan.web_mib, web),
        ):
            spec = GuestSpec(name, memory_mib=mib, disks=disks, vcpus=count)
            self.testbed.add_guest(spec)

    def _classify(self) -> None:
        """Make classes, grants, rules and the stream, as a person does on the page."""
        call = self.api.call
        call("PUT", "/settings", {"uplink": UPLINK})
        classes = {
            names.STREAM_CLASS: {"title": "Stream", "priority": 0, "is_stream": True},
            names.READERS_CLASS: {"title": "Batch readers", "priority": 7, "is_stream": False},
        }
        executables = {
            names.STREAM_CLASS: names.STREAMER_EXECUTABLE,
            names.READERS_CLASS: names.READER_EXECUTABLE,
        }
        for name, body in classes.items():
            call("PUT", f"/classes/{name}", body)
            call("PUT", f"/domains/{names.MEDIA}/classes/{name}", {"limits": {}, "dscp": []})
            rule = {"domain": names.MEDIA, "class": name, "match": {"exe": executables[name]}}
            call("POST", "/rules", rule)
        self.declare_stream(FILMS_MBIT[0] * 125_000)

    def declare_stream(self, nominal_bps: float) -> None:
        body = {
            "domain": names.MEDIA,
            "class": names.STREAM_CLASS,
            "nominal_bytes_per_second": round(nominal_bps),
        }
        self.api.call("PUT", f"/streams/{names.STREAM}", body)

    def qemu_version(self) -> str:
        done = self.testbed.sandbox.run([str(paths.emulator()), "--version"])
        return done.stdout.splitlines()[0].removeprefix("QEMU emulator version ")
