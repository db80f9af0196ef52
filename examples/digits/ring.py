"""The ring all-reduce: every worker ends with the sum of all workers' vectors.

The vector is cut into as many chunks as there are workers. In n-1 rounds each chunk travels once around
and collects every worker's part; in n-1 more the finished sums travel around. Each worker sends and
receives about twice the vector, however many there are. All end with the same bits, because each
chunk is added up once, in one order, and then copied.

A ring lives for one generation: when anything goes wrong it is closed, which its neighbours notice at
once and close theirs, so that an error reaches everyone without waiting for a timeout.
"""

import asyncio
from dataclasses import dataclass

import numpy as np
from model import Vector

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Ring:
    rank: int
    size: int
    left: Link | None = None
    right: Link | None = None
    """The neighbours; None in a ring of one."""

    async def all_reduce(self, vector: Vector) -> Vector:
        """The sum over all ranks; an `OSError` or `EOFError` when a neighbour has gone."""
        # Padded so that all chunks have one length, and a copy, because the sums are made in place.
        length = -(-len(vector) // self.size)
        chunks = np.zeros((self.size, length))
        chunks.ravel()[: len(vector)] = vector
        for hop in range(self.size - 1):
            arrived = await self._pass_on(chunks[(self.rank - hop) % self.size])
            chunks[(self.rank - hop - 1) % self.size] += arrived
        for hop in range(self.size - 1):
            arrived = await self._pass_on(chunks[(self.rank - hop + 1) % self.size])
            chunks[(self.rank - hop) % self.size] = arrived
        return chunks.ravel()[: len(vector)]

    async def _pass_on(self, chunk: Vector) -> Vector:
        """One round: a chunk to the right, while one comes from the left."""
        assert self.left is not None, f"rank {self.rank} of {self.size} has no neighbours"
        assert self.right is not None, f"rank {self.rank} of {self.size} has no neighbours"
        # Written without waiting until it is sent: if all workers waited to send first, none would read.
        _, right = self.right
        left, _ = self.left
        right.write(chunk.astype("<f8").tobytes())
        arrived = await left.readexactly(chunk.nbytes)
        await right.drain()
        return np.frombuffer(arrived, "<f8").astype(np.float64)

    def close(self) -> None:
        for link in (self.left, self.right):
            if link is not None:
                link[1].close()
