"""Heads: what happens to a job whose resource names a place that this log does not have."""

import asyncio
from itertools import cycle

import pytest

from services.status.checkpoints import SWEPT
from shared.cluster.kinds import PODS
from shared.eventlog import Entry
from shared.eventlog.account import HEADS
from shared.eventlog.subject import Subject
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import closed
from shared.job.integrity import Broken
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, a_scale_out, a_training_job
from tests.memory.cluster import Call, Calm
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.service.stage import MOST_EVENTS, Document, Stage
from tests.service.test_tfjobs import TFJOBS, a_tf_job
from tests.watcher.test_shell import PASSED


def head(stage: Stage, name: str = "resnet") -> str:
    history = stage.status(TRAININGJOBS, name)["history"]
    return f"{history['sequence']}:{history['hash']}"


def write_head(stage: Stage, name: str = "resnet", **fields: object) -> None:
    stage.store.patch(TRAININGJOBS, NAMESPACE, name, {"status": {"history": fields}}, subresource="status")


@in_virtual_time
async def test_a_head_that_log_and_checkpoint_contradict_holds_the_job_and_stays_until_a_person_accepts_it():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.quiet()
        right, last = head(stage), len(stage.journal.events)
        theirs = f"{last}:{'0' * 64}"
        write_head(stage, sequence=last, hash="0" * 64)
        await stage.until(lambda: stage.count("HistoryDisputed") == 1)
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.quiet()
        assert head(stage) == theirs, "the resource is not overwritten"
        kept = await (await MemoryEventLog(stage.journal).bucket(HEADS)).get(uid_of(stage))
        assert kept is not None
        assert kept.value.decode() == f"memory/{right}"
        assert stage.status(SCALEOUTS, "out") == {}
        for runtime in stage.runtimes():
            (held,) = runtime.held().values()
            assert right in held, "both sides are named"
            assert theirs in held
        stage.annotate("resnet", {"muster.dev/accept-history": theirs})
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        await going_on(stage)
        assert int(head(stage).split(":")[0]) >= int(right.split(":")[0])
        assert (stage.count("HistoryDisputed"), stage.count("HistoryBroken")) == (1, 0)


@in_virtual_time
async def test_what_only_the_status_said_goes_with_the_head_that_a_person_accepts():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.quiet()
        forged = {
            "history": {"sequence": len(stage.journal.events), "hash": "0" * 64},
            "completionTime": "2029-01-01T00:00:00Z",
            "replicaStatuses": {"Evaluator": {"active": 7}},
        }
        stage.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": forged}, subresource="status")
        await stage.until(lambda: stage.count("HistoryDisputed") == 1)
        stage.annotate("resnet", {"muster.dev/accept-history": head(stage)})
        await going_on(stage)
        await stage.quiet()
        status = stage.status(TRAININGJOBS, "resnet")
        assert "completionTime" not in status
        assert [*status["replicaStatuses"]] == ["Launcher", "Worker"]


BEGINNINGS = ("JobCreated", "JobRunning", "ScaleRequested", "ScaleAccepted", "SlotsAssigned")


async def a_finished_job(stage: Stage) -> str:
    """A job that was scaled out and succeeded; returns its uid."""
    stage.apply(TRAININGJOBS, a_training_job(workers=1))
    await stage.running()
    stage.apply(SCALEOUTS, a_scale_out(1))
    await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
    await stage.running()
    stage.exit_codes["resnet-launcher"] = 0
    await stage.phase("Succeeded")
    await stage.quiet()
    return uid_of(stage)


