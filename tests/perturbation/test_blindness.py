"""What takes a watcher's sight for a while, by hand: nothing is believed gone that is not, and the end is the truth."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from devcluster.controlplane import ControlPlane
from services.watcher.core.lists import VANISHED_AT_ONCE
from services.watcher.deadlines import STALL_SECONDS
from shared.cluster.kinds import PODS
from shared.eventlog import Entry
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.scheduler import SlotsAssigned
from shared.job.fold import History
from shared.job.naming import JobKey, Uid, subject_of
from shared.job.spec import LAUNCHER
from shared.job.views import Slots
from tests.kit.clusters import DEFINITIONS
from tests.kit.nats import connected
from tests.perturbation.arena import Arena, an_arena
from tests.perturbation.conftest import BINDINGS, permissions
from tests.perturbation.watched import Watched

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

DEFINITION = f"{TRAININGJOBS.plural}.{TRAININGJOBS.group}"


async def test_a_permission_that_is_taken_away_for_a_while_takes_no_job(plane: ControlPlane, tmp_path: Path):
    async with an_arena(plane, tmp_path) as arena:
        await arena.jobs(4)
        await arena.drive(60)
        await arena.agree()
        (binding,) = [manifest for manifest in permissions() if manifest["kind"] == BINDINGS.kind]
        held = await arena.admin.get(BINDINGS, "", binding["metadata"]["name"])
        assert held is not None
        forbidden = arena.said("Forbidden")
        await arena.admin.delete(BINDINGS, "", held.metadata.name, uid=held.metadata.uid)

        async def blinded() -> bool:
            # Who watches already may go on; a permission is asked for when a watch begins.
            arena.disturbed.proxy.cut_watches()
            return forbidden()

        try:
            await arena.until(blinded, "forbidden")
            before = await arena.ended()
            await arena.drive(60)
            assert await arena.ended() == before
        finally:
            await arena.admin.create(BINDINGS, "", binding)
        await arena.agree()


async def test_a_definition_that_is_not_served_for_a_while_takes_no_job(plane: ControlPlane, tmp_path: Path):
    async with an_arena(plane, tmp_path) as arena:
        await arena.jobs(VANISHED_AT_ONCE + 2)
        await arena.drive(40)
        await arena.agree()
        before = await arena.ended()
        unserved = arena.said("NotFound")
        arena.witness.collecting()
        await _serve(arena, served=False)
        try:
            await arena.until(unserved, "not served")
            assert await arena.ended() == before
        finally:
            await _serve(arena, served=True)
        await arena.drive(40)
        await arena.agree()


async def test_jobs_that_vanished_with_their_definition_wait_for_a_persons_word(plane: ControlPlane, tmp_path: Path):
    async with an_arena(plane, tmp_path) as arena:
        jobs = await arena.jobs(VANISHED_AT_ONCE + 2)
        await arena.agree()
        # It hears nothing of the end of each, as one that was down while the definitions were reinstalled.
        arena.disturbed.process.kill()
        arena.witness.ending(*(job.metadata.uid for job in jobs))
        definition = await arena.admin.get(DEFINITIONS, "", DEFINITION)
        assert definition is not None
        await arena.admin.delete(DEFINITIONS, "", DEFINITION, uid=definition.metadata.uid)
        await arena.until(lambda: _is_gone(arena), "deleted")
        await arena.admin.create(DEFINITIONS, "", _bare(definition))
        await arena.until(lambda: _is_served(arena), "served again")
        alarmed = arena.said("too many jobs vanished at once")
        arena.disturbed.process.start()
        await arena.until(alarmed, "alarmed")
        # The alarm is raised as the jobs are listed; whatever comes of pods and requests comes after that.
        fresh = await arena.driver.create_job("job-fresh")
        await arena.until(lambda: _knows(arena.disturbed, fresh.metadata.uid), "told of the new job")
        assert await arena.ended() == set()
        arena.disturbed.process.kill()
        arena.disturbed.told("MUSTER_BELIEVE_VANISHED=true")
        arena.disturbed.process.start()
        await arena.agree()
        assert await arena.ended() == {job.metadata.uid for job in jobs}


async def test_a_watcher_that_stood_still_while_its_history_was_forgotten_wakes_to_the_truth(
    plane: ControlPlane, tmp_path: Path
):
    async with an_arena(plane, tmp_path) as arena:
        await arena.jobs(4)
        await arena.drive(60)
        await arena.agree()
        woke = arena.said("stalled")
        arena.disturbed.pause()
        begin = asyncio.get_running_loop().time()
        await arena.drive(60)
        # A new API server remembers nothing of what came before it: a watch from there has expired.
        await plane.apiserver.restart()
        # Else the first changes after the restart could escape the witness, and the truth look like a lie.
        await arena.witness.anew()
        await arena.drive(60)
        # Only a pause that is longer than this is noticed.
        await arena.until(lambda: asyncio.get_running_loop().time() > begin + 2 * STALL_SECONDS, "paused long enough")
        arena.disturbed.resume()
        await arena.until(woke, "awake")
        await arena.agree()


async def test_a_launcher_that_goes_with_its_job_is_not_lost_however_late_the_jobs_watch_is(
    plane: ControlPlane, tmp_path: Path
):
    async with an_arena(plane, tmp_path) as arena:
        job: Any = await arena.driver.create_job("job-0")
        launcher = await arena.admin.create(PODS, arena.namespace, arena.driver.pod_of(job, LAUNCHER, 0))

        async def launched() -> bool:
            return bool((await _history(arena.disturbed, job)).job.pods.views)

        await arena.until(launched, "told of the launcher")
        await _assign_launcher(arena.disturbed, job)
        arena.disturbed.proxy.hold(TRAININGJOBS.plural)
        await arena.driver.delete(TRAININGJOBS, job)
        # As the garbage collector does, which learns of a new definition within half a minute.
        await arena.driver.delete(PODS, launcher)

        async def taken() -> bool:
            return not (await _history(arena.disturbed, job)).job.pods.views

        await arena.until(taken, "told that the launcher went")
        assert not (await _history(arena.disturbed, job)).job.resource.gone
        arena.disturbed.proxy.release(TRAININGJOBS.plural)

        async def ended() -> bool:
            return (await _history(arena.disturbed, job)).job.resource.gone

        await arena.until(ended, "told that the job went")
        assert not (await _history(arena.disturbed, job)).job.attempt.launcher_lost
        assert not arena.witness.lies(await arena.disturbed.log())


async def _serve(arena: Arena, *, served: bool) -> None:
    definition: Any = await arena.admin.get(DEFINITIONS, "", DEFINITION)
    versions = [{**version, "served": served} for version in definition.spec["versions"]]
    await arena.admin.patch(DEFINITIONS, "", DEFINITION, {"spec": {"versions": versions}})


async def _is_gone(arena: Arena) -> bool:
    return await arena.admin.get(DEFINITIONS, "", DEFINITION) is None


async def _is_served(arena: Arena) -> bool:
    async with (
        arena.plane.session() as session,
        session.get(f"/apis/{TRAININGJOBS.api_version}/{TRAININGJOBS.plural}") as answer,
    ):
        return answer.status == 200


def _bare(definition: Any) -> dict[str, Any]:
    return {"metadata": {"name": definition.metadata.name}, "spec": definition.spec}


async def _knows(watched: Watched, uid: str) -> bool:
    return any(stored.subject.split(".")[3] == uid for stored in await watched.log())


async def _history(watched: Watched, job: Any) -> History:
    at = job.metadata
    return (await watched.histories())[JobKey(at.namespace, at.name, Uid(at.uid))]


async def _assign_launcher(watched: Watched, job: Any) -> None:
    """The scheduler's decision, by its own user."""
    history = await _history(watched, job)
    event = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),))
    entry = Entry(
        subject=subject_of(history.job.key, "jobs", "scheduler", "SlotsAssigned"),
        event_id=uuid4().hex,
        time=history.time,
        body=msgspec.json.encode(event),
        basis=history.basis,
    )
    async with connected(watched.nats, "scheduler") as log:
        await log.append(entry, expect=history.last_decision)
