"""Heads: what happens to a job whose resource names a place that this log does not have."""

import asyncio
from itertools import cycle

import msgspec
import pytest

from services.status.checkpoints import SWEPT
from shared.cluster.kinds import PODS
from shared.errors import Refused
from shared.eventlog import Bucket, Entry, Revised
from shared.eventlog.account import HEADS
from shared.eventlog.subject import Subject
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import closed
from shared.job.integrity import Broken
from shared.job.naming import JobKey, Uid
from shared.runtime.run import GONE_SECONDS
from tests.frameworks.documents import changed, tf_job
from tests.kit.histories import chained
from tests.kit.services import AUTHORS
from tests.kit.weather import Noting, met_by
from tests.kit.world import MOST_EVENTS, NAMESPACE, Document, World, a_scale_in, a_scale_out, a_training_job
from tests.memory.cluster import Call, Calm
from tests.memory.eventlog import MemoryBucket, MemoryEventLog, MemoryJournal
from tests.service.kubeflow import applied
from tests.watcher.test_shell import PASSED


def head(world: World, name: str = "resnet") -> str:
    history = world.status(TRAININGJOBS, name)["history"]
    return f"{history['sequence']}:{history['hash']}"


def write_head(world: World, name: str = "resnet", **fields: object) -> None:
    world.store.patch(TRAININGJOBS, NAMESPACE, name, {"status": {"history": fields}}, subresource="status")


async def test_a_head_that_log_and_checkpoint_contradict_holds_the_job_until_a_person_accepts_it_and_is_repaired_once():
    async with World() as world:
        await world.trains(workers=1)
        await world.quiet()
        right, last = head(world), len(world.journal.events)
        theirs = f"{last}:{'0' * 64}"
        forged = {
            "history": {"sequence": last, "hash": "0" * 64},
            "completionTime": "2029-01-01T00:00:00Z",
            "replicaStatuses": {"Evaluator": {"active": 7}},
        }
        world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": forged}, subresource="status")
        await world.until(lambda: world.count("HistoryDisputed") == 1)
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.quiet()
        assert head(world) == theirs, "the resource is not overwritten"
        kept = await (await MemoryEventLog(world.journal).bucket(HEADS)).get(uid_of(world))
        assert kept is not None
        assert kept.value.decode() == f"memory/{right}"
        assert world.status(SCALEOUTS, "out") == {}
        for runtime in world.runtimes():
            (held,) = runtime.held().values()
            assert right in held, "both sides are named"
            assert theirs in held
        world.annotate("resnet", {"muster.dev/accept-history": theirs})
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        await going_on(world)
        assert int(head(world).split(":")[0]) >= int(right.split(":")[0])
        assert (world.count("HistoryDisputed"), world.count("HistoryBroken")) == (1, 0)
        # What only the status said goes with it.
        status = world.status(TRAININGJOBS, "resnet")
        assert "completionTime" not in status
        assert [*status["replicaStatuses"]] == ["Launcher", "Worker"]
        await world.quiet()
    counted = Noting()
    async with World(of=world, journal=world.journal, weather=met_by("status", counted)) as again:
        await again.pass_seconds(100)
        assert [call.verb for call in counted.calls if call.plural == "trainingjobs"] == ["get"]


BEGINNINGS = ("JobCreated", "JobRunning", "ScaleRequested", "ScaleAccepted", "SlotsAssigned")


async def a_finished_job(world: World) -> str:
    """A job that was scaled out and succeeded; returns its uid."""
    await world.trains(workers=1)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.running()
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    await world.quiet()
    return uid_of(world)


async def test_a_finished_job_costs_the_next_status_service_no_call():
    async with World() as first:
        await a_finished_job(first)
    before = resource(first)
    counted = Noting()
    async with World(of=first, journal=first.journal, weather=met_by("status", counted)) as world:
        await world.pass_seconds(100)
        assert [call for call in counted.calls if call.plural != "events"] == []
        assert resource(world) == before


def kept_of(world: World) -> set[str]:
    """The objects of which something is kept beside the log."""
    return {key.partition(".")[0] for key in world.journal.buckets[HEADS]} - {SWEPT}


