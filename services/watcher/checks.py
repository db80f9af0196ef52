"""What the watcher asks before it says something grave: does the log lead to this head, is this job gone?

One question per job at a time; its answer is kept, and wakes the job.  What the answers mean is decided in
`heads.py` and `observe.py`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import structlog

from services.watcher.heads import judge, told
from services.watcher.observe import bereft_of
from services.watcher.sights import JobSight
from services.watcher.world import World
from shared.cluster import Cluster
from shared.errors import Refused, Transient
from shared.eventlog import Bucket, EventLog
from shared.frameworks.kinds import Kinds
from shared.job.chain import Head, checkpointed
from shared.job.events.watcher import HeadForged, HistoryBroken
from shared.job.fold import History
from shared.job.naming import JobKey, history_subjects
from shared.job.state import Job

ASK_AGAIN_SECONDS = 1.0
"""Between two GETs of a job whose watch says something else, or nothing; and after an answer that did not come."""

log = structlog.get_logger()


class Checks:
    """The questions of one watcher and their answers; those about the cluster go into the world."""

    def __init__(
        self,
        cluster: Cluster,
        eventlog: EventLog,
        heads: Bucket,
        kinds: Kinds,
        world: World,
        tasks: asyncio.TaskGroup,
        wake_later: Callable[[JobKey, float], None],
    ) -> None:
        self._cluster = cluster
        self._log = eventlog
        self._heads = heads
        self._kinds = kinds
        self._world = world
        self._tasks = tasks
        self._wake_later = wake_later
        self.began = 0
        """The log's last sequence before this watcher looked at the cluster."""
        self._examined: dict[JobKey, tuple[str, Head]] = {}
        self._wrong: dict[JobKey, tuple[HistoryBroken | HeadForged, int]] = {}
        """What is wrong with a head, and how far the fold was when that was found."""
        self._asking: set[JobKey] = set()
        self._strangers: set[JobKey] = set()
        """Jobs with a status that the checkpoint does not know."""

    def examined(self, history: History, sight: JobSight | None) -> bool:
        """Whether any head of this job was compared with the log, or it shows none; a new one is from now on.

        Of a job with a status and without a head, of which the log says nothing, the checkpoint is asked: a
        definition that is not ours drops heads.
        """
        key = history.job.key
        if sight is not None and sight.head is None and sight.inherited is not None and not history.sequence:
            if key not in self._strangers and key not in self._examined:
                self._ask(key, self._recall(history))
            return key in self._strangers or key in self._examined
        if sight is None or sight.head is None or self._examined.get(key) == (sight.log, sight.head):
            return True
        self._ask(key, self._examine(history, sight.log, sight.head))
        return key in self._examined

    def untold(self, job: Job) -> HistoryBroken | HeadForged | None:
        """What is wrong with its head, until the log says so."""
        wrong, found = self._wrong.get(job.key, (None, 0))
        return None if wrong is None or told(job, wrong, found) else wrong

    def forget(self, key: JobKey) -> None:
        """The job is gone; should it come back, its head is compared again."""
        self._examined.pop(key, None)
        self._wrong.pop(key, None)
        self._strangers.discard(key)

    def confirm(self, history: History) -> None:
        """Ask for this very job: only its own GET says that it is gone, or that a launcher was lost without it.

        Nobody is asked for a job of a kind that this process does not know.
        """
        if self._kinds.knows(history.job):
            self._ask(history.job.key, self._confirm(history))

    def _ask(self, key: JobKey, work: Coroutine[Any, Any, None]) -> None:
        if key in self._asking:
            work.close()
            return
        self._asking.add(key)
        task = self._tasks.create_task(work)
        task.add_done_callback(lambda _: self._asking.discard(key))

    async def _confirm(self, history: History) -> None:
        key = history.job.key
        bereft, epoch = bereft_of(history.job, self._world), self._world.epoch
        try:
            found = await self._cluster.get(self._kinds.of(history.job).resource, key.namespace, key.name)
        except (Transient, Refused) as trouble:
            log.info("cannot confirm that a job is gone", job=str(key), why=str(trouble))
            self._wake_later(key, ASK_AGAIN_SECONDS)
            return
        if epoch != self._world.epoch:
            # The answer may be the word of a store that has gone since.
            self._wake_later(key, 0.0)
        elif found is None or found.metadata.uid != key.uid:
            self._world.confirmed_gone.add(key)
            self._wake_later(key, 0.0)
        elif bereft and found.metadata.deletion_timestamp is None:
            self._world.vouched |= bereft
            self._wake_later(key, 0.0)
        else:
            # It is there, and its watch will say so, or how it goes; should that be long in coming, ask again.
            self._wake_later(key, ASK_AGAIN_SECONDS)

    async def _recall(self, history: History) -> None:
        """Whether status ever wrote a head for this job; one that it did is compared with the log."""
        key = history.job.key
        try:
            kept = await self._heads.get(key.uid)
        except (Transient, Refused) as trouble:
            log.info("cannot read a checkpoint", job=str(key), why=str(trouble))
            self._wake_later(key, ASK_AGAIN_SECONDS)
            return
        named, head = checkpointed(kept.value.decode() if kept is not None else "")
        if head is not None:
            await self._examine(history, named, head)
            return
        self._strangers.add(key)
        self._wake_later(key, 0.0)

    async def _examine(self, history: History, named: str, head: Head) -> None:
        """Compare a head from a resource with the log; a fold that is behind it catches up first."""
        key = history.job.key
        try:
            identity, end = await self._log.identity(), await self._log.end()
            known = history.hash_at(head.sequence)
            if known is None and key not in self._examined and head.sequence <= end:
                known = await self._read_again(history, head.sequence)
            kept = await self._heads.get(key.uid) if known not in (None, head.hash) else None
        except (Transient, Refused) as trouble:
            log.info("cannot examine a head", job=str(key), why=str(trouble))
            self._wake_later(key, ASK_AGAIN_SECONDS)
            return
        checkpoint = kept.value.decode() if kept is not None else ""
        began = end if key in self._examined else self.began
        wrong = judge(identity, named, head, began=began, end=end, known=known, checkpoint=checkpoint)
        if wrong is not None:
            self._wrong[key] = wrong, history.sequence
            log.error("head is wrong", job=str(key), head=str(head), verdict=type(wrong).__name__)
        else:
            self._wrong.pop(key, None)
        self._examined[key] = (named, head)
        self._wake_later(key, 0.0)

    async def _read_again(self, history: History, sequence: int) -> str:
        """The hash of a job's history up to a sequence, from the log itself; empty when it has no such event."""
        key = history.job.key
        again = History(key)
        async with aclosing(self._log.read(subjects=history_subjects(key))) as batches:
            async for batch in batches:
                for stored in batch.events:
                    if stored.sequence <= sequence:
                        again.fold(stored)
                if not batch.pending or (batch.events and batch.events[-1].sequence >= sequence):
                    break
        return again.head.hash if again.sequence == sequence else ""
