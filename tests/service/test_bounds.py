"""The bounds of a port: what a client without a credential gets, over real sockets on the loopback."""

import asyncio
import gc
import gzip
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import uvloop
from aiohttp import web
from structlog.testing import capture_logs

from services.history.server import HTTPS as HISTORY
from shared.ports import free_port
from shared.process import bounds, serving
from shared.process.bounds import RECEIVED, Budget, Client, Door, address_of, sockets_at
from shared.process.http import STRANGERS_BYTES, Asked, BoundedServer, Connection, Handler, know, send
from shared.process.serving import HEALTH, Certificate, Report, listening, probes
from shared.process.settings import HttpsPort
from tests.security.authority import Authority

pytestmark = pytest.mark.real_time

ANOTHER = "127.0.0.9"
"""An address that has no other connection, such as the kubelet's."""


@asynccontextmanager
async def a_port(ready: bool = True) -> AsyncIterator[int]:
    port = free_port()
    async with probes(lambda: [Report(service="scaler", ready=ready)], lambda: (), "127.0.0.1", port):
        yield port


async def heard(port: int, request: bytes, address: str = ANOTHER) -> bytes:
    """All that is answered; empty if the connection is closed without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        async with asyncio.timeout(20):
            writer.write(request)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *headers, "", "")).encode()


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(get("/readyz"), b"HTTP/1.1 200 OK", id="a probe"),
        pytest.param(get("/else"), b"HTTP/1.1 404 Not Found", id="another path"),
        pytest.param(b"POST" + get("/readyz")[3:], b"HTTP/1.1 405 Method Not Allowed", id="another method"),
        pytest.param(get("/readyz", "Content-Length: 2") + b"{}", b"HTTP/1.1 400 Bad Request", id="a body"),
        pytest.param(get("/readyz", "Transfer-Encoding: chunked"), b"HTTP/1.1 400 Bad Request", id="chunks"),
        pytest.param(
            get("/healthz", "Content-Encoding: gzip", "Content-Length: 60") + gzip.compress(b"\0" * 9_999),
            b"HTTP/1.1 415 Unsupported Media Type",
            id="a compressed body",
        ),
        pytest.param(get("/readyz", "X: " + "x" * HEALTH.head_bytes), b"HTTP/1.1 431", id="a long head"),
    ],
)
async def test_what_a_request_is_answered(request_: bytes, answer: bytes):
    async with a_port() as port:
        assert (await heard(port, request_)).startswith(answer)


async def test_of_pipelined_requests_one_is_answered():
    async with a_port() as port:
        assert (await heard(port, 100 * get("/readyz"))).count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("address", [pytest.param(ANOTHER, id="another"), pytest.param("127.0.0.5", id="the same")])
async def test_a_probe_gets_in_however_many_connections_are_held_open(crowd: list[socket.socket], address: str):
    async with a_port() as port:
        for number in range(300):
            each = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.5", 0))
            each.sendall(b"GET /readyz HTTP/1.1\r\nX-%d: " % number)
            crowd.append(each)
        began = time.monotonic()
        assert (await heard(port, get("/readyz"), address)).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began < 1
        await asyncio.sleep(0.2)
        still = [each for each in crowd if is_open(each)]
        assert len(still) <= HEALTH.of_one


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def test_a_head_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(serving, "HEALTH", msgspec.structs.replace(HEALTH, head_seconds=0.3))
    async with a_port() as port:
        assert await heard(port, b"GET /readyz HTTP/1.1\r\n") == b""


async def test_a_working_loop_that_stands_still_is_told_by_the_probes_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "STUCK_SECONDS", 0.3)
    async with a_port() as port:
        asking = socket.create_connection(("127.0.0.1", port))
        time.sleep(1.0)  # noqa: ASYNC251  the loop stands still
        asking.sendall(get("/healthz"))
        asking.settimeout(5)
        answer = b""
        while piece := asking.recv(4096):
            answer += piece
        asking.close()
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"the event loop has stalled" in answer


async def test_a_snapshot_that_fails_is_logged_and_no_old_one_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(serving, "TELL_SECONDS", serving.SOON_SECONDS)
    port, broken = free_port(), False

    def reports() -> list[Report]:
        if broken:
            raise RuntimeError("dictionary changed size during iteration")
        return [Report(service="scaler", ready=True)]

    async with probes(reports, lambda: (), "127.0.0.1", port):
        assert (await heard(port, get("/readyz"))).startswith(b"HTTP/1.1 200")
        broken = True
        with capture_logs() as lines:
            await asyncio.sleep(1.5)
        assert [line["event"] for line in lines] == ["health and metrics not known"]
        for path in ("/readyz", "/metrics"):
            answer = await heard(port, get(path))
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"could not be told for 1 s" in answer
        assert (await heard(port, get("/healthz"))).startswith(b"HTTP/1.1 200"), "a restart would not help"
        broken = False
        await asyncio.sleep(0.6)
        assert (await heard(port, get("/readyz"))).startswith(b"HTTP/1.1 200")


async def test_a_process_that_was_paused_in_a_snapshot_soon_makes_the_next():
    port, pauses = free_port(), iter([0.0, 0.5])

    def reports() -> list[Report]:
        pause = next(pauses, None)
        time.sleep(pause or 0.0)
        return [Report(service="scaler", ready=pause is None)]

    async with probes(reports, lambda: (), "127.0.0.1", port):
        await asyncio.sleep(1.5)
        assert (await heard(port, get("/readyz"))).startswith(b"HTTP/1.1 200")


LARGE = Budget(
    port="large",
    reached_by="a test",
    connections=8,
    strangers=8,
    of_one=8,
    of_network=8,
    head_seconds=60.0,
    head_bytes=4 * STRANGERS_BYTES,
)
KNOWN = get("/", "Authorization: it is me")
LINES = [f"X-{number}: {'x' * 1_000}" for number in range(2 * STRANGERS_BYTES // 1_000)]
"""A head of many short lines, longer than that of a client that is not known may be."""


@asynccontextmanager
async def an_aiohttp_port(answers: asyncio.Event, budget: Budget = LARGE) -> AsyncIterator[int]:
    """A port of aiohttp without TLS, which answers once it may, and knows a client by its header."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if "Authorization" in request.headers:
            know(request)
        await answers.wait()
        return web.Response(text="heard")

    server = BoundedServer(handle, budget)
    door, sockets = Door(budget, server.protocol), sockets_at("127.0.0.1", 0)
    await door.open(sockets)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        await server.shutdown(1.0)
        await door.close()


