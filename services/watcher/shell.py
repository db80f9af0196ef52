"""The watcher's shell: it compares a folded job with the cache, records the facts and asks the questions.

`watches.py` fills the cache, `deadlines.py` measures time, `asking.py` asks; the rules are in `core`.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence
from contextlib import closing

import structlog

from services.watcher.asking import Asking
from services.watcher.core.budgets import (
    MIB,
    WITHIN,
    Budget,
    Budgets,
    Limits,
    Memory,
    Standing,
    allowed,
    parts_used,
    standing,
)
from services.watcher.core.cache import Cache
from services.watcher.core.observe import Unrecorded, observe
from services.watcher.core.pace import (
    LABELS_SECONDS,
    LIMITS,
    Row,
    Starts,
    begins,
    coalesces,
    pause,
    pods_are_to_come,
    wait,
    waits_for_the_rest,
)
from services.watcher.core.requests import waiting_room
from services.watcher.deadlines import Deadlines
from services.watcher.progress import ProgressPort, Reports, Tokens
from services.watcher.watches import DEFAULTS, Options, Watches
from shared.cluster import Cluster
from shared.cluster.scope import why_outside
from shared.eventlog import Bucket, EventLog
from shared.frameworks.gangs import NOT_SERVED, OFF
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.events.catalog import Fact
from shared.job.events.event import Author
from shared.job.events.watcher import JobRelabelled, PodsGone, PodsObserved
from shared.job.fold import History, leave
from shared.job.naming import JobKey
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.process.main import Dependencies
from shared.process.serving import Certificate
from shared.runtime.acts import Context
from shared.runtime.run import Runtime

TELL_SECONDS = 1.0
"""Seconds between two looks at the budgets."""

A_SLICE = 1_000
"""Namespaces whose budgets are told without a pause: there may be thousands, and others have their turn between."""

UNSETTLED_SECONDS = 0.1
"""Seconds between two looks at whether requests may move to their job."""

log = structlog.get_logger()


class Watcher:
    """The service; one watch per resource."""

    author: Author = "watcher"

    def __init__(
        self,
        cluster: Cluster,
        eventlog: EventLog,
        heads: Bucket,
        kinds: Kinds = BUILT_IN,
        options: Options = DEFAULTS,
    ) -> None:
        self._server_time = eventlog.now
        self._cache = Cache(
            kinds, takes_over=options.takes_over, kueue=options.kueue, gangs=options.pod_groups is not None
        )
        self._options = options
        self._cluster = cluster
        self._outside: dict[str, set[JobKey]] = {}
        """The jobs that do not begin where they are, by namespace."""
        self._warned: dict[JobKey, tuple[str, str]] = {}
        self._paused: set[JobKey] = set()
        """Jobs whose changes of pods are being coalesced."""
        self._relabelled: set[JobKey] = set()
        """Jobs whose changes of labels are being merged."""
        self._rows: dict[JobKey, Row] = {}
        self._budgets = Budgets(options.limits.per_minute)
        self._memory = Memory()
        """As of the last look at the budgets."""
        self._starts = Starts()
        self._early: dict[JobKey, dict[type[Fact], float]] = {}
        """Until when facts of a starting job wait for others, by their type."""
        self._tasks = asyncio.TaskGroup()
        self._asking = Asking(cluster, eventlog, heads, kinds, self._tasks, self._wake_later)
        self._deadlines = Deadlines(
            self._cache,
            kinds,
            eventlog.now,
            self._wake_later,
            self._wake_all,
            options.seal_after,
            reports=lambda namespace: options.stalls and not self._has_no_room(namespace),
        )
        self._watches = Watches(cluster, kinds, self._cache, self._deadlines, self._tasks, self._rests, options)

    def known(self) -> Iterable[JobKey]:
        if self._options.seal_after is not None:
            # Their time to settle is measured again after a start.
            return [*self._cache.keys(), *(history.job.key for history in self._runtime.histories.closed())]
        return self._cache.keys()

    async def act(self, effect: Effect, context: Context) -> None:
        raise AssertionError(f"the watcher has no effects, and was asked for {effect}")

    def decide(self, history: History) -> list[Step]:
        """The facts that the cache shows and the log lacks, and the expired timers."""
        key = history.job.key
        if not history.sequence and not self._cache.works_in(key.namespace):
            # It may stand in line since before its namespace lost the labels.
            self._in_turn(history, ())
            self._keep_outside(key)
            return []
        # Another replica may have recorded a new epoch.
        self._watches.enter(history.job.resource.epoch)
        answers, options = self._asking.answers(key), self._options
        but = Unrecorded(pods=key in self._paused, labels=key in self._relabelled, requests=not self._settled(key))
        seen = observe(history.job, self._cache, answers, self._runtime.histories, but, options.force_delete_after)
        self._asking.ask(history, seen.questions)
        self._warn(history.job, seen.warning)
        if any(isinstance(fact, (PodsObserved, PodsGone)) for fact in seen.facts):
            # Its last report may be of a pod that has ended.
            self.reports.flush(key)
        facts, waits = self._allowed(history, self._in_turn(history, self._without_early(history.job, seen.facts)))
        self._pause_after(history, facts)
        for other in seen.wakes:
            self._runtime.wake_later(other, 0.0)
        timers = self._deadlines.passed(history, late=waits) if seen.trusted else []
        return [*map(Record, facts), *map(Record, timers)]

    def forget(self, key: JobKey) -> None:
        for each in (self._rows, self._early, self._warned):
            each.pop(key, None)
        self._budgets.forget(key)
        self._asking.forget(key)
        self._deadlines.forget(key)
        self.reports.forget(key)

    def _keep_outside(self, key: JobKey) -> None:
        """Count a job that does not begin; log it of the first one.  The namespaces may not be listed yet."""
        namespace, listing = key.namespace, self._cache.namespaces
        if (listing is None or listing.listed) and self._cache.job(key) is not None:
            if namespace not in self._outside:
                why = why_outside(namespace, listing.get(("", namespace), ()) if listing is not None else ())
                log.info("jobs do not begin", namespace=namespace, why=why)
            self._outside.setdefault(namespace, set()).add(key)

    def _outside_now(self) -> dict[str, int]:
        """How many jobs of each namespace do not begin."""
        for namespace, jobs in [*self._outside.items()]:
            jobs -= {key for key in jobs if self._cache.job(key) is None}
            if not jobs or self._cache.works_in(namespace):
                del self._outside[namespace]
        return {namespace: len(jobs) for namespace, jobs in self._outside.items()}

    def _settled(self, key: JobKey) -> bool:
        """False while a fact about the requests that wait for this job is under way; the job is then woken again."""
        room = self._runtime.histories.get(waiting_room(key))
        if room is None or not self._runtime.appends.busy(room):
            return True
        if key != room.job.key:
            self._wake_later(key, UNSETTLED_SECONDS)
        return False

    def _allowed(self, history: History, facts: tuple[Fact, ...]) -> tuple[tuple[Fact, ...], bool]:
        """The facts to record, and whether others wait by which deadlines are judged."""
        if self._runtime.appends.busy(history):
            # None is recorded before the last one was read back, which wakes the job.
            return facts, False
        now, met = asyncio.get_running_loop().time(), self._standing(history.job.key.namespace) if facts else WITHIN
        recorded = history.facts.get(self.author, 0)
        found = allowed(history.job, facts, self._budgets, now, recorded=recorded, met=met)
        if found.seconds:
            self._runtime.wake_later(history.job.key, found.seconds + 0.001)
        return found.facts, found.late

    def _parts(self, namespace: str) -> dict[Budget, float]:
        use = self._runtime.histories.used[namespace]
        return parts_used(use, self._options.limits, self._runtime.space().most, self._memory)

    def _standing(self, namespace: str) -> Standing:
        return standing(self._parts(namespace), reserved=self._runtime.reserved())

    def _in_turn(self, history: History, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        """The facts of a job whose start is due, and of another one what is recorded meanwhile."""
        job, now = history.job, asyncio.get_running_loop().time()
        if begins(job, facts):
            if self._starts.may_begin(job.key, now, told=bool(job.resource.generation)):
                return facts
            return self._starts.meanwhile(job, facts)
        if (seconds := self._starts.frees(job, now)) is not None:
            asyncio.get_running_loop().call_later(seconds, self._wake_due)
        return facts

    def _wake_due(self) -> None:
        for key in self._starts.due(asyncio.get_running_loop().time()):
            self._runtime.wake(key)

    def _without_early(self, job: Job, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        """The facts that do not wait for others, or have waited long enough."""
        now, before = asyncio.get_running_loop().time(), self._early.pop(job.key, {})
        early = {type(fact) for fact in facts if waits_for_the_rest(fact, job, self._cache)}
        if early:
            seconds = wait(len(self._early))
            self._early[job.key] = waits = {kind: before.get(kind, now + seconds) for kind in early}
            if early - before.keys():
                asyncio.get_running_loop().call_later(seconds + 0.001, self._end_wait, job.key)
            early = {kind for kind in early if now < waits[kind]}
        return tuple(fact for fact in facts if type(fact) not in early)

    def _end_wait(self, key: JobKey) -> None:
        # What waited may be recorded since then.
        if key in self._early:
            self._runtime.wake(key)

    def _warn(self, job: Job, warning: tuple[str, str] | None) -> None:
        """Log a warning once while it holds."""
        before = self._warned.pop(job.key, None)
        if warning is not None:
            self._warned[job.key] = warning
            if warning != before:
                log.warning(warning[0], job=str(job.key), why=warning[1])

    def _pause_after(self, history: History, facts: Sequence[Fact]) -> None:
        """Coalesce further changes of the job's pods, and of its labels."""
        key = history.job.key
        if history.job.resource.gone:
            self._rows.pop(key, None)
            self.reports.forget(key)
        # While an append is in flight, these facts are not recorded yet.
        if coalesces(facts) and not self._runtime.appends.busy(history):
            loop = asyncio.get_running_loop()
            row = self._rows.get(key, Row()).next(loop.time())
            seconds = pause(len(self._cache.pods_of(key)), self._runtime.appends.seconds, len(self._paused), row)
            self._rows[key] = Row(row, loop.time() + seconds)
            self._paused.add(key)
            loop.call_later(seconds, self._resume, key, self._paused)
        if any(isinstance(fact, JobRelabelled) for fact in facts[:1]) and not self._runtime.appends.busy(history):
            self._relabelled.add(key)
            asyncio.get_running_loop().call_later(LABELS_SECONDS, self._resume, key, self._relabelled)

    def _rests(self, key: JobKey, gone: bool) -> bool:
        """True if the job is woken later for a change of one of its pods, which is `gone` or not."""
        if key in self._paused:
            return True
        history = self._runtime.histories.get(key)
        waits = not gone and PodsObserved in self._early.get(key, ())
        return waits and history is not None and pods_are_to_come(history.job, self._cache)

    def _resume(self, key: JobKey, paused: set[JobKey]) -> None:
        paused.discard(key)
        self._runtime.wake(key)

    def _wake_later(self, key: JobKey, seconds: float) -> None:
        self._runtime.wake_later(key, seconds)

    def _wake_all(self) -> None:
        self._runtime.wake_all()

    async def attend(self, runtime: Runtime) -> None:
        """Watch every resource; each change wakes the jobs it concerns."""
        self._runtime = runtime
        runtime.metrics.waiting = self._budgets.waiting
        self.reports = Reports(runtime, self._options.progress_seconds, self._has_no_room, self._server_time)
        # A LIST is compared with the state of the log before its request.
        await runtime.folded.wait()
        self._asking.began = runtime.histories.position
        with closing(self.reports):
            async with self._tasks as tasks:
                tasks.create_task(self._deadlines.notice_stalls())
                tasks.create_task(self._tell_of_budgets())
                if self._options.progress is not None:
                    tasks.create_task(self._serve(self._options.progress, runtime))
                self._watches.begin(runtime)

    async def _serve(self, certificate: Certificate, runtime: Runtime) -> None:
        reports = ProgressPort(self.reports, Tokens(self._cluster), runtime.metrics.reported)
        async with reports.serving(certificate) as port:
            log.info("programs may report", port=port)
            await asyncio.Event().wait()

    def _has_no_room(self, namespace: str) -> bool:
        """True if no progress is recorded of the namespace; that its services keep much of it is no reason."""
        return self._standing(namespace).full is not None

    async def _tell_of_budgets(self) -> None:
        """Tell which budgets are met and which jobs wait to begin; wake those whose turn it is.

        When the log has no room, or has room again, wake all; once a namespace is within its budgets again, its jobs
        that wait.  Also forget the ended pods of which the log has all.
        """
        told: set[tuple[str, str]] = set()
        begin_later: set[str] = set()
        full, silent, measured = False, set[str](), 0
        while True:
            before, full = full, self._runtime.reserved()
            uses = self._runtime.histories.used.values()
            self._memory = Memory.of(uses)
            if (stored := self._runtime.space().used) != measured:
                leave(uses, stored)
                measured = stored
            await asyncio.sleep(0)
            if self._runtime.current:
                # Not where a job is decided: a standby decides nothing, and pods may have the labels of no job.
                self._cache.forget_ended(self._runtime.histories)
            if not self._runtime.acting:
                # Once it leads again, all that waited meanwhile would be recorded at once.
                self._starts = Starts()
            for namespace, jobs in sorted(self._starts.waiting.items()):
                if namespace not in begin_later:
                    log.info("jobs wait to begin", namespace=namespace, jobs=jobs, why=LIMITS)
            begin_later = {*self._starts.waiting}
            # The time of some turns may be over.
            self._wake_due()
            if not full:
                for key in self._starts.tell(asyncio.get_running_loop().time()):
                    self._runtime.wake(key)
            waiting = set(self._budgets.waiting)
            for namespace, budget in sorted(waiting - told):
                log.warning("over budget", namespace=namespace, budget=budget)
            told = waiting
            self._runtime.metrics.outside = self._outside_now()
            used: dict[tuple[str, str], float] = {}
            for number, namespace in enumerate([*self._runtime.histories.used]):
                used |= {(namespace, budget): part for budget, part in self._parts(namespace).items()}
                if number % A_SLICE == A_SLICE - 1:
                    await asyncio.sleep(0)
            self._runtime.metrics.used = used
            for key in self._budgets.stopped():
                if not self._standing(key.namespace).stops:
                    self._runtime.wake(key)
            await asyncio.sleep(0)
            unheard = silent
            silent = {namespace for (namespace, budget), part in used.items() if part >= 1 and budget == "share"}
            if turned := unheard ^ silent:
                # From then on no silence of their trainings counts, and later on it counts anew.
                for history in self._runtime.histories.open():
                    if history.job.key.namespace in turned and history.job.training.stepped:
                        self._runtime.wake(history.job.key)
            if before is not full:
                log.info("log has no room" if full else "log has room again")
                self._wake_all()
            await asyncio.sleep(TELL_SECONDS)


