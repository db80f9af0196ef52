"""`muster suspend`, `resume` and `restart`: what is written, what is waited for, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from muster import following
from muster.following import LASTING_SECONDS
from muster.jobs import patched
from muster.steering import new_value, this_second
from shared.frameworks.training_job import SUSPENDED, TRAININGJOBS
from shared.job.naming import RESTART
from shared.telling.targets import parse_target
from tests.kit import et_operator
from tests.kit.operator import a_job
from tests.muster.conftest import NAME, PATIENCE_SECONDS, Clock, MakeSite, Said, Site, refused, restart, resume, suspend

JOB = parse_target(f"trainingjob/{NAME}")
PAUSED = {"type": "Suspended", "status": "True", "reason": "TrainingJobSuspended"}
RUNS = {"type": "Running", "status": "True", "reason": "TrainingJobRunning"}


pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
async def their_site(a_site: MakeSite) -> AsyncIterator[Site]:
    """With et-operator's definitions, which drop the field."""
    async with a_site(et_operator.definitions()) as made:
        yield made


async def asked(work: Awaitable[None], said: Said, shows: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """A command that waits, and what the services do once it showed a phase."""
    waiting = asyncio.ensure_future(work)
    await said.until(f"trainingjob/resnet {shows}")
    assert not waiting.done()
    await meanwhile()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting


async def test_a_job_is_asked_by_its_field_and_waited_for(site: Site, said: Said):
    await site.status("Running", RUNS)
    await asked(
        suspend(site.cluster, JOB, "default", wait=True, timeout=10),
        said,
        "Running",
        lambda: site.status("Suspended", PAUSED),
    )
    assert (await site.job()).spec["suspend"] is True
    assert SUSPENDED not in await site.annotations()
    assert said.out.splitlines() == [
        "trainingjob/resnet asked to suspend",
        "trainingjob/resnet Running",
        "trainingjob/resnet Suspended",
    ]


async def test_where_the_field_is_dropped_the_annotation_says_it(their_site: Site):
    await their_site.status("Running", RUNS)
    await suspend(their_site.cluster, JOB, "default", wait=False, timeout=10)
    assert "suspend" not in (await their_site.job()).spec
    assert (await their_site.annotations())[SUSPENDED] == "true"
    await their_site.status("Suspended", PAUSED)
    await resume(their_site.cluster, JOB, "default", wait=False, timeout=10)
    assert SUSPENDED not in await their_site.annotations()


async def test_to_resume_takes_back_the_field_and_the_annotation(site: Site, said: Said):
    both = {"spec": {"suspend": True}, "metadata": {"annotations": {SUSPENDED: "true"}}}
    await site.cluster.patch(TRAININGJOBS, "default", NAME, both)
    await site.status("Suspended", PAUSED)

    async def begins_again() -> None:
        await site.status("Created")
        await said.until("trainingjob/resnet Created")
        await site.status("Running", RUNS)

    await asked(resume(site.cluster, JOB, "default", wait=True, timeout=10), said, "Suspended", begins_again)
    assert (await site.job()).spec["suspend"] is False
    assert SUSPENDED not in await site.annotations()
    assert said.out.splitlines() == [
        "trainingjob/resnet asked to resume",
        "trainingjob/resnet Suspended",
        "trainingjob/resnet Created",
        "trainingjob/resnet Running",
    ]


async def test_what_is_so_already_is_said_and_nothing_is_written(site: Site, said: Said):
    await site.status("Running", RUNS)
    before = (await site.job()).metadata.version
    await resume(site.cluster, JOB, "default", wait=True, timeout=10)
    assert (await site.job()).metadata.version == before
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"spec": {"suspend": True}})
    await site.status("Suspended", PAUSED)
    await suspend(site.cluster, JOB, "default", wait=True, timeout=10)
    assert "is not suspended; it is Running" in said.out
    assert "is suspended already" in said.out


async def test_a_request_that_was_not_carried_out_yet_is_waited_for(site: Site, said: Said):
    await site.status("Running", RUNS)
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"spec": {"suspend": True}})
    await asked(
        suspend(site.cluster, JOB, "default", wait=True, timeout=10),
        said,
        "Running",
        lambda: site.status("Suspended", PAUSED),
    )
    assert "is asked to suspend already" in said.out


async def test_after_a_pause_that_has_not_begun_the_old_attempt_is_no_answer(site: Site, said: Said):
    await site.status("Running", RUNS)
    await suspend(site.cluster, JOB, "default", wait=False, timeout=10)

    async def pauses_and_begins_again() -> None:
        await site.status("Suspended", PAUSED, observedGeneration=2)
        await said.until("trainingjob/resnet Suspended")
        await site.status("Running", RUNS)

    await asked(resume(site.cluster, JOB, "default", wait=True, timeout=10), said, "Running", pauses_and_begins_again)
    assert said.out.splitlines()[-3:] == [
        f"trainingjob/resnet {phase}" for phase in ("Running", "Suspended", "Running")
    ]


