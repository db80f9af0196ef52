"""The worker's side: one launcher at a time, one ring at a time, one step when it is told to.

What it hears, each answered by one message with the same generation:

- `hello`: a launcher begins a session; answered `welcome`, or `busy` while another one is served;
- `join`: become rank r of a new ring and take these parameters; answered `joined`;
- `step`: the gradient of our shard, its sum over the ring, one update; answered `done`.

`failed` answers a `join` or `step` that a neighbour did not live through. The worker is then ready for the
next `join`; nothing of the lost step stays, because every `join` brings the committed parameters.
"""

import asyncio
import socket
import zlib
from contextlib import suppress

import model
import numpy as np
from model import Split, Vector
from ring import Link, Ring
from wire import Message, WireError, receive, send

FIRST_MESSAGE_SECONDS = 5.0
"""A connection that says nothing for so long is closed; readiness probes never say anything."""

TROUBLE = (OSError, EOFError, WireError)
"""What a lost or strange peer looks like (a timeout is an `OSError`)."""


class Member:
    """A worker between two messages: its session, its ring and its replica."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._conversations: set[asyncio.Task[None]] = set()
        self._session = ""
        self._launcher: asyncio.StreamWriter | None = None
        self._generation = 0
        self._arrivals: dict[int, asyncio.Future[Link]] = {}
        self._ring = Ring(rank=0, size=1)
        self._shares = [1]
        self._seed = 0
        self._data: Split | None = None
        self._parameters: Vector = np.zeros(0)
        self._velocity: Vector = np.zeros(0)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Someone called our port. The tasks are ours, because asyncio's own complain when they are cancelled."""
        task = asyncio.create_task(self._listen(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)

    async def leave(self) -> None:
        """Tell the launcher that we are about to end, so that it need not find out."""
        if self._launcher is not None:
            with suppress(OSError):
                async with asyncio.timeout(1.0):
                    await send(self._launcher, Message("leaving"))
                    self._launcher.close()
                    await self._launcher.wait_closed()
        self._ring.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Who is it: a launcher, a neighbour of the ring, a probe or a stranger?"""
        ours: asyncio.StreamWriter | None = writer
        try:
            async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
                first = await receive(reader)
            match first.kind:
                case "hello":
                    await self._serve(first, reader, writer)
                case "neighbour" if self._expected(first):
                    # The connection belongs to the ring from here on.
                    self._arrival(first["generation"]).set_result((reader, writer))
                    ours = None
        except TROUBLE:
            pass
        finally:
            if ours is not None:
                ours.close()

    async def _serve(self, hello: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One session, until the launcher goes."""
        if self._launcher is not None:
            await send(writer, Message("busy"))
            return
        _notice_a_dead_host(writer)
        self._launcher, self._session, self._generation = writer, str(hello["session"]), 0
        work: asyncio.Task[None] | None = None
        try:
            self._say("a launcher is here")
            await send(writer, Message("welcome"))
            while True:
                message = await receive(reader)
                # A new message while we still work on the last one means that the launcher gave that up.
                await _stop(work)
                work = asyncio.create_task(self._obey(message, writer))
        finally:
            if work is not None:
                work.cancel()
            self._ring.close()
            self._forget_arrivals(before=None)
            self._launcher, self._session = None, ""
            self._say("the launcher has gone, idle")

    async def _obey(self, message: Message, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(message["patience"]):
                answer = await (self._join(message) if message.kind == "join" else self._step(message))
        except TROUBLE as error:
            # Closed at once: that is how our neighbours learn of it.
            self._ring.close()
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            answer = Message("failed", {"generation": message["generation"], "reason": reason})
        with suppress(OSError):
            await send(writer, answer)

    async def _join(self, message: Message) -> Message:
        """Link up with both neighbours and start from the launcher's commit."""
        self._ring.close()
        self._generation, rank, ring = int(message["generation"]), int(message["rank"]), message["ring"]
        self._forget_arrivals(before=self._generation)
        if self._data is None or self._seed != message["seed"]:
            self._seed = int(message["seed"])
            self._data = model.load(self._seed)
        self._shares = list(message["shares"])
        self._parameters, self._velocity = np.split(message.vector, 2)
        self._ring = Ring(rank, len(ring))
        if len(ring) > 1:
            host, port = ring[(rank + 1) % len(ring)]
            right = await asyncio.open_connection(host, port)
            # Known to the ring before the next wait, so that closing the ring closes it.
            self._ring = Ring(rank, len(ring), right=right)
            introduction = {"session": self._session, "generation": self._generation}
            await send(right[1], Message("neighbour", introduction))
            left = await self._arrival(self._generation)
            self._ring = Ring(rank, len(ring), left=left, right=right)
        self._say(f"generation {self._generation}: rank {rank} of {len(ring)}")
        return Message("joined", {"generation": self._generation})

    async def _step(self, message: Message) -> Message:
        assert self._data is not None, "a step before any join"
        images, labels = self._data.train
        indices = model.batch(self._seed, int(message["step"]))
        ours = model.shard(indices, self._shares, self._ring.rank)
        gradient, loss = model.gradient(self._parameters, images[ours], labels[ours])
        # The loss rides along as one more number.
        total = await self._ring.all_reduce(np.append(gradient, loss)) / len(indices)
        self._parameters, self._velocity = model.update(self._parameters, self._velocity, total[:-1])
        state = np.concatenate([self._parameters, self._velocity])
        digest = zlib.crc32(state.tobytes())
        fields = {"generation": self._generation, "loss": float(total[-1]), "digest": digest}
        # All replicas are equal, so one of them is enough for the launcher's commit.
        return Message("done", fields, state) if self._ring.rank == 0 else Message("done", fields)

    def _expected(self, introduction: Message) -> bool:
        """Is this the left neighbour of our ring, or of the next one that we have not yet heard of?"""
        if self._launcher is None or introduction["session"] != self._session:
            return False
        generation = introduction["generation"]
        return generation >= self._generation and not self._arrival(generation).done()

    def _arrival(self, generation: int) -> asyncio.Future[Link]:
        """The left neighbour's connection; it may come before our own `join` does."""
        return self._arrivals.setdefault(generation, asyncio.get_running_loop().create_future())

    def _forget_arrivals(self, before: int | None) -> None:
        for generation in [known for known in self._arrivals if before is None or known < before]:
            arrival = self._arrivals.pop(generation)
            if arrival.done() and not arrival.cancelled():
                arrival.result()[1].close()

    def _say(self, text: str) -> None:
        print(f"{self._name}: {text}", flush=True)


def _notice_a_dead_host(writer: asyncio.StreamWriter) -> None:
    """A launcher whose machine vanished says no goodbye: let TCP ask, and end the session after about 10 s."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def _stop(work: asyncio.Task[None] | None) -> None:
    """Cancel what is under way and wait for its end; an error in it is ours, and goes up."""
    if work is not None:
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()