async def test_the_lines_of_a_head_that_does_not_end_are_counted_together():
    async with an_aiohttp_port(asyncio.Event()) as port:
        assert await heard(port, get("/", *LINES)[:-2]) == b""


async def test_a_client_that_is_known_may_send_a_longer_head():
    answers = asyncio.Event()
    answers.set()
    async with an_aiohttp_port(answers) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(KNOWN)
        await reader.readuntil(b"heard")
        head = get("/", *LINES, "Connection: close")
        writer.write(head[:-2])
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(head[-2:])
        assert (await reader.read()).endswith(b"heard")
        writer.close()


async def test_the_next_head_of_a_known_client_has_to_end_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.1)
    answers = asyncio.Event()
    answers.set()
    async with an_aiohttp_port(answers, msgspec.structs.replace(LARGE, head_seconds=0.5)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(KNOWN)
        await reader.readuntil(b"heard")
        await asyncio.sleep(0.8)
        writer.write(KNOWN)
        await reader.readuntil(b"heard")
        writer.write(KNOWN[:-2])
        with suppress(ConnectionError):
            async with asyncio.timeout(5):
                assert await reader.read() == b""
        writer.close()


async def test_an_answer_to_a_client_that_is_not_known_ends_its_connection():
    answers = asyncio.Event()
    answers.set()
    async with an_aiohttp_port(answers) as port:
        assert (await heard(port, get("/"))).endswith(b"heard")


@asynccontextmanager
async def a_tls_port(
    folder: Path, budget: Budget, handle: Handler, client: str
) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """A port that trusts the front proxy's certificate, and what shows this client's."""
    authority = Authority(folder)
    server, shown = authority.issue("server"), authority.issue(client)

    class Asking(Certificate):
        def context(self) -> ssl.SSLContext:
            context = super().context()
            context.load_verify_locations(authority.path)
            context.verify_mode = ssl.CERT_OPTIONAL
            return context

    context = ssl.create_default_context(cafile=str(authority.path))
    context.load_cert_chain(str(shown.certificate), str(shown.key))
    certificate = Asking("test", HttpsPort(cert=server.certificate, key=server.key))
    async with listening(handle, budget, certificate, trusts=lambda known: known == "front-proxy") as port:
        yield port, context


@pytest.mark.parametrize("name", ["front-proxy", "kubelet-serving"])
async def test_a_certificate_counts_by_its_name_too(tmp_path: Path, name: str):
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError("its head does not end")

    async with a_tls_port(tmp_path, LARGE, handle, name) as (port, shown):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
        writer.write(get("/", *LINES)[:-2])
        kept = False
        try:
            async with asyncio.timeout(0.5):
                await reader.read()
        except TimeoutError:
            kept = True
        except ConnectionError:
            pass
        writer.transport.abort()
        assert kept == (name == "front-proxy"), "of the others' heads fewer bytes are kept"


async def test_a_hundred_come_at_once_through_one_api_server(tmp_path: Path):
    at_once, all_there = 0, asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal at_once
        at_once += 1
        if at_once == 100:
            all_there.set()
        await all_there.wait()
        return web.Response(text="heard")

    async with a_tls_port(tmp_path, HISTORY, handle, "front-proxy") as (port, shown):

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
            writer.write(get("/", "Connection: close"))
            answer = await reader.read()
            writer.transport.abort()
            return answer

        async with asyncio.timeout(30):
            assert {answer[-5:] for answer in await asyncio.gather(*(ask() for _ in range(100)))} == {b"heard"}


@pytest.mark.parametrize(
    ("there", "comes", "leaves"),
    [
        pytest.param({"fd00::1": 16}, "fd00::2", "", id="another address of the network has its own places"),
        pytest.param({"fd00::1": 16}, "fd00::1", "fd00::1", id="the same address makes room for itself"),
        pytest.param({"fd00::1": 16, "fd00::2": 16, "fd00::3": 15, "fd00::4": 1}, "fd00::5", "fd00::1", id="a network"),
        pytest.param({f"fd00::{n:x}": 1 for n in range(1, 49)}, "fd00::ff", "fd00::1", id="a network of addresses"),
        pytest.param(
            {"10.0.0.1": 2, **{f"fd00::{n:x}": 1 for n in range(1, 48)}, "10.0.0.2": 15},
            "10.0.0.3",
            "fd00::1",
            id="all places: the network with the most makes room",
        ),
    ],
)
async def test_who_makes_room(there: dict[str, int], comes: str, leaves: str):
    door = Door(msgspec.structs.replace(HEALTH, connections=2 * HEALTH.strangers), lambda _: asyncio.Protocol())
    cut: list[str] = []

    class Stranger(Client):
        host = ""

        def cut(self) -> None:
            door.forget(self)
            cut.append(self.host)

    def stranger(host: str) -> Stranger:
        found = Stranger(door, socket.socket(), address_of(host), 0.0)
        found.accepted.close()
        found.host = host
        return found

    for host, number in there.items():
        for _ in range(number):
            door.keep(stranger(host))
    newcomer = stranger(comes)
    newcomer.since = 100.0
    assert door.has_room(newcomer)
    assert cut == ([leaves] if leaves else [])


@pytest.mark.parametrize(
    ("most", "known"),
    [pytest.param({"of_one": 2}, False, id="of its address"), pytest.param({"connections": 2}, True, id="in all")],
)
async def test_who_finds_no_place_waits_for_one(most: dict[str, int], known: bool):
    answers = asyncio.Event()
    async with an_aiohttp_port(answers, msgspec.structs.replace(LARGE, patience=60.0, **most)) as port:
        inside = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in inside:
            writer.write(KNOWN if known else KNOWN[:-2])
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(heard(port, get("/"), "127.0.0.1"))
        await asyncio.sleep(0.1)
        assert not waiting.done(), waiting.result()
        answers.set()
        inside[0][1].transport.abort()
        assert (await waiting).endswith(b"heard")
        inside[1][1].transport.abort()


async def test_who_waits_for_a_place_gets_the_one_of_a_client_that_became_known():
    answers = asyncio.Event()
    answers.set()
    async with an_aiohttp_port(answers, msgspec.structs.replace(LARGE, patience=60.0, of_one=4)) as port:
        ends = KNOWN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        found = await asyncio.gather(*(heard(port, ends) for _ in range(8)))
        assert [answer[-5:] for answer in found] == [b"heard"] * 8


async def test_few_wait_for_a_place_and_not_for_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.1)
    budget = msgspec.structs.replace(LARGE, patience=60.0, of_one=2, connections=4, head_seconds=1.0)
    async with an_aiohttp_port(asyncio.Event(), budget) as port:
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        await asyncio.sleep(0.5)
        assert [reader.at_eof() for reader, _ in crowd] == [False] * 4 + [True] * 4
        await asyncio.sleep(1.0)
        assert [reader.at_eof() for reader, _ in crowd] == [True] * 8
        for _, writer in crowd:
            writer.transport.abort()


