"""What the clients of a port may use up, all together and each of them: connections, bytes, seconds.

A `Door` accepts the connections of one port itself, so that its budget counts before TLS and before HTTP take memory.
When no place is free, the oldest connection of the address that has the most makes room, in the network that has the
most, so that the kubelet always gets in.  A client that a server knows (`Client.know`) keeps its place.  A connection
for which no place is free waits, and costs no more than its socket.
"""

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import structlog


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients of one port may use up."""

    port: str
    """What it is called."""
    reached_by: str
    """Who has to reach it, and what shows that it is them."""
    connections: int
    """Connections in all, those whose TLS handshake is under way included."""
    strangers: int
    """Of them, those that are not known: each may have half a MiB of a handshake in memory."""
    of_one: int
    """Of those, the ones from one address."""
    of_network: int
    """The same of one IPv6 network of 64 bits: a pod may have it whole, or share it with its node."""
    patience: float = 0.0
    """Seconds after which a connection makes room for a newcomer from an address that has no fewer of them."""
    head_seconds: float = 10.0
    """Seconds from the connection until the client is known, and then for the head of each request."""
    head_bytes: int
    head_lines: int = 128
    body_bytes: int = 0
    """Of a request's body; 0 where a request has none."""
    cancels: bool = False
    """A handler is cancelled when its client leaves: a stream without news would keep its places."""


PIECE = 2**16
"""Bytes that a client takes within `SLOW_SECONDS` if as many wait for it, and the most that wait in a transport.

The kernel, too, keeps no more that are not sent: it would tell of what a client takes a third of megabytes at a time.
"""

SLOW_SECONDS = 10.0

LOOK_SECONDS = 1.0
"""Seconds between two looks whose time is over."""

RECEIVED = 2**14
"""Bytes of a connection that wait in the kernel, which takes twice as many: a TLS connection reads all at once."""

BACKLOG = 1024
"""Connections that wait in the kernel to be accepted."""

AT_ONCE = 64
"""Connections that are accepted before other work of the loop goes on."""

AGAIN_SECONDS = 0.1
"""The pause after a failure to accept, such as too many open files."""

ADVANCE_SECONDS = 0.02
"""Seconds until those who wait are looked at, once a place may be free."""

REMIND_SECONDS = 60.0
"""The fewest seconds between two log lines of one port about refused connections, or a snapshot that failed."""

log = structlog.get_logger()


