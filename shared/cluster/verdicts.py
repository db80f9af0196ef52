"""What the API server said of a person or a token, believed for a while and then asked again."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Generic, TypeVar

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

    async def of(self, question: object, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer to a question; `ask` brings one that is not known, or no longer."""
        # A digest, because a question may have any length.
        key, now = sha256(msgspec.msgpack.encode(question)).digest(), self._clock()
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < self._seconds:
            return kept[1]
        verdict = await ask()
        self._kept.pop(key, None)
        self._kept[key] = now, verdict
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return verdict
