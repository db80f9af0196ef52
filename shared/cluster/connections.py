"""Corrections of aiohttp's connections, and the translation of its errors and answers into `Trouble`.

`calls.py` sends requests over them.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec
from aiohttp.connector import AddrInfoType

from shared.cluster.answers import FailedRequest, Status, read_status
from shared.errors import Transient

_USED = re.compile(r"File descriptor (\d+) is used by transport")


class AbruptResponse(aiohttp.ClientResponse):
    """An answer whose connection is aborted if the answer was not read to its end.

    A TLS connection that is closed instead waits up to half a minute for the server's goodbye.
    """

    def close(self) -> None:
        self._drop()
        super().close()

    def release(self) -> Any:
        self._drop()
        return super().release()

    def _drop(self) -> None:
        # An answer that was read to its end has returned its connection already.
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()


async def must_have_upgraded(response: aiohttp.ClientResponse) -> None:
    """Raise `FailedRequest` with the answer's body, which aiohttp would drop, if a WebSocket was refused.

    Every answer of a session passes through this function.
    """
    if response.status < 400 or "Upgrade" not in response.request_info.headers:
        return
    status = await read_refusal(response)
    if not status.message and response.content_type == "text/plain":
        # The kubelet's message, which the API server passes on as it is.
        words = (await response.read()).decode(errors="replace")
        status = msgspec.structs.replace(status, message=words.strip())
    raise FailedRequest(status)


async def read_refusal(response: aiohttp.ClientResponse) -> Status:
    """The Status of a failed answer."""
    return read_status(await response.read(), response.status, response.headers.get("Retry-After", ""))


KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds and tries: a quiet connection whose other end lost its power is over in 45 s, as in client-go.

Linux has the first one, macOS the second.
"""


def kept_alive(address: AddrInfoType) -> socket.socket:
    """A socket of which the kernel asks the other end for a sign of life; Linux' own bound is two hours."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in KEEPALIVE.keys() & vars(socket).keys():
        made.setsockopt(socket.IPPROTO_TCP, vars(socket)[option], KEEPALIVE[option])
    return made


@contextmanager
def reused_descriptors() -> Iterator[None]:
    """Turn uvloop's error about a reused file descriptor into aiohttp's `ClientConnectionError`.

    After a connection ended while it was made, uvloop may hold its number, perhaps for ever (its issue 653).
    """
    try:
        yield
    except RuntimeError as error:
        found = _USED.match(str(error))
        if found is None:
            raise
        # The kernel gives the lowest free number: each later connection would get this one, and fail.
        taken = socket.socket()
        if taken.fileno() == int(found[1]):
            # Closed by the loop, should it let the number go.
            taken.detach()
        taken.close()
        raise aiohttp.ClientConnectionError(str(error)) from error


@contextmanager
def as_trouble(what: str) -> Iterator[None]:
    """Turn an error of the connection into `Transient`; `what` names the call and its object."""
    try:
        yield
    except TimeoutError as error:
        raise Transient(f"{what}: timed out") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Transient(f"{what}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """The error of a connection, and what to check, in one sentence."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return (
            f"the certificate of {error.host}:{error.port} is not trusted ({why}); "
            "give the authority that signed it in the kubeconfig"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return (
            f"cannot connect to {error.host}:{error.port} ({error.os_error}); "
            "is the API server up, and is its address in the kubeconfig right?"
        )
    if isinstance(error, aiohttp.ClientResponseError):
        # The library's message has the whole URL, and so the command to execute.
        return f"answered {error.status}: {error.message}"
    return str(error) or type(error).__name__
