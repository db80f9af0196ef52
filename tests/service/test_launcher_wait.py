"""Jobs whose workers fill the nodes, with the four services: none waits for ever for its launcher."""

from shared.job.policies.nodes import SHORTEST_SECONDS, SPREAD_SECONDS
from tests.kit.world import TRAININGJOBS, World, a_training_job

JOBS = [f"job-{number}" for number in range(10)]
ROOM = 2 * len(JOBS)


def in_phase(world: World, *phases: str) -> list[str]:
    return [job for job in JOBS if world.status(TRAININGJOBS, job).get("phase") in phases]


async def test_ten_jobs_on_a_node_with_room_for_their_workers_run_one_after_the_other(world: World):
    world.room = ROOM
    for job in JOBS:
        world.apply(TRAININGJOBS, a_training_job(job, workers=2))
    told = {("LauncherUnschedulable", job) for job in JOBS}
    await world.until(lambda: told <= {*world.kubernetes_events()}, "each says that its launcher waits")
    assert not in_phase(world, "Running")
    await world.pass_seconds(SHORTEST_SECONDS + SPREAD_SECONDS)
    await world.until(lambda: len(in_phase(world, "Running")) >= ROOM // 3 - 1, "most of those run that can")
    ended: set[str] = set()
    while len(ended) < len(JOBS):
        await world.until(lambda: bool(set(in_phase(world, "Running")) - ended), "another one runs")
        for job in set(in_phase(world, "Running")) - ended:
            world.exit_codes[f"{job}-launcher"] = 0
            ended.add(job)
        await world.until(lambda: {*in_phase(world, "Succeeded")} >= ended, "they succeed")
    assert world.count("JobFailed") == 0
