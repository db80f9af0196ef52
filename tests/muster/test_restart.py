"""`muster restart`: a new word in the annotation, and waiting for the attempt that it begins."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import typer

from muster import crds, following
from muster.restart import a_word, restart
from muster.targets import parse_target
from shared.job.naming import RESTART
from tests.muster.conftest import NAME, MakeSite, Said, Site

JOB = parse_target(f"trainingjob/{NAME}")
BEGAN = "2030-01-01T00:00:00Z"
LATER = "2030-01-01T00:01:00Z"


def runs(since: str = BEGAN) -> dict[str, Any]:
    return {"type": "Running", "status": "True", "reason": "TrainingJobRunning", "lastTransitionTime": since}


def restarting(since: str, *, now: bool) -> dict[str, Any]:
    return {"type": "Restarting", "status": str(now), "reason": "RestartRequested", "lastTransitionTime": since}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.01)


@pytest.fixture
async def site(a_site: MakeSite) -> AsyncIterator[Site]:
    async with a_site(crds.manifests()) as made:
        yield made


async def waiting(site: Site, said: Said, shows: str = "Running") -> "asyncio.Future[None]":
    """A restart that was asked for and is waited for."""
    asked = asyncio.ensure_future(restart(site.cluster, JOB, "default", wait=True, timeout=10))
    await said.until(f"trainingjob/resnet {shows}")
    assert not asked.done(), "what runs is still the old attempt"
    return asked


def test_two_words_are_never_the_same():
    assert a_word() != a_word()


async def test_it_waits_until_the_new_attempt_runs(site: Site, said: Said):
    await site.status("Running", runs())
    asked = await waiting(site, said)
    assert (await site.annotations())[RESTART]
    await site.status("Restarting", restarting(LATER, now=True))
    await said.until("trainingjob/resnet Restarting (RestartRequested)")
    await site.status("Running", restarting(LATER, now=False), runs(LATER))
    await asyncio.wait_for(asked, 10)
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
    await asyncio.wait_for(asked, 10)


async def test_a_job_that_fails_instead_ends_with_one(site: Site, said: Said):
    await site.status("Running", runs())
    asked = await waiting(site, said)
    await site.status("Failed")
    with pytest.raises(typer.Exit) as end:
        await asyncio.wait_for(asked, 10)
    assert end.value.exit_code == 1


async def test_asked_for_again_a_restart_that_is_under_way_waits_for_no_back_off(site: Site, said: Said):
    await site.status("Restarting", restarting(BEGAN, now=True))
    asked = await waiting(site, said, "Restarting (RestartRequested)")
    assert RESTART in await site.annotations()
    await site.status("Running", restarting(LATER, now=False), runs(LATER))
    await asyncio.wait_for(asked, 10)


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
    with pytest.raises(typer.Exit) as end:
        await restart(site.cluster, JOB, "default", wait=True, timeout=10)
    complaint = said.err
    assert end.value.exit_code == 1
    assert remedy in complaint
    assert complaint.count("\n") == 1
    assert RESTART not in await site.annotations()


async def test_without_waiting_it_only_asks(site: Site, said: Said):
    await site.status("Running", runs())
    await restart(site.cluster, JOB, "default", wait=False, timeout=10, word=lambda: "a-word")
    assert (await site.annotations())[RESTART] == "a-word"
    assert said.out == "trainingjob/resnet asked to restart\n"
