# SPDX-License-Identifier: GPL-2.0-or-later
"""gunicorn around the application.

One worker process with threads: the live poller is shared by all open pages,
and each open page holds one thread for its event stream.
"""

from flask import Flask
from gunicorn.app.base import BaseApplication

from .config import Config
from .pages import MAX_OPEN_PAGES

SPARE_THREADS = 16


class Server(BaseApplication):
    """Runs the application until it is told to stop."""

    def __init__(self, app: Flask, config: Config) -> None:
        self._app = app
        self._config = config
        super().__init__()

    def load_config(self) -> None:
        """gunicorn's settings, all of them here."""
        settings = {
            "bind": self._config.bind,
            "workers": 1,
            "worker_class": "gthread",
            "threads": MAX_OPEN_PAGES + SPARE_THREADS,
            "timeout": 60,
            # An event stream never ends by itself; do not wait for it.
            "graceful_timeout": 1,
            "keepalive": 15,
            "loglevel": "warning",
            "control_socket_disable": True,
        }
        if self._config.tls:
            settings |= {
                "certfile": str(self._config.tls_cert),
                "keyfile": str(self._config.tls_key),
            }
        for name, value in settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Flask:
        """The WSGI application."""
        return self._app
