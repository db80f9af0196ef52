"""Attacks on memory, connections, queues and the log, as data: one line an attack, from four places.

    python -m tests.security.resources.attacks FAMILY NUMBER TARGET

runs one for ever: an attacker is a process of its own, so that those who measure wait for no loop of its.
"""

import asyncio
import gzip
import json
import resource
import ssl
import sys
import zlib
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import aiohttp
import msgspec
import uvloop

from shared.frameworks.pods import path_of
from shared.frameworks.training_job import TRAININGJOBS
from shared.history_api import VERSION as HISTORY_VERSION
from shared.job.naming import JOB_UID, JobKey, Uid
from shared.ports import HOST
from tests.bench.real.manifests import training_job

THEIRS, OURS = "attacker", "tenant"
"""The namespace of the attacker, and that of the other tenant."""
JOB = "attacked"
"""The attacker's own job."""
PAUSE_SECONDS = 0.2
"""An attacker that was turned away comes again so soon."""
CHUNK = 2**16
STARTED = "attacking"
"""An attacker prints this when it begins."""

Document = dict[str, Any]


class Target(msgspec.Struct, frozen=True):
    """Where an attacker finds everything, and what it may show there."""

    ports: dict[str, int]
    """Of each service its health port, of each of `APIS` the HTTPS port, `nats` for subscribers, `api` of the
    API server."""
    tokens: dict[str, str]
    """At the API server, by user."""
    subscriber: str
    password: str
    reset: str
    """The request that makes the log send the subscriber's copy everything again."""


class Attack(Protocol):
    """One way to attack."""

    @property
    def name(self) -> str: ...

    async def run(self, target: Target) -> None:
        """For ever."""


class Family(NamedTuple):
    """Attacks of one kind; the first is the one that stopped an installation, and that CI repeats."""

    attacker: str
    asset: str
    attacks: tuple[Attack, ...]


async def for_ever(workers: int, once: Callable[[int], Awaitable[None]]) -> None:
    """Each worker does it again and again, refused or not."""

    async def work(number: int) -> None:
        while True:
            try:
                await once(number)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, RuntimeError, aiohttp.ClientError):
                # uvloop says by a RuntimeError that the server has closed the connection.
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for number in range(workers):
            tasks.create_task(work(number))


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


GET = b"GET /healthz HTTP/1.1\r\nHost: muster\r\n"
WHOLE = GET + b"\r\n"
SCHEDULER = ("scheduler",)
APIS = ("history-api", "audit-api", "progress-api", "page-api")


class Http(NamedTuple):
    """Connections that send `opening`, in which {n} is a number, then so many times `piece`, and stay so long."""

    name: str
    opening: bytes | Callable[[], bytes] = GET
    piece: bytes = b""
    times: int = 0
    pause: float = 0.0
    """Seconds between two pieces."""
    connections: int = 800
    to: Sequence[str] = SCHEDULER
    tls: bool = False
    reads: bool = False
    held: float = 60.0
    addresses: int = 1
    """From how many addresses; the probes come from another one."""

    async def run(self, target: Target) -> None:
        tls = unverified() if self.tls else None
        shown = self.opening if isinstance(self.opening, bytes) else self.opening()
        print(STARTED, flush=True)
        for user, token in target.tokens.items():
            shown = shown.replace(f"${user}".encode(), f"Bearer {token}".encode())

        async def once(number: int) -> None:
            port = target.ports[self.to[number % len(self.to)]]
            source = f"127.0.1.{2 + number % self.addresses}"
            reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, local_addr=(source, 0), limit=CHUNK)
            try:
                writer.write(shown.replace(b"{n}", b"%d" % number))
                for _ in range(self.times):
                    writer.write(self.piece)
                    await writer.drain()
                    await asyncio.sleep(self.pause)
                async with asyncio.timeout(self.held):
                    while self.reads and await reader.read(CHUNK):
                        pass
                    if not self.reads:
                        writer.transport.pause_reading()  # type: ignore[attr-defined]
                        await asyncio.sleep(self.held)
            finally:
                writer.transport.abort()

        await for_ever(self.connections, once)


