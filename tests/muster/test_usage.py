"""`muster report` of a namespace: where the time of places went, and what cost most."""

from contextlib import aclosing

import msgspec
import pytest

from muster import usage
from muster.usage import lines
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import JobGone, NodeBack, NodeLost, PodsGone, ProgressReported
from shared.job.naming import Uid
from shared.job.spec import JobSpec
from shared.job.views import Slots
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


END = [JobGone(version=90), PodsGone(uids=tuple(map(Uid, ("pod-0", "pod-1", "launcher-0"))))]


@pytest.fixture
def log() -> Log:
    return Log()


async def told(log: Log, since: str = "", namespace: str = "team-a", *, csv: bool = False) -> list[str]:
    source = MemoryEventLog(log.journal)
    found = lines(source, namespace, since, BUILT_IN, as_json=not csv, as_csv=csv, tell=warned.append)
    async with aclosing(found):
        return [line async for line in found]


warned: list[str] = []


async def used(log: Log, since: str = "", namespace: str = "team-a") -> Usage:
    return msgspec.json.decode("".join(await told(log, since, namespace)), type=Usage)


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
    found = await used(log)
    assert found.jobs == 1
    assert [each.partition(":")[0] for each in found.unread] == ["team-a/strange.example.com/odd"]
    assert warned[:2] == ["muster: 0 of 2 jobs are read", f"muster: left out {found.unread[0]}"]


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
