"""`muster restart`: a new value of the annotation, and waiting for the attempt that it begins."""

import asyncio
from typing import Any

import pytest

from muster.following import LASTING_SECONDS
from muster.steering import new_value, this_second
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import RESTART
from shared.telling.targets import parse_target
from tests.muster.conftest import NAME, PATIENCE_SECONDS, Clock, Said, Site, refused, restart

JOB = parse_target(f"trainingjob/{NAME}")
BEGAN = "2030-01-01T00:00:00Z"
LATER = "2030-01-01T00:01:00Z"


def runs(since: str = BEGAN) -> dict[str, Any]:
    return {"type": "Running", "status": "True", "reason": "TrainingJobRunning", "lastTransitionTime": since}


def restarting(since: str, *, now: bool) -> dict[str, Any]:
    return {"type": "Restarting", "status": str(now), "reason": "RestartRequested", "lastTransitionTime": since}


pytestmark = pytest.mark.usefixtures("clock")


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


async def test_a_job_that_fails_instead_ends_with_one(site: Site, said: Said):
    await site.status("Running", runs())
    asked = await waiting(site, said)
    await site.status("Failed")
    await refused(asked, said)


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


@pytest.mark.parametrize(
    ("phase", "remedy"),
    [
        pytest.param("Succeeded", "delete it and apply it", id="over"),
        pytest.param("Failed", "delete it and apply it", id="over and failed"),
        pytest.param("Suspended", "muster resume trainingjob/resnet", id="suspended"),
        pytest.param("", "muster why", id="not taken on"),
    ],
)
async def test_what_does_not_run_is_refused_with_what_to_do(site: Site, phase: str, remedy: str, said: Said):
    await site.status(phase)
    assert remedy in await refused(restart(site.cluster, JOB, "default", wait=True, timeout=10), said)
    assert said.err.count("\n") == 1
    assert RESTART not in await site.annotations()


async def test_without_waiting_it_only_asks(site: Site, said: Said):
    await site.status("Running", runs())
    await restart(site.cluster, JOB, "default", wait=False, timeout=10, value=lambda: "a-value")
    assert (await site.annotations())[RESTART] == "a-value"
    assert said.out == "trainingjob/resnet asked to restart\n"
