"""TLS to the log: whom we trust, and what we show for ourselves."""

import ssl
from datetime import datetime
from pathlib import Path

import msgspec


class Life(msgspec.Struct, frozen=True):
    """Between which moments a certificate is good."""

    begins: datetime
    ends: datetime


class Tls(msgspec.Struct, frozen=True):
    """Files in PEM.  They are read at every attempt to connect, so that rotated ones count."""

    ca: Path | None = None
    """The authorities that may have signed the server's certificate; the system's without it."""
    certificate: Path | None = None
    """Ours, where the server asks for one."""
    key: Path | None = None
    """Its key; without it the key stands in the certificate's file."""

    def context(self) -> ssl.SSLContext:
        """Raises `OSError` when a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def __str__(self) -> str:
        return ", ".join(str(path) for path in (self.ca, self.certificate, self.key) if path) or "the system's"
