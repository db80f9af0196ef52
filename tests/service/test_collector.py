"""The collector of cyclic garbage: it walks over no history of the first fold, and stops nothing while that lasts."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from shared.process.main import LONGEST_SECONDS, freeze_after


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


class Knot:
    """A cycle."""

    def __init__(self) -> None:
        self.itself = self


async def test_nothing_is_collected_until_the_log_is_folded_and_then_only_what_comes_after():
    folded = asyncio.Event()
    leaving_out = asyncio.create_task(freeze_after(folded))
    await asyncio.sleep(0)
    assert not gc.isenabled()
    history = [{"of": "a job"}]
    folded.set()
    await leaving_out
    assert gc.isenabled()
    assert all(found is not history for found in gc.get_objects())
    later = [{"of": "another"}]
    assert any(found is later for found in gc.get_objects())


async def test_a_log_that_cannot_be_folded_keeps_nothing_from_being_collected_for_long():
    leaving_out = asyncio.create_task(freeze_after(asyncio.Event()))
    await asyncio.sleep(LONGEST_SECONDS + 1)
    assert leaving_out.done()
    assert gc.isenabled()


async def test_a_service_that_stops_before_it_folded_collects_again():
    leaving_out = asyncio.create_task(freeze_after(asyncio.Event()))
    await asyncio.sleep(0)
    leaving_out.cancel()
    await asyncio.gather(leaving_out, return_exceptions=True)
    assert gc.isenabled()


async def test_what_an_earlier_fold_left_is_collected_when_the_service_begins_anew():
    folded = asyncio.Event()
    folded.set()
    knot = Knot()
    earlier = weakref.ref(knot)
    await freeze_after(folded)
    del knot
    gc.collect()
    assert earlier() is not None, "no collection walks over it"
    await freeze_after(folded)
    assert earlier() is None