class Counted(Calm):
    """The calls of one service."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def before(self, call: Call) -> None:
        self.calls.append(call)
        await super().before(call)


@in_virtual_time
async def test_a_finished_job_costs_the_next_status_service_no_call():
    async with Stage() as first:
        await a_finished_job(first)
    before = resource(first)
    counted = Counted()
    async with Stage(
        of=first, journal=first.journal, weather=lambda author: counted if author == "status" else None
    ) as stage:
        await stage.pass_seconds(100)
        assert [call for call in counted.calls if call.plural != "events"] == []
        assert resource(stage) == before


def kept_of(stage: Stage) -> set[str]:
    """The objects of which something is kept beside the log."""
    return {key.partition(".")[0] for key in stage.journal.buckets[HEADS]} - {SWEPT}


@pytest.mark.parametrize("down", [False, True], ids=["at once", "while the status service was down"])
@in_virtual_time
async def test_nothing_is_kept_beside_the_log_of_a_job_that_is_gone_with_all_that_it_had(*, down: bool):
    async with Stage() as stage:
        uid = await a_finished_job(stage)
        stage.apply(TRAININGJOBS, a_training_job("other", workers=1))
        await stage.running("other")
        assert uid in kept_of(stage)
        if down:
            await stage.kill("status")
        stage.delete(TRAININGJOBS, "resnet")
        stage.delete(SCALEOUTS, "out")
        await stage.until(lambda: closed(stage.life(uid)))
        await stage.pass_seconds(10)
        if down:
            assert uid in kept_of(stage)
            await stage.start("status")
            await stage.pass_seconds(10)
        (other,) = kept_of(stage)
        assert stage.life(other).key.name == "other"


@in_virtual_time
async def test_a_start_looks_only_for_what_is_kept_of_jobs_that_closed_since_the_last_one():
    async with Stage() as stage:
        uid = await a_finished_job(stage)
        kept = dict(stage.journal.buckets[HEADS])
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: closed(stage.life(uid)))
        for there in (False, True):
            await stage.kill("status")
            await stage.start("status")
            await stage.pass_seconds(10)
            assert (uid in kept_of(stage)) == there
            stage.journal.buckets[HEADS] |= {key: kept[key] for key in kept if key != SWEPT}


def uid_of(stage: Stage) -> str:
    return str(resource(stage)["metadata"]["uid"])


def resource(stage: Stage) -> Document:
    held = stage.store.get(TRAININGJOBS, NAMESPACE, "resnet")
    assert held is not None
    return held.manifest


def damaged(journal: MemoryJournal, *, purged: str = "", cut: int = 0, forgets: bool = False) -> MemoryJournal:
    """The same log without the history of the job `purged`, or without its last `cut` events.

    It `forgets` the checkpoints, or keeps them.
    """
    again = MemoryJournal(identity=journal.events[0].event_id, most=MOST_EVENTS)
    last: dict[str, int] = {}
    for stored in journal.events[1 : len(journal.events) - cut]:
        subject, body = stored.subject, stored.body
        if purged and purged in subject:
            subject, body = "facts.team-b.other.uid-of-other.watcher.TimePassed", PASSED
        entry = Entry(subject=subject, event_id=stored.event_id, time=stored.time, body=body, basis=stored.basis)
        last[Subject.parse(subject).scope] = again.append(entry, expect=last.get(Subject.parse(subject).scope, 0))
    if not forgets:
        again.buckets = journal.buckets
    return again


@pytest.mark.parametrize("forgets", [False, True], ids=["the history", "the history and the checkpoint"])
@in_virtual_time
async def test_a_finished_job_whose_history_was_purged_is_held_and_never_begun_again(*, forgets: bool):
    async with Stage() as lost:
        uid = await a_finished_job(lost)
        before = resource(lost)
    async with Stage(of=lost, journal=damaged(lost.journal, purged=uid, forgets=forgets)) as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        await stage.pass_seconds(100)
        assert "HistoryLost" in stage.life(uid).integrity.sentence
        assert [stage.count(kind) for kind in BEGINNINGS] == [0] * len(BEGINNINGS)
        assert resource(stage) == before
        stage.annotate("resnet", {"muster.dev/accept-history": head(stage)})
        await stage.until(lambda: stage.count("HistoryAccepted") == 1)
        await stage.pass_seconds(100)
        assert [stage.count(kind) for kind in BEGINNINGS] == [0] * len(BEGINNINGS), "it is over after that, too"
        status = stage.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["startTime"]) == ("Succeeded", before["status"]["startTime"])
        assert stage.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"


@pytest.mark.parametrize(
    ("purged", "reason"), [(True, "HistoryLost"), (False, "BeyondTheEnd")], ids=["purged", "its end was cut off"]
)
@in_virtual_time
async def test_the_checkpoint_alone_tells_of_a_lost_history(*, purged: bool, reason: str):
    async with Stage() as lost:
        uid = await a_finished_job(lost)
    lost.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": None}, subresource="status")
    journal = damaged(lost.journal, purged=uid) if purged else damaged(lost.journal, cut=3)
    async with Stage(of=lost, journal=journal) as stage:
        before = stage.count("JobCreated")
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        await stage.pass_seconds(100)
        doubt = stage.life(uid).integrity.doubt
        assert isinstance(doubt, Broken)
        assert doubt.reason == reason
        assert stage.count("JobCreated") == before
        assert list(stage.pods()) == ["resnet-launcher"]


@in_virtual_time
async def test_a_job_that_was_over_when_its_log_was_restored_to_its_beginning_stays_over():
    async with Stage() as lost:
        uid = await a_finished_job(lost)
        before = resource(lost)
        cut = len(lost.journal.events) - lost.types().index("JobCreated") - 1
    async with Stage(of=lost, journal=damaged(lost.journal, cut=cut)) as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        assert stage.life(uid).phase == "Created"
        stage.annotate("resnet", {"muster.dev/accept-history": head(stage)})
        await stage.until(lambda: stage.count("HistoryAccepted") == 1)
        await stage.pass_seconds(100)
        status = stage.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["startTime"]) == ("Succeeded", before["status"]["startTime"])
        assert (stage.count("JobRunning"), sorted(stage.pods())) == (0, ["resnet-launcher"])


@in_virtual_time
async def test_a_held_job_that_a_person_deletes_is_gone():
    async with Stage() as lost:
        uid = await a_finished_job(lost)
    async with Stage(of=lost, journal=damaged(lost.journal, purged=uid)) as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: stage.life(uid).gone)


@in_virtual_time
async def test_a_head_that_a_person_removed_is_written_again_with_the_next_document():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.quiet()
        stage.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": None}}, subresource="status")
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        await stage.running()
        assert stage.status(TRAININGJOBS, "resnet")["history"]["log"] == "memory"


async def going_on(stage: Stage) -> None:
    """Wait until the job runs in this log: its status may still be that of a lost one."""
    job = stage.store.get(TRAININGJOBS, NAMESPACE, "resnet")
    assert job is not None
    uid = job.metadata["uid"]
    await stage.until(lambda: stage.life(uid).phase == "Running", "it runs")
    await stage.quiet()
    status = stage.status(TRAININGJOBS, "resnet")
    assert status["phase"] == "Running"
    assert status["history"]["log"] == stage.journal.events[0].event_id
    assert status["history"]["sequence"] <= stage.history(uid).sequence, "the head is of this log"


async def a_job_of_a_lost_log(stage: Stage) -> dict[str, Document]:
    """A job that runs with three workers, one of them scaled out; returns everything the cluster holds of it."""
    # The lost log was longer than the next one will be for a while.
    for name in ("early", "earlier"):
        stage.apply(TRAININGJOBS, a_training_job(name, workers=8))
        await stage.running(name)
        stage.delete(TRAININGJOBS, name)
    await stage.until(lambda: not stage.pods())
    stage.apply(TRAININGJOBS, a_training_job(workers=2))
    await stage.running()
    stage.apply(SCALEOUTS, a_scale_out(1))
    await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
    await stage.running()
    await stage.quiet()
    uid = stage.store.get(TRAININGJOBS, NAMESPACE, "resnet").metadata["uid"]  # type: ignore[union-attr]
    held = {f"{one.manifest['kind']}/{one.at[1]}": one.manifest for one in stage.owned_by(uid)}
    return held | {"TrainingJob/resnet": stage.store.get(TRAININGJOBS, NAMESPACE, "resnet").manifest}  # type: ignore[union-attr]


class Late(Calm):
    """Of one kind nothing is heard until the test says so."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def before(self, call: Call) -> None:
        if (call.verb, call.plural) == ("watch", TRAININGJOBS.plural):
            await self.over.wait()
        await super().before(call)