async def test_after_a_resume_that_has_not_begun_the_old_pause_is_no_answer(site: Site, said: Said):
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"spec": {"suspend": True}})
    await site.status("Suspended", PAUSED)
    await resume(site.cluster, JOB, "default", wait=False, timeout=10)
    await asked(
        suspend(site.cluster, JOB, "default", wait=True, timeout=10),
        said,
        "Suspended",
        lambda: site.status("Suspended", PAUSED),
    )
    assert "is suspended already" not in said.out


async def test_a_resume_that_was_not_seen_yet_is_waited_for(site: Site, said: Said):
    await site.status("Running", RUNS)
    await suspend(site.cluster, JOB, "default", wait=False, timeout=10)
    await resume(site.cluster, JOB, "default", wait=False, timeout=10)
    await asked(
        resume(site.cluster, JOB, "default", wait=True, timeout=10),
        said,
        "Running",
        lambda: site.status("Running", RUNS),
    )
    assert "is asked to run already" in said.out


async def test_an_annotation_makes_no_generation(site: Site, said: Said, clock: Clock):
    both = {"spec": {"suspend": False}, "metadata": {"annotations": {SUSPENDED: "true"}}}
    await site.cluster.patch(TRAININGJOBS, "default", NAME, both)
    await site.status("Running", RUNS)

    async def time_passes() -> None:
        clock.now += following.LASTING_SECONDS

    await asked(resume(site.cluster, JOB, "default", wait=True, timeout=10), said, "Running", time_passes)


async def test_where_no_generation_tells_what_is_older_an_answer_has_to_last(
    their_site: Site, said: Said, clock: Clock
):
    await their_site.status("Suspended", PAUSED)

    async def resumed_before() -> None:
        await their_site.status("Created")
        await said.until("trainingjob/resnet Created")
        clock.now += following.LASTING_SECONDS
        await their_site.status("Suspended", PAUSED)
        await said.until("trainingjob/resnet Suspended", times=2)
        clock.now += following.LASTING_SECONDS

    await asked(suspend(their_site.cluster, JOB, "default", wait=True, timeout=10), said, "Suspended", resumed_before)


async def test_a_job_that_is_over_is_refused_in_one_line(site: Site, said: Said):
    for phase in ("Succeeded", "Failed"):
        await site.status(phase)
        for command in (suspend, resume):
            before = said.err.count("\n")
            complaint = await refused(command(site.cluster, JOB, "default", wait=True, timeout=10), said)
            assert f"is over ({phase})" in complaint
            assert said.err.count("\n") == before + 1


@pytest.mark.parametrize(
    ("meanwhile", "complaint"),
    [
        pytest.param(lambda site: site.status("Succeeded"), "is Succeeded", id="it ends"),
        pytest.param(lambda site: site.delete(), "was deleted meanwhile", id="it is deleted"),
    ],
)
async def test_a_job_that_goes_before_it_could_be_paused_is_a_failure(
    site: Site, said: Said, meanwhile: Callable[[Site], Awaitable[None]], complaint: str
):
    await site.status("Running", RUNS)
    work = suspend(site.cluster, JOB, "default", wait=True, timeout=10)
    assert complaint in await refused(asked(work, said, "Running", lambda: meanwhile(site)), said)


async def test_waiting_too_long_ends_with_three_and_says_that_the_wish_stays(site: Site, said: Said):
    await site.status("Running", RUNS)
    await refused(suspend(site.cluster, JOB, "default", wait=True, timeout=1), said, code=3)
    assert "waited 1 s" in said.err
    assert following.ONLY_THE_WAITING in said.err
    assert (await site.job()).spec["suspend"] is True


async def test_an_interrupt_says_that_only_the_waiting_ended(site: Site, said: Said):
    await site.status("Running", RUNS)
    waiting = asyncio.ensure_future(suspend(site.cluster, JOB, "default", wait=True, timeout=0))
    await said.until("trainingjob/resnet Running")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert following.ONLY_THE_WAITING in said.err


async def test_a_job_of_that_name_that_came_later_is_left_alone(site: Site, said: Said):
    looked_at = await site.job()
    await site.delete()
    await site.cluster.create(TRAININGJOBS, "default", a_job(NAME, "true"))
    work = patched(site.cluster, JOB.targets[0], looked_at, {"spec": {"suspend": True}})
    assert "was replaced by another one" in await refused(work, said)
    assert "suspend" not in (await site.job()).spec


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        pytest.param("trainingjob/none", "no TrainingJob default/none", id="no such job"),
        pytest.param("scaleout/resnet", "only a job can be suspended", id="a request"),
    ],
)
async def test_what_cannot_be_suspended_is_said_in_one_line(site: Site, target: str, complaint: str, said: Said):
    work = suspend(site.cluster, parse_target(target), "default", wait=True, timeout=1)
    assert complaint in await refused(work, said)
    assert said.err.count("\n") == 1


BEGAN = "2030-01-01T00:00:00Z"
LATER = "2030-01-01T00:01:00Z"


def runs(since: str = BEGAN) -> dict[str, Any]:
    return {"type": "Running", "status": "True", "reason": "TrainingJobRunning", "lastTransitionTime": since}