class Client:
    """One connection, from when it is accepted."""

    def __init__(self, door: "Door", accepted: socket.socket, address: bytes, since: float) -> None:
        self.accepted: socket.socket | None = accepted
        """None once the loop has it."""
        self.address = address
        self.since = since
        self.known = False
        self.head_since: float | None = since
        """Since when it has to send a head, its TLS handshake included; None while it has not to."""
        self.opening: asyncio.Task[None] | None = None
        """Its TLS handshake."""
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._gone = False
        self._unsent = 0
        self._moved = since

    def arrived(self, transport: asyncio.BaseTransport) -> None:
        """From `connection_made`."""
        # uvloop's for TLS is of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=PIECE)

    def left(self) -> None:
        """From `connection_lost`."""
        # A failed request may refer to this client for long: the connection's buffers of TLS do not stay with it.
        self._transport, self._gone = None, True
        self._door.forget(self)

    def know(self) -> None:
        """The client has shown who it is: it keeps its place, and its address another one."""
        # It may have left while it was asked about: its place is another's.
        if not self.known and not self._gone:
            self._door.forget(self)
            self.known, self.head_since = True, None
            self._door.keep(self)
            self._door.advance()

    def cut(self) -> None:
        """Close the connection at once, and give back what it holds."""
        self._door.forget(self)
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
        if self.accepted is not None:
            self.accepted.close()

    def took(self) -> None:
        """From `resume_writing`: what waits now is another piece, though it may be as long as the one before."""
        self._unsent = 0

    def is_closing(self) -> bool:
        """True once it has its last answer; TLS then waits for the client to close its side."""
        return self._transport is not None and self._transport.is_closing()

    def is_slow(self, now: float) -> bool:
        """True if it takes less than `PIECE` bytes in `SLOW_SECONDS` of what waits for it."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if not unsent or not self._unsent - PIECE < unsent <= self._unsent:
            self._unsent, self._moved = unsent, now
        return now - self._moved >= SLOW_SECONDS


class Door:
    """Lets clients in at the sockets of one port, as its budget allows; `protocol` is made for each of them."""

    def __init__(self, budget: Budget, protocol: Callable[[Client], asyncio.Protocol]) -> None:
        self.tls: ssl.SSLContext | None = None
        """That of the clients who come from now on."""
        self._budget = budget
        self._protocol = protocol
        self._known: set[Client] = set()
        self._strangers: dict[bytes, dict[Client, None]] = {}
        """By address, the oldest first."""
        self._networks: Counter[bytes] = Counter()
        """How many of them each network has."""
        self._open = 0
        self._waiting: dict[Client, None] = {}
        """Those without a place, the first one first."""
        self._waiting_from: Counter[bytes] = Counter()
        self._advancing: asyncio.TimerHandle | None = None
        self._refused, self._told = 0, 0.0
        self._sockets: Sequence[socket.socket] = ()

    async def open(self, sockets: Sequence[socket.socket]) -> None:
        """Let clients in at these sockets, until `close`."""
        loop = asyncio.get_running_loop()
        self._sockets = sockets
        for each in sockets:
            loop.add_reader(each, self._accept, loop, each)
        self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Close the connections, and the sockets."""
        loop = asyncio.get_running_loop()
        self._looking.cancel()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        for client in (*self._clients(), *self._waiting):
            client.cut()
        # The transports close in the next iteration of the loop.
        await asyncio.sleep(0)

    def keep(self, client: Client) -> None:
        """Count it."""
        self._open += 1
        if client.known:
            self._known.add(client)
        else:
            self._strangers.setdefault(client.address, {})[client] = None
            self._networks[client.address[:NETWORK]] += 1

    def forget(self, client: Client) -> None:
        """Count it no longer."""
        among = self._strangers.get(client.address, {})
        if client in among:
            network = client.address[:NETWORK]
            self._networks[network] -= 1
            if not self._networks[network]:
                del self._networks[network]
        if client in self._known or client in among:
            self._open -= 1
            self._known.discard(client)
            among.pop(client, None)
            if not among:
                self._strangers.pop(client.address, None)
            self.advance()
        self._wait_no_longer(client)

    def advance(self) -> None:
        """Let those in who wait and for whom there is a place now, soon and together."""
        if self._waiting and self._advancing is None:
            self._advancing = asyncio.get_running_loop().call_later(ADVANCE_SECONDS, self._advance)

    def _advance(self) -> None:
        self._advancing, without = None, set[bytes]()
        for client in tuple(self._waiting):
            # Those behind it from the same address find no place either.
            if client.address not in without and not self._placed(client):
                without.add(client.address)

    def _placed(self, client: Client) -> bool:
        """True if there was a place for it."""
        loop = asyncio.get_running_loop()
        client.since = loop.time()
        if not self.has_room(client):
            return False
        self._wait_no_longer(client)
        self.keep(client)
        client.opening = loop.create_task(self._let_in(client))
        return True

    def _may_wait(self, client: Client) -> bool:
        most = self._budget.connections
        return len(self._waiting) < most and self._waiting_from[client.address] < most // 2

    def _wait_no_longer(self, client: Client) -> None:
        if client in self._waiting:
            del self._waiting[client]
            self._waiting_from[client.address] -= 1
            if not self._waiting_from[client.address]:
                del self._waiting_from[client.address]

    def _clients(self) -> tuple[Client, ...]:
        return (*self._known, *(each for among in self._strangers.values() for each in among))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = asyncio.get_running_loop().time()
            for client in (*self._clients(), *self._waiting):
                late = client.head_since is not None and now - client.head_since >= self._budget.head_seconds
                if late or client.is_slow(now):
                    client.cut()
            self.advance()
            if self._refused and now - self._told >= REMIND_SECONDS:
                log.warning("connections refused", port=self._budget.port, number=self._refused)
                self._refused, self._told = 0, now

    def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, (host, *_rest) = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:
                loop.remove_reader(listening)
                loop.call_later(AGAIN_SECONDS, self._again, loop, listening)
                return
            client = Client(self, accepted, address_of(host), loop.time())
            accepted.setblocking(False)
            if self._placed(client):
                continue
            if self._may_wait(client):
                self._waiting[client] = None
                self._waiting_from[client.address] += 1
            else:
                self._refused += 1
                accepted.close()

    async def _let_in(self, client: Client) -> None:
        accepted, client.accepted = client.accepted, None
        assert accepted is not None
        seconds = {} if self.tls is None else {"ssl_handshake_timeout": self._budget.head_seconds}
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._protocol(client), accepted, ssl=self.tls, **seconds)
        except (OSError, TimeoutError):
            # No TLS, another version of it, or nothing in time.
            self.forget(client)

    def _again(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            loop.add_reader(listening, self._accept, loop, listening)

    def has_room(self, newcomer: Client) -> bool:
        """True if there is a place, or another client has made room."""
        if self._open >= self._budget.connections and (closing := next(filter(Client.is_closing, self._known), None)):
            closing.cut()
        mine, network = newcomer.address, newcomer.address[:NETWORK]
        if self._number(mine)[1] >= self._budget.of_one:
            among = [mine]
        elif self._networks[network] >= self._budget.of_network:
            among = [address for address in self._strangers if address.startswith(network)]
        elif self._open >= self._budget.connections or sum(self._networks.values()) >= self._budget.strangers:
            among = [*self._strangers]
        else:
            return True
        crowd = max(among, key=self._number, default=mine)
        oldest = next(iter(self._strangers.get(crowd, ())), None)
        fewer = self._number(mine) < self._number(crowd)
        if oldest is None or (not fewer and newcomer.since - oldest.since < self._budget.patience):
            return False
        self._refused += 1
        oldest.cut()
        return True

    def _number(self, address: bytes) -> tuple[int, int]:
        """The strangers of its network, and its own."""
        return self._networks[address[:NETWORK]], len(self._strangers.get(address, ()))


NETWORK = 8
"""The bytes of an IPv6 address that are its network's; an IPv4 address has fewer, and is a network of its own."""


def address_of(host: str) -> bytes:
    if ":" in host:
        return socket.inet_pton(socket.AF_INET6, host.split("%", maxsplit=1)[0])
    return socket.inet_pton(socket.AF_INET, host)


def sockets_at(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at this address, or at every one if it is empty; port 0 is any free one.

    Raises `OSError` if the port is taken.
    """
    found: list[socket.socket] = []
    flags = socket.AI_PASSIVE
    for family, *_, address in socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags):
        number = found[0].getsockname()[1] if found else port
        try:
            listening = socket.create_server((str(address[0]), number), family=family, backlog=BACKLOG)
        except OSError as error:
            if found and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            for each in found:
                each.close()
            raise
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, PIECE)
        listening.setblocking(False)
        found.append(listening)
    return found
