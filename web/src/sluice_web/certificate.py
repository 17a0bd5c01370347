# SPDX-License-Identifier: GPL-2.0-or-later
"""The certificate of HTTPS, read again when its files change."""

import logging
import ssl
from pathlib import Path

from .config import Config, ConfigError

log = logging.getLogger(__name__)


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """The context for HTTPS; raises ConfigError with the files, the reason, the remedy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Sending then never waits for something to read.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # Without a password of its own OpenSSL would ask a terminal for that of the key.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise ConfigError(
            f"--tls-cert {cert}, --tls-key {key}: HTTPS cannot be served"
            f" with them ({why}); give a certificate chain in PEM, the page's own certificate"
            " first, and the private key of that one, without a passphrase"
        ) from error
    return context


class Certificate:
    """A certificate and its key; a renewed pair serves new connections without a restart."""

    @classmethod
    def of(cls, config: Config) -> "Certificate | None":
        """That of these options; None where HTTP is served."""
        return cls(config.tls_cert, config.tls_key) if config.tls else None

    def __init__(self, cert: Path, key: Path) -> None:
        """Raises ConfigError unless HTTPS can be served with the pair."""
        self._files = (cert, key)
        self._seen = self._looked()
        self._context = tls_context(cert, key)

    def context(self) -> ssl.SSLContext:
        """For the next connection; of a pair that does not fit, the one before stays."""
        looked = self._looked()
        if looked != self._seen:
            self._seen = looked
            try:
                self._context = tls_context(*self._files)
            except ConfigError as error:
                log.error("the certificate used so far stays in use: %s", error)
        return self._context

    def _looked(self) -> list[tuple[int, int, int] | None]:
        return [_look(path) for path in self._files]


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
