"""The connection to NATS: requests with certain or openly uncertain answers, and raw delivery for readers.

Built on nats-py's client, whose surprises end here: publishes without permission that look like timeouts,
a client that closes for good on an authentication error, buffered publishes that come back from the dead.
What the requests mean is `api.py`'s business.
"""

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import nats.errors
from nats.aio.client import Server
from nats.aio.subscription import Subscription

from shared.errors import Refused, Transient
from shared.eventlog import wire
from shared.eventlog.asked import Answer, Asked
from shared.eventlog.client import Handler, NoPassword, RawClient, distrust_in
from shared.eventlog.retry import backoff
from shared.eventlog.subjects import inbox_of
from shared.eventlog.tls import Life, Tls

_PING = 1
"""Seconds between pings; two unanswered ones and the connection counts as lost.

A server whose node lost its power ends no connection, and an election takes longer than three of these.
"""
_CONNECT = 5
"""Seconds that one attempt to connect may take."""
_BETWEEN_FIRST_TRIES = 0.1
_SLOWEST_RECONNECT = 2.0
_API = "$JS."
_NOBODY_THERE = {
    True: "the server has no JetStream; enable it in the server's configuration (`jetstream {}`)",
    False: "no stream takes this subject; run `muster setup`",
}
"""What it means that nobody answers a request of the JetStream API, or a publish."""
_DENIED = re.compile(r'permissions violation for (?P<verb>publish|subscription)[^"]*"(?P<subject>[^"]*)"')


class NotSent(Transient):
    """The request certainly had no effect: there is no connection, or nobody to answer it."""


class NoAnswer(Transient):
    """The request may or may not have had its effect: no answer in time, or the connection was lost."""


