"""What jobs that are over cost: `python -m tests.bench.archive [JOBS [LIVE [SEALS]]]` prints it.

The log has jobs that live, and the seals of those that were over in the last day: of all without a number.  The archive
has the histories of all that are over: some recorded lives under many keys, in the product's own encoding.
"""

import asyncio
import contextlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import nats
import uvloop

from services.history.answers import Answers
from services.scheduler.shell import Scheduler
from shared.errors import Transient
from shared.eventlog import Entry, Stored, api, wire
from shared.eventlog.account import ADMIN, ARCHIVE, HEADS, HISTORY
from shared.eventlog.account import subject_of as bucket_subject
from shared.eventlog.archive import headers_of
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.parts import Packing, Seal
from shared.eventlog.server import NatsServer
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN
from shared.history_api import Question
from shared.job.chain import checkpoint_of
from shared.job.events.catalog import AnyEvent
from shared.job.fold import History
from shared.job.naming import JobKey, Uid, archived_as, subject_of
from shared.job.steps import Step
from shared.process.main import freeze_after
from shared.process.serving import meanwhile
from shared.runtime.run import Runtime
from shared.telling.reading import line_of
from shared.telling.sealed import Check
from tests.kit.builders import a_running_job
from tests.kit.histories import KEY, stored
from tests.kit.nats import NatsCluster, a_server, connected
from tests.kit.sealed import a_life
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

WINDOW = 1_000
"""Messages that are sent before one is waited for."""
LIVES = 100
NAMESPACES = 10
TIME = "2030-01-01T00:00:00.000Z"
Sent = tuple[str, bytes, dict[str, str]]


def lived(key: JobKey, events: tuple[AnyEvent, ...]) -> tuple[History, list[Stored]]:
    history, log = History(key), list[Stored]()
    for event in events:
        log.append(stored(history, event))
        history.fold(log[-1])
    return history, log


def archived(jobs: int, seals: int, identity: str) -> Iterator[Sent]:
    """The message of each job in the archive, and the seals of the last ones in the log."""
    pool = []
    for number in range(LIVES):
        key = JobKey("team-0", f"job-{number}", Uid(f"uid-{number}"))
        history, log = lived(key, a_life(2 + number % 4))
        packing, check = Packing(), Check(key)
        for event in log:
            packing.add(line_of(event))
            check.fold(event)
        seal = Seal(1, history.sequence, len(log), history.head.hash, "Gone", "JobGone")
        pool.append((packing.bodies(), json.loads(check.row(BUILT_IN)), seal))
    for number in range(jobs):
        [body], row, seal = pool[number % LIVES]
        key = JobKey(f"team-{number % NAMESPACES}", f"job-{number}", Uid(f"0f0e0d0c-0b0a-4909-8807-{number:012d}"))
        phase = "Failed" if number % 1_000 == 7 else row["phase"]
        row |= {"namespace": key.namespace, "name": key.name, "uid": key.uid, "phase": phase}
        seal = msgspec.structs.replace(seal, hash=f"{number:064x}")
        headers = headers_of(seal) | {"Muster-Part": "1/1", "Muster-Row": json.dumps(row)}
        yield archived_as(key), body, headers
        if number < jobs - seals:
            continue
        told = msgspec.json.encode({"type": "JobSealed", **msgspec.to_builtins(seal)})
        yield sent(subject_of(key, "jobs", "status", "JobSealed"), f"seal-{number}", told, "2:aa", identity, 0)


def living(jobs: int, identity: str) -> Iterator[Sent]:
    """The events of jobs that run, each scope's after the one before, and the checkpoint of each job."""
    life, end = a_running_job(workers=4), 0
    for number in range(jobs):
        name = f"live-{number}"
        history = History(JobKey(f"team-{number % NAMESPACES}", name, Uid(f"0a0b0c0d-0e0f-4a0b-8c0d-{number:012d}")))
        scopes: dict[str, int] = {}
        for event in life:
            end += 1
            made = stored(history, event, sequence=BEFORE + end)
            subject = Subject.parse(made.subject)
            # The chain covers all of these.
            made = msgspec.structs.replace(
                made,
                time=TIME,
                event_id=f"{number}-{end}",
                source=wire.source(identity, subject.author),
                body=made.body.replace(KEY.name.encode(), name.encode()),
            )
            history.fold(made)
            expect = scopes.get(subject.scope, 0)
            yield sent(made.subject, made.event_id, made.body, made.basis, identity, expect)
            scopes[subject.scope] = made.sequence
        checkpoint = checkpoint_of(identity, history.head).encode()
        yield bucket_subject(HEADS, history.job.key.uid), checkpoint, {}


BEFORE = 1
"""The genesis."""


def sent(subject: str, event_id: str, body: bytes, basis: str, identity: str, expect: int) -> Sent:
    entry = Entry(subject=subject, event_id=event_id, time=TIME, body=body, basis=basis)
    return subject, body, wire.headers(entry, log=identity, expect=expect)


async def publish(server: NatsServer | NatsCluster, messages: Iterator[Sent]) -> None:
    """Store them; one of each window is waited for, so that the server never has too much to store."""
    client = await nats.connect(server.url.split(","), user=ADMIN, password=server.users[ADMIN])
    try:
        while window := [*islice(messages, WINDOW)]:
            for subject, body, headers in window[:-1]:
                await client.publish(subject, body, headers=headers)
            subject, body, headers = window[-1]
            answer = json.loads((await client.request(subject, body, timeout=60, headers=headers)).data)
            assert "error" not in answer, answer
    finally:
        await client.close()


