"""The connection to NATS: requests whose outcome is known or raised as unknown, and raw delivery for readers.

It corrects nats-py's client: publishes without permission look like timeouts there, an authentication error closes the
client for good, and buffered publishes are sent after a reconnect.  `api.py` makes JetStream's requests.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, Unpack

import nats.errors
from nats.aio.client import Server

from shared.errors import Refused, Transient
from shared.eventlog import wire
from shared.eventlog.account import inbox_of
from shared.eventlog.client import Answer, Asked, Handler, NoPassword, RawClient, distrust_in
from shared.eventlog.retry import backoff
from shared.eventlog.tls import Life, Login


class ServerClock:
    """The log server's clock as a reader has it; this process' monotonic clock is an argument.

    Nodes' clocks may be hours apart, and both ends of a promise may be written on different nodes.  The server's clock
    stamps every event and every answer, so that it alone measures them.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None
        """By how much the server's clock is ahead of the monotonic one, at least."""

    def note(self, stamped: float, monotonic: float) -> None:
        """An answer arrived that the server had stamped; the newest counts, because its clock may be set."""
        self._ahead = stamped - monotonic

    def now(self, monotonic: float) -> float | None:
        """Seconds since 1970 by the server's clock, late by the way of its newest answer; None before the first."""
        return None if self._ahead is None else self._ahead + monotonic


_PING = 1
"""Seconds between pings; after two unanswered ones the connection counts as lost.

A server whose node lost its power closes no connection, and an election takes longer than three pings.
"""
_CONNECT = 5
"""Seconds that one attempt to connect may take."""
_BETWEEN_FIRST_TRIES = 0.1
_SLOWEST_RECONNECT = 2.0
_API = "$JS."
_NO_RESPONDER = {
    True: "the server has no JetStream; enable it in the server's configuration (`jetstream {}`)",
    False: "no stream takes this subject: most of its servers are away, or there is none; then run `muster setup`",
}
"""Why there is no responder: for a request of the JetStream API (True), or for a publish."""
_DENIED = re.compile(r'permissions violation for (?P<verb>publish|subscription)[^"]*"(?P<subject>[^"]*)"')


Stop = Callable[[], Awaitable[None]]
"""Ends a subscription."""


class NotSent(Transient):
    """The request had no effect: there is no connection or no responder."""


class NoResponder(NotSent):
    """No program of the account takes requests under this subject."""


class NoAnswer(Transient):
    """The request may have had its effect: no answer came in time, or the connection was lost."""


