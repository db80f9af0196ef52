"""Sends a stream to its reader: while it may be read, as fast as it is taken, and for a bounded time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from services.history import documents
from services.history.documents import Json
from services.history.streams import Progress
from shared.errors import Refused, Trouble
from shared.history_api import Question

EVENTS_SECONDS = 50.0
"""The most seconds of a stream of events: kube-apiserver ends a request that is no watch after 60."""
WATCH_SECONDS = 1800.0
"""The most seconds of a watch, as of kube-apiserver's own."""
PIECE = 2**16
"""Bytes that a reader has to take within `SLOW_SECONDS`."""
SLOW_SECONDS = 10.0
"""Seconds in which a reader takes nothing, after which it is cut off."""
TEND_SECONDS = 10.0
"""Seconds between two looks whether the reader is there and may read, and between two bookmarks."""


class _SlowReader(Exception):  # noqa: N818 - what is the matter
    """The reader takes nothing."""


class Sending:
    """One stream."""

    def __init__(self, request: web.Request, question: Question, *, as_table: bool) -> None:
        self.progress = Progress()
        self._request = request
        self._question = question
        self._as_table = as_table
        self._of_events = bool(question.part)
        self._limit = asyncio.timeout(None)
        self._why: Exception | None = None
        """Why it ended before its time."""

    async def run(
        self,
        told: AsyncGenerator[bytes, None],
        allowed: Callable[[], Awaitable[bool]],
        status: Callable[[Exception], Json],
    ) -> web.StreamResponse:
        """Send everything that is told.  `status` is the last word of a watch that fails."""
        media = "application/x-ndjson" if self._of_events else "application/json"
        response = web.StreamResponse(headers={"Content-Type": media})
        await response.prepare(self._request)
        longest = EVENTS_SECONDS if self._of_events else WATCH_SECONDS
        seconds = min(self._question.seconds or longest, longest)
        tending = asyncio.create_task(self._tend(response, allowed))
        try:
            try:
                async with self._limit:
                    self._limit.reschedule(asyncio.get_running_loop().time() + seconds)
                    async for chunk in told:
                        if chunk:
                            await _write(response, chunk)
            except TimeoutError:
                pass
            except Trouble as trouble:
                self._why = trouble
            finally:
                tending.cancel()
            if self._why is not None and not self._of_events:
                await _write(response, documents.failure(status(self._why)))
            async with asyncio.timeout(SLOW_SECONDS):
                await response.write_eof()
        except (_SlowReader, TimeoutError, ConnectionError):
            if self._request.transport is not None:
                self._request.transport.abort()
        return response

    def end(self) -> None:
        """End it now, as if its time were over."""
        if self._limit.when() is not None and not self._limit.expired():
            # It may have ended in this moment.
            with suppress(RuntimeError):
                self._limit.reschedule(asyncio.get_running_loop().time())

    async def _tend(self, response: web.StreamResponse, allowed: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await asyncio.sleep(TEND_SECONDS)
            transport = self._request.transport
            if transport is None or transport.is_closing():
                return self.end()
            try:
                if not await allowed():
                    self._why = Refused("the right to read it was taken away", reason="NoRight")
                    return self.end()
                if self._question.bookmarks and self.progress.reached:
                    await _write(response, documents.bookmark(self.progress.reached, as_table=self._as_table))
            except Trouble:
                # kube-apiserver, which passes this stream on, does not say; it is asked again.
                continue
            except (_SlowReader, ConnectionError):
                return self.end()


async def _write(response: web.StreamResponse, chunk: bytes) -> None:
    try:
        for at in range(0, len(chunk), PIECE):
            async with asyncio.timeout(SLOW_SECONDS):
                await response.write(chunk[at : at + PIECE])
    except TimeoutError as silence:
        raise _SlowReader from silence
