"""Training programs that report to the watchers, and what the log must show of them.

The first worker of each job makes steps, and reports them to one of the two replicas.  It may hang, lie and save a
checkpoint when it is told to end; another container of its name begins where the last checkpoint was.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from random import Random

import msgspec

from services.watcher.progress import Reports
from shared.cluster.kinds import PODS
from shared.errors import Refused
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRestarting, JobSuspending
from shared.job.events.watcher import (
    CheckpointTaken,
    HistoryAccepted,
    PodsGone,
    PodsObserved,
    ProgressReported,
    TimePassed,
)
from shared.job.naming import JOB_UID, JobKey, Uid
from shared.job.state import Job
from shared.job.timers import STALL
from tests.kit.builders import report_body
from tests.kit.demands import NEARLY
from tests.kit.services import wall_clock
from tests.memory.store import MemoryStore
from tests.memory.watching import Held
from tests.simulation.loop import outside
from tests.simulation.platform import trains
from tests.simulation.replica import Replica

FIRST = ("-worker-0", "-node-0-0")
"""How the names of the pods end whose program reports."""
EVERY = 5
"""A program saves after so many steps."""
RARE_SECONDS = 10.0
"""Between two events of one job's progress lies so much, or a third of the time after which it is stalled."""
TOLD_SECONDS = 2.0
"""A stall is told so long after its time at the latest, in clear weather."""


class Program(msgspec.Struct):
    """What a container does, and has said."""

    pod: Uid
    key: JobKey
    step: int
    hangs: bool = False
    said: set[int] = msgspec.field(default_factory=set)


class Trainers:
    """The programs of one run."""

    def __init__(self, store: MemoryStore, seed: int, seconds: float, watchers: list[Replica]) -> None:
        """A step takes half to one and a half times so many `seconds`."""
        self._store = store
        self._chance = Random(f"{seed} trainers")
        self._lies = Random(f"{seed} lies")
        """Drawn apart, so that a lie changes nothing else."""
        self._seconds = seconds
        self._watchers = watchers
        self._loop = asyncio.get_running_loop()
        self._outside = outside()
        self.programs: dict[Uid, Program] = {}
        """By pod, every program that ever ran."""
        self.saved: dict[Uid, int] = {}
        """By job, the step of its newest checkpoint."""
        self.heard: dict[Uid, float] = {}
        """By job, when a watcher took a report of a step last."""
        store.listeners.append(self._changed)

    def _changed(self, resource: object, before: Held | None, after: Held | None) -> None:
        if resource is not PODS or after is None or not after.at[1].endswith(FIRST) or not trains(after):
            return
        uid, job = Uid(after.metadata["uid"]), (after.metadata.get("labels") or {}).get(JOB_UID)
        owners = after.metadata.get("ownerReferences")
        if job and owners and uid not in self.programs:
            key = JobKey(after.at[0], owners[0]["name"], Uid(job))
            self.programs[uid] = program = Program(uid, key, self.saved.get(key.uid, 0))
            self._send(program, key, {"progressPercentage": 0})
            self._next(program, after.at)

    def _next(self, program: Program, at: tuple[str, str]) -> None:
        seconds = self._seconds * (0.5 + self._chance.random())
        self._loop.call_later(seconds, self._step, program, at, context=self._outside)

    def _step(self, program: Program, at: tuple[str, str]) -> None:
        held = self._store.get(PODS, *at)
        if held is None or held.metadata["uid"] != program.pod or not trains(held):
            return
        if not program.hangs:
            program.step += 1
            said = {"current_step": program.step}
            if program.step % EVERY == 0:
                self.saved[program.key.uid] = said["checkpoint_step"] = program.step
            self._send(program, program.key, said)
        self._next(program, at)

    def hang(self, namespace: str, job: str) -> None:
        """The programs of a job that run make no more steps."""
        for program in self.programs.values():
            if (program.key.namespace, program.key.name) == (namespace, job):
                program.hangs = True

    def lie(self, namespace: str, job: str, wrong: int, another: str) -> None:
        """The program of a job reports a step that it did not make, or of another job."""
        there = [program for program in self.programs.values() if program.key.namespace == namespace]
        program = next((each for each in reversed(there) if each.key.name == job), None)
        key = next((each.key for each in reversed(there) if each.key.name == another), None)
        if program is not None and program.step + wrong >= 0:
            self._send(program, key or program.key, {"current_step": program.step + wrong}, lies=True)

    def last_words(self, held: Held) -> str | None:
        """The termination message of a program that is told to end; None for a pod without one."""
        program = self.programs.get(Uid(held.metadata["uid"]))
        if program is None:
            return None
        if not program.hangs:
            self.saved[program.key.uid] = program.step
        return "" if program.hangs else json.dumps({"checkpoint_step": program.step})

    def _send(self, program: Program, key: JobKey, said: Mapping[str, object], *, lies: bool = False) -> None:
        """A report on its way to one of the watchers."""
        if (step := said.get("current_step")) is not None:
            program.said.add(int(str(step)))
        chance = self._lies if lies else self._chance
        replica, way = chance.choice(self._watchers), 0.001 + 0.003 * chance.random()
        self._loop.call_later(way, self._arrive, replica, program, key, said, lies, context=self._outside)

    def _arrive(self, replica: Replica, program: Program, key: JobKey, said: Mapping[str, object], lies: bool) -> None:
        if (context := replica.context) is not None and replica.process is not None:
            # A process that stands still answers later, and one that is dead never.
            self._loop.call_soon(self._take, replica, program, key, said, lies, context=context)

    def _take(self, replica: Replica, program: Program, key: JobKey, said: Mapping[str, object], lies: bool) -> None:
        reports: Reports | None = getattr(replica.service, "reports", None)
        if reports is None or replica.runtime is None:
            return
        with suppress(Refused):
            reports.take(key, program.pod, report_body(**said))
            if not lies and said.get("current_step") is not None:
                self.heard[key.uid] = now()


