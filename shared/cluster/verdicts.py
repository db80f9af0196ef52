"""What the API server said of a person or a token, believed for a while and then asked again."""

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")


class Verdicts(Generic[V]):
    """The newest answers, each by its question."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float]) -> None:
        """An answer counts for `seconds` of `clock`; the oldest beyond `most` are forgotten."""
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._kept: dict[bytes, tuple[float, V]] = {}
        self._asking: dict[bytes, asyncio.Task[V]] = {}

    async def of(self, question: object, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The answer to a question; `ask` brings one that is not known, or no longer, once for all who wait for it."""
        # A digest, because a question may have any length.
        key, now = sha256(msgspec.msgpack.encode(question)).digest(), self._clock()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < self._seconds:
            return kept[1]
        if key not in self._asking:
            self._asking[key] = asyncio.create_task(self._asked(key, now, ask))
        # One who no longer waits takes the answer from nobody else.
        return await asyncio.shield(self._asking[key])

    async def _asked(self, key: bytes, now: float, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        try:
            verdict = await ask()
        finally:
            del self._asking[key]
        self._kept.pop(key, None)
        self._kept[key] = now, verdict
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return verdict
