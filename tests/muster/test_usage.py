"""`muster report` of a namespace: where the time of places went, and what cost most."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
import pytest
import typer

from muster import asking, usage
from muster.commands.jobs import report
from muster.usage import lines
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import JobGone, NodeBack, NodeLost, PodsGone, ProgressReported
from shared.job.naming import Uid
from shared.job.spec import JobSpec
from shared.job.views import Slots
from shared.telling.targets import parse_target
from shared.telling.usage import COLUMNS, Incident, Usage
from tests.kit.builders import a_created_job, a_running_job, a_spec, exited, observed, pods, worker
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log

GPU = "nvidia.com/gpu"
POD_1 = (Uid("pod-1"),)
FAILED = pods(worker(1, version=30, phase="Failed", exits=exited(1)))


def a_gpu_spec() -> JobSpec:
    spec = a_spec(2)
    roles = tuple(msgspec.structs.replace(role, requests=(("cpu", 2.0), (GPU, 8.0))) for role in spec.roles)
    return msgspec.structs.replace(spec, roles=roles)


def quiet(seconds: int) -> list[AnyEvent]:
    return [observed(a_gpu_spec())] * seconds


def an_outage(seconds: int) -> list[AnyEvent]:
    lost = NodeLost(node="gpu-7", uids=POD_1, reason="NodeUnreachable")
    here = pods(worker(1, version=12, node="gpu-7"))
    return [observed(a_gpu_spec()), here, lost, *quiet(seconds - 1), NodeBack(node="gpu-7", uids=POD_1)]


RESTARTED = pods(worker(1, version=31, restarts=1))
LOST = [NodeLost(node="a", uids=POD_1, reason="X"), NodeBack(node="a", uids=POD_1)]
END = [JobGone(version=90), PodsGone(uids=tuple(map(Uid, ("pod-0", "pod-1", "launcher-0"))))]


@pytest.fixture
def log() -> Log:
    return Log()


async def told(log: Log, since: str = "", namespace: str = "team-a", *, csv: bool = False) -> list[str]:
    return [line async for line in telling(log, since, namespace, csv=csv)]


async def telling(log: Log, since: str, namespace: str, *, csv: bool) -> AsyncGenerator[str, None]:
    source = MemoryEventLog(log.journal)
    found = lines(source, namespace, since, BUILT_IN, as_json=not csv, as_csv=csv, tell=warned.append)
    async with aclosing(found):
        async for line in found:
            yield line


warned: list[str] = []


async def used(log: Log, since: str = "", namespace: str = "team-a") -> Usage:
    return msgspec.json.decode("".join(await told(log, since, namespace)), type=Usage)


async def used_in_part(log: Log, missing: str) -> Usage:
    """The usage without jobs that could not be read, after which the command ends with these words."""
    source = telling(log, "", "team-a", csv=False)
    found = await anext(source)
    with pytest.raises(Refused, match=missing):
        await anext(source)
    return msgspec.json.decode(found, type=Usage)


async def test_the_dearest_incident_has_its_job_place_node_hours_and_sentence(log: Log):
    log.add(*a_running_job(2), *an_outage(37), *END)
    log.add(*a_running_job(2), FAILED, *quiet(4), *END, name="bert", uid="uid-2")
    log.add(*a_running_job(2), name="other", namespace="team-b", uid="uid-3")
    found = await used(log)
    outage, crash = found.incidents
    assert (outage.job, outage.places, outage.nodes) == ("trainingjob/resnet", "worker 1", ("gpu-7",))
    assert (outage.cause, outage.seconds) == ("node", 37)
    assert outage.hours == {"cpu": round(37 * 2 / 3600, 6), GPU: round(37 * 8 / 3600, 6)}
    assert "gpu-7" in outage.text
    assert (crash.job, crash.uid, crash.cause, crash.places) == ("trainingjob/bert", "uid-2", "crash", "worker 1")
    assert "exit code 1" in crash.text
    assert (found.jobs, found.unread) == (2, ())
    lost = {share.cause: share.seconds for share in found.shares if share.bucket == "lost"}
    assert lost == {"node": 37, "crash": crash.seconds}
    assert (await used(log, namespace="")).jobs == 3


async def test_a_restart_belongs_to_the_loss_that_it_was_for(log: Log):
    again = SlotsAssigned(slots=(Slots(1, "worker", ((0, 1),)),))
    log.add(*a_running_job(2), FAILED)
    led = {"because": len(log.journal.events), "reason": "WorkerFailed"}
    log.add(*quiet(2), JobRestarting(**led), JobRestarted(attempt=1, **led), again, *quiet(5), *END)
    (crash,) = (await used(log)).incidents
    assert (crash.cause, crash.places) == ("crash", "launcher 0 and worker 0-1")
    assert "exit code 1" in crash.text


def said(step: int, attempt: int = 0) -> ProgressReported:
    return ProgressReported(pod=Uid("pod-0"), attempt=attempt, step=step, total=99)


async def test_steps_that_were_trained_before_are_lost_until_there_is_a_new_one(log: Log):
    log.add(*a_running_job(2), said(40), NodeLost(node="a", uids=POD_1, reason="X"), NodeBack(node="a", uids=POD_1))
    log.add(said(10), *quiet(3), said(30), said(40), said(50), *END)
    repeat, node = (await used(log)).incidents
    assert (repeat.cause, repeat.seconds, repeat.places) == ("repeat", 3 * 5, "launcher 0 and worker 0-1")
    assert "step 10" in repeat.text
    assert (node.cause, node.seconds) == ("node", 1)


async def test_a_program_that_begins_has_repeated_nothing_yet(log: Log):
    log.add(*a_running_job(2), said(40), said(0), said(10), *quiet(3), *END)
    assert (await used(log)).incidents == ()


@pytest.mark.parametrize(
    ("then", "repeated"),
    [
        pytest.param([said(10), said(40), said(10)], 0, id="ten epochs that each count anew lose nothing"),
        pytest.param([*LOST, said(10), *quiet(3), said(30)], 15, id="after a loss they do, until the end"),
        pytest.param([RESTARTED, said(10)], 3, id="a restart in its pod is a loss"),
        pytest.param([RESTARTED, said(0), said(10)], 3, id="of which the program says that it begins"),
        pytest.param([said(0), RESTARTED, said(10)], 3, id="also before the restart is seen"),
        pytest.param([said(0), said(50), RESTARTED, said(50)], 0, id="whose new steps are no old ones"),
        pytest.param([FAILED, said(10)], 2, id="a worker that failed is a loss"),
        pytest.param([PodsGone(uids=POD_1), said(10)], 2, id="so is one that went"),
        pytest.param(
            [SlotsAssigned(slots=(Slots(0, "worker", ((2, 2),)),)), said(10)],
            3,
            id="a change of the size sends the group back",
        ),
        pytest.param([*LOST, said(10), said(20), said(10), *quiet(9)], 6, id="until it counts anew without a loss"),
        pytest.param([*LOST, said(50), said(10), *quiet(9)], 0, id="a loss that cost no step is over"),
    ],
)
async def test_steps_that_come_again_are_lost_only_if_the_group_lost_something(
    log: Log, then: list[AnyEvent], repeated: int
):
    log.add(*a_running_job(2), said(10), said(40), *then, *END)
    assert sum(share.seconds for share in (await used(log)).shares if share.cause == "repeat") == repeated


async def test_from_a_time_on_only_what_was_later_counts(log: Log):
    log.add(*a_created_job(2), *END)
    log.add(*a_running_job(2), *an_outage(37), name="bert", uid="uid-2")
    end = log.journal.events[-1].time
    since = f"{end[:17]}{int(end[17:19]) - 10:02d}.000Z"
    found = await used(log, since)
    assert (found.jobs, found.since) == (1, since)
    (outage,) = found.incidents
    assert outage.seconds == 10
    assert outage.time < since


async def test_a_job_that_cannot_be_read_is_named_and_the_others_count(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.add(*a_running_job(2), *END)
    broken = msgspec.structs.replace(observed(a_spec(1)), api_version="example.com/v1", kind="Strange")
    log.add(broken, name="odd", uid="uid-2")
    monkeypatch.setattr(usage, "TOLD_SECONDS", -1)
    warned.clear()
    found = await used_in_part(log, "1 of 2 jobs were not read")
    assert found.jobs == 1
    assert [each.partition(":")[0] for each in found.unread] == ["team-a/job/odd"]
    assert warned[:2] == ["muster: 0 of 2 jobs are read", f"muster: left out {found.unread[0]}"]


class Away:
    """A source that fails at these calls, or from the first of them on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *calls: int, ever: bool = False) -> None:
        self.calls = 0
        self._at, self._ever, self._report_of = calls, ever, usage.report_of
        self.paused = list[float]()
        monkeypatch.setattr(usage, "report_of", self._report)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _report(self, *args: object, **more: object) -> object:
        self.calls += 1
        if self.calls in self._at or (self._ever and self.calls >= self._at[0]):
            raise Transient("history: 503, the log is away")
        return await self._report_of(*args, **more)  # type: ignore[arg-type]

    async def _sleep(self, seconds: float) -> None:
        self.paused += [seconds] if seconds else []