@pytest.mark.parametrize("down", [False, True], ids=["at once", "while the status service was down"])
async def test_nothing_is_kept_beside_the_log_of_a_job_that_is_gone_with_all_that_it_had(world: World, *, down: bool):
    uid = await a_finished_job(world)
    world.apply(TRAININGJOBS, a_training_job("other", workers=1))
    await world.running("other")
    assert uid in kept_of(world)
    if down:
        await world.kill("status")
    world.delete(TRAININGJOBS, "resnet")
    world.delete(SCALEOUTS, "out")
    await world.until(lambda: closed(world.life(uid)))
    await world.pass_seconds(10)
    if down:
        assert uid in kept_of(world)
        await world.start("status")
        await world.pass_seconds(10)
    (other,) = kept_of(world)
    assert world.life(other).key.name == "other"


class Answerless(Calm):
    """The answers to one kind of question come once the test says so."""

    def __init__(self) -> None:
        self.asked, self.over = asyncio.Event(), asyncio.Event()
        self.over.set()

    async def after(self, call: Call) -> None:
        if not self.over.is_set() and (call.verb, call.plural) == ("get", TRAININGJOBS.plural):
            self.asked.set()
            await self.over.wait()


async def test_nothing_is_kept_of_a_job_about_which_the_api_server_answers_once_it_is_gone():
    slow = Answerless()
    async with World(weather=met_by("status", slow)) as world:
        uid = (await world.trains(workers=1)).metadata["uid"]
        await world.quiet()
        slow.over.clear()
        world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"spec": {"backoffLimit": 3}})
        await world.until(slow.asked.is_set)
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: closed(world.life(uid)))
        await world.pass_seconds(10)
        slow.over.set()
        await world.pass_seconds(10)
        assert kept_of(world) == set()


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("what", ["{uid}", "{uid}.shown"])
async def test_nothing_is_kept_of_a_job_that_is_cleared_away_while_its_entry_is_written(
    monkeypatch: pytest.MonkeyPatch, what: str, *, sealed: bool
):
    asked, over = asyncio.Event(), asyncio.Event()
    put = MemoryBucket.put
    written = what

    async def slow(bucket: MemoryBucket, key: str, value: bytes, *, expect: int | None = None) -> int:
        if key == written:
            asked.set()
            await over.wait()
            # As of a job that had no entry yet.
            expect = None
        return await put(bucket, key, value, expect=expect)

    async with World(seal_after=5 if sealed else None) as world:
        uid = (await world.trains(workers=1)).metadata["uid"]
        await world.quiet()
        written = what.format(uid=uid)
        monkeypatch.setattr(MemoryBucket, "put", slow)
        world.exit_codes["resnet-launcher"] = 0
        await world.until(asked.is_set)
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: closed(world.life(uid)))
        await world.pass_seconds(10)
        assert kept_of(world) == set(), "it is cleared away before"
        assert world.count("JobSealed") == sealed
        over.set()
        await world.pass_seconds(10)
        assert kept_of(world) == set()


async def test_an_entry_that_is_written_between_two_removals_of_a_job_is_removed_too(monkeypatch: pytest.MonkeyPatch):
    asked, over = asyncio.Event(), asyncio.Event()
    put, delete, uid = MemoryBucket.put, MemoryBucket.delete, ""

    async def slow(bucket: MemoryBucket, key: str, value: bytes, *, expect: int | None = None) -> int:
        if key == uid and not asked.is_set():
            asked.set()
            await over.wait()
            expect = None
        return await put(bucket, key, value, expect=expect)

    async def between(bucket: MemoryBucket, key: str, *, expect: int | None = None) -> None:
        await delete(bucket, key, expect=expect)
        if key == uid and not over.is_set():
            over.set()
            await asyncio.sleep(1)

    async with World() as world:
        uid = (await world.trains(workers=1)).metadata["uid"]
        await world.quiet()
        monkeypatch.setattr(MemoryBucket, "put", slow)
        monkeypatch.setattr(MemoryBucket, "delete", between)
        world.exit_codes["resnet-launcher"] = 0
        await world.until(asked.is_set)
        world.delete(TRAININGJOBS, "resnet")
        await world.until(over.is_set)
        await world.pass_seconds(10)
        assert kept_of(world) == set()


async def test_nothing_is_kept_beside_the_log_of_a_request_that_is_gone_while_its_job_lives(world: World):
    await world.trains(workers=1)
    request = world.apply(SCALEOUTS, a_scale_out(1)).metadata["uid"]
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.running()
    await world.quiet()
    assert request in kept_of(world)
    world.delete(SCALEOUTS, "out")
    await world.until(lambda: request not in kept_of(world))