def test_little_of_a_connection_waits_in_the_kernel():
    [listening] = sockets_at("127.0.0.1", 0)
    assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * RECEIVED, "TLS reads all of it at once"
    listening.close()


async def test_a_client_that_sends_requests_ahead_is_cut_off():
    # Of other tests, until the garbage collector comes.
    others = [each for each in gc.get_objects() if isinstance(each, Connection)]
    async with an_aiohttp_port(asyncio.Event()) as port:
        assert await heard(port, get("/") * 400) == b""
        # The request under way goes on, without those behind it.
        [connection] = (each for each in gc.get_objects() if isinstance(each, Connection) and each not in others)
        assert len(connection._messages) <= 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_steady_slow_reader_gets_all_and_one_that_takes_nothing_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[Coroutine[object, object, None]], None]
):
    monkeypatch.setattr(bounds, "SLOW_SECONDS", 0.5)
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.05)
    size, ended = 2**22, list[float]()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        know(request)
        with suppress(ConnectionError):
            await send(request, response := web.Response(body=bytes(size)))
        ended.append(asyncio.get_running_loop().time())
        return response

    async def read() -> None:
        loop = asyncio.get_running_loop()
        async with a_tls_port(tmp_path, LARGE, handle, "stranger") as (port, shown):
            idle, steady = [await a_small_reader(port, shown) for _ in range(2)]
            began, taken = loop.time(), 0
            while taken < size:
                part = await steady[0].read(2**14)
                assert part, f"cut off after {taken} bytes"
                taken += len(part)
                # Eight times what a slow one takes, and no buffer ever runs empty.
                await asyncio.sleep(len(part) * bounds.SLOW_SECONDS / (8 * bounds.PIECE))
            assert loop.time() - began > 6 * bounds.SLOW_SECONDS
            assert ended[0] - began < 3 * bounds.SLOW_SECONDS
            for _, writer in (idle, steady):
                writer.transport.abort()

    run(read())