def resident(pid: int | str, what: str = "VmRSS") -> float:
    """MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def waited() -> float:
    """Seconds for which this process was ready to run and had no core: others use this machine, too."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


CHILDREN = {"start": "scheduler", "lists": HISTORY}
"""What is measured in a process of its own, and its user."""


async def child(server: NatsServer, what: str) -> None:
    words = [sys.executable, "-m", "tests.bench.archive", what, server.url, server.users[CHILDREN[what]]]
    process = await asyncio.create_subprocess_exec(*words)
    assert await process.wait() == 0


async def start(log: JetStreamEventLog) -> None:
    """What a service does until it has decided on each job: the scheduler, in a cluster without objects."""
    began, decided, idle = time.perf_counter(), set[JobKey](), waited()
    scheduler = Scheduler(MemoryCluster(MemoryStore()), BUILT_IN)
    decide = scheduler.decide

    def noted(history: History) -> list[Step]:
        decided.add(history.job.key)
        return decide(history)

    scheduler.decide = noted  # type: ignore[method-assign]
    runtime = Runtime(scheduler, log, heads=await log.bucket(HEADS))
    async with meanwhile(freeze_after(runtime.folded), runtime.run()):
        while not decided:
            await asyncio.sleep(0.001)
        first, jobs = time.perf_counter() - began, len(runtime.histories)
        while len(decided) < jobs:
            await asyncio.sleep(0.001)
    took, held, less = time.perf_counter() - began, len([*runtime.histories.held()]), waited() - idle
    print(f"start: decides after {first:.1f} s, has decided on each of {jobs} jobs after {took:.1f} s, {held} are held")
    print(f"  {took - less:.1f} s without the {less:.1f} s in which it waited for a core")
    print(f"  {time.process_time():.1f} s of a core with imports, {resident('self'):.0f} MiB")


async def lists(log: JetStreamEventLog) -> None:
    """What the history service does."""
    answers = Answers(lambda: asyncio.sleep(0, log), BUILT_IN)
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    beating, began = asyncio.ensure_future(beat()), time.perf_counter()

    async def asked(question: Question) -> tuple[float, dict[str, object]]:
        began = time.perf_counter()
        body = (await answers.answer(question)).body
        return time.perf_counter() - began, json.loads(body)

    async with meanwhile(freeze_after(answers.view.folded)):
        while True:
            with contextlib.suppress(Transient):
                await asked(Question("team-0", limit=1))
                break
            await asyncio.sleep(0.1)
    print(f"lists: ready after {time.perf_counter() - began:.1f} s, {resident('self'):.0f} MiB")
    phase = "history.muster.dev/phase"
    for name, question in (
        ("a page of 500 of all", Question(limit=500)),
        ("a page of 500 of a namespace", Question("team-3", limit=500)),
        ("failed, 500", Question(labels=f"{phase}=Failed", limit=500)),
        ("none is such", Question(labels=f"{phase}=Odd", limit=500)),
        ("since", Question(since="2100-01-01T00:00:00Z", limit=500)),
    ):
        seconds, found, pages = list[float](), 0, 0
        while pages < 400:
            took, page = await asked(question)
            seconds.append(took)
            found, pages = found + len(page["items"]), pages + 1  # type: ignore[arg-type]
            if not (go_on := page["metadata"].get("continue")):  # type: ignore[attr-defined]
                break
            question = msgspec.structs.replace(question, go_on=go_on)  # noqa: PLW2901
        each = f"the longest {max(seconds) * 1000:.0f} ms, all {sum(seconds):.1f} s"
        print(f"  {name}: {found} jobs in {pages} pages, the first after {seconds[0] * 1000:.0f} ms, {each}")
    beating.cancel()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  at the most {most:.0f} MiB, the longest pause of the loop {longest * 1000:.0f} ms")
    await answers.view.stop()


async def measured(folder: Path, jobs: int, live: int, seals: int) -> None:
    async with a_server(folder) as server:
        began = time.perf_counter()
        async with connected(server, ADMIN) as log:
            identity = await log.identity()
            await publish(server, living(live, identity))
            await publish(server, archived(jobs, seals, identity))
            async with asyncio.timeout(60):
                while (state := (await api.stream_info(log.connection, ARCHIVE)).state).messages != jobs:
                    await asyncio.sleep(0.1)
        took = time.perf_counter() - began
        print(f"{jobs} jobs over, {seals} in the last day, and {live} that live, written in {took:.0f} s")
        disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())  # noqa: ASYNC240
        before, began = resident(server.pid), time.perf_counter()
        await server.restart()
        async with connected(server, HISTORY) as log:
            await log.identity()
        again = f"{resident(server.pid):.0f} MiB after a restart of {time.perf_counter() - began:.1f} s"
        print(f"NATS: archive {state.bytes / 1e6:.0f} MB, disk {disk / 1e6:.0f} MB, {before:.0f} MiB, {again}")
        await child(server, "start")
        await child(server, "lists")
        print(f"NATS: {resident(server.pid):.0f} MiB after that")


async def asked_as_child(what: str, url: str, password: str) -> None:
    log = await JetStreamEventLog.connect(url, name="bench", user=CHILDREN[what], password=password)
    try:
        await {"start": start, "lists": lists}[what](log)
    finally:
        await log.close()


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdecimal():
        uvloop.run(asked_as_child(*sys.argv[1:]))
    else:
        with tempfile.TemporaryDirectory(prefix="muster-") as scratch:
            given = [int(word) for word in sys.argv[1:]]
            jobs, live, *seals = [*given, *(2_000, 200)[len(given) :]]
            asyncio.run(measured(Path(scratch), jobs, live, *seals or [jobs]))
