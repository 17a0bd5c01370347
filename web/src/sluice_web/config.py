# SPDX-License-Identifier: GPL-2.0-or-later
"""The settings of the command line, checked once."""

import re
from dataclasses import dataclass
from pathlib import Path

DEFAULT_BIND = "127.0.0.1:8480"
DEFAULT_SOCKET = Path("/run/sluice/sluiced.sock")
DEFAULT_TOKEN_FILE = Path("/etc/sluice/api-token")
DEFAULT_STATE_DIR = Path("/var/lib/sluice-web")
MOST_PROXIES = 9


class ConfigError(ValueError):
    """A setting that cannot work; the message names it, its value and the remedy."""


@dataclass(frozen=True)
class Config:
    """Everything sluice-web needs to know before it starts."""

    bind: str = DEFAULT_BIND
    controller_socket: Path = DEFAULT_SOCKET
    token_file: Path = DEFAULT_TOKEN_FILE
    state_dir: Path = DEFAULT_STATE_DIR
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxies: int = 0

    def __post_init__(self) -> None:
        split_bind(self.bind)
        if not 0 <= self.proxies <= MOST_PROXIES:
            raise ConfigError(f"--proxies {self.proxies}: give 0 to {MOST_PROXIES}")
        if (self.tls_cert is None) != (self.tls_key is None):
            given = "--tls-cert" if self.tls_cert else "--tls-key"
            raise ConfigError(f"{given} is given alone; TLS needs both --tls-cert and --tls-key")
        for option, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None:
                _check_readable(option, path)

    @property
    def tls(self) -> bool:
        """True when the page is served over HTTPS."""
        return self.tls_cert is not None

    @property
    def address(self) -> str:
        """The page's address as a browser wants it."""
        return f"{'https' if self.tls else 'http'}://{self.bind}/"


def _check_readable(option: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ConfigError(f"{option} {path}: no such file; give the path of a PEM file") from None
    except OSError as error:
        raise ConfigError(
            f"{option} {path}: cannot be read ({error.strerror}); let sluice-web's user read it"
        ) from error


def split_bind(bind: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``[IPV6]:PORT`` as a pair; raises ConfigError."""
    host, colon, port = bind.rpartition(":")
    sound = colon and host and re.fullmatch("[0-9]{1,5}", port)
    if not sound or not 0 < int(port) < 65536:
        raise ConfigError(f"--bind {bind}: not HOST:PORT; for example {DEFAULT_BIND} or [::1]:8480")
    return host.strip("[]"), int(port)