class Connection:
    """One user's connection; reconnects by itself until `close()`, or until the server rejects the user."""

    def __init__(self, name: str, user: str) -> None:
        self.name = name
        self.url = ""
        """The address of the server, without secrets."""
        self.clock = ServerClock()
        self.user = user
        """Its name if it has none."""
        self._client = RawClient()
        self._up = asyncio.Event()
        self._fatal: Refused | None = None
        self._trouble = "no connection yet"
        self._answers = ""
        self._asked = Asked()
        self._on_loss: list[Callable[[], None]] = []
        self._turned_away = asyncio.Event()
        self._refusal: Refused | None = None
        """Why the first connection cannot succeed, however long the process waits."""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        name: str,
        patience: float = 30.0,
        **login: Unpack[Login],
    ) -> Self:
        """Connect, waiting up to `patience` seconds for a server that does not answer yet."""
        user, password_file = login.get("user"), login.get("password_file")
        connection = cls(name, user or name)
        connection.url = without_secrets(url)
        connection._client.trusted = login.get("tls")
        trying = asyncio.create_task(
            connection._client.connect(
                url.split(","),
                name=name,
                user=user or None,
                password=_password(password_file) if password_file is not None else login.get("password") or None,
                user_credentials=login.get("credentials"),
                inbox_prefix=inbox_of(connection.user),
                connect_timeout=_CONNECT,
                reconnect_time_wait=_BETWEEN_FIRST_TRIES,  # type: ignore[arg-type]
                max_reconnect_attempts=-1,
                reconnect_to_server_handler=connection._next_server,
                ping_interval=_PING,
                # No buffer while the connection is down: a publish would arrive after its caller gave it up.
                pending_size=0,
                error_cb=connection._error,
                disconnected_cb=connection._lost,
                reconnected_cb=connection._back,
                closed_cb=connection._closed,
            )
        )
        await connection._first(trying, patience)
        return connection

    @property
    def connected(self) -> bool:
        return self._up.is_set() and self._fatal is None

    @property
    def ended(self) -> bool:
        """True after `close()`, and after the server rejected the user; no reconnect follows."""
        return self._fatal is not None

    @property
    def version(self) -> str:
        """The server's release, as it said at the last connect."""
        return self._client.version

    @property
    def certificate(self) -> Life | None:
        """The validity of the server's certificate; None without TLS."""
        return self._client.certificate

    async def request(
        self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None, *, timeout: float
    ) -> Answer:
        """The answer to a request.  Raises `NotSent`, `NoAnswer`, or `Refused` if it can never be sent."""
        deadline = asyncio.get_running_loop().time() + timeout
        await self._ready(subject, deadline)
        try:
            with self._asked.about(subject) as (token, coming):
                await self._client.publish(subject, body, f"{self._answers}.{token}", headers)
                async with asyncio.timeout_at(deadline):
                    answer = await coming
        except TimeoutError as error:
            raise NoAnswer(f"{subject}: no answer within {timeout:g} s") from error
        except nats.errors.MaxPayloadError as error:
            raise Refused(f"{subject}: {len(body)} bytes are more than the server takes", reason="TooLarge") from error
        except nats.errors.Error as error:
            raise NotSent(f"{subject}: {error}") from error
        except OSError as error:
            # The connection broke during a write.
            raise NoAnswer(f"{subject}: {error}") from error
        if wire.status(answer.headers) == 503:
            raise NoResponder(f"{subject}: {_NO_RESPONDER[subject.startswith(_API)]}")
        return answer

    async def send(self, subject: str, body: bytes, *, reply: str) -> None:
        """Publish without waiting; answers go to `reply`."""
        self._must_live()
        try:
            await self._client.publish(subject, body, reply)
        except (nats.errors.Error, OSError) as error:
            raise NotSent(f"{subject}: {error}") from error

    def new_inbox(self) -> str:
        """A subject for answers that no other connection hears."""
        return self._client.new_inbox()

    async def listen(self, subject: str, handler: Handler, *, lost: Callable[[], None]) -> Stop:
        """Pass the subject's messages to `handler`, raw, until the stop; call `lost` when the connection breaks."""
        self._must_live()
        try:
            subscription = await self._client.listen(subject, handler)
        except (nats.errors.Error, OSError) as error:
            raise NotSent(f"listen on {subject}: {error}") from error
        self._on_loss.append(lost)

        async def stop() -> None:
            self._on_loss.remove(lost)
            await self._client.forget(subscription)

        return stop

    async def close(self) -> None:
        if self._fatal is None:
            self._fatal = Refused(f"{self.name}: this connection was closed", reason="Closed")
        self._up.clear()
        await self._client.shut()
        self._asked.fail_all(self._end_reason)

    async def _first(self, trying: "asyncio.Task[None]", patience: float) -> None:
        turned_away, succeeded = asyncio.create_task(self._turned_away.wait()), False
        try:
            await asyncio.wait((trying, turned_away), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if trying.done() and trying.exception() is None:
                self._answers = self._client.new_inbox()
                await self._client.listen(f"{self._answers}.*", self._asked.answered)
                self._up.set()
                succeeded = True
                return
        finally:
            turned_away.cancel()
            if not succeeded:
                # Repeatedly: a connect that fails at that moment swallows the cancellation, and nats-py goes on.
                while not trying.done():
                    trying.cancel()
                    await asyncio.wait((trying,), timeout=_BETWEEN_FIRST_TRIES)
                await self.close()
        if self._refusal is not None:
            raise self._refusal
        if not trying.cancelled() and (error := trying.exception()):
            # Waiting does not help: for example a malformed address, or credentials without their library.
            raise Refused(
                f"connect to {self.url!r} as {self.name}: {error}; correct NATS_URL or the credentials",
                reason="Invalid",
            ) from error
        raise Transient(
            f"connect to {self.url} as {self.name}: {self._trouble}; start NATS there, or say in NATS_URL where it is"
        )

    async def _ready(self, subject: str, deadline: float) -> None:
        self._must_live()
        if self._up.is_set():
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._up.wait()
        except TimeoutError as error:
            raise NotSent(f"{subject}: no connection: {self._trouble}") from error
        self._must_live()

    async def _error(self, error: Exception) -> None:
        text = str(error).lower()
        self._trouble = str(error) or type(error).__name__
        if isinstance(error, NoPassword):
            # After the first connection nats-py goes on trying, and reads the file again each time.
            self._turn_away(Refused(f"connect as {self.name}: {error}", reason="NoPassword"))
        elif distrust := distrust_in(error):
            self._trouble = distrust
            # After the first connection nats-py goes on trying: the certificate may be renewed.
            self._turn_away(Refused(f"connect as {self.name}: {distrust}", reason="Untrusted"))
        elif denied := _DENIED.search(text):
            self._asked.deny(self.name, denied["verb"], denied["subject"])
        elif "authorization" in text or "authentication" in text:
            # nats-py would try for ever or close silently, depending on when the error arrives.
            self._turn_away(self._unauthorized())
            self._end(self._unauthorized())

    def _turn_away(self, refusal: Refused) -> None:
        self._refusal = refusal
        self._turned_away.set()

    async def _lost(self) -> None:
        self._up.clear()
        self._client.forget_unsent()
        self._asked.fail_all(lambda: NoAnswer(f"{self.name}: the connection was lost while waiting for an answer"))
        for lost in tuple(self._on_loss):
            lost()

    async def _back(self) -> None:
        if self._fatal is None:
            self._up.set()

    async def _closed(self) -> None:
        # Called after `close()`, and after the server rejected the user, which no reconnect changes.
        self._end(Refused(f"{self.name}: the server closed the connection: {self._trouble}", reason="Disconnected"))

    def _end(self, reason: Refused) -> None:
        if self._fatal is None:
            self._fatal = reason
        self._up.set()  # wakes callers that wait for a connection, to find `_fatal`
        self._asked.fail_all(self._end_reason)
        for lost in tuple(self._on_loss):
            lost()

    def _next_server(self, servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
        """Another server than the last one, which may accept connections and never answer.

        nats-py's own choice has no jitter: all clients would reconnect to a restarted server at once.
        """
        last = self._client.address
        others = [server for server in servers if last is None or server.uri.netloc != last.netloc]
        server = random.choice(others or servers)  # noqa: S311
        return server, backoff(server.reconnects, slowest=_SLOWEST_RECONNECT)

    def _must_live(self) -> None:
        if self._fatal:
            raise self._end_reason()

    def _end_reason(self) -> Refused:
        # A new exception each time: one that is raised repeatedly keeps every traceback.
        assert self._fatal is not None, "this connection has not ended"
        return Refused(str(self._fatal), reason=self._fatal.reason)

    def _unauthorized(self) -> Refused:
        return Refused(
            f"connect as {self.name}: the server does not know this user and password; "
            "set NATS_USER and NATS_PASSWORD, or NATS_CREDS, to those that it knows",
            reason="Unauthorized",
        )


def _password(path: Path) -> Callable[[], str]:
    """A function that reads the password at every attempt, so that a rotated one is used."""

    def read() -> str:
        try:
            password = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not a text"
            raise NoPassword(f"the password file {path} cannot be read: {why}; mount the Secret there") from error
        if not password:
            raise NoPassword(f"the password file {path} is empty; complete the Secret that is mounted there")
        return password

    return read


def without_secrets(url: str) -> str:
    """One address or several, without user, password and token."""
    return re.sub(r"(^|,)(\w+://)?[^,]*@", r"\1\2", url)
