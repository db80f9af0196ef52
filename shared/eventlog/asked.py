"""Requests that wait for their answers, told apart by the last token of the subject that an answer comes to.

What no answer means is `connection.py`'s to say.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from shared.errors import Refused


class Answer(msgspec.Struct, frozen=True, gc=False):
    headers: bytes
    body: bytes


class Asked:
    """All requests of a connection that are under way."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Answer]]] = {}
        """Subject and answer, by token."""

    @contextmanager
    def about(self, subject: str) -> Iterator[tuple[str, asyncio.Future[Answer]]]:
        """The token of one more request, and its answer to come."""
        self._count += 1
        token = str(self._count)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = subject, answer
        try:
            yield token, answer
        finally:
            del self._waiting[token]
            # An answer that came while something else went wrong counts as seen; asyncio complains of unseen errors.
            if not answer.cancel() and not answer.cancelled():
                answer.exception()

    def answered(self, subject: bytes, _: bytes, headers: bytes, body: bytes) -> None:
        waiting = self._waiting.get(subject.rpartition(b".")[2].decode())
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(Answer(headers, body))

    def deny(self, name: str, verb: str, subject: str) -> None:
        """The server, in small letters, denied `name` a right; who asked for it is told."""
        # nats-py lowers the server's words, so two subjects that differ in case alone would fail together.
        for asked, answer in self._waiting.values():
            if not answer.done() and (verb == "subscription" or asked.lower() == subject):
                words = f"{asked}: {name} has no permission for {verb} to {subject}"
                answer.set_exception(Refused(words, reason="Forbidden"))

    def fail_all(self, reason: Callable[[], Exception]) -> None:
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(reason())
