"""Lives of jobs in a real log, and their seals."""

from collections.abc import Iterable
from uuid import uuid4

import msgspec

from shared.eventlog import Entry, EventLog, Stored
from shared.eventlog.parts import Seal
from shared.eventlog.subject import Subject, is_decision
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SecretGone
from shared.job.events.watcher import ChildGone, JobGone, PodsGone
from shared.job.fold import History
from shared.job.naming import JobKey, Uid, subject_of
from tests.kit.builders import a_running_job
from tests.kit.histories import stored

TIME = "2030-01-01T00:00:00.000Z"
"""What the clock of a job's services shows."""


def a_key(namespace: str, name: str = "resnet", uid: str = "u-1") -> JobKey:
    return JobKey(namespace, name, Uid(uid))


def a_life(workers: int = 4) -> tuple[AnyEvent, ...]:
    """The events of a job that runs until it is deleted, with all that it had."""
    running = a_running_job(workers=workers)
    history = History(a_key("any"))
    for event in running:
        history.fold(stored(history, event))
    job = history.job
    children = (ChildGone(kind=kind, name=name, uid=child.uid) for (kind, name), child in job.objects.children.items())
    secrets = (SecretGone(attempt=attempt) for attempt in job.objects.secrets)
    return (*running, JobGone(), *secrets, PodsGone(uids=tuple(job.pods.views)), *children)


class Life:
    """A job in a log."""

    def __init__(self, log: EventLog, key: JobKey) -> None:
        self.key = key
        self.history = History(key)
        self.events: list[Stored] = []
        self.time = TIME
        self._log = log

    async def live(self, events: Iterable[AnyEvent] = ()) -> None:
        """Append its events, as the services do."""
        for event in events or a_life():
            made = stored(self.history, event)
            self.events.append(await self._append(made.subject, made.body))
            self.history.fold(self.events[-1])

    async def seal(self, **changed: object) -> Stored:
        """Seal what there is; `changed` are fields that are not what they should be."""
        head = self.history.head
        found = Seal(self.events[0].sequence, head.sequence, self.history.count, head.hash, "Gone", "JobGone")
        body = msgspec.json.encode({"type": "JobSealed", **msgspec.to_builtins(found), **changed})
        return await self._append(subject_of(self.key, "jobs", "status", "JobSealed"), body)

    async def _append(self, subject: str, body: bytes) -> Stored:
        newest = await self._log.last(Subject.parse(subject).scope)
        expect = newest.sequence if newest is not None else 0
        basis = self.history.basis if is_decision(subject) else ""
        entry = Entry(subject=subject, event_id=uuid4().hex, time=self.time, body=body, basis=basis)
        await self._log.append(entry, expect=expect)
        found = await self._log.last(subject)
        assert found is not None
        return found


async def a_sealed_life(log: EventLog, key: JobKey) -> Life:
    life = Life(log, key)
    await life.live()
    await life.seal()
    return life