def restarting(since: str, *, now: bool) -> dict[str, Any]:
    return {"type": "Restarting", "status": str(now), "reason": "RestartRequested", "lastTransitionTime": since}


async def waiting(site: Site, said: Said, shows: str = "Running") -> "asyncio.Future[None]":
    """A restart that was asked for and is waited for."""
    asked = asyncio.ensure_future(restart(site.cluster, JOB, "default", wait=True, timeout=10))
    await said.until(f"trainingjob/resnet {shows}")
    assert not asked.done(), "what runs is still the old attempt"
    return asked


def test_two_values_are_never_the_same():
    assert new_value() != new_value()


async def test_it_waits_until_the_new_attempt_runs(site: Site, said: Said):
    await site.status("Running", runs())
    asked = await waiting(site, said)
    assert (await site.annotations())[RESTART]
    await site.status("Restarting", restarting(LATER, now=True))
    await said.until("trainingjob/resnet Restarting (RestartRequested)")
    await site.status("Running", restarting(LATER, now=False), runs(LATER))
    await asyncio.wait_for(asked, PATIENCE_SECONDS)
    assert said.out.splitlines() == [
        "trainingjob/resnet asked to restart",
        "trainingjob/resnet Running",
        "trainingjob/resnet Restarting (RestartRequested)",
        "trainingjob/resnet Running",
    ]


async def test_an_attempt_that_began_between_two_looks_is_not_missed(site: Site, said: Said):
    await site.status("Running", restarting(BEGAN, now=False), runs())
    asked = await waiting(site, said)
    await site.status("Running", restarting(LATER, now=False), runs(LATER))
    await asyncio.wait_for(asked, PATIENCE_SECONDS)


async def test_an_attempt_that_has_only_just_begun_is_interrupted_in_a_later_second(site: Site, said: Said):
    await site.status("Running", runs(began := this_second()))
    asked = await waiting(site, said)
    assert this_second() > began
    assert (await site.annotations())[RESTART] > f"{began}~"
    await site.status("Running", runs(LATER))
    await asyncio.wait_for(asked, PATIENCE_SECONDS)


@pytest.mark.parametrize("phase", ["Restarting", "Created"])
async def test_of_one_that_is_yet_to_run_the_attempt_counts_that_is_not_interrupted(
    site: Site, said: Said, clock: Clock, phase: str
):
    await site.status(phase)
    asked = await waiting(site, said, phase)
    assert RESTART in await site.annotations()
    await site.status("Running", runs(BEGAN))
    await said.until("trainingjob/resnet Running")
    assert not asked.done(), "it may have begun before it was asked for"
    await site.status("Restarting", restarting(LATER, now=True))
    await said.until("trainingjob/resnet Restarting (RestartRequested)")
    clock.now += LASTING_SECONDS
    await site.status("Running", restarting(LATER, now=False), runs(LATER), workers="2/2")
    await said.until("trainingjob/resnet Running", times=2)
    assert not asked.done()
    clock.now += LASTING_SECONDS
    await asyncio.wait_for(asked, PATIENCE_SECONDS)


async def test_an_attempt_that_began_while_it_was_paused_is_another_one(site: Site, said: Said):
    await site.status("Running", runs())
    asked = await waiting(site, said)
    await site.status("Running", runs(LATER))
    await asyncio.wait_for(asked, PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("phase", "conditions", "fails"),
    [
        pytest.param("Succeeded", [restarting(BEGAN, now=False)], True, id="it ended before it could"),
        pytest.param("Failed", [restarting(BEGAN, now=False)], True, id="it failed before it could"),
        pytest.param("Succeeded", [restarting(LATER, now=False)], False, id="it began again and ended"),
        pytest.param("Suspended", [restarting(BEGAN, now=False)], True, id="a person paused it instead"),
    ],
)
async def test_how_it_ends_otherwise(site: Site, said: Said, phase: str, conditions: list[dict[str, Any]], fails: bool):
    await site.status("Running", restarting(BEGAN, now=False), runs())
    asked = await waiting(site, said)
    await site.status(phase, *conditions)
    if not fails:
        await asyncio.wait_for(asked, PATIENCE_SECONDS)
        return
    assert (await refused(asked, said)).startswith(f"muster: trainingjob/resnet is {phase}")


async def test_a_job_that_is_about_to_pause_is_resumed_not_restarted(site: Site, said: Said):
    await site.status("Running", runs())
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"spec": {"suspend": True}})
    complaint = await refused(restart(site.cluster, JOB, "default", wait=True, timeout=10), said)
    assert "muster resume trainingjob/resnet" in complaint
    assert RESTART not in await site.annotations()


async def test_what_does_not_run_is_refused_with_what_to_do(site: Site, said: Said):
    for count, (phase, remedy) in enumerate(
        {
            "": "muster why",
            "Suspended": "muster resume trainingjob/resnet",
            "Succeeded": "delete it and apply it",
            "Failed": "delete it and apply it",
        }.items()
    ):
        await site.status(phase)
        assert remedy in await refused(restart(site.cluster, JOB, "default", wait=True, timeout=10), said)
        assert said.err.count("\n") == count + 1
        assert RESTART not in await site.annotations()
