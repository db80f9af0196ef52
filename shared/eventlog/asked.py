"""Requests that wait for their answers, by the last token of the reply subject.

`connection.py` decides what a missing answer means.
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
    """The requests of one connection that are in flight."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Answer]]] = {}
        """Subject and answer, by token."""

    @contextmanager
    def about(self, subject: str) -> Iterator[tuple[str, asyncio.Future[Answer]]]:
        """Register a request; give its token and the future of its answer."""
        self._count += 1
        token = str(self._count)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = subject, answer
        try:
            yield token, answer
        finally:
            del self._waiting[token]
            # Reads the exception of an answer that is not awaited any more: asyncio would log it.
            if not answer.cancel() and not answer.cancelled():
                answer.exception()

    def answered(self, subject: bytes, _: bytes, headers: bytes, body: bytes) -> None:
        waiting = self._waiting.get(subject.rpartition(b".")[2].decode())
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(Answer(headers, body))

    def deny(self, name: str, verb: str, subject: str) -> None:
        """Fail the requests for which the server denied `name` a right.

        nats-py lowers the case of the server's message, so that subjects that differ in case alone fail together.
        """
        for asked, answer in self._waiting.values():
            if not answer.done() and (verb == "subscription" or asked.lower() == subject):
                words = f"{asked}: {name} has no permission for {verb} to {subject}"
                answer.set_exception(Refused(words, reason="Forbidden"))

    def fail_all(self, reason: Callable[[], Exception]) -> None:
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(reason())
