"""Which messages of the archive are a history."""

import gzip

import pytest

from shared.eventlog.parts import Packing, Part, Seal
from shared.telling.sealed import parts_of
from tests.memory.eventlog import MemoryArchive


def a_part(sequence: int, first: int, last: int, digest: str = "a") -> Part:
    return Part("archive.team-a.resnet.u-1", sequence, Seal(first, last, 3, digest), 1, 1, b"", b"", "")


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        pytest.param([a_part(1, 2, 9)], [1], id="one message"),
        pytest.param([a_part(1, 2, 9), a_part(2, 2, 9)], [1, 2], id="several of one seal"),
        pytest.param([a_part(1, 2, 9), a_part(2, 12, 14, "b")], [1, 2], id="what came after a first seal"),
        pytest.param([a_part(1, 2, 9), a_part(2, 2, 7, "b")], [2], id="the log was restored from before the first"),
    ],
)
async def test_the_messages_of_a_history(parts: list[Part], whole: list[int]):
    assert [part.sequence async for part in parts_of(MemoryArchive(parts), parts[-1])] == whole


def test_lines_of_any_alphabet_make_messages_that_can_be_read():
    packing, line = Packing(), "\u8a9e" * 700_000
    for _ in range(5):
        packing.add(line)
    bodies = packing.bodies()
    assert [len(gzip.decompress(body)) for body in bodies] == [len(line.encode()) + 1] * 5