def five_jobs(log: Log) -> None:
    for number in range(5):
        log.add(*a_running_job(2), *END, name=f"job-{number}", uid=f"uid-{number}")


async def test_a_job_without_an_answer_is_asked_for_again(log: Log, monkeypatch: pytest.MonkeyPatch):
    five_jobs(log)
    away = Away(monkeypatch, 3, 4)
    found = await used(log)
    assert (found.jobs, found.unread, away.calls, away.paused) == (5, (), 7, [2.0, 2.0])


async def test_a_list_without_an_answer_is_asked_for_again(log: Log, monkeypatch: pytest.MonkeyPatch):
    five_jobs(log)
    Away(monkeypatch)
    counted, away = MemoryEventLog.counted, [Transient("the log is away"), Transient("the log is away")]

    async def answers_late(source: MemoryEventLog, scope: str) -> Mapping[str, int]:
        if away:
            raise away.pop()
        return await counted(source, scope)

    monkeypatch.setattr(MemoryEventLog, "counted", answers_late)
    warned.clear()
    assert (await used(log)).jobs == 5
    assert warned == ["muster: the log is away; asking on"]


async def test_of_sealed_jobs_those_are_read_that_were_there_since_a_time(log: Log, monkeypatch: pytest.MonkeyPatch):
    five_jobs(log)
    now = log.journal.events[-1].time
    log.plant("jobs.team-a.job-0.uid-0.status.JobSealed")
    log.plant("jobs.team-a.job-1.uid-1.status.JobSealed", now)
    away = Away(monkeypatch)
    await used(log, now)
    assert away.calls == 4