async def test_a_start_looks_only_for_what_is_kept_of_jobs_that_closed_since_the_last_one(world: World):
    uid = await a_finished_job(world)
    kept = dict(world.journal.buckets[HEADS])
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: closed(world.life(uid)))
    for there in (False, True):
        await world.restart("status")
        await world.pass_seconds(10)
        assert (uid in kept_of(world)) == there
        world.journal.buckets[HEADS] |= {key: kept[key] for key in kept if key != SWEPT}
    # A note beyond the end is of a log that was restored since.
    await (await world.log("status").bucket(HEADS)).put(
        SWEPT, f"{await world.log('status').identity()}/999999".encode()
    )
    await world.restart("status")
    await world.pass_seconds(10)
    assert uid not in kept_of(world)


@pytest.mark.parametrize("at", [2, 999_999], ids=["of whose time no hash is kept", "that is ahead"])
async def test_the_last_head_of_a_job_that_is_gone_stays_if_the_log_contradicts_it(at: int):
    async with World(seal_after=1) as world:
        uid = await a_finished_job(world)
        await world.kill("status")
        identity = await world.log("status").identity()
        other = f"{identity}/{at}:{'0' * 64}"
        await (await world.log("status").bucket(HEADS)).put(uid, other.encode())
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: closed(world.life(uid)))
        await world.start("status")
        await world.pass_seconds(10)
        assert uid in kept_of(world)
        assert world.count("JobSealed") == 0


@pytest.mark.parametrize("before", [True, False], ids=["of a replica that began long before", "of one that begins"])
async def test_a_gone_job_is_cleaned_up_although_its_last_head_is_not_in_the_log(world: World, *, before: bool):
    await world.trains(workers=1)
    uid, identity = uid_of(world), await world.log("status").identity()
    for author in ("scheduler", "status"):
        await world.kill(author)
    await (await world.log("status").bucket(HEADS)).put(uid, f"{identity}/999999:{'0' * 64}".encode())
    if before:
        await world.start("scheduler")
        await world.pass_seconds(2 * GONE_SECONDS)
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: bool(world.life(uid).resource.gone))
    if not before:
        await world.start("scheduler")
    await world.pass_seconds(GONE_SECONDS - 5)
    assert not closed(world.life(uid)), "nothing is done before a watcher would have seen that it is there"
    await world.until(lambda: closed(world.life(uid)))
    await world.start("status")


async def test_a_gone_job_whose_loss_a_person_accepted_keeps_no_checkpoint_that_is_ahead(world: World):
    uid = await a_finished_job(world)
    identity, ahead = await world.log("status").identity(), f"{len(world.journal.events)}:{'0' * 64}"
    sequence, digest = ahead.split(":")
    write_head(world, sequence=int(sequence), hash=digest)
    await world.until(lambda: world.count("HistoryDisputed") == 1)
    world.annotate("resnet", {"muster.dev/accept-history": ahead})
    await world.until(lambda: bool(world.life(uid).integrity.accepted))
    await world.quiet()
    await world.kill("status")
    beyond = f"{identity}/999999:{'0' * 64}"
    await (await world.log("status").bucket(HEADS)).put(uid, beyond.encode())
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: closed(world.life(uid)))
    await world.start("status")
    await world.until(lambda: uid not in kept_of(world))


class RefusedOnce(MemoryEventLog):
    """A log whose bucket of checkpoints refuses the first deletion."""

    async def bucket(self, name: str) -> Bucket:
        bucket = await super().bucket(name)
        delete, refused = bucket.delete, False

        async def refusing(key: str, *, expect: int | None = None) -> None:
            nonlocal refused
            if not refused:
                refused = True
                raise Refused("no permission", reason="Forbidden")
            await delete(key, expect=expect)

        bucket.delete = refusing  # type: ignore[method-assign]
        return bucket