class _Known(msgspec.Struct):
    """What the log has of a job's training."""

    pod: str = ""
    step: int = -1
    """Of the newest report since the group changed; -1 without one."""
    stepped: bool = False
    """True once this attempt reported a step."""
    reports: int = 0
    """In clear weather."""
    occasions: int = 0
    """How often a report was due at once: after a change of the group, or before the end of a pod."""
    since: str = ""
    """When its time began anew last."""
    told: bool = False
    """True once that is told as a stall."""
    refused: bool = False
    """True once this attempt was told that its steps go backwards."""


class TrainingDemands:
    """What the log must show of trainings, by its facts alone."""

    def __init__(self, trainers: Trainers) -> None:
        self._trainers = trainers
        self._known: dict[Uid, _Known] = {}
        self._clear: float | None = None

    def clear(self) -> None:
        """The weather is clear from now on, so that what stops is told."""
        self._clear = now()

    def after(self, job: Job, event: AnyEvent, logged: str, at: int) -> Iterator[str]:
        """The rules that an event breaks, which the log stored `at` that sequence; `job` is the fold with it."""
        known, uid = self._known.setdefault(job.key.uid, _Known()), job.key.uid
        match event:
            case ProgressReported(backwards=True):
                # It was refused, and is told: programs here do not count anew, though some lie.
                if known.step < (event.step or 0) or known.refused:
                    yield f"I48 {job.key} is told to go back to step {event.step} at {at}, from step {known.step}"
                known.refused = True
            case ProgressReported():
                yield from self._of_report(known, job, event, at)
                known.since, known.told = logged, False
            case CheckpointTaken():
                program = self._trainers.programs.get(event.pod)
                if program is None or event.step > program.step:
                    yield f"I47 {job.key} has a checkpoint of step {event.step} at {at}, and no program saved it"
            case TimePassed(timer=name) if name == STALL:
                limit = _limit(job)
                known.told = True
                silent = now() - self._trainers.heard.get(uid, 0.0)
                if silent < NEARLY * limit:
                    yield f"I49 {job.key} is told as stalled at {at}, {silent:.1f} s after a step, and has {limit} s"
            case HostsPublished() | SlotsAssigned():
                known.step, known.since, known.told = -1, logged, False
                known.occasions += 2
            case JobRestarting() | JobSuspending():
                self._known[uid] = _Known()
            case HistoryAccepted():
                # While the history was in doubt nobody acted on the job.
                known.since = logged
            case PodsObserved() | PodsGone():
                known.occasions += 2
                if isinstance(event, PodsObserved) and any(pod.phase == "Running" for pod in event.pods):
                    known.since, known.told = logged, False
            case _:
                pass

    def _of_report(self, known: _Known, job: Job, event: ProgressReported, at: int) -> Iterator[str]:
        program = self._trainers.programs.get(event.pod)
        if program is None or program.key != job.key or not {event.step} <= {None, *program.said}:
            yield f"I47 pod {event.pod} said nothing of step {event.step} of {job.key}, which the log has at {at}"
        if not event.step:
            # A new program, or one that says so.
            known.pod, known.step = event.pod, -1
            return
        if self._clear is not None:
            known.reports += 1
            most = 2 + known.occasions + (now() - self._clear) / min(RARE_SECONDS, (_limit(job) or 100) / 3)
            if known.reports > most:
                yield f"I51 {job.key} has {known.reports} reports in clear weather at {at}, and may have {most:.0f}"
        if event.pod == known.pod and event.step <= known.step:
            yield f"I48 {job.key} is at step {event.step} at {at}, after step {known.step}"
        known.pod, known.step, known.stepped = event.pod, event.step, True

    def late(self, job: Job, pods: Iterable[Held]) -> Iterator[str]:
        """The rule that the silence about a training breaks which stands still in clear weather."""
        known, limit = self._known.get(job.key.uid), _limit(job)
        if job.resource.gone or job.deleting or job.halted or not limit or self._clear is None:
            return
        if known is None or not known.stepped or known.told:
            return
        slots = {job.pod_name(slot) for slot in job.attempt.slots}
        whole = slots == {held.at[1] for held in pods if trains(held) and not held.metadata.get("deletionTimestamp")}
        stands = now() - max(datetime.fromisoformat(known.since).timestamp(), self._clear)
        if job.status.phase in ("Running", "Scaling") and whole and stands > limit + TOLD_SECONDS:
            yield f"I50 {job.key} made no step for {stands:.1f} s, has {limit} s, and is not told as stalled"


def now() -> float:
    """The time of the log's server, in seconds."""
    return wall_clock().timestamp()


def _limit(job: Job) -> int:
    return (job.spec.stall_timeout_seconds if job.spec is not None else None) or 0
