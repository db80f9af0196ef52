"""`muster replay --verify`: what is compared, what fails, and that it takes time in proportion to the log."""

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
import typer

from muster.replay import WRONG, Verified, from_file, verified_jobs
from services.status.core.documents import document_of, with_head
from shared.errors import Refused
from shared.eventlog import Stored
from shared.eventlog.account import HEADS
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import HistoryBroken, JobGone, JobOfAnother
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.spec import Problem
from shared.telling.reading import line_of
from shared.telling.targets import parse_target
from tests.kit.builders import a_running_job, a_spec, observed
from tests.kit.histories import stored
from tests.kit.world import NAMESPACE, World, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore


class Site:
    """A log and a cluster whose resources show what the log says."""

    def __init__(self) -> None:
        self.journal = MemoryJournal(identity="this-log")
        self.store = MemoryStore()

    def job(self, name: str = "resnet", events: Iterable[AnyEvent] = (), *, damaged: bool = False) -> History:
        """A resource with a history, and with its head and status; `damaged` damages the last event but one."""
        uid = self.store.create(TRAININGJOBS, NAMESPACE, a_training_job(name)).metadata["uid"]
        history = History(JobKey(NAMESPACE, name, Uid(uid)))
        self.more(history, events or a_running_job())
        if damaged:
            at = history.sequence - 2
            self.journal.events[at] = msgspec.structs.replace(self.journal.events[at], time="2031-01-01T00:00:00.000Z")
        self.show(history)
        return history

    def more(self, history: History, events: Iterable[AnyEvent]) -> None:
        for event in events:
            record = stored(history, event, sequence=len(self.journal.events) + 1)
            self.journal.events.append(record)
            history.fold(record)

    def show(self, history: History, /, **more: object) -> None:
        status = with_head(document_of(history.job), "this-log", history.head, history.time) | more
        self.patch(history.job.key.name, status)

    def patch(self, name: str, status: dict[str, object]) -> None:
        self.store.patch(TRAININGJOBS, NAMESPACE, name, {"status": status}, subresource="status")

    def lose(self, history: History) -> None:
        """Every event of a job leaves the log."""
        uid = history.job.key.uid
        self.journal.events[:] = [each for each in self.journal.events if each.subject.split(".")[3] != uid]

    async def verified(self) -> Verified:
        return await verified_jobs(MemoryEventLog(self.journal), MemoryCluster(self.store), BUILT_IN)


@pytest.fixture
def site() -> Site:
    return Site()


async def the_words(site: Site) -> str:
    (answer,) = (await site.verified()).answers
    return str(answer)


async def verdicts(site: Site) -> list[str]:
    return [answer.verdict for answer in (await site.verified()).answers]


async def test_the_status_of_each_job_is_replayed_up_to_the_event_that_the_resource_shows(site: Site):
    history = site.job("one")
    site.job("two")
    site.more(history, [observed(a_spec(4), generation=2)])
    verified = await site.verified()
    assert [answer.verdict for answer in verified.answers] == ["identical", "identical"]
    assert verified.summary == f"{len(site.journal.events)} events folded; jobs compared: 2, different: 0"


async def test_a_name_that_nothing_has_is_not_verified(site: Site):
    site.job()
    log, cluster = MemoryEventLog(site.journal), MemoryCluster(site.store)
    with pytest.raises(Refused, match="there is no TrainingJob team-a/resnte to verify"):
        await verified_jobs(log, cluster, BUILT_IN, NAMESPACE, parse_target("trainingjob/resnte"))


async def test_a_job_without_a_phase_is_told_as_refused(site: Site):
    problem = Problem(reason="NoContainers", field="spec.worker", message="add a container")
    site.job(events=[msgspec.structs.replace(observed(a_spec()), spec=None, problems=(problem,))])
    assert ": refused; the status replayed up to event " in await the_words(site)


async def test_what_four_services_leave_in_memory_is_identical():
    async with World() as world:
        world.apply(TRAININGJOBS, a_training_job())
        await world.running()
        await world.quiet()
        log, cluster = MemoryEventLog(world.journal), MemoryCluster(world.store)
        assert [answer.verdict for answer in (await verified_jobs(log, cluster, BUILT_IN)).answers] == ["identical"]


async def test_a_status_that_another_hand_changed_is_different(site: Site):
    site.show(site.job(), restartCount=7)
    assert "DIFFERS: replayed" in await the_words(site)


async def test_a_head_that_is_no_event_of_the_job_is_different(site: Site):
    history = site.job()
    head = {"log": "this-log", "sequence": history.sequence + 1, "hash": "ab"}
    site.show(history, history=head)
    assert "which is no event of this job" in await the_words(site)


async def test_a_history_that_does_not_confirm_itself_fails(site: Site):
    site.job(damaged=True)
    verified = await site.verified()
    assert verified.count(*WRONG) == 1
    assert "HELD: the decision at" in str(verified.answers[0])
    assert verified.summary.endswith("jobs compared: 0, different: 0, held: 1")


async def test_a_held_history_of_a_deleted_job_fails(site: Site):
    history = site.job(damaged=True)
    site.more(history, [JobGone(version=90)])
    site.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
    assert await verdicts(site) == ["held"]


