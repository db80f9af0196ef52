"""`muster forward`: sends events to a web address, each at least once, from a durable position in the log's copy.

An event is acknowledged after the receiver took it, or after it was written to the dead letters; so an end at any
moment loses none.
"""

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
from yarl import URL

from muster.commands.events import ForwardOptions
from muster.following import warn
from muster.outgoing import (
    PHASES,
    CloudEvent,
    Sent,
    Verdict,
    cloud_event,
    filters_of,
    loss,
    request_of,
    said_of,
    secret_of,
    signature,
    verdict,
    wait_of,
)
from shared.backoff import Backoff
from shared.errors import Refused, Transient
from shared.eventlog.account import SUBSCRIBER
from shared.eventlog.durable import ACK_SECONDS, Delivered, Durable, Lost
from shared.job import text
from shared.process.settings import Settings
from shared.release import this_release

LONGEST_PAUSE_SECONDS = 60.0
"""The longest wait between two tries, unless the receiver asks for more."""
FIRST_PAUSE_SECONDS = 0.5
"""The longest wait after the first try; each later one may take twice as long."""
KEEP_SECONDS = ACK_SECONDS / 3
"""Seconds between two signs that events are still worked on."""
HEADERS = {"User-Agent": f"muster/{this_release()}"}
TELL_SECONDS = 10.0
"""Seconds between two lines about the progress."""
MOST_WORDS = 512
"""Bytes of a refusal that are read and shown."""
INTERRUPTED = 130


async def forward(settings: Settings, options: ForwardOptions) -> None:
    """Send events until Ctrl-C or SIGTERM; what the receiver took by then is acknowledged.

    Raises `Refused` if the receiver does not take an event and there is no file for dead letters.
    """
    secret = _secret(options.secret)
    login = settings.nats_login
    login["user"] = user = login.get("user") or SUBSCRIBER
    own = user.removeprefix(f"{SUBSCRIBER}-")
    if own != user and (others := {*(options.namespaces or ())} - {own}):
        words = f"NATS_USER={user} sees the events of {own} alone, and none of {', '.join(sorted(others))}"
        raise Refused(f"{words}: take a subscriber who does", reason="Forbidden")
    subjects = filters_of(
        options.namespaces or (), [*(options.types or ()), *(PHASES[phase] for phase in options.phases or ())]
    )
    digest = hashlib.sha256("\n".join((options.to, *subjects)).encode()).hexdigest()
    durable = await Durable.connect(
        settings.nats_url,
        name=options.name or f"forward-{digest[:12]}",
        subjects=subjects,
        everything=options.everything,
        **login,
    )
    try:
        timeout = aiohttp.ClientTimeout(total=options.timeout)
        async with aiohttp.ClientSession(timeout=timeout, headers=HEADERS) as session, _stopping() as stop:
            where = (
                f"from the {'first' if options.everything else 'next'} event on"
                if durable.begins
                else "from where it was"
            )
            warn(f"muster: sends events to {place(options.to)} as {durable.name}, {where}; Ctrl-C ends it")
            await Forwarder(options, durable, session, secret, stop).run()
    finally:
        await durable.close()
    if stop.interrupted:
        raise SystemExit(INTERRUPTED)


class Stop(asyncio.Event):
    """Set when the process is told to end."""

    interrupted = False
    """True if it was by Ctrl-C."""