class Connection:
    """One user's connection; comes back by itself until `close()`, or until the server turns the user away."""

    def __init__(self, name: str, inbox: str) -> None:
        self.name = name
        self.url = ""
        """Where to connect, fit to be told."""
        self._inbox = inbox
        self._client = RawClient()
        self._up = asyncio.Event()
        self._fatal: Refused | None = None
        self._trouble = "no connection yet"
        self._answers = ""
        self._asked = Asked()
        self._on_loss: list[Callable[[], None]] = []
        self._turned_away = asyncio.Event()
        self._refusal: Refused | None = None
        """Why the first attempts will not succeed, however long we wait."""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        name: str,
        user: str = "",
        password: str = "",
        password_file: Path | None = None,
        credentials: Path | None = None,
        tls: Tls | None = None,
        patience: float = 30.0,
    ) -> Self:
        """Connect, waiting up to `patience` seconds for a server that is not there yet.

        With `tls`, or a URL that says `tls://`, nothing is told to a server that does not prove who it is.
        """
        connection = cls(name, inbox_of(user or name))
        connection.url = without_secrets(url)
        connection._client.trusted = tls
        trying = asyncio.create_task(
            connection._client.connect(
                url.split(","),
                name=name,
                user=user or None,
                password=_password(password_file) if password_file is not None else password or None,
                user_credentials=credentials,
                inbox_prefix=connection._inbox,
                connect_timeout=_CONNECT,
                reconnect_time_wait=_BETWEEN_FIRST_TRIES,  # type: ignore[arg-type]
                max_reconnect_attempts=-1,
                reconnect_to_server_handler=connection._next_server,
                ping_interval=_PING,
                # Nothing is published while the connection is down: it would arrive later, behind its caller's back.
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
    def greeting(self) -> dict[str, Any]:
        """What the server said of itself when we connected: its version and its name among others."""
        return self._client.greeting

    @property
    def certificate(self) -> Life | None:
        """How long the one is good that the server showed us; None without TLS."""
        return self._client.certificate

    async def request(
        self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None, *, timeout: float
    ) -> Answer:
        """Ask and wait for the answer.  Raises `NotSent`, `NoAnswer`, or `Refused` for what can never be asked."""
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
            # It broke in the middle of a write.
            raise NoAnswer(f"{subject}: {error}") from error
        if wire.status(answer.headers) == 503:
            raise NotSent(f"{subject}: {_NOBODY_THERE[subject.startswith(_API)]}")
        return answer

    async def send(self, subject: str, body: bytes, *, reply: str) -> None:
        """Publish without waiting; answers go to `reply`."""
        self._must_live()
        try:
            await self._client.publish(subject, body, reply)
        except (nats.errors.Error, OSError) as error:
            raise NotSent(f"{subject}: {error}") from error

    async def listen(self, handler: Handler, *, lost: Callable[[], None]) -> "Listener":
        """Hand all messages to a new inbox to `handler`, as they are; `lost` is called when the connection breaks."""
        self._must_live()
        inbox = self._client.new_inbox()
        try:
            subscription = await self._client.listen(inbox, handler)
        except (nats.errors.Error, OSError) as error:
            raise NotSent(f"listen on {inbox}: {error}") from error
        self._on_loss.append(lost)
        return Listener(self, inbox, subscription, lost)

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
                # Not once: a connect that fails at the very moment swallows the cancellation, and nats-py goes on.
                while not trying.done():
                    trying.cancel()
                    await asyncio.wait((trying,), timeout=_BETWEEN_FIRST_TRIES)
                await self.close()
        if self._refusal is not None:
            raise self._refusal
        if not trying.cancelled() and (error := trying.exception()):
            # Nothing that waiting would mend, such as a malformed address, or credentials without the library for them.
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
            # Once it had one, it waits: the next attempt reads the file again.
            self._turn_away(Refused(f"connect as {self.name}: {error}", reason="NoPassword"))
        elif distrust := distrust_in(error):
            self._trouble = distrust
            # Later the same may be mended by a new certificate, and nats-py goes on trying.
            self._turn_away(Refused(f"connect as {self.name}: {distrust}", reason="Untrusted"))
        elif denied := _DENIED.search(text):
            self._asked.deny(self.name, denied["verb"], denied["subject"])
        elif "authorization" in text or "authentication" in text:
            # nats-py would try for ever, or close without a word, depending on when the server says it.
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
        # Reached when we close, and when the server turned us away, which no reconnecting mends.
        self._end(Refused(f"{self.name}: the server closed the connection: {self._trouble}", reason="Disconnected"))

    def _end(self, reason: Refused) -> None:
        if self._fatal is None:
            self._fatal = reason
        self._up.set()  # wakes those who wait for a connection, to find `_fatal`
        self._asked.fail_all(self._end_reason)
        for lost in tuple(self._on_loss):
            lost()

    def _next_server(self, servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
        """Another one than the last, which may take connections and say nothing.

        nats-py's own choice has no jitter, either: a restarted server would meet all its clients at once.
        """
        others = [server for server in servers if server.uri.netloc != self._client.address]
        server = random.choice(others or servers)  # noqa: S311
        return server, backoff(server.reconnects, slowest=_SLOWEST_RECONNECT)

    def _must_live(self) -> None:
        if self._fatal:
            raise self._end_reason()

    def _end_reason(self) -> Refused:
        # A new one each time: an exception that is raised again and again keeps every traceback.
        assert self._fatal is not None, "this connection has not ended"
        return Refused(str(self._fatal), reason=self._fatal.reason)

    def _unauthorized(self) -> Refused:
        return Refused(
            f"connect as {self.name}: the server does not know this user and password; "
            "set NATS_USER and NATS_PASSWORD, or NATS_CREDS, to those that it knows",
            reason="Unauthorized",
        )

    async def _stop_listening(self, listener: "Listener") -> None:
        self._on_loss.remove(listener.lost)
        await self._client.forget(listener.subscription)


class Listener:
    """An inbox of its own; `close()` it."""

    def __init__(
        self, connection: Connection, inbox: str, subscription: Subscription, lost: Callable[[], None]
    ) -> None:
        self.inbox = inbox
        self.subscription = subscription
        self.lost = lost
        self._connection = connection

    async def close(self) -> None:
        await self._connection._stop_listening(self)


def _password(path: Path) -> Callable[[], str]:
    """Read at every attempt, so that a rotated one counts."""

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
    """One address or several, as they may be told: without user, password and token."""
    return re.sub(r"(^|,)(\w+://)?[^,]*@", r"\1\2", url)