async def a_small_reader(port: int, shown: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """One of an answer.  What waits in the kernel is little: the server sees soon how much it takes."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=small, ssl=shown, server_hostname="127.0.0.1", limit=2**14)
    writer.write(get("/"))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_known_client_that_was_answered_makes_room(
    tmp_path: Path, run: Callable[[Coroutine[object, object, None]], None]
):
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        know(request)
        response = web.Response(text="heard")
        response.force_close()
        return response

    async def ask() -> None:
        async with a_tls_port(tmp_path, LARGE, handle, "stranger") as (port, shown), asyncio.timeout(5):
            came = list[asyncio.StreamWriter]()
            while len(came) < LARGE.connections + 2:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
                writer.transport.pause_reading()
                writer.write(get("/"))
                came.append(writer)
                await asyncio.sleep(0.1)
            for writer in came:
                writer.transport.abort()

    run(ask())


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS handshake."""


@pytest.mark.parametrize("sent", [b"", HELLO])
async def test_half_a_handshake_is_cut_off_and_gives_back_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
):
    monkeypatch.setattr(bounds, "LOOK_SECONDS", 0.1)
    budget = msgspec.structs.replace(LARGE, of_one=2, patience=60.0, head_seconds=2.0)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="heard")

    async with a_tls_port(tmp_path, budget, handle, "stranger") as (port, shown), asyncio.timeout(20):
        halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(budget.of_one)]
        for _, writer in halves:
            writer.write(sent)
        for reader, _ in halves:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
        writer.write(get("/"))
        assert (await reader.readuntil(b"heard")).startswith(b"HTTP/1.1 200")
        for _, each in ((reader, writer), *halves):
            each.transport.abort()