async def test_a_job_is_sealed_once_it_is_gone_for_its_time_and_every_service_lets_go_of_it():
    journal = MemoryJournal(most=MOST_EVENTS)
    logs = {author: (RefusedOnce if author == "status" else MemoryEventLog)(journal, user=author) for author in AUTHORS}
    async with World(seal_after=30, journal=journal, logs=logs) as world:
        uid = await a_finished_job(world)
        await world.pass_seconds(60)
        assert all(timer["timer"] != "Seal" for timer in timers_of(world)), "it is there"
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: closed(world.life(uid)))
        await world.pass_seconds(25)
        assert world.count("JobSealed") == 0
        await world.until(lambda: world.count("JobSealed") == 1)
        assert uid not in kept_of(world), "its checkpoint left before"
        await world.quiet()
        key = JobKey(NAMESPACE, "resnet", Uid(uid))
        for runtime in world.runtimes():
            assert runtime.histories.get(key) is None
            assert runtime.histories.sealed(key) == world.journal.events[-1].sequence, "and nothing follows"
            assert key not in runtime.appends._under_way


def timers_of(world: World) -> list[Document]:
    return [msgspec.json.decode(each.body) for each in world.journal.events if each.subject.endswith(".TimePassed")]


def uid_of(world: World) -> str:
    return str(resource(world)["metadata"]["uid"])


def resource(world: World) -> Document:
    held = world.store.get(TRAININGJOBS, NAMESPACE, "resnet")
    assert held is not None
    return held.manifest


def purged_of(journal: MemoryJournal, uid: str, *, forgets: bool = False) -> MemoryJournal:
    """The same log without the history of a job; it `forgets` the checkpoints, or keeps them."""
    again = MemoryJournal(identity=journal.events[0].event_id, most=MOST_EVENTS)
    last: dict[str, int] = {}
    for stored in journal.events[1:]:
        subject, body = stored.subject, stored.body
        if uid in subject:
            subject, body = "facts.team-b.other.uid-of-other.watcher.TimePassed", PASSED
        entry = Entry(subject=subject, event_id=stored.event_id, time=stored.time, body=body, basis=stored.basis)
        last[Subject.parse(subject).scope] = again.append(entry, expect=last.get(Subject.parse(subject).scope, 0))
    if not forgets:
        again.buckets = journal.buckets
    return again


@pytest.mark.parametrize("forgets", [False, True], ids=["the history", "the history and the checkpoint"])
async def test_a_finished_job_whose_history_was_purged_is_held_and_never_begun_again(*, forgets: bool):
    async with World() as lost:
        uid = await a_finished_job(lost)
        before = resource(lost)
    async with World(of=lost, journal=purged_of(lost.journal, uid, forgets=forgets)) as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        await world.pass_seconds(100)
        assert "HistoryLost" in world.life(uid).integrity.sentence
        assert [world.count(kind) for kind in BEGINNINGS] == [0] * len(BEGINNINGS)
        assert resource(world) == before
        world.annotate("resnet", {"muster.dev/accept-history": head(world)})
        await world.until(lambda: world.count("HistoryAccepted") == 1)
        await world.pass_seconds(100)
        assert [world.count(kind) for kind in BEGINNINGS] == [0] * len(BEGINNINGS), "it is over after that, too"
        status = world.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["startTime"]) == ("Succeeded", before["status"]["startTime"])
        assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"


@pytest.mark.parametrize(
    ("purged", "reason"), [(True, "HistoryLost"), (False, "BeyondTheEnd")], ids=["purged", "its end was cut off"]
)
async def test_the_checkpoint_alone_tells_of_a_lost_history(*, purged: bool, reason: str):
    async with World() as lost:
        uid = await a_finished_job(lost)
    lost.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": None}, subresource="status")
    if not purged:
        lost.journal.restore(len(lost.journal.events) - 3)
    async with World(of=lost, journal=purged_of(lost.journal, uid) if purged else lost.journal) as world:
        before = world.count("JobCreated")
        await world.until(lambda: world.count("HistoryBroken") == 1)
        await world.pass_seconds(100)
        doubt = world.life(uid).integrity.doubt
        assert isinstance(doubt, Broken)
        assert doubt.reason == reason
        assert world.count("JobCreated") == before
        assert list(world.pods()) == ["resnet-launcher"]


async def test_a_job_that_was_over_when_its_log_was_restored_to_its_beginning_stays_over():
    async with World() as lost:
        uid = await a_finished_job(lost)
        before = resource(lost)
    lost.journal.restore(lost.types().index("JobCreated") + 1)
    async with World(of=lost, journal=lost.journal) as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        assert world.life(uid).status.phase == "Created"
        world.annotate("resnet", {"muster.dev/accept-history": head(world)})
        await world.until(lambda: world.count("HistoryAccepted") == 1)
        await world.pass_seconds(100)
        status = world.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["startTime"]) == ("Succeeded", before["status"]["startTime"])
        assert (world.count("JobRunning"), sorted(world.pods())) == (0, ["resnet-launcher"])