class Nats(NamedTuple):
    """Clients of NATS that send `first` once and `again` for ever; {n} is a number, {reset} and {me} are told."""

    name: str
    first: tuple[str, ...] = ()
    again: tuple[tuple[str, Document | str], ...] = ()
    """Subjects and bodies."""
    connections: int = 2
    signed: bool = True
    reads: bool = True
    pause: float = 0.0
    """Seconds between two rounds of `again`."""
    rounds: int = sys.maxsize
    """After so many the client connects anew."""
    cycle: int = 100
    """The numbers {n} begin anew after so many."""

    async def run(self, target: Target) -> None:
        login = {"user": target.subscriber, "pass": target.password, "verbose": False, "headers": True}
        signed = f"CONNECT {json.dumps(login)}\r\nPING\r\n" if self.signed else ""

        async def once(number: int) -> None:
            reader, writer = await asyncio.open_connection(HOST, target.ports["nats"], limit=CHUNK)
            reading = asyncio.create_task(_drained(reader)) if self.reads else None
            try:
                writer.write(signed.encode())
                for line in self.first:
                    writer.write(line.replace("{me}", str(number)).encode() + b"\r\n")
                if not self.reads:
                    await reader.readline()
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                for turn in range(self.rounds):
                    for subject, body in self.again:
                        writer.write(_published(subject, body, number * self.cycle + turn % self.cycle, number, target))
                    await writer.drain()
                    await asyncio.sleep(self.pause)
            finally:
                writer.transport.abort()
                if reading is not None:
                    reading.cancel()

        await for_ever(self.connections, once)


async def _drained(reader: asyncio.StreamReader) -> None:
    while await reader.read(CHUNK):
        pass


def _published(subject: str, body: Document | str, number: int, me: int, target: Target) -> bytes:
    given = body if isinstance(body, str) else json.dumps(body)
    words = {"{n}": str(number), "{me}": str(me), "{reset}": target.reset}
    for word, value in words.items():
        subject, given = subject.replace(word, value), given.replace(word, value)
    return f"PUB {subject} _INBOX.{me}.x {len(given)}\r\n{given}\r\n".encode()


def _consumer(deliver: str, **more: Any) -> Document:
    config = {"name": "r{n}", "ack_policy": "none", "deliver_policy": "all", "deliver_subject": deliver, **more}
    return {"stream_name": "JOBS", "config": config}


def _pushed(name: str, deliver: str, *, connections: int = 1, pause: float = 0.02, **more: Any) -> Nats:
    """A push consumer that sends there, made anew over and over."""
    made = ("$JS.API.CONSUMER.CREATE.JOBS.r{n}", _consumer(deliver, **more))
    return Nats(name, again=(("$JS.API.CONSUMER.DELETE.JOBS.r{n}", ""), made), connections=connections, pause=pause)


class Writes(NamedTuple):
    """Objects that a tenant makes over and over; older ones are deleted, so that the API server lasts."""

    name: str
    resource: str
    make: Callable[[int], Document]
    kept: int = 200
    verb: str = "POST"
    rate: float = 40.0
    """In a second: the API server is shared, and its speed is no matter of ours."""

    async def run(self, target: Target) -> None:
        path = _collection(self.resource)
        media = "application/merge-patch+json" if self.verb == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {target.tokens['admin']}", "Content-Type": media}
        numbers = count()

        async with aiohttp.ClientSession(
            f"https://{HOST}:{target.ports['api']}", connector=aiohttp.TCPConnector(ssl=unverified()), headers=headers
        ) as session:

            async def asked(verb: str, at: str, document: Document | None = None) -> None:
                async with session.request(verb, at, data=json.dumps(document) if document else None) as answer:
                    await answer.read()

            async def once(_: int) -> None:
                await asyncio.sleep(WRITERS / self.rate)
                number = next(numbers)
                await asked(self.verb, self._path(path, number), self.make(number))
                if self.verb == "POST" and number >= self.kept:
                    await asked("DELETE", f"{path}/{self.make(number - self.kept)['metadata']['name']}")

            await for_ever(WRITERS, once)

    def _path(self, path: str, number: int) -> str:
        return path if self.verb == "POST" else f"{path}/{self.make(number)['metadata']['name']}"