@pytest.mark.parametrize("opened", [a_port, lambda: an_aiohttp_port(asyncio.Event())], ids=["probes", "aiohttp"])
async def test_what_a_crowd_held_is_given_back_when_it_leaves(
    opened: Callable[[], AbstractAsyncContextManager[int]], crowd: list[socket.socket]
):
    def held() -> int:
        return sum(isinstance(each, Client | Asked | Connection) for each in gc.get_objects())

    async with opened() as port:
        gc.collect()
        before = held()
        gc.disable()
        try:
            for number in range(100):
                each = socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{5 + number % 20}", 0))
                each.sendall(get("/", "X: " + "x" * (HEALTH.head_bytes - 99))[:-2])
                crowd.append(each)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.2)
            assert held() >= before + 2 * LARGE.connections
            for each in crowd:
                each.close()
            async with asyncio.timeout(5):
                # The loop that looks at clients may have one.
                while held() > before + 1:
                    await asyncio.sleep(0.1)
        finally:
            gc.enable()


async def test_a_client_that_left_while_it_was_asked_about_keeps_no_place():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        know(request)
        return web.Response(text="hello")

    budget = msgspec.structs.replace(LARGE, connections=2, strangers=2)
    server = BoundedServer(handle, budget)
    door = Door(budget, server.protocol)
    [listening] = sockets_at("127.0.0.1", 0)
    port = listening.getsockname()[1]
    await door.open([listening])
    for _ in range(budget.connections):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/"))
        await asyncio.sleep(0.05)
        writer.transport.abort()
    await asyncio.sleep(0.2)
    assert (await heard(port, get("/", "Connection: close"))).endswith(b"hello")
    await door.close()


PACKED = get("/", "Content-Encoding: gzip", f"Content-Length: {2**16}") + bytes(2**16)


@pytest.mark.parametrize("request_", [PACKED, get("/"), get("/") * 400], ids=["refused", "raised", "cut off"])
def test_a_connection_that_ended_leaves_no_buffers_to_the_garbage_collector(tmp_path: Path, request_: bytes):
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        raise web.HTTPUnauthorized from ValueError("whose frames hold this request")

    async def left() -> int:
        async with a_tls_port(tmp_path, LARGE, handle, "stranger") as (port, shown):
            for _ in range(6):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
                writer.write(request_)
                await asyncio.sleep(0.1)
                writer.transport.abort()
            await asyncio.sleep(0.2)
            # Each has 256 KiB.  The last client of this process may still have its own.
            return sum(type(each).__name__ == "SSLProtocol" for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        # The loop of the services, as its buffers of TLS are the largest part of a connection.
        assert uvloop.run(left()) < 3
    finally:
        gc.enable()