@in_virtual_time
async def test_a_lost_history_is_found_though_the_log_grew_past_it_before_anybody_looked():
    async with Stage() as lost:
        await a_job_of_a_lost_log(lost)
        sequence = int(head(lost).partition(":")[0])
    late = Late()
    async with Stage(of=lost, log="memory", weather=lambda _: late) as stage:
        for number in range(sequence // 2):
            stage.apply(TFJOBS, a_tf_job(f"other-{number}", Worker=1))
        await stage.until(lambda: len(stage.journal.events) > sequence)
        late.over.set()
        await stage.until(lambda: stage.count("HistoryDisputed") + stage.count("HistoryBroken") == 1)
        assert stage.count("HistoryBroken") == 1


@in_virtual_time
async def test_answers_of_a_leader_that_lags_are_no_lost_history():
    async with Stage() as stage:
        end, lags = stage.journal.end, cycle([50, 50, 0])
        stage.journal.end = lambda subjects, behind=0: end(subjects, next(lags))  # type: ignore[method-assign]
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        await stage.quiet()
        assert stage.count("HistoryBroken") == 0


@pytest.mark.parametrize(
    ("log", "reason"), [("another", "OtherLog"), ("memory", "BeyondTheEnd")], ids=["another log", "beyond the end"]
)
@in_virtual_time
async def test_a_lost_history_stops_everybody_for_that_job_until_a_person_accepts_it(log: str, reason: str):
    async with Stage() as lost:
        before = await a_job_of_a_lost_log(lost)
        uid = before["TrainingJob/resnet"]["metadata"]["uid"]
        named = head(lost)

    def now() -> dict[str, Document]:
        held = {f"{one.manifest['kind']}/{one.at[1]}": one.manifest for one in stage.owned_by(uid)}
        return held | {"TrainingJob/resnet": stage.store.get(TRAININGJOBS, NAMESPACE, "resnet").manifest}  # type: ignore[union-attr]

    async with Stage(of=lost, log=log) as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        assert f'"reason":"{reason}"' in next(
            stored.body.decode() for stored in stage.journal.events if stored.subject.endswith("HistoryBroken")
        )
        # Others are served; this one is left exactly as it was, whatever happens to it.
        stage.apply(TRAININGJOBS, a_training_job("other", workers=1))
        stage.apply(SCALEOUTS, a_scale_out(1, name="again"))
        await stage.running("other")
        await stage.quiet()
        assert now() == before
        assert stage.status(SCALEOUTS, "again") == {}
        # Nothing but exactly this head is an acceptance.
        stage.annotate("resnet", {"muster.dev/accept-history": f"{named[:-1]}x"})
        await stage.quiet()
        assert stage.count("HistoryAccepted") == 0
        assert {name: held for name, held in now().items() if name.startswith("Pod/")} == {
            name: held for name, held in before.items() if name.startswith("Pod/")
        }
        stage.annotate("resnet", {"muster.dev/accept-history": named})
        await stage.phase("ScaleSucceeded", SCALEOUTS, "again")
        await going_on(stage)
        assert (stage.count("JobAdopted"), stage.count("HistoryAccepted")) == (1, 1)
        assert stage.hosts() == [f"resnet-worker-{index}" for index in range(4)]
        uids = {name: held["metadata"]["uid"] for name, held in now().items() if name.startswith("Pod/")}
        assert {name: uids[name] for name in before if name.startswith("Pod/")} == {
            name: held["metadata"]["uid"] for name, held in before.items() if name.startswith("Pod/")
        }, "the training went on"
        status = stage.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["workers"], status["history"]["log"]) == ("Running", "4/4", log)


