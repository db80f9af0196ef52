"""What is said while something is waited for: no more than was observed."""

import asyncio
from typing import Any

import pytest
import typer

from muster import following
from muster.asking import failure_in_one_line
from muster.following import PATIENCE_SECONDS as QUIET_SECONDS
from muster.following import WATCHED_SECONDS, Change, between_looks, carried_out
from shared.cluster import Cluster
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.telling.targets import Target, parse_target
from tests.kit.operator import a_job
from tests.memory.cluster import Call, Calm, MemoryCluster
from tests.memory.store import MemoryStore
from tests.muster.conftest import NAME, PATIENCE_SECONDS, Clock, Said

(JOB,) = parse_target(f"trainingjob/{NAME}").targets
LONG = QUIET_SECONDS + 1


class Looks(Calm):
    """Counts the reads; a watch is answered if there is one."""

    def __init__(self) -> None:
        self.count = 0
        self.watch = False

    async def before(self, call: Call) -> None:
        self.count += call.verb == "get"
        if call.verb == "watch" and not self.watch:
            await asyncio.Event().wait()
        await super().before(call)


class Waiting:
    """A job, and a command that waits until it runs."""

    def __init__(self, said: Said, clock: Clock) -> None:
        self.said = said
        self.clock = clock
        self.store = MemoryStore()
        self.looks = Looks()
        self.cluster = MemoryCluster(self.store, weather=self.looks)

    async def status(self, phase: str, **more: Any) -> None:
        status = {"phase": phase, **more}
        await self.cluster.patch(TRAININGJOBS, "default", NAME, {"status": status}, subresource="status")

    async def begin(self, phase: str = "Suspended", **more: Any) -> "asyncio.Future[None]":
        """Ask while it is in this phase."""
        await self.cluster.create(TRAININGJOBS, "default", a_job(NAME, "true"))
        if phase:
            await self.status(phase, **more)
        asked = await self.cluster.get(TRAININGJOBS, "default", NAME)
        assert asked is not None
        return asyncio.ensure_future(carried(self.cluster, Change(JOB, "", asked, runs)))

    async def looked(self, seconds: float = 0.0) -> str:
        """What it complained of once it has looked again, and once more after so many seconds."""
        for later in (0.0, seconds):
            self.clock.now += later
            seen = self.looks.count
            async with asyncio.timeout(PATIENCE_SECONDS):
                # The first of the two may have begun before.
                while self.looks.count < seen + 2:
                    await asyncio.sleep(0.005)
        return self.said.err

    async def ends(self, waiting: "asyncio.Future[None]") -> None:
        await self.status("Running", observedGeneration=1)
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def carried(cluster: Cluster, change: Change) -> None:
    async def asked() -> Change:
        return change

    await carried_out(cluster, asked(), wait=True, timeout=30)


def runs(status: dict[str, Any]) -> bool | None:
    return True if JOB.phase(status) == "Running" else None


@pytest.fixture
def job(said: Said, clock: Clock) -> Waiting:
    return Waiting(said, clock)


async def test_an_api_server_that_is_away_is_said_once_and_so_is_its_return(job: Waiting):
    waiting = await job.begin()
    for outage in (1, 2):
        job.store.outage.begin()
        complaint = await job.looked(LONG)
        assert complaint.count("the API server cannot be reached, still trying: get") == outage
        assert complaint.count("answers again") == outage - 1
        job.store.outage.end()
        complaint = await job.looked()
        assert complaint.count("answers again") == outage
        assert "looked at it" not in complaint, "no service is blamed for an outage"
    await job.ends(waiting)


@pytest.mark.parametrize("phase", ["", "Suspended"])
async def test_where_nothing_was_observed_it_is_asked_once_whether_muster_runs(job: Waiting, phase: str):
    waiting = await job.begin(phase)
    assert await job.looked() == ""
    assert await job.looked(LONG) == await job.looked(LONG)
    assert job.said.err.startswith("no Muster service seems to have looked at it for 10 s; `muster doctor` says why.")
    await job.ends(waiting)


@pytest.mark.parametrize("phase", ["Created", "Restarting"])
async def test_between_attempts_there_may_be_no_news(job: Waiting, phase: str):
    waiting = await job.begin(phase)
    assert await job.looked() == ""
    assert (await job.looked(LONG)).startswith("nothing of it changed for 10 s; `muster why`")
    await job.ends(waiting)


async def test_a_status_of_an_older_generation_is_no_look_at_what_was_asked(job: Waiting):
    waiting = await job.begin("Restarting", observedGeneration=0)
    assert "looked at it" in await job.looked(LONG)
    await job.ends(waiting)


