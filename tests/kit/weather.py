"""What one service meets on its way to the cluster: its calls are noted, and some of them fail while a test says so."""

import asyncio
from collections.abc import Callable

from shared.errors import Trouble
from tests.memory.cluster import Call, Calm, Weather


class Noting(Calm):
    """Notes each call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def count(self, verb: str, plural: str) -> int:
        return sum((call.verb, call.plural) == (verb, plural) for call in self.calls)

    async def before(self, call: Call) -> None:
        self.calls.append(call)
        await super().before(call)


class Failing(Noting):
    """The calls that are `meant` fail while it is `on`, each after so many seconds."""

    def __init__(
        self, meant: Callable[[Call], bool], trouble: Trouble, *, on: bool = True, seconds: float = 0.0
    ) -> None:
        super().__init__()
        self.on = on
        self._meant = meant
        self._trouble = trouble
        self._seconds = seconds
        """A blind watch asks again at once: of watches time has to pass meanwhile."""

    async def before(self, call: Call) -> None:
        await super().before(call)
        if self.on and self._meant(call):
            await asyncio.sleep(self._seconds)
            raise self._trouble.with_traceback(None)


def met_by(author: str, weather: Weather) -> Callable[[str], Weather | None]:
    """The weather of a world in which this service alone meets it."""
    return lambda known: weather if known == author else None