WRITERS = 4


def _collection(name: str) -> str:
    return f"/api/v1/namespaces/{THEIRS}/{name}" if name == "configmaps" else f"{TRAININGJOBS_PATH}/{name}"


TRAININGJOBS_PATH = f"/apis/{TRAININGJOBS.api_version}/namespaces/{THEIRS}"


def _forged(number: int, *, kind: str, name: str) -> Document:
    """A ConfigMap that claims to be a job's."""
    uid = f"uid-{number}"
    owner = {"apiVersion": TRAININGJOBS.api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
    meta = {"name": f"forged-{number}", "labels": {JOB_UID: uid}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def _request(number: int, kind: str, job: str, **spec: Any) -> Document:
    meta = {"name": f"{kind.lower()}-{number}"}
    return {
        "apiVersion": TRAININGJOBS.api_version,
        "kind": kind,
        "metadata": meta,
        "spec": {"selector": {"name": job}, **spec},
    }


def _scale_in(job: str, names: int, letters: int, *, different: bool = False) -> Callable[[int], Document]:
    def make(number: int) -> Document:
        begin = f"{job}-{number if different else 'x'}-worker-{'x' * letters}"
        pods = [f"{begin}{index}" for index in range(names)]
        return _request(number, "ScaleIn", job, toDelete={"podNames": pods})

    return make


def _edited(**more: Any) -> Callable[[int], Document]:
    """The attacker's job, changed."""

    def make(number: int) -> Document:
        changed = json.loads(json.dumps(more).replace("{n}", str(number)))
        return {"metadata": {"name": JOB, **changed.pop("metadata", {})}, **changed}

    return make


def _body(coding: str, pack: Callable[[bytes], bytes], size: int, verb: str = "GET") -> Callable[[], bytes]:
    """A request with a body of so many bytes, packed; made by the process that sends it."""

    def made() -> bytes:
        body = pack(bytes(size))
        coded = f"Content-Encoding: {coding}\r\n" if coding else ""
        return f"{verb} /healthz HTTP/1.1\r\nHost: a\r\n{coded}Content-Length: {len(body)}\r\n\r\n".encode() + body

    return made


def _twice(body: bytes) -> bytes:
    return gzip.compress(gzip.compress(body))


def _as_it_is(body: bytes) -> bytes:
    return body


def _question(user: str, path: str) -> bytes:
    """A question of the history API as kubectl sends it, on a connection of its own."""
    return f"GET {path} HTTP/1.1\r\nHost: api\r\nAuthorization: ${user}\r\nConnection: close\r\n\r\n".encode()


def _viewed(path: str, namespace: str = "-") -> bytes:
    """A question for the page."""
    return _question("viewer-a", f"/{namespace}/{path}")


SEEN = f"api/jobs/{THEIRS}/trainingjob/{JOB}"
BASIC = b"Basic " + b64encode(b"a:" + b"x" * 30_000)
HISTORIES = f"/apis/history.muster.dev/{HISTORY_VERSION}/namespaces/{THEIRS}/jobhistories"
HISTORY = f"{HISTORIES}/trainingjob.{JOB}"
PODS, SUBSCRIBERS = "a pod without credentials", "a subscriber of one namespace"
TENANTS, VIEWERS = "a tenant with jobs and requests", "a viewer of the history API"
PAGES = "a viewer of the page"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a TLS handshake."""
LARGE = b"\x16\x03\x01\x40\x00"
"""The head of the longest record."""
UPLOAD = b"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 16000000\r\n\r\n"
REPORT = UPLOAD.replace(b"/", path_of(JobKey(THEIRS, JOB, Uid("x"))).encode(), 1).replace(b"16000000", b"8192")
LINE = b"X-More: " + b"x" * 8_000 + b"\r\n"
BOMB = 260 * 2**20
PACKED = _body("gzip", gzip.compress, BOMB)
BODIES: tuple[Attack, ...] = (
    Http("gzip bodies", PACKED, connections=60, held=2),
    Http("deflate bodies", _body("deflate", zlib.compress, BOMB), connections=60, held=2),
    Http("gzip bodies of a POST", _body("gzip", gzip.compress, BOMB, "POST"), connections=60, held=2),
    Http("gzip bodies, read", PACKED, connections=60, reads=True, held=5),
    Http("gzip in gzip", _body("gzip, gzip", _twice, BOMB), connections=200, held=2),
    Http("a small gzip body, often", _body("gzip", gzip.compress, 2**20), connections=200, held=0.1),
    Http("bodies that are no gzip", _body("gzip", _as_it_is, 2**18), connections=200, held=1),
    Http("plain bodies", _body("", _as_it_is, 2**21), connections=200, held=2),
    Http("bodies at the APIs", PACKED, connections=60, to=APIS, tls=True, held=2),
    Http("bodies from many addresses", PACKED, connections=60, addresses=50, held=2),
)


def families() -> dict[str, Family]:
    return {
        "heads": Family(
            PODS,
            "memory",
            (
                Http("unfinished heads", piece=LINE, times=100),
                Http("one line without an end", piece=b"x" * 8_000, times=100),
                Http("heads of all services", piece=LINE, times=100, to=("watcher", "scaler", "status", "history")),
                Http("heads from 50 addresses", piece=LINE, times=100, addresses=50),
                Http("short headers", piece=b"a: b\r\n" * 1_000, times=20),
                Http("a path of 1 MB", b"GET /", b"x" * 8_000, 125),
                Http("a method of 1 MB", b"", b"X" * 8_000, 125),
                Http("a byte a second", piece=b"x", times=60, pause=1.0),
                Http("8 KB a second", piece=LINE, times=60, pause=1.0),
                Http(
                    "a chunked body without an end", GET + b"Transfer-Encoding: chunked\r\n\r\n", b"1f40\r\n" + LINE, 99
                ),
                Http("heads, closed at once", piece=LINE, times=10, held=0.01),
            ),
        ),
        "bodies": Family(PODS, "the loop of a service", BODIES),
        "tls": Family(
            PODS,
            "memory, before any credential is read",
            (
                Http("unfinished heads in TLS", piece=LINE, times=100, to=APIS, tls=True, connections=700),
                Http("finished handshakes", b"", to=APIS, tls=True, connections=700),
                Http("half a handshake", HELLO, to=APIS, connections=700),
                Http("no byte of one", b"", to=APIS, connections=3_000),
                Http("handshakes, closed at once", b"", to=APIS, tls=True, held=0.01),
                Http("a byte of one each second", HELLO, b"\x00", 60, 1.0, to=APIS),
                Http("HTTP where TLS is", WHOLE, to=APIS, held=0.5),
                Http("heads without a token", WHOLE, to=APIS, tls=True, reads=True),
                Http("handshakes from 50 addresses", b"", to=APIS, tls=True, connections=700, addresses=50),
                Http("reports with no job's token", REPORT, b"x" * 2**12, 2, to=APIS[2:3], tls=True, addresses=50),
                Http("a large record", LARGE, b"\x01" * 16_384, to=APIS, times=50),
                Http("large records from 50 addresses", LARGE, b"\x01" * 16_384, 50, to=APIS, addresses=50),
                Http("heads in TLS from 50 addresses", piece=LINE, times=100, to=APIS, tls=True, addresses=50),
                Http("a byte of a body each second", UPLOAD, b"x", 60, 1.0, to=APIS, tls=True),
                Http("whole bodies without a token", UPLOAD, b"x" * 2**16, 250, to=APIS[1:], tls=True),
                Http("pipelines in TLS", WHOLE * 200, WHOLE * 200, 50, to=APIS, tls=True, connections=100),
                Http("answers that the client does not read, in TLS", WHOLE * 2, to=APIS, tls=True, connections=700),
                Http("handshakes, 100 a second", WHOLE, to=APIS, tls=True, connections=20, held=0.2),
                Http("a record of each byte of a head", GET, b"a", 2_000, 0.005, to=APIS, tls=True, connections=100),
                Http("those who wait for a place", b"", to=("history-api",), connections=3_000, addresses=30),
                Http("those who wait and leave", b"", to=("history-api",), addresses=30, held=0.05),
            ),
        ),
        "connections": Family(
            PODS,
            "connections and files",
            (
                Http("10,000 connections", b"", connections=10_000, addresses=1),
                Http("10,000 from 200 addresses", b"", connections=10_000, addresses=200),
                Http("10,000 with a request", WHOLE, connections=10_000),
                Http("1,000 a second", WHOLE, connections=200, held=0.2, reads=True),
                Http("unread pipelines", WHOLE * 200, WHOLE * 200, 50, connections=100),
                Http("pipelines of metrics", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 200, connections=100),
                Http("a reader that takes nothing", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", connections=500),
                Http("pipelines, read", WHOLE * 1_000, connections=20, reads=True, held=1.0),
                Nats("NATS without a word", signed=False, connections=3_000, reads=False, rounds=1, pause=60.0),
                Nats("NATS without a password", ("PING",) * 100, signed=False, connections=200, rounds=1, pause=0.1),
            ),
        ),
        "feeds": Family(
            SUBSCRIBERS,
            "the log's server",
            (
                _pushed("consumers that send into the reset of the feed", "{reset}"),
                _pushed("from 20 connections", "{reset}", connections=20),
                _pushed("with headers alone", "{reset}", headers_only=True),
                _pushed("from the last event", "{reset}", deliver_policy="last"),
                _pushed("into the API of the copy", "$JS.API.STREAM.INFO.JOBS", connections=4),
                _pushed("into the making of consumers", "$JS.API.CONSUMER.CREATE.JOBS", connections=4),
                _pushed("to an inbox", "_INBOX.0.x", connections=20, pause=0.0),
                _pushed("durable ones", "{reset}", durable_name="r{n}"),
                _pushed("with flow control", "{reset}", flow_control=True, idle_heartbeat=100_000_000),
                _pushed("for each subject", "{reset}", deliver_policy="last_per_subject", filter_subject="jobs.>"),
            ),
        ),
        "questions": Family(
            SUBSCRIBERS,
            "the queues of the log's server",
            tuple(
                Nats(name, again=((subject, body),), connections=connections)
                for name, subject, body, connections in (
                    ("STREAM.NAMES without end", "$JS.API.STREAM.NAMES", "", 2),
                    ("STREAM.NAMES from 50", "$JS.API.STREAM.NAMES", {"subject": "jobs.>"}, 50),
                    ("STREAM.LIST", "$JS.API.STREAM.LIST", "", 10),
                    ("STREAM.INFO with subjects", "$JS.API.STREAM.INFO.JOBS", {"subjects_filter": ">"}, 10),
                    ("CONSUMER.LIST", "$JS.API.CONSUMER.LIST.JOBS", "", 10),
                    ("CONSUMER.NAMES", "$JS.API.CONSUMER.NAMES.JOBS", "", 10),
                    ("INFO", "$JS.API.INFO", "", 10),
                    ("many events at once", "$JS.API.DIRECT.GET.JOBS", {"seq": 1, "batch": 1000}, 10),
                    ("one event", "$JS.API.STREAM.MSG.GET.JOBS", {"seq": 1}, 10),
                    ("pulls of a consumer that is not there", "$JS.API.CONSUMER.MSG.NEXT.JOBS.x", {"batch": 9999}, 10),
                    ("refused subjects of 1 MB", "facts.attacker.a.u.watcher.X", "x" * 2**20, 4),
                )
            ),
        ),
        "readers": Family(
            SUBSCRIBERS,
            "the memory of the log's server",
            (
                Nats(
                    "150 that ask for everything and read nothing",
                    ("SUB _INBOX.{me}.> 1",),
                    (("$JS.API.DIRECT.GET.JOBS", {"seq": 1, "batch": 5000}),),
                    connections=150,
                    reads=False,
                    pause=0.2,
                ),
                Nats("reconnecting 100 times a second", connections=100, rounds=1, pause=1.0),
                Nats("reconnecting as fast as one can", connections=50, rounds=1, pause=0.01),
                Nats(
                    "subscriptions without end",
                    tuple(f"SUB _INBOX.x.{number} {number}" for number in range(5_000)),
                    connections=20,
                    pause=60.0,
                    rounds=1,
                ),
                Nats("1,000 idle connections", connections=1_000, pause=60.0, rounds=1),
                Nats(
                    "push consumers nobody reads",
                    ("SUB _INBOX.{me}.> 1",),
                    (("$JS.API.CONSUMER.CREATE.JOBS.r{n}", _consumer("_INBOX.{me}.y")),),
                    connections=50,
                    reads=False,
                    pause=0.2,
                ),
                Nats("PINGs without end", again=(("_INBOX.x", ""),), connections=4),
                Nats("lines of 4 KB", ("X" * 4_000,), connections=50, rounds=1, pause=0.1),
                Nats("a payload that never comes", ("PUB a 1000000",), connections=500, rounds=1, pause=60.0),
                Nats(
                    "readers slower than they ask",
                    ("SUB _INBOX.{me}.> 1",),
                    (("$JS.API.DIRECT.GET.JOBS", {"seq": 1, "batch": 100}),),
                    connections=50,
                    reads=False,
                    pause=1.0,
                ),
            ),
        ),
        "requests": Family(
            TENANTS,
            "memory and the log",
            (
                Writes("ScaleIns of 1,000 names, of one's own job", "scaleins", _scale_in(JOB, 1_000, 40)),
                Writes("all of them different", "scaleins", _scale_in(JOB, 1_000, 40, different=True)),
                Writes("of no job", "scaleins", _scale_in("nothing", 1_000, 40)),
                Writes("of 10,000 short names", "scaleins", _scale_in(JOB, 10_000, 1), rate=10),
                Writes("names of 60 KB", "scaleins", _scale_in(JOB, 10, 60_000), rate=10),
                Writes("ScaleOuts", "scaleouts", lambda n: _request(n, "ScaleOut", JOB, toAdd={"count": 1})),
                Writes(
                    "ScaleOuts of a thousand million",
                    "scaleouts",
                    lambda n: _request(n, "ScaleOut", JOB, toAdd={"count": 10**9}),
                ),
                Writes(
                    "environments of 100 KB",
                    "scaleouts",
                    lambda n: _request(n, "ScaleOut", JOB, toAdd={"count": 1}, script={"command": "x" * 100_000}),
                    rate=10,
                ),
                Writes(
                    "suspended and resumed",
                    "trainingjobs",
                    lambda n: _edited(spec={"suspend": n % 2 == 0})(n),
                    verb="PATCH",
                ),
                Writes(
                    "annotations of 100 KB",
                    "trainingjobs",
                    _edited(metadata={"annotations": {"x": "{n}" + "x" * 100_000}}),
                    verb="PATCH",
                    rate=10,
                ),
            ),
        ),
        "storms": Family(
            TENANTS,
            "the turn of others",
            (
                Writes("jobs", "trainingjobs", lambda n: training_job(f"job-{n}", THEIRS, 1)),
                Writes("jobs of 100 workers", "trainingjobs", lambda n: training_job(f"job-{n}", THEIRS, 100), rate=2),
                Writes("short-lived jobs", "trainingjobs", lambda n: training_job(f"job-{n}", THEIRS, 1), kept=1),
                Writes(
                    "jobs of the largest size",
                    "trainingjobs",
                    lambda n: (
                        training_job(f"job-{n}", THEIRS, 1)
                        | {"metadata": {"name": f"job-{n}", "annotations": {"x": "x" * 200_000}}}
                    ),
                    rate=10,
                ),
                Writes(
                    "restarts",
                    "trainingjobs",
                    _edited(metadata={"annotations": {"muster.dev/restart": "{n}"}}),
                    verb="PATCH",
                ),
                Writes(
                    "forged owners with names of 1 MB",
                    "configmaps",
                    lambda n: _forged(n, kind="Gadget", name="x" * 1_000_000),
                    kept=20,
                    rate=5,
                ),
                Writes(
                    "forged owners, a job each",
                    "configmaps",
                    lambda n: _forged(n, kind="TrainingJob", name=f"job-{n}"),
                    kept=1_000,
                ),
                Writes(
                    "forged owners of one job",
                    "configmaps",
                    lambda n: _forged(n, kind="TrainingJob", name=JOB),
                    kept=1_000,
                ),
                Writes(
                    "annotations",
                    "trainingjobs",
                    _edited(metadata={"annotations": {"x": "{n}"}}),
                    verb="PATCH",
                    rate=100,
                ),
                Writes("labels", "trainingjobs", _edited(metadata={"labels": {"x": "{n}"}}), verb="PATCH", rate=100),
            ),
        ),
        "viewers": Family(
            VIEWERS,
            "the turn of other viewers",
            tuple(
                Http(
                    name,
                    _question(user, path),
                    to=("api",),
                    tls=True,
                    connections=connections,
                    reads=reads,
                    held=held,
                )
                for name, user, path, connections, reads, held in (
                    ("250 questions at once", "viewer-a", f"{HISTORY}/why", 250, True, 30.0),
                    ("250 times all events", "viewer-a", f"{HISTORY}/events", 250, True, 30.0),
                    ("250 lists", "viewer-a", HISTORIES, 250, True, 30.0),
                    ("100 watches", "viewer-a", f"{HISTORIES}?watch=1", 100, True, 60.0),
                    ("100 unread streams", "viewer-a", f"{HISTORY}/events?follow=1", 100, False, 60.0),
                    ("questions that are not waited for", "viewer-a", f"{HISTORY}/events", 250, False, 0.2),
                    ("moments of a long history", "viewer-a", f"{HISTORY}/at/1", 250, True, 30.0),
                    ("questions about nothing", "viewer-a", f"{HISTORIES}/trainingjob.nothing/why", 250, True, 30.0),
                    ("discovery", "viewer-a", f"/apis/history.muster.dev/{HISTORY_VERSION}", 100, True, 30.0),
                    ("questions past the API server", "viewer-a", HISTORY, 250, True, 30.0),
                )
            ),
        ),
        "page": Family(
            PAGES,
            "the memory of the page, and the turn of other viewers",
            tuple(
                Http(name, opening, *pieces, to=("page-api",), tls=True, connections=number, reads=reads, held=held)
                for name, opening, pieces, number, reads, held in (
                    ("unread streams of all jobs", _viewed("api/jobs"), (), 250, False, 60.0),
                    ("streams of all jobs, read", _viewed("api/jobs"), (), 250, True, 60.0),
                    ("a stream for each of many namespaces", _viewed("api/jobs", "team-{n}"), (), 250, True, 60.0),
                    ("unread streams of a job", _viewed(f"{SEEN}/news"), (), 250, False, 60.0),
                    ("streams of jobs that are not there", _viewed(f"{SEEN}-{{n}}/news"), (), 250, True, 60.0),
                    ("tabs that are closed at once", _viewed("api/jobs"), (), 250, True, 0.05),
                    ("unread events", _viewed(f"{SEEN}/events"), (), 250, False, 60.0),
                    ("drawings", _viewed(SEEN), (), 250, True, 30.0),
                    ("moments of a job", _viewed(f"{SEEN}/at/1"), (), 250, True, 30.0),
                    ("tables without scripts", _viewed(""), (), 250, True, 30.0),
                    ("answers that are never closed", _viewed("static/draw.js"), (), 400, False, 60.0),
                    ("unknown tokens", _viewed("").replace(b"$viewer-a", b"Bearer x{n}"), (), 400, True, 5.0),
                    ("passwords of 30 KB", _viewed("").replace(b"$viewer-a", BASIC), (), 250, True, 5.0),
                    ("heads without an end", _viewed("")[:-2], (LINE, 100), 250, False, 60.0),
                    ("headers of two bytes", _viewed("")[:-2], (b"a: b\r\n" * 1_000, 20), 250, False, 60.0),
                    ("pipelines", _viewed("fleet") * 200, (_viewed("fleet") * 200, 50), 100, False, 60.0),
                )
            ),
        ),
    }


def main() -> None:
    family, number, target = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attack = families()[family].attacks[int(number)]
    if not isinstance(attack, Http):
        print(STARTED, flush=True)
    uvloop.run(attack.run(msgspec.json.decode(Path(target).read_bytes(), type=Target)))


if __name__ == "__main__":
    main()