async def test_a_service_that_did_something_is_not_asked_for(job: Waiting):
    waiting = await job.begin("Suspended")
    await job.status("Created")
    assert await job.looked(LONG) == ""
    await job.ends(waiting)


async def test_a_request_that_waits_its_turn_says_for_what(said: Said, clock: Clock):
    cluster = MemoryCluster(MemoryStore())
    made = await cluster.create(SCALEOUTS, "default", {"metadata": {"name": "more"}})
    waiting = asyncio.ensure_future(carried(cluster, Change(Target(SCALEOUTS, "more"), "", made, runs)))
    waits = {"type": "Pending", "status": "True", "reason": "AnotherRequestRuns"}
    for phase, conditions in (("Pending", [waits]), ("Running", [])):
        status = {"phase": phase, "conditions": conditions}
        await cluster.patch(SCALEOUTS, "default", "more", {"status": status}, subresource="status")
        line = f"scaleout/more {phase}" + " (AnotherRequestRuns: an earlier request is being carried out)" * bool(
            conditions
        )
        await said.until(line)
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)


@pytest.mark.parametrize("reason", ["ManyStarting", "OverBudget"])
async def test_a_job_that_waits_for_its_turn_is_waited_for(job: Waiting, reason: str):
    waits = {"type": "Created", "status": "False", "reason": reason, "message": "this one waits for its turn"}
    waiting = await job.begin("", conditions=[waits], observedGeneration=1)
    await job.status("", conditions=[waits], observedGeneration=1)
    await job.looked()
    await job.ends(waiting)


async def test_what_muster_refuses_in_the_spec_is_not_waited_for(job: Waiting):
    refused = {"type": "Created", "status": "True", "reason": "InvalidValue", "message": "spec.slotsPerWorker: write 1"}
    waiting = await job.begin("Suspended", conditions=[refused], observedGeneration=1)
    with pytest.raises(typer.Exit) as end, failure_in_one_line():
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert end.value.exit_code == 1
    assert job.said.err == (
        "muster: trainingjob/resnet is not carried out as it is written now: "
        "InvalidValue: spec.slotsPerWorker: write 1\n"
    )


async def test_a_watch_tells_of_each_change_and_spares_the_looks(job: Waiting):
    job.looks.watch = True
    waiting = await job.begin()
    # Without the watch there is a look every 10 ms here.
    await asyncio.sleep(0.5)
    assert job.looks.count <= 4
    began = asyncio.get_running_loop().time()
    await job.ends(waiting)
    assert asyncio.get_running_loop().time() - began < WATCHED_SECONDS / 2


async def test_a_watch_that_breaks_off_leaves_the_looks(job: Waiting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(following, "WATCHED_SECONDS", 0.1)
    job.looks.watch = True
    waiting = await job.begin()
    await asyncio.sleep(0.1)
    job.store.outage.begin()
    job.store.outage.end()
    await job.looked()
    await job.ends(waiting)


@pytest.mark.parametrize(("waited", "seconds"), [(0, 0.5), (14, 0.5), (15, 1.0), (45, 2.0), (36_000, 2.0)])
def test_who_waits_long_looks_less_often(waited: float, seconds: float):
    assert between_looks(waited) == seconds


@pytest.mark.parametrize(
    ("phase", "reason", "line"),
    [
        ("Scaling", "TrainingJobRunning", "Scaling"),
        ("Restarting", "TrainingJobRestarting", "Restarting (TrainingJobRestarting: words)"),
        ("Created", "Unschedulable", "Created (Unschedulable: words)"),
    ],
)
def test_a_condition_that_repeats_the_phase_is_left_out(phase: str, reason: str, line: str):
    status = {"phase": phase, "conditions": [{"type": "Any", "status": "True", "reason": reason, "message": "words"}]}
    assert following._line(Target(TRAININGJOBS, "resnet"), status) == line


@pytest.mark.parametrize("phase", ["Created", "Running", "Scaling"])
@pytest.mark.parametrize(
    ("message", "said"),
    [("PyTorchJob default/resnet does", ""), ("", ""), ("QuotaExceeded: no pod", " (QuotaExceeded: no pod)")],
)
def test_what_a_job_lacks_is_a_line(phase: str, message: str, said: str):
    shown = "Running" if phase == "Scaling" else phase
    newest = {"type": shown, "status": "True", "reason": f"PyTorchJob{shown}", "message": message}
    before = [{"type": known, "status": "True", "reason": "words"} for known in ("Created", phase)]
    target = Target(PYTORCHJOB.resource, "resnet", framework=PYTORCHJOB)
    assert following._line(target, {"conditions": [*before, newest]}) == f"{phase}{said}"
