"""The watcher's shell: a turn compares the folded job with the world, and answers with the facts that are owed.

`watches.py` fills the world, `deadlines.py` measures time, `checks.py` asks what has to be asked besides.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

import structlog

from services.watcher.checks import Checks
from services.watcher.deadlines import Deadlines
from services.watcher.heads import accepted
from services.watcher.observe import bereft_of, observe, waiting_room
from services.watcher.pace import pause
from services.watcher.takeover import begun_by_another
from services.watcher.vanished import may_be_gone
from services.watcher.watches import Watches
from services.watcher.world import World
from shared.cluster import Cluster
from shared.eventlog import Bucket, EventLog
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.events.catalog import Fact
from shared.job.events.event import Author
from shared.job.events.watcher import PodsGone, PodsObserved
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.process.dependencies import Dependencies
from shared.runtime.acts import Context
from shared.runtime.run import Runtime

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
        *,
        namespace: str = "",
        believes_vanished: bool = False,
        takes_over: bool = False,
        disruption_taints: Collection[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """An empty `namespace` is the whole cluster; `believes_vanished` is a person's word that many jobs are gone,
        `takes_over` that the operators before us are.

        `disruption_taints` are keys of taints that say, besides the well-known ones, that a node is about to go.
        """
        self._kinds = kinds
        self._world = World(kinds, takes_over=takes_over)
        self._left_alone: set[JobKey] = set()
        """Jobs of other operators that were spoken of."""
        self._paused: set[JobKey] = set()
        """Jobs whose pods were told of a moment ago."""
        self._tasks = asyncio.TaskGroup()
        self._checks = Checks(cluster, eventlog, heads, kinds, self._world, self._tasks, self._wake_later)
        self._deadlines = Deadlines(self._world, kinds, now, self._wake_later, self._wake_all)
        self._watches = Watches(
            cluster,
            kinds,
            self._world,
            self._deadlines,
            self._tasks,
            paused=self._paused,
            namespace=namespace,
            believes_vanished=believes_vanished,
            disruption_taints=disruption_taints,
        )

    def known(self) -> Iterable[JobKey]:
        return self._world.keys()

    async def act(self, effect: Effect, context: Context) -> None:
        raise AssertionError(f"the watcher has no effects, and was asked for {effect}")

    def decide(self, history: History) -> list[Step]:
        """The facts that are owed: what the world shows and the log lacks, and timers that ran out."""
        job = history.job
        key = job.key
        if job.epoch > self._world.epoch:
            # Another replica saw the store go back; what we saw before that is no news.
            self._watches.enter(job.epoch)
        sight = self._world.job(key)
        if job.gone and sight is None:
            self._forget(key)
        if not self._checks.examined(history, sight):
            # Nothing is said about a job whose history may have been lost.
            return []
        if (wrong := self._checks.untold(job)) is not None:
            return [Record(wrong)]
        if job.integrity.doubt is not None:
            # Nobody acts meanwhile, so no deadline runs: measuring lets go of those that did.
            self._deadlines.passed(history)
            # What is there is taken on with the acceptance: before a list of pods nobody knows what that is.
            wish = sight.accept if sight is not None and self._world.pods.listed else ""
            return [Record(event) for event in accepted(job, wish, self._world.pods_of(key))]
        if (theirs := begun_by_another(job, sight)) is not None:
            return [Record(theirs)]
        if job.another:
            self._tell_of_another(job)
        vanished = may_be_gone(job, self._world) and not self._watches.held_back
        if vanished or bereft_of(job, self._world) - self._world.vouched:
            self._checks.confirm(history)
        facts = observe(job, self._world, self._folded, self._begun, pods=key not in self._paused)
        self._pause_after(history, facts)
        self._see_off(job)
        return [*map(Record, facts), *map(Record, self._deadlines.passed(history))]

    def _forget(self, key: JobKey) -> None:
        self._checks.forget(key)
        self._world.confirmed_gone.discard(key)
        self._left_alone.discard(key)

    def _tell_of_another(self, job: Job) -> None:
        """Once in the life of this process."""
        framework = self._kinds.find(job.api_version, job.kind)
        if framework is None or job.gone or job.key in self._left_alone:
            return
        self._left_alone.add(job.key)
        if not framework.inherits:
            log.warning("a job of another operator is left alone: its kind cannot be taken over", job=str(job.key))
        elif not self._world.takes_over:
            log.warning(
                "a job of another operator is left alone until MUSTER_TAKE_OVER=true says that operator is gone",
                job=str(job.key),
            )

    def _pause_after(self, history: History, facts: list[Fact]) -> None:
        """Tell of a job's pods only once in a while; what does not fit into one event goes on at once."""
        key = history.job.key
        views = sum(isinstance(fact, PodsObserved | PodsGone) for fact in facts)
        # What has to wait for the append before it was not told yet.
        if views == 1 and not self._runtime.appends.busy(history):
            seconds = pause(len(self._world.pods_of(key)), self._runtime.appends.seconds, len(self._paused))
            self._paused.add(key)
            asyncio.get_running_loop().call_later(seconds, self._resume, key)

    def _resume(self, key: JobKey) -> None:
        self._paused.discard(key)
        self._runtime.wake(key)

    def _wake_later(self, key: JobKey, seconds: float) -> None:
        self._runtime.wake_later(key, seconds)

    def _wake_all(self) -> None:
        self._runtime.wake_all()

    def _folded(self, key: JobKey) -> Job | None:
        history = self._runtime.histories.get(key)
        return history.job if history is not None else None

    def _begun(self, key: JobKey) -> set[Uid]:
        lives = [life.job for life in self._runtime.histories.lives(key) if life.job.key != key]
        return {uid for job in lives for uid, request in job.scaling.requests.items() if request.phase != "Pending"}

    def _see_off(self, job: Job) -> None:
        """Requests that this history has by now may leave the one where they were before."""
        waiting = self._folded(waiting_room(job.key))
        if waiting is not None and waiting is not job and waiting.scaling.requests.keys() & job.scaling.requests.keys():
            self._runtime.wake_later(waiting.key, 0.0)

    async def attend(self, runtime: Runtime) -> None:
        """Watch every resource; each change wakes the jobs it concerns."""
        self._runtime = runtime
        # A LIST is compared with what the log knew before it was asked for.
        await runtime.folded.wait()
        self._checks.began = runtime.histories.position
        async with self._tasks as tasks:
            tasks.create_task(self._deadlines.notice_stalls())
            self._watches.begin(runtime)


def build(dependencies: Dependencies) -> Watcher:
    """The service from what a process has."""
    return Watcher(
        dependencies.cluster,
        dependencies.eventlog,
        dependencies.heads,
        dependencies.kinds,
        namespace=dependencies.settings.namespace,
        believes_vanished=dependencies.settings.believe_vanished,
        takes_over=dependencies.settings.take_over,
        disruption_taints=dependencies.settings.disruption_taints,
    )