def build(dependencies: Dependencies) -> Watcher:
    settings = dependencies.settings
    options = Options(
        namespace=settings.namespace,
        namespace_selector=settings.namespace_selector,
        believes_vanished=settings.believe_vanished,
        takes_over=settings.take_over,
        disruption_taints=settings.disruption_taints,
        notice_seconds=math.ceil(settings.disruption_notice.total_seconds()),
        force_delete_after=(
            math.ceil(settings.force_delete_after.total_seconds()) if settings.force_delete_after is not None else None
        ),
        seal_after=math.ceil(settings.seal_after.total_seconds()) if settings.seal_after is not None else None,
        kueue=settings.kueue,
        pod_groups=dependencies.pod_groups,
        no_gangs=NOT_SERVED if settings.gangs else OFF,
        last_words=settings.termination_messages,
        stalls=bool(settings.progress_url),
        progress_seconds=settings.progress_interval.total_seconds(),
        progress=Certificate("progress", settings.progress) if settings.progress_url else None,
        limits=Limits(
            per_minute=settings.log_mib_per_minute * MIB,
            memory=settings.namespace_mib * MIB,
            total=settings.memory_mib * MIB,
            share=settings.namespace_share if not settings.namespace else 0,
        ),
    )
    return Watcher(dependencies.cluster, dependencies.eventlog, dependencies.heads, dependencies.kinds, options)