def uids(world: World) -> dict[str, str]:
    return {name: held.metadata["uid"] for name, held in world.pods().items()}


@pytest.mark.parametrize("last", ["JobRunning", "ScaleRequested", "ScaleAccepted", "HostsPublished"])
async def test_workers_of_a_scale_out_that_the_log_lost_are_taken_on(last: str):
    async with World() as lost:
        await lost.trains(workers=2)
        running = lost.types().index("JobRunning")
        lost.apply(SCALEOUTS, a_scale_out(2))
        await lost.phase("ScaleSucceeded", SCALEOUTS, "out")
        await lost.running()
        await lost.quiet()
        before = uids(lost)
    lost.journal.restore(lost.types().index(last, running) + 1)
    async with World(of=lost, journal=lost.journal) as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        world.annotate("resnet", {"muster.dev/accept-history": head(world)})
        await world.until(lambda: world.count("HistoryAccepted") == 1)
        await going_on(world)
        await world.pass_seconds(100)
        assert uids(world) == before, "none is deleted, and none comes besides"
        assert world.hosts() == [f"resnet-worker-{index}" for index in range(4)]
        assert world.job().scaling.size == 4
        assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"


async def test_a_worker_that_a_scale_in_released_before_the_log_was_lost_is_not_taken_on_again(world: World):
    await world.trains(workers=2)
    await world.kill("scheduler")
    world.apply(SCALEINS, a_scale_in(1))
    await world.until(lambda: world.count("WorkersReleased") == 1)
    await world.quiet()
    write_head(world, sequence=10**6, hash="0" * 64)
    await world.until(lambda: world.count("HistoryBroken") == 1)
    await world.start("scheduler")
    assert "resnet-worker-1" in world.pods()
    world.annotate("resnet", {"muster.dev/accept-history": f"{10**6}:{'0' * 64}"})
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    assert world.hosts() == ["resnet-worker-0"]


async def test_the_attempt_that_the_log_lost_is_taken_on():
    async with World() as lost:
        await lost.trains(workers=2, cleanPodPolicy="All")
        length = len(lost.journal.events)
        lost.annotate("resnet", {"muster.dev/restart": "now"})
        await lost.until(lambda: lost.count("JobRestarted") == 1)
        await lost.running()
        await lost.quiet()
        before = uids(lost)
    for end in (length, lost.types().index("JobRestarting") + 1):
        lost.journal.restore(end)
    async with World(of=lost, journal=lost.journal) as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        world.annotate("resnet", {"muster.dev/accept-history": head(world)})
        await going_on(world)
        await world.pass_seconds(100)
        assert uids(world) == before
        assert world.job().attempt.number == 1


async def test_a_held_job_that_lost_its_launcher_is_gone_once_a_person_deletes_it(world: World):
    uid = (await world.trains(workers=1)).metadata["uid"]
    write_head(world, log="another", sequence=3, hash="0" * 64)
    await world.until(lambda: world.count("HistoryBroken") == 1)
    world.delete(PODS, "resnet-launcher")
    await world.pass_seconds(10)
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: world.life(uid).resource.gone)


async def test_a_head_that_a_person_removed_is_written_again_with_the_next_document(world: World):
    await world.trains(workers=1)
    await world.quiet()
    world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": None}}, subresource="status")
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.running()
    assert world.status(TRAININGJOBS, "resnet")["history"]["log"] == "memory"


async def going_on(world: World) -> None:
    """Wait until the job runs in this log: its status may still be that of a lost one."""
    job = world.store.get(TRAININGJOBS, NAMESPACE, "resnet")
    assert job is not None
    uid = job.metadata["uid"]
    await world.until(lambda: world.life(uid).status.phase == "Running", "it runs")
    await world.quiet()
    status = world.status(TRAININGJOBS, "resnet")
    assert status["phase"] == "Running"
    assert status["history"]["log"] == world.journal.events[0].event_id
    assert status["history"]["sequence"] <= world.history(uid).sequence, "the head is of this log"