class Forwarder:
    """Takes events, sends them in order, acknowledges them."""

    def __init__(
        self,
        options: ForwardOptions,
        durable: Durable,
        session: aiohttp.ClientSession,
        secret: bytes | None,
        stop: Stop,
    ) -> None:
        self._options = options
        self._durable = durable
        self._session = session
        self._secret = secret
        self._stop = stop
        self._url = URL(options.to)
        self._sent = 0
        self._lost = 0
        """The most events that are lost to the receiver."""
        self._told_at = time.monotonic()
        self._told = 0
        self._trouble = ""

    async def run(self) -> None:
        while not self._stop.is_set():
            try:
                events = await self._fetched()
            except Transient as trouble:
                self._tell_trouble(f"{trouble}; reading on")
                continue
            for lost in self._durable.lost():
                await self._tell_loss(lost, events)
            if events:
                await self._deal_with(events)
                self._tell_progress(events[-1])
        gone = f", and up to {self._lost} left before they were sent" if self._lost else ""
        warn(f"muster: {text.counted(self._sent, 'event')} sent{gone}")

    async def _tell_loss(self, lost: Lost, events: Sequence[Delivered]) -> None:
        """Say which events are lost, here and to the receiver, before the ones that came after them."""
        self._lost += lost.most
        remedy = "; an administrator gives the copy more bytes with `muster setup --subscribers BYTES`"
        warn(f"muster: {said_of(lost)}; `muster history` of their jobs tells them{'' if lost.job else remedy}")
        told = loss(lost, position=self._durable.name, time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        if refusal := await self._refusal(self._request([told]), events):
            warn(f"muster: {place(self._options.to)} does not take that events are lost: {refusal}")

    async def _fetched(self) -> list[Delivered]:
        """The next events; none if nothing came, or if the end came first."""
        fetching = asyncio.ensure_future(self._durable.fetch(self._options.batch))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((fetching, stopping), return_when=asyncio.FIRST_COMPLETED)
            return fetching.result() if fetching.done() else []
        finally:
            for task in (fetching, stopping):
                task.cancel()
            await asyncio.gather(fetching, stopping, return_exceptions=True)

    async def _deal_with(self, events: Sequence[Delivered]) -> None:
        """Send some events until they are taken, or are dead letters; at the end of the process they are given back."""
        refusal = await self._refusal(self._request([*map(cloud_event, events)]), events)
        if refusal is None:
            await self._durable.give_back(events)
            return
        if refusal and len(events) > 1:
            # One of them may be at fault: the others do not share its fate.
            for at, event in enumerate(events):
                try:
                    await self._deal_with([event])
                except Refused:
                    await self._durable.give_back(events[at + 1 :])
                    raise
            return
        if refusal:
            await self._bury(events[0], refusal)
        else:
            self._sent += len(events)
        try:
            await self._durable.acknowledge(events)
        except Transient as trouble:
            self._tell_trouble(f"{trouble}; these events are sent again")

    def _request(self, events: Sequence[CloudEvent]) -> Sent:
        return request_of(events, self._options.mode, batch=self._options.batch > 1)

    async def _refusal(self, sent: Sent, events: Sequence[Delivered]) -> str | None:
        """Why the receiver does not take a request; empty once it took it, None if the end came first.

        Meanwhile the events are kept in hand.
        """
        pauses = Backoff(
            first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS, clock=time.monotonic, random=random.random
        )
        refusals = 0
        while not self._stop.is_set():
            answered, words, wait = await self._tried(sent)
            if answered == "delivered":
                if self._trouble:
                    warn(f"muster: {place(self._options.to)} takes events")
                    self._trouble = ""
                return ""
            if answered == "refused" and (refusals := refusals + 1) >= self._options.tries:
                return words
            self._tell_trouble(f"{place(self._options.to)} does not take events now: {words}; trying again")
            await self._pause(events, pauses.next(wait))
        return None

    async def _tried(self, sent: Sent) -> tuple[Verdict, str, float]:
        """What came of one try, why, and the seconds that the receiver asked for."""
        now, proof = time.time(), {}
        if self._secret is not None:
            proof = signature(sent, self._secret, now)
        try:
            # A redirect would send the events to another receiver than the one that was named.
            async with self._session.post(
                self._url, data=sent.body, headers=sent.headers | proof, allow_redirects=False
            ) as answer:
                said = await _beginning(answer)
                wait = wait_of(answer.headers.get("Retry-After", ""), now)
                return verdict(answer.status), f"{answer.status} {said}".rstrip(), wait
        except TimeoutError:
            return "again", f"no answer within {self._options.timeout:g} s", 0.0
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            return "again", text.in_one_line(_without_address(error)), 0.0

    async def _pause(self, events: Sequence[Delivered], seconds: float) -> None:
        """Wait, unless the end comes first, and say meanwhile that the events are still worked on."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(left, KEEP_SECONDS))
            await self._durable.keep(events)

    async def _bury(self, event: Delivered, refusal: str) -> None:
        """Write a dead letter, to the disk."""
        where, number = place(self._options.to), event.stored.sequence
        if self._options.dead_letters is None:
            await self._durable.give_back([event])
            raise Refused(
                f"{where} does not take the event {number}: {refusal}; correct the receiver, or name a file in "
                "--dead-letters for such events",
                reason="Refused",
            )
        letter = {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "to": where, "why": refusal}
        words = msgspec.json.encode(letter | {"event": cloud_event(event).structured}) + b"\n"
        try:
            await asyncio.to_thread(_append, self._options.dead_letters, words)
        except OSError as error:
            await self._durable.give_back([event])
            words_of_it = f"{self._options.dead_letters} cannot be written: {error.strerror}; name another file"
            raise Refused(words_of_it, reason="Invalid") from error
        warn(f"muster: {where} does not take the event {number}: {refusal}; it is a dead letter now")

    def _tell_trouble(self, words: str) -> None:
        if words != self._trouble:
            warn(f"muster: {words}")
            self._trouble = words

    def _tell_progress(self, last: Delivered) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_SECONDS and self._told != self._sent:
            self._told_at, self._told = now, self._sent
            warn(
                f"muster: {text.counted(self._sent, 'event')} sent, up to {last.stored.sequence}; {last.behind} behind"
            )


def place(to: str) -> str:
    """The receiver for messages: the path and the password of an address are secrets of many receivers."""
    url = URL(to)
    return f"{url.scheme}://{url.host}{f':{url.explicit_port}' if url.explicit_port else ''}"


def _without_address(error: Exception) -> str:
    """What went wrong; the path and the query of an address may be a password, and the error may name them."""
    match error:
        case aiohttp.ClientResponseError():
            return f"no HTTP answer: {error.message}"
        case aiohttp.ClientConnectorError() | OSError():
            return text.first(str(error))
        case _:
            return type(error).__name__


async def _beginning(answer: aiohttp.ClientResponse) -> str:
    """The first words of an answer; its status counts, however slow the rest is."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(1):
            words = await answer.content.read(MOST_WORDS)
            return text.in_one_line(text.first(words.decode(errors="replace"), MOST_WORDS))
    return ""


@asynccontextmanager
async def _stopping() -> AsyncIterator[Stop]:
    """Set by the first SIGINT or SIGTERM; the second cancels the task."""
    stop, loop, task = Stop(), asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "this runs in a task"

    def end(number: int) -> None:
        if stop.is_set():
            task.cancel()
        stop.interrupted = number == signal.SIGINT
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _secret(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return secret_of(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"the file {file} with the secret cannot be read: {error}", reason="Invalid") from error


def _append(file: Path, words: bytes) -> None:
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(opened, "wb") as letters:
        letters.write(words)
        letters.flush()
        os.fsync(opened)
