"""What the API server said of a person is asked for once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.cluster.verdicts import Verdicts
from shared.errors import Transient

ALLOWED = "allowed"


def asking(asked: list[str], answer: asyncio.Event) -> Callable[[], Coroutine[Any, Any, str]]:
    async def ask() -> str:
        asked.append("asked")
        await answer.wait()
        if len(asked) == 1:
            raise Transient("away")
        return ALLOWED

    return ask


async def test_those_who_ask_at_once_share_one_answer_whoever_leaves():
    verdicts = Verdicts[str](10.0, 100, lambda: 0.0)
    asked, answer = ["a failed one"], asyncio.Event()
    first, *others = [asyncio.create_task(verdicts.of("may I", asking(asked, answer))) for _ in range(100)]
    await asyncio.sleep(0)
    first.cancel()
    answer.set()
    assert set(await asyncio.gather(*others)) == {ALLOWED}
    assert len(asked) == 2


async def test_a_failure_is_told_to_all_who_wait_and_believed_of_no_later_question():
    verdicts = Verdicts[str](10.0, 100, lambda: 0.0)
    asked, answer = list[str](), asyncio.Event()
    answer.set()
    failed = await asyncio.gather(
        *(verdicts.of("may I", asking(asked, answer)) for _ in range(2)), return_exceptions=True
    )
    assert [str(error) for error in failed if isinstance(error, Transient)] == ["away", "away"]
    assert await verdicts.of("may I", asking(asked, answer)) == ALLOWED


@pytest.mark.parametrize(("seconds", "asks"), [(9.9, 1), (10.0, 2)])
async def test_an_answer_counts_for_its_time_alone(seconds: float, asks: int):
    now, asked, answer = [0.0], ["a failed one"], asyncio.Event()
    verdicts = Verdicts[str](10.0, 100, lambda: now[0])
    answer.set()
    for now[0] in (0.0, seconds):
        await verdicts.of("may I", asking(asked, answer))
    assert len(asked) == 1 + asks
