"""Connections as aiohttp has them: what we want otherwise, and in which words its errors and answers are told.

What is sent over them, and when, is the business of `calls.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec

from shared.cluster.answers import FailedRequest, Status, read_status
from shared.errors import Transient


class AbruptResponse(aiohttp.ClientResponse):
    """An answer whose connection is dropped when it is not read to its end, or given up before it began.

    A TLS connection that is merely closed waits for the other side's goodbye, half a minute or longer than the loop.
    """

    def close(self) -> None:
        self._drop()
        super().close()

    def release(self) -> Any:
        self._drop()
        return super().release()

    def _drop(self) -> None:
        # One that was read to its end has given its connection back already.
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()


async def must_have_upgraded(response: aiohttp.ClientResponse) -> None:
    """Raises `FailedRequest` when a WebSocket was refused, of which the library would lose the answer's body.

    Every answer of a session goes through here.
    """
    if response.status < 400 or "Upgrade" not in response.request_info.headers:
        return
    status = await read_refusal(response)
    if not status.message and response.content_type == "text/plain":
        # The kubelet's words, which the API server hands on as they are.
        words = (await response.read()).decode(errors="replace")
        status = msgspec.structs.replace(status, message=words.strip())
    raise FailedRequest(status)


async def read_refusal(response: aiohttp.ClientResponse) -> Status:
    """What an answer says that says no."""
    return read_status(await response.read(), response.status, response.headers.get("Retry-After", ""))


@contextmanager
def taken_numbers() -> Iterator[None]:
    """A loop may hold the number of a socket that is closed already, and refuse a new one that has it.

    uvloop does, for a moment, after a connection that ended while it was made (its issue 653).
    """
    try:
        yield
    except RuntimeError as error:
        if "is used by transport" not in str(error):
            raise
        raise aiohttp.ClientConnectionError(str(error)) from error


@contextmanager
def as_trouble(what: str) -> Iterator[None]:
    """What goes wrong on the way is `Transient`; `what` says what was being done, and to what."""
    try:
        yield
    except TimeoutError as error:
        raise Transient(f"{what}: timed out") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Transient(f"{what}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """What went wrong on the way, and what to look at, in fewer words than the library's."""
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
        # Its own words have the whole URL, and so the command that was to be executed.
        return f"answered {error.status}: {error.message}"
    return str(error) or type(error).__name__
