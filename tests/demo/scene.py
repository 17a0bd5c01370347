# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's host: two guests on one modelled disk and one link, under Sluice."""

import contextlib
from collections.abc import Callable

from demo import plan as names
from demo.api import ControllerApi, WebApi
from demo.plan import Plan
from testbed import GuestSpec, Testbed, loads, paths
from testbed.network import UPLINK
from testbed.rotdisk import RotatingDisk

Say = Callable[[str], None]


class SceneError(Exception):
    """The scene could not be set; the text says what failed."""


class Scene:
    """Everything that the phases run on. A context manager."""

    def __init__(self, plan: Plan, say: Say, *, label: str = "demo", with_web: bool = True):
        """Without the web, what its page would ask goes straight to sluiced."""
        self.plan = plan
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
        self.testbed = self._open.enter_context(Testbed(self._label, link_bps=self.plan.link_bps))
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
        self.media.start()
        self.web_guest.start()
        self.api = self._start_api()
        self._open.callback(self.api.close)
        for guest in (self.media, self.web_guest):
            seconds = guest.wait_ready()
            self._say(f"guest {guest.name} is up ({seconds:.0f} s)")
        loads.tune_for_large_files(self.media, names.READERS_MOUNT)
        loads.tune_for_large_files(self.web_guest, names.WEB_MOUNT)
        self._classify()

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
        self.testbed.add_guest(GuestSpec(names.MEDIA, memory_mib=self.plan.media_mib, disks=media))
        web = (disk.volume("web"),)
        self.testbed.add_guest(GuestSpec(names.WEB, memory_mib=self.plan.web_mib, disks=web))

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
        self.declare_stream(names.MOVIE_BPS)

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
