"""Signing in to the log: user, password and credentials; trusted authorities and the client's certificate."""

import ssl
from datetime import datetime
from pathlib import Path
from typing import TypedDict

import msgspec


class Life(msgspec.Struct, frozen=True):
    """The validity of a certificate."""

    begins: datetime
    ends: datetime


class Tls(msgspec.Struct, frozen=True):
    """Files in PEM, read at every attempt to connect, so that rotated ones are used."""

    ca: Path | None = None
    """The authorities of the server's certificate; by default the system's."""
    certificate: Path | None = None
    """The client's certificate, if the server asks for one."""
    key: Path | None = None
    """The key of `certificate`; by default it is in the same file."""

    def context(self) -> ssl.SSLContext:
        """The context for these files.  Raises `OSError` if a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def __str__(self) -> str:
        return ", ".join(str(path) for path in (self.ca, self.certificate, self.key) if path) or "the system's"


class Login(TypedDict, total=False):
    """How one client signs in; files are read again at every attempt to connect."""

    user: str
    password: str
    password_file: Path | None
    """A file with the password, in place of `password`."""
    credentials: Path | None
    """A file of NATS credentials, in place of user and password."""
    tls: Tls | None
    """With it, or a URL with `tls://`, nothing is sent to a server without a trusted certificate."""