async def test_a_broken_history_fails_until_a_person_accepts_it(site: Site):
    history = site.job()
    site.more(history, [HistoryBroken(log="other", sequence=900, hash="ab", reason="BeyondTheEnd")])
    site.show(history)
    assert "HELD: this log does not lead to other/900:ab" in await the_words(site)


async def test_a_resource_with_a_head_fails_when_the_log_has_no_event_of_the_job(site: Site):
    site.lose(site.job())
    verified = await site.verified()
    assert verified.count(*WRONG) == 1
    assert "MISSING: the resource shows the head" in str(verified.answers[0])


async def test_a_finished_resource_without_a_head_fails_when_the_log_has_no_event_of_the_job(site: Site):
    site.lose(site.job())
    site.patch("resnet", {"phase": "Succeeded", "history": None})
    assert "MISSING: the resource is Succeeded" in await the_words(site)


async def test_a_finished_resource_without_a_head_differs_from_a_history_that_began_again(site: Site):
    history = site.job(events=[observed(a_spec())])
    site.patch("resnet", {"phase": "Succeeded", "history": None})
    assert not history.job.status.phase
    assert await verdicts(site) == ["different"]


async def test_a_resource_that_no_service_has_seen_yet_is_no_fault(site: Site):
    site.store.create(TRAININGJOBS, NAMESPACE, a_training_job("new"))
    assert await verdicts(site) == []


async def test_a_job_of_another_operator_is_not_compared(site: Site):
    history = site.job(events=[observed(a_spec()), JobOfAnother(phase="Running")])
    site.patch("resnet", {"phase": "Running", "history": None})
    assert history.job.resource.another
    assert await verdicts(site) == ["not compared"]


async def test_a_job_whose_resource_is_gone_unseen_is_no_fault(site: Site):
    site.job()
    site.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
    verified = await site.verified()
    assert [answer.verdict for answer in verified.answers] == ["absent"]
    assert not verified.count(*WRONG)


async def test_kinds_that_the_cluster_does_not_serve_are_passed_over(site: Site):
    site.job()
    for kind in BUILT_IN:
        if kind.resource != TRAININGJOBS:
            site.store.withdraw(kind.resource)
    assert await verdicts(site) == ["identical"]


async def _seconds_for_each(jobs: int) -> float:
    site = Site()
    for number in range(jobs):
        site.job(f"job-{number}")
    took = []
    for _ in range(2):
        began = time.process_time()
        assert (await site.verified()).count("identical") == jobs
        took.append(time.process_time() - began)
    return min(took) / jobs


async def test_ten_times_as_many_jobs_take_ten_times_as_long():
    assert await _seconds_for_each(300) < 3 * await _seconds_for_each(30)


async def checkpoint(site: Site, history: History, head: Head) -> None:
    heads = await MemoryEventLog(site.journal).bucket(HEADS)
    await heads.put(history.job.key.uid, f"this-log/{head}".encode())


@pytest.mark.parametrize("gone", [False, True], ids=["present", "deleted"])
async def test_a_log_that_does_not_lead_to_a_checkpoint_is_different(site: Site, gone: bool):
    history = site.job()
    if gone:
        site.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
        site.more(history, [JobGone()])
    await checkpoint(site, history, history.head)
    right = [] if gone else ["identical"]
    assert await verdicts(site) == right
    await checkpoint(site, history, Head(history.sequence, "0" * 64))
    assert [*{*await verdicts(site)} - {*right}] == ["different"]
    await checkpoint(site, history, Head(history.sequence + 1, history.head.hash))
    assert [*{*await verdicts(site)} - {*right}] == ["different"], "the newest event is lost"


async def test_one_job_is_verified_alone(site: Site):
    site.job("one")
    site.show(site.job("two"), restartCount=7)
    log, cluster = MemoryEventLog(site.journal), MemoryCluster(site.store)
    found = [
        (await verified_jobs(log, cluster, BUILT_IN, NAMESPACE, parse_target(name, BUILT_IN))).answers
        for name in ("trainingjob/one", "two")
    ]
    assert [[answer.verdict for answer in answers] for answers in found] == [["identical"], ["different"]]


@pytest.mark.parametrize(
    ("changed", "cut", "wrong"),
    [({}, 0, False), ({"hash": "0" * 64}, 0, True), ({"last": 2}, 0, True), ({}, 2, True)],
    ids=["right", "hash", "last", "the tail is cut"],
)
def test_a_saved_history_is_what_its_seal_says(tmp_path: Path, changed: dict[str, object], cut: int, *, wrong: bool):
    history, lines = History(JobKey(NAMESPACE, "resnet", Uid("u"))), list[str]()
    for event in [*a_running_job()[:2], JobGone()]:
        record = stored(history, event)
        history.fold(record)
        lines.append(line_of(record))
    seal = {"type": "JobSealed", "first": 1, "last": history.sequence, "count": len(lines), "hash": history.head.hash}
    subject = "jobs.team-a.resnet.u.status.JobSealed"
    body = msgspec.json.encode({**seal, "outcome": "Succeeded", "reason": "", **changed})
    sealed = Stored(history.sequence + 1, subject, "s", history.time, body, history.basis, optional=True)
    file = tmp_path / "history"
    file.write_text("\n".join([*lines[: len(lines) - cut], line_of(sealed)]))
    if wrong:
        with pytest.raises(typer.Exit):
            from_file(file)
    else:
        from_file(file)
