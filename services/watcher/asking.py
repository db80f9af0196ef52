"""Asks the API server, the log and the checkpoints the questions of `observe`, and keeps the answers.

For each job one question of a kind is in flight at a time; its answer wakes the job.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

import msgspec
import structlog

from services.watcher.core import questions
from services.watcher.core.heads import at_hand, beyond_the_end, fault, settled
from shared.backoff import doubled
from shared.cluster import Cluster
from shared.cluster.kinds import EVENTS_WITH_WORDS, NAMESPACES
from shared.errors import Refused, Transient, accepting
from shared.eventlog import Bucket, EventLog
from shared.frameworks.kinds import Kinds
from shared.job.fold import History
from shared.job.naming import JobKey
from shared.runtime.heads import hash_read_again, read_checkpoint

ASK_AGAIN_SECONDS = 1.0
"""Seconds between two GETs of a job whose watch disagrees, and after a failed question."""

ENDS = 3
"""After so many answers in a row that the log ends before a head it does; fewer may come from a leader that lags."""

HEAR_SECONDS = 0.5
"""Seconds between two questions about Events of pods, of all jobs: an API server reads a whole namespace for each."""

HEAR_AGAIN_SECONDS, LONGEST_HEAR_SECONDS = 10.0, 300.0
"""Seconds between two questions about one pod, doubled each time up to a longest."""

MOST_EVENTS = 250
"""The most Events of a pod that are read: a kubelet makes 25, then one in five minutes, and they live an hour."""

Way = tuple[JobKey, type[questions.Question] | questions.Hear]

replace = msgspec.structs.replace

log = structlog.get_logger()


class Asking:
    """The questions of one watcher that are in flight, and the answers."""

    def __init__(
        self,
        cluster: Cluster,
        eventlog: EventLog,
        heads: Bucket,
        kinds: Kinds,
        tasks: asyncio.TaskGroup,
        wake_later: Callable[[JobKey, float], None],
    ) -> None:
        self._cluster = cluster
        self._log = eventlog
        self._heads = heads
        self._kinds = kinds
        self._tasks = tasks
        self._wake_later = wake_later
        self.began = 0
        """The log's last sequence before this watcher's first list."""
        self._identity = ""
        """The id of the log; empty before the first comparison."""
        self._answers: dict[JobKey, questions.Answers] = {}
        self._under_way: set[Way] = set()
        self._hearing = asyncio.Lock()

    def answers(self, key: JobKey) -> questions.Answers:
        return self._answers.get(key, questions.UNANSWERED)

    def forget(self, key: JobKey) -> None:
        self._answers.pop(key, None)

    def ask(self, history: History, these: Collection[questions.Question]) -> None:
        """Ask the new ones of these questions; drop the answers to questions that are no longer listed."""
        key = history.job.key
        if not these and key not in self._answers:
            return
        answers = self.answers(key).kept(these)
        self._keep(key, answers)
        for question in these:
            way = key, question if isinstance(question, questions.Hear) else type(question)
            if way in self._under_way or answers.has(question):
                continue
            evidence = at_hand(question, answers, history, self._identity)
            if evidence is None:
                self._under_way.add(way)
                self._tasks.create_task(self._find(history, question)).add_done_callback(partial(self._found, way))
                continue
            if answers.evidence is None:
                self._wake_later(key, 0.0)
            answers = replace(answers, evidence=evidence)
            self._keep(key, answers)

    def _found(self, way: Way, _: asyncio.Task[None]) -> None:
        self._under_way.discard(way)

    def _keep(self, key: JobKey, answers: questions.Answers) -> None:
        if answers == questions.UNANSWERED:
            self._answers.pop(key, None)
        else:
            self._answers[key] = answers

    async def _find(self, history: History, question: questions.Question) -> None:
        key = history.job.key
        final = True
        try:
            match question:
                case questions.Confirm():
                    presence = await self._presence(history, namespace=bool(question.taken))
                    final = questions.settles(question, presence)
                    answers = replace(self.answers(key), presence=(question, presence) if final else None)
                case questions.Compare():
                    evidence = await self._evidence(history, question)
                    answers = replace(self.answers(key), evidence=(question, evidence))
                case questions.Hear():
                    await self._hear(history, question)
                    return
        except (Transient, Refused) as trouble:
            log.info("cannot ask about a job", question=type(question).__name__, job=str(key), why=str(trouble))
            self._wake_later(key, ASK_AGAIN_SECONDS)
            return
        self._keep(key, answers)
        self._wake_later(key, 0.0 if final else ASK_AGAIN_SECONDS)

    async def _hear(self, history: History, question: questions.Hear) -> None:
        """Ask about a pod in its turn, and let the job list the question again after a while."""
        key = history.job.key
        async with self._hearing:
            before = self.answers(key).heard.get(question)
            if before is None:
                # It began meanwhile.
                return
            heard = before
            fields = f"involvedObject.uid={question.uid}"
            try:
                events = await self._cluster.find(EVENTS_WITH_WORDS, key.namespace, fields, most=MOST_EVENTS)
                heard = questions.heard(events, history.job.pods.views.get(question.uid))
            except (Transient, Refused) as trouble:
                log.info("cannot read the events of a pod", job=str(key), why=str(trouble))
            answers = self.answers(key)
            if question in answers.heard:
                now = replace(heard, looks=before.looks + 1)
                self._keep(key, replace(answers, heard={**answers.heard, question: now}))
                self._wake_later(key, 0.0)
            await asyncio.sleep(HEAR_SECONDS)
        await asyncio.sleep(doubled(HEAR_AGAIN_SECONDS, before.looks + 1, LONGEST_HEAR_SECONDS))
        self._wake_later(key, 0.0)

    async def _presence(self, history: History, *, namespace: bool) -> questions.Presence:
        key = history.job.key
        found = await self._cluster.get(self._kinds.of(history.job).resource, key.namespace, key.name)
        if found is None or found.metadata.uid != key.uid:
            return questions.Presence(there=False)
        deleting = found.metadata.deletion_timestamp is not None
        return questions.Presence(there=True, deleting=deleting or (namespace and await self._ends(key.namespace)))

    async def _ends(self, namespace: str) -> bool:
        """True if the namespace is being deleted; False too for a watcher without the right to read it."""
        with accepting("Forbidden"):
            found = await self._cluster.get(NAMESPACES, "", namespace)
            return found is not None and found.metadata.deletion_timestamp is not None
        return False

    async def _evidence(self, history: History, question: questions.Compare) -> questions.Evidence:
        first = not settled(self.answers(history.job.key))
        evidence = await self._gather(history, question.shown, first=first, recall=first and question.recall)
        if fault(evidence) is not None and evidence.kept is None:
            # The checkpoint is evidence even if the log does not lead to it.
            evidence = await self._gather(history, question.shown, first=first, recall=True)
        for _ in range(ENDS - 1):
            if not beyond_the_end(evidence):
                break
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            evidence = await self._gather(history, question.shown, first=first, recall=True)
        return evidence

    async def _gather(
        self, history: History, shown: questions.Named | None, *, first: bool, recall: bool
    ) -> questions.Evidence:
        # The checkpoint before the log's end: the status service appends first, so an older end would look truncated.
        kept = await self._kept(history.job.key) if recall else None
        self._identity = identity = await self._log.identity()
        heads = {named.head: None for named in (shown, kept) if named is not None and named.log == identity}
        # The log has what this fold has read of it: a start asks one question less about each job.
        end, hashes = history.sequence, {}
        if any(head.sequence > end for head in heads):
            end = await self._log.end()
        for sequence in (head.sequence for head in heads):
            known = history.hash_at(sequence)
            # A head beyond this fold is of an event that is on its way, or of none.
            if known is None and (first or sequence > history.sequence) and sequence <= end:
                known = await hash_read_again(self._log, history.job.key, sequence)
            if known is not None:
                hashes[sequence] = known
        return questions.Evidence(
            identity=identity,
            began=self.began if first else end,
            end=end,
            shown=shown,
            kept=kept,
            hashes=hashes,
            empty=not history.sequence,
        )

    async def _kept(self, key: JobKey) -> questions.Named | None:
        named, head = await read_checkpoint(self._heads, key.uid)
        return questions.Named(named, head) if head is not None else None