async def a_job_of_a_lost_log(world: World) -> dict[str, Document]:
    """A job that runs with three workers, one of them scaled out; returns everything the cluster holds of it."""
    # The lost log was longer than the next one will be for a while.
    for name in ("early", "earlier"):
        world.apply(TRAININGJOBS, a_training_job(name, workers=8))
        await world.running(name)
        world.delete(TRAININGJOBS, name)
    await world.until(lambda: not world.pods())
    await world.trains(workers=2)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.running()
    await world.quiet()
    uid = world.store.get(TRAININGJOBS, NAMESPACE, "resnet").metadata["uid"]  # type: ignore[union-attr]
    held = {f"{one.manifest['kind']}/{one.at[1]}": one.manifest for one in world.owned_by(uid)}
    return held | {"TrainingJob/resnet": world.store.get(TRAININGJOBS, NAMESPACE, "resnet").manifest}  # type: ignore[union-attr]


class Late(Calm):
    """Of one kind nothing is heard until the test says so."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def before(self, call: Call) -> None:
        if (call.verb, call.plural) == ("watch", TRAININGJOBS.plural):
            await self.over.wait()
        await super().before(call)


async def test_a_lost_history_is_found_though_the_log_grew_past_it_before_anybody_looked():
    async with World() as lost:
        await a_job_of_a_lost_log(lost)
        sequence = int(head(lost).partition(":")[0])
    late = Late()
    async with World(of=lost, log="memory", weather=lambda _: late) as world:
        for number in range(sequence // 2):
            world.apply(TFJOB.resource, applied(changed(tf_job(Worker=1), "metadata.name", f"other-{number}")))
        await world.until(lambda: len(world.journal.events) > sequence)
        late.over.set()
        await world.until(lambda: world.count("HistoryDisputed") + world.count("HistoryBroken") == 1)
        assert world.count("HistoryBroken") == 1


async def test_answers_of_a_leader_that_lags_are_no_lost_history(world: World):
    end, lags = world.journal.end, cycle([50, 50, 0])
    world.journal.end = lambda subjects, behind=0: end(subjects, next(lags))  # type: ignore[method-assign]
    await world.trains(workers=2)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.quiet()
    assert world.count("HistoryBroken") == 0


@pytest.mark.parametrize(
    ("log", "reason"), [("another", "OtherLog"), ("memory", "BeyondTheEnd")], ids=["another log", "beyond the end"]
)
async def test_a_lost_history_stops_everybody_for_that_job_until_a_person_accepts_it(log: str, reason: str):
    async with World() as lost:
        before = await a_job_of_a_lost_log(lost)
        uid = before["TrainingJob/resnet"]["metadata"]["uid"]
        named = head(lost)

    def now() -> dict[str, Document]:
        held = {f"{one.manifest['kind']}/{one.at[1]}": one.manifest for one in world.owned_by(uid)}
        return held | {"TrainingJob/resnet": world.store.get(TRAININGJOBS, NAMESPACE, "resnet").manifest}  # type: ignore[union-attr]

    async with World(of=lost, log=log) as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        assert f'"reason":"{reason}"' in next(
            stored.body.decode() for stored in world.journal.events if stored.subject.endswith("HistoryBroken")
        )
        # Others are served; this one is left exactly as it was, whatever happens to it.
        world.apply(TRAININGJOBS, a_training_job("other", workers=1))
        world.apply(SCALEOUTS, a_scale_out(1, name="again"))
        await world.running("other")
        await world.quiet()
        assert now() == before
        assert world.status(SCALEOUTS, "again") == {}
        # Nothing but exactly this head is an acceptance.
        world.annotate("resnet", {"muster.dev/accept-history": f"{named[:-1]}x"})
        await world.quiet()
        assert world.count("HistoryAccepted") == 0
        assert {name: held for name, held in now().items() if name.startswith("Pod/")} == {
            name: held for name, held in before.items() if name.startswith("Pod/")
        }
        world.annotate("resnet", {"muster.dev/accept-history": named})
        await world.phase("ScaleSucceeded", SCALEOUTS, "again")
        await going_on(world)
        assert (world.count("JobAdopted"), world.count("HistoryAccepted")) == (1, 1)
        assert world.hosts() == [f"resnet-worker-{index}" for index in range(4)]
        uids = {name: held["metadata"]["uid"] for name, held in now().items() if name.startswith("Pod/")}
        assert {name: uids[name] for name in before if name.startswith("Pod/")} == {
            name: held["metadata"]["uid"] for name, held in before.items() if name.startswith("Pod/")
        }, "the training went on"
        status = world.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["workers"], status["history"]["log"]) == ("Running", "4/4", log)


async def test_an_accepted_loss_without_pods_begins_anew():
    async with World() as lost:
        await a_job_of_a_lost_log(lost)
        named = head(lost)
    async with World(of=lost, log="another") as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        for name in world.pods():
            world.delete(PODS, name)
        await world.until(lambda: not world.pods())
        await world.quiet()
        assert not world.pods(), "no service makes pods for a job whose history is in doubt"
        world.annotate("resnet", {"muster.dev/accept-history": named})
        await going_on(world)
        # The resource has the size to which the scale-out had led.
        assert world.hosts() == [f"resnet-worker-{index}" for index in range(3)]
        assert world.count("JobAdopted") == 0


@pytest.mark.parametrize("log", [pytest.param("another", id="lost"), pytest.param("memory", id="shorter, by a backup")])
async def test_a_request_that_was_under_way_when_the_log_was_lost_does_not_begin_anew(log: str):
    async with World() as lost:
        await a_job_of_a_lost_log(lost)
        lost.stuck.add("resnet-worker-3")
        lost.apply(SCALEOUTS, a_scale_out(1, name="under-way"))
        await lost.phase("Scaling", SCALEOUTS, "under-way")
        await lost.until(lambda: "resnet-worker-3" in lost.pods())
        await lost.quiet()
        named = head(lost)
    async with World(of=lost, log=log) as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        world.annotate("resnet", {"muster.dev/accept-history": named})
        await world.phase("ScaleFailed", SCALEOUTS, "under-way")
        await going_on(world)
        assert world.condition(SCALEOUTS, "under-way", "ScaleFailed") == ("True", "HistoryLost")
        # Its pod was there when the job was taken on, and is a worker like any other.
        assert world.hosts() == [f"resnet-worker-{index}" for index in range(4)]


WRITES = ("create", "patch", "replace", "delete")


@pytest.mark.parametrize("damage", ["cut", "forged"])
@pytest.mark.parametrize("last", [0, -1], ids=["before any pod", "before the launcher"])
async def test_no_service_writes_for_a_job_before_the_log_led_to_its_checkpoint(damage: str, last: int):
    """The watcher comes last, so that nothing says yet that the log is another one."""
    async with World() as first:
        await first.trains(workers=1)
        await first.quiet()
    events = first.journal.events
    assigned = [at for at, stored in enumerate(events) if stored.subject.endswith(".SlotsAssigned")][last]
    if damage == "cut":
        first.journal.restore(assigned + 1)
    else:
        # Another beginning, and events of another job where the newest ones were.
        other = "facts.team-b.other.uid-of-other.watcher.TimePassed"
        log = [msgspec.structs.replace(event, optional=True) for event in events]
        log[assigned + 1 :] = [
            msgspec.structs.replace(event, subject=other, body=PASSED, basis="") for event in log[assigned + 1 :]
        ]
        events[:] = [events[0], *chained(log[1:])]
        first.journal.restore(len(events))
    counted = Noting()
    world = World(of=first, journal=first.journal, weather=lambda _: counted)
    try:
        for author in ("scheduler", "scaler", "status"):
            await world.start(author)
        await world.pass_seconds(20)
        assert [call for call in counted.calls if call.verb in WRITES] == []
    finally:
        for author in ("scheduler", "scaler", "status"):
            await world.kill(author)


async def test_a_start_reads_no_checkpoint_of_a_job_that_needs_no_step(world: World, monkeypatch: pytest.MonkeyPatch):
    uid = (await world.trains(workers=1)).metadata["uid"]
    await world.quiet()
    asked = list[str]()
    get = MemoryBucket.get

    async def noted(bucket: MemoryBucket, key: str) -> Revised | None:
        asked.append(key)
        return await get(bucket, key)

    monkeypatch.setattr(MemoryBucket, "get", noted)
    await world.restart("scheduler")
    await world.restart("scaler")
    await world.pass_seconds(10)
    assert uid not in asked
    world.annotate("resnet", {"muster.dev/restart": "now"})
    await world.until(lambda: uid in asked)