async def test_a_job_that_never_answers_is_left_out_and_the_command_fails(log: Log, monkeypatch: pytest.MonkeyPatch):
    five_jobs(log)
    away = Away(monkeypatch, *range(2, 2 + usage.MOST_TRIES))
    found = await used_in_part(log, "1 of 5 jobs were not read, and are in no figure")
    assert (found.jobs, len(found.unread), away.calls) == (4, 1, 4 + usage.MOST_TRIES)
    assert "503" in found.unread[0]


async def test_of_a_source_that_is_gone_what_was_read_is_told(log: Log, monkeypatch: pytest.MonkeyPatch):
    five_jobs(log)
    away = Away(monkeypatch, 2, ever=True)
    found = await used_in_part(log, "4 of 5 jobs")
    assert (found.jobs, len(found.unread)) == (1, 4)
    assert away.calls == 1 + usage.MOST_AWAY * usage.MOST_TRIES
    assert found.unread[-1].endswith("not asked for, as the jobs before it had no answer")


async def test_an_older_history_service_is_told_of_at_once(log: Log, monkeypatch: pytest.MonkeyPatch):
    five_jobs(log)
    whole_life = await asking.report_of(
        MemoryEventLog(log.journal), parse_target("trainingjob/job-1"), "team-a", BUILT_IN
    )

    async def whole(*_: object) -> bytes:
        return msgspec.json.encode(whole_life)

    cluster = KubeCluster.__new__(KubeCluster)
    monkeypatch.setattr(KubeCluster, "url", "https://here", raising=False)
    monkeypatch.setattr(asking, "ask", whole)

    async def rows(*_: object) -> AsyncGenerator[usage.One, None]:
        yield usage.One("team-a", "trainingjob/job-1", whole_life.job.uid)

    monkeypatch.setattr(usage, "_by_cluster", rows)
    found = lines(cluster, "team-a", "2030-01-01T00:00:09.000Z", BUILT_IN, as_json=True, as_csv=False)
    with pytest.raises(Refused, match=r"history service at https://here is older than --since: upgrade it"):
        assert not [line async for line in found]


async def test_a_time_that_took_no_time_is_no_share(log: Log):
    log.add(*a_running_job(2))
    found = await used(log, "2099-01-01T00:00:00.000Z")
    assert (found.jobs, found.goodput, found.shares) == (0, None, ())


async def test_a_time_in_the_future_is_wrong_usage(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(typer.BadParameter, match="--since '2099-01-01T00:00:00Z' is in the future"):
        report(since="2099-01-01T00:00:00Z")


async def test_csv_has_the_hours_of_each_job_by_bucket_and_resource(log: Log):
    log.add(*a_running_job(2), *an_outage(36), *END)
    heading, *rows = await told(log, csv=True)
    assert heading == ",".join(COLUMNS)
    lost = [row for row in rows if ",lost," in row]
    of = "team-a,trainingjob/resnet,uid-1,lost,node"
    assert lost == [f"{of},places,0.010000", f"{of},cpu,0.020000", f"{of},{GPU},0.080000"]


async def test_people_read_lines_without_control_characters(log: Log):
    log.add(*a_running_job(2), pods(worker(1, version=30, phase="Failed", exits=exited(1, "one\x1b[2J\ntwo"))), *END)
    source = MemoryEventLog(log.journal)
    found = lines(source, "team-a", "", BUILT_IN, as_json=False, as_csv=False)
    heading, *more = [line async for line in found]
    assert heading.startswith("namespace team-a: 1 job; of the time of their places they trained")
    assert any("trainingjob/resnet" in line and "worker 1" in line for line in more)
    assert not any({*line} & {"\x1b", "\n"} for line in more)
    assert Incident.__struct_fields__[0] == "namespace"


async def test_a_namespace_without_jobs_has_used_nothing(log: Log):
    found = await used(log, namespace="nobody")
    assert (found.jobs, found.goodput, found.shares, found.incidents) == (0, None, (), ())