@in_virtual_time
async def test_an_accepted_head_is_never_broken_again():
    async with Stage() as lost:
        await a_job_of_a_lost_log(lost)
        named = head(lost)
    async with Stage(of=lost, log="another") as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        stage.annotate("resnet", {"muster.dev/accept-history": named})
        await going_on(stage)
        for author in ("watcher", "status", "scaler", "scheduler"):
            await stage.kill(author)
            await stage.start(author)
        await stage.quiet()
        assert (stage.count("HistoryBroken"), stage.count("HistoryAccepted")) == (1, 1)


@in_virtual_time
async def test_an_accepted_loss_without_pods_begins_anew():
    async with Stage() as lost:
        await a_job_of_a_lost_log(lost)
        named = head(lost)
    async with Stage(of=lost, log="another") as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        for name in stage.pods():
            stage.delete(PODS, name)
        await stage.until(lambda: not stage.pods())
        await stage.quiet()
        assert not stage.pods(), "no service makes pods for a job whose history is in doubt"
        stage.annotate("resnet", {"muster.dev/accept-history": named})
        await going_on(stage)
        assert stage.hosts() == ["resnet-worker-0", "resnet-worker-1"]
        assert stage.count("JobAdopted") == 0


@in_virtual_time
async def test_a_request_that_was_under_way_when_the_log_was_lost_does_not_begin_anew():
    async with Stage() as lost:
        await a_job_of_a_lost_log(lost)
        lost.stuck.add("resnet-worker-3")
        lost.apply(SCALEOUTS, a_scale_out(1, name="under-way"))
        await lost.phase("Scaling", SCALEOUTS, "under-way")
        await lost.until(lambda: "resnet-worker-3" in lost.pods())
        await lost.quiet()
        named = head(lost)
    async with Stage(of=lost, log="another") as stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        stage.annotate("resnet", {"muster.dev/accept-history": named})
        await stage.phase("ScaleFailed", SCALEOUTS, "under-way")
        await going_on(stage)
        assert stage.condition(SCALEOUTS, "under-way", "ScaleFailed") == ("True", "HistoryLost")
        # Its pod was there when the job was taken on, and is a worker like any other.
        assert stage.hosts() == [f"resnet-worker-{index}" for index in range(4)]


@in_virtual_time
async def test_what_was_decided_before_the_history_broke_is_not_done_until_it_is_accepted():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.kill("scheduler")
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("Scaling", SCALEOUTS, "out")
        await stage.quiet()
        write_head(stage, sequence=10**6, hash="0" * 64)
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        await stage.start("scheduler")
        await stage.pass_seconds(100)
        assert sorted(stage.pods()) == ["resnet-launcher", "resnet-worker-0"]
        stage.annotate("resnet", {"muster.dev/accept-history": f"{10**6}:{'0' * 64}"})
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        await going_on(stage)
