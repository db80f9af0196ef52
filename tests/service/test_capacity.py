"""Jobs that train with the workers for which there is room, with the four services on a cluster that has little."""

import asyncio
from typing import Any

import pytest

from shared.cluster.kinds import NODES, PODS
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.conditions import since
from shared.job.naming import MIN_WORKERS
from shared.job.policies import capacity, nodes
from shared.job.policies.nodes import REPLACED_SECONDS, SHORTEST_SECONDS, SPREAD_SECONDS
from tests.frameworks.documents import mpi_job, pytorch_job
from tests.kit.world import World, a_scale_in, a_scale_out, a_training_job
from tests.service.kubeflow import Play, applied
from tests.service.test_lost_nodes import OTHER, SILENT, given_up
from tests.service.test_lost_nodes import report as condition_of_the_node

LEAST, MOST = 2, 6
SETTLE, GROW = 10, 30
LAUNCHER = STORE = 1
"""The places that the launcher takes, and the rendezvous of an elastic group."""


def a_job(name: str = "resnet", *, workers: int = MOST, least: int = LEAST, **elasticity: Any) -> dict[str, Any]:
    job = a_training_job(name, workers=workers, elasticity={"size": "Capacity", **elasticity})
    job["spec"]["etReplicaSpecs"]["worker"] |= {"minReplicas": least, "maxReplicas": MOST}
    return job


def training(world: World, job: str = "resnet") -> int:
    """The number of workers in the hosts file."""
    return len(world.hosts(job))


async def preempted(world: World, pod: str) -> None:
    """The kube-scheduler gives the place of a pod to one of higher priority."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    conditions = [*world.pods()[pod].manifest["status"]["conditions"], condition]
    world.store.patch(PODS, "team-a", pod, {"status": {"conditions": conditions}}, subresource="status")
    assert world.room is not None
    world.room -= 1
    world.store.delete(PODS, "team-a", pod)


def never_below_the_minimum(world: World, job: str = "resnet") -> bool:
    files = world.hosts_files["team-a", f"{job}-config"]
    return all(len(data["hostfile"].splitlines()) >= LEAST for data in files)


async def test_a_job_starts_with_what_there_is_room_for_grows_and_gives_a_place_back(world: World):
    world.room = 3 + LAUNCHER
    world.stuck.add("resnet-launcher")
    world.odd.update(f"resnet-worker-{index}" for index in range(3, 6))
    world.apply(TRAININGJOBS, a_job())
    await world.until(lambda: training(world) == 3, "three are members")
    assert "resnet-launcher" not in world.pods() or training(world) == 3
    world.stuck.clear()
    world.odd.clear()
    await world.running()
    assert world.status(TRAININGJOBS, "resnet")["workers"] == "3/6"
    assert world.count("HostsPublished") == 1
    before = asyncio.get_running_loop().time()
    world.room += 1
    await world.until(lambda: training(world) == 4, "the fourth joins")
    assert asyncio.get_running_loop().time() - before < 1
    await preempted(world, world.hosts()[0])
    await world.until(lambda: training(world) == 3, "its place is given back")
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"
    assert never_below_the_minimum(world)


async def test_all_workers_start_at_once_and_fewer_after_the_time_to_settle(world: World):
    began = asyncio.get_running_loop().time()
    world.apply(TRAININGJOBS, a_job("whole"))
    await world.running("whole")
    assert asyncio.get_running_loop().time() - began < SETTLE / 2
    world.room = len(world.pods()) + 3 + LAUNCHER
    world.stuck.update(f"part-worker-{index}" for index in (3, 4, 5))
    began = asyncio.get_running_loop().time()
    world.apply(TRAININGJOBS, a_job("part", settleSeconds=20))
    world.room += 3
    await world.running("part")
    assert 20 <= asyncio.get_running_loop().time() - began < 22
    assert training(world, "part") == 3


async def test_those_that_come_later_join_together_and_not_more_often_than_the_job_says(world: World):
    world.stuck.update(f"resnet-worker-{index}" for index in range(2, 6))
    world.apply(TRAININGJOBS, a_job(growSeconds=60))
    await world.running()
    world.stuck.discard("resnet-worker-2")
    await world.until(lambda: training(world) == 3, "the first joins as it comes")
    world.stuck.discard("resnet-worker-3")
    await world.pass_seconds(20)
    world.stuck.clear()
    await world.pass_seconds(20)
    assert training(world) == 3
    await world.until(lambda: training(world) == 6, "all that came meanwhile join at once")
    assert world.count("HostsPublished") == 3


async def test_below_its_minimum_a_job_gives_its_places_back_and_begins_again_when_there_is_room(world: World):
    world.room = 2 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(settleSeconds=0))
    await world.running()
    await preempted(world, "resnet-worker-1")
    await world.until(lambda: world.count("JobRestarted") == 1, "it waits whole")
    restarting = [stored for stored in world.journal.events if stored.subject.endswith("JobRestarting")]
    assert b"MinimumUnschedulable" in restarting[-1].body
    assert never_below_the_minimum(world)
    world.room += 1
    await world.running()
    assert world.job().retries.restarts == 0
    assert never_below_the_minimum(world)


async def test_a_job_that_finds_room_for_fewer_than_its_minimum_does_not_keep_them_from_others(world: World):
    world.room = 1
    world.apply(TRAININGJOBS, a_job())
    await world.shows("WorkersReady", "MinimumUnschedulable")
    await world.pass_seconds(SHORTEST_SECONDS + SPREAD_SECONDS)
    assert world.count("JobRestarted") >= 1
    world.room = 6 + LAUNCHER
    await world.running()


async def test_workers_make_room_for_their_launcher_down_to_the_minimum(world: World):
    world.room = 4
    world.apply(TRAININGJOBS, a_job())
    await world.running()
    assert training(world) == 3
    assert world.count("JobRestarted") == 0
    await world.until(lambda: len(world.pods()) == MOST + LAUNCHER, "the others are asked for again")


async def test_a_place_that_was_given_back_counts_also_while_its_pod_still_ends(world: World):
    world.room = 5
    world.apply(TRAININGJOBS, a_job())
    await world.until(lambda: training(world) == 5, "the first members")
    world.lingering |= {pod.metadata["uid"] for pod in world.pods().values()}
    await world.until(lambda: training(world) == 4, "one place is given back")
    await world.pass_seconds(2 * SETTLE)
    # Once the pod has ended the kube-scheduler, too, takes its time.
    world.odd.add("resnet-launcher")
    world.lingering.clear()
    await world.pass_seconds(SETTLE - 2)
    world.odd.clear()
    await world.running()
    assert training(world) == 4


async def test_a_pod_that_never_ends_keeps_no_launcher_from_the_next_place(world: World):
    world.room = 5
    world.apply(TRAININGJOBS, a_job())
    await world.until(lambda: training(world) == 5, "the first members")
    world.lingering.add(world.pods()["resnet-worker-4"].metadata["uid"])
    await world.running()
    assert (training(world), world.count("JobRestarting")) == (3, 0)


async def test_a_job_keeps_as_few_pods_pending_as_it_says(world: World):
    world.room = 3 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(maxPending=1, settleSeconds=0))
    await world.running()
    await world.until(lambda: training(world) >= 2, "it trains")
    await world.pass_seconds(2 * GROW)
    pending = [held for held in world.pods().values() if not held.manifest["spec"].get("nodeName")]
    assert (training(world), len(pending)) == (3, 1)
    world.room += 1
    await world.until(lambda: training(world) == 4, "it grows")
    await world.until(lambda: len(world.pods()) == 4 + LAUNCHER + 1, "the next one is asked for")


async def test_a_larger_size_is_a_wish_that_stays(world: World):
    world.room = 2 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(workers=2, growSeconds=0))
    await world.running()
    patch = {"spec": {"etReplicaSpecs": {"worker": {"replicas": 5}}}}
    world.store.patch(TRAININGJOBS, "team-a", "resnet", patch)
    await world.until(lambda: world.status(TRAININGJOBS, "resnet").get("workers") == "2/5", "it asks for five")
    await world.until(lambda: world.count("ScaleSucceeded") == 1, "the edit is done")
    world.room += 2
    await world.until(lambda: training(world) == 4, "it takes what comes")
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    assert training(world) == 4
    assert world.status(TRAININGJOBS, "resnet")["workers"] == "4/4"


async def test_a_scale_in_leaves_the_minimum_of_those_that_train(world: World):
    world.room = 3 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(settleSeconds=0))
    await world.until(lambda: training(world) == 3 or world.count("HostsPublished") > 0, "it starts")
    await world.running()
    members = world.hosts()[:2]
    request = a_scale_in(1)
    request["spec"]["toDelete"] = {"podNames": members}
    world.apply(SCALEINS, request)
    await world.shows("ScaleFailed", "BelowMinimum", SCALEINS, "in")


@pytest.mark.parametrize("fits", [2, 0])
async def test_a_partial_scale_out_takes_what_fits_and_the_rest_waits(world: World, fits: int):
    await world.trains(workers=2)
    world.room = 2 + LAUNCHER + fits
    request = a_scale_out(3)
    request["spec"]["toAdd"]["partial"] = True
    world.apply(SCALEOUTS, request)
    if not fits:
        await world.phase("ScaleFailed", SCALEOUTS, "out")
        assert len(world.pods()) == 2 + LAUNCHER
        return
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    assert world.status(TRAININGJOBS, "resnet")["workers"] == "4/5"
    world.room += 1
    await world.until(lambda: training(world) == 5, "the rest joins")


async def test_an_elastic_group_goes_by_capacity_without_being_asked():
    async with Play(PYTORCHJOB) as world:
        world.room = 2 + STORE
        world.play(applied(pytorch_job(policy={"minReplicas": 2, "maxReplicas": 6}, Worker=4)))
        await world.until(lambda: len(world.job("mnist").listed_workers) == 2, "those that run are members")
        world.scale(6)
        await world.until(lambda: world.count("ScaleSucceeded") == 1, "it may ask for more than there is room for")
        world.room += 2
        await world.until(lambda: len(world.job("mnist").listed_workers) == 4, "those that come join")
        for index in range(3):
            await preempted(world, f"mnist-worker-{index}")
        await world.until(lambda: world.count("JobRestarted") == 1, "below its minimum it gives all places back")
        world.room += 1
        await world.until(lambda: world.state() == "Running", "it begins again when there is room")
        assert world.job("mnist").retries.restarts == 0


async def test_an_mpi_job_goes_by_capacity_where_its_annotation_says_with_how_many():
    async with Play(MPIJOB) as world:
        world.room = 3 + LAUNCHER
        job = applied(mpi_job(Launcher=1, Worker=MOST))
        job["metadata"]["annotations"] = {MIN_WORKERS: str(LEAST)}
        world.play(job)
        await world.until(lambda: training(world, "pi") == 3 and world.state() == "Running", "it starts with three")
        world.room += 1
        await world.until(lambda: training(world, "pi") == 4, "the fourth joins")
        await preempted(world, "pi-worker-0")
        await world.until(lambda: training(world, "pi") == 3, "its place is given back")
        world.scale(MOST + 1)
        await world.until(lambda: world.count("ScaleSucceeded") == 1, "it may ask for more than there is room for")
        world.scale(LEAST - 1)
        await world.until(lambda: bool(world.job("pi").resource.problems), "less than its minimum is refused")
        await preempted(world, "pi-worker-1")
        await preempted(world, "pi-worker-2")
        await world.until(lambda: world.count("JobRestarted") == 1, "below its minimum it gives all places back")
        assert never_below_the_minimum(world, "pi")


async def test_who_decided_the_size_is_told(world: World):
    world.room = 2 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(workers=2, growSeconds=0))
    await world.running()
    assert capacity.deciders(world.job()) == ["its resource asks for 2 workers"]
    world.apply(SCALEOUTS, a_scale_out(3))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    asked = ["ScaleOut out asked for 5 workers", "the kube-scheduler finds no node for 3"]
    assert capacity.deciders(world.job()) == asked


@pytest.mark.parametrize(("most", "lost"), [(2, 1), (3, 2), (3, 1)])
async def test_a_group_that_loses_its_minimum_trains_again_with_the_replacements(world: World, most: int, lost: int):
    world.room = most + LAUNCHER
    job = a_job(workers=most)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = "Always"
    world.apply(TRAININGJOBS, job)
    await world.running()
    await world.pass_seconds(GROW + 5)
    for name in world.hosts()[:lost]:
        await preempted(world, name)
        world.room += 1
    await world.pass_seconds(2 * GROW)
    assert len({*world.hosts()} & {*world.pods()}) == most
    assert world.count("JobRestarted") == 0
    assert never_below_the_minimum(world)


async def test_a_place_that_a_pod_of_the_job_still_holds_is_waited_for(world: World):
    world.room = 2 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(workers=2, settleSeconds=0))
    await world.running()
    world.lingering.add(world.pods()["resnet-worker-1"].metadata["uid"])
    await preempted(world, "resnet-worker-1")
    world.room += 1
    await world.pass_seconds(300)
    assert world.count("JobRestarted") == 0
    world.lingering.clear()
    await world.until(lambda: "resnet-worker-2" in world.hosts(), "its replacement trains")
    assert world.count("JobRestarted") == 0


async def test_long_after_a_growth_a_replacement_joins_as_it_comes(world: World):
    world.room = 3 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(workers=4))
    await world.running()
    world.room += 1
    await world.until(lambda: training(world) == 4)
    await world.pass_seconds(2 * GROW)
    before = asyncio.get_running_loop().time()
    await preempted(world, world.hosts()[0])
    world.room += 1
    await world.until(lambda: training(world) == 3)
    await world.until(lambda: training(world) == 4)
    assert asyncio.get_running_loop().time() - before < 1


async def loses_its_minimum_as_it_starts(world: World) -> None:
    """Its launcher has a node, and does not run yet."""
    world.room = 2 + LAUNCHER
    world.stuck.add("resnet-launcher")
    job = a_job(workers=2, settleSeconds=0)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = "Always"
    world.apply(TRAININGJOBS, job)
    launcher = "resnet-launcher"
    await world.until(lambda: launcher in world.pods() and "nodeName" in world.pods()[launcher].manifest["spec"])
    await preempted(world, world.hosts()[0])


async def test_an_attempt_whose_launcher_is_placed_and_lacks_its_minimum_gives_its_places_back(world: World):
    await loses_its_minimum_as_it_starts(world)
    await world.pass_seconds(SHORTEST_SECONDS + SPREAD_SECONDS + 5)
    assert world.count("JobRestarted") >= 1


async def test_a_training_that_misses_its_minimum_as_it_starts_waits_as_long_as_one_that_loses_it_later(world: World):
    await loses_its_minimum_as_it_starts(world)
    await world.pass_seconds(2 * REPLACED_SECONDS)
    world.stuck.clear()
    await world.running()
    told, began = nodes.of_launcher_wait(world.job()), since(world.job().status.conditions, "Running")
    assert told is not None
    assert (told[0].sequence, f"; {REPLACED_SECONDS} s after {told[0].clock}" in told[2]) == (began, True)
    await world.pass_seconds(REPLACED_SECONDS - 2)
    assert world.count("JobRestarting") == 0
    await world.pass_seconds(4)
    assert world.count("JobRestarting") == 1


async def test_a_pod_that_never_ends_on_a_dead_node_is_not_waited_for(world: World):
    for node in (SILENT, OTHER):
        world.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
    world.homes = {f"resnet-{name}": OTHER for name in ("launcher", "worker-1", "worker-2")}
    world.room = 2 + LAUNCHER
    world.apply(TRAININGJOBS, a_job(workers=2, settleSeconds=0))
    await world.running()
    condition_of_the_node(world, "Unknown")
    given_up(world, "resnet-worker-0")
    await world.until(lambda: world.count("JobRestarting") == 1, "it waits whole")
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Restarting"


@pytest.mark.parametrize("elastic", [True, False])
async def test_on_a_node_that_flaps_a_worker_joins_again_no_more_often_than_growth_may(elastic: bool, world: World):
    for node in (SILENT, OTHER):
        world.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
    world.homes = {f"resnet-{name}": OTHER for name in ("launcher", "worker-1")}
    world.apply(TRAININGJOBS, a_job(workers=2, least=1, growSeconds=GROW) if elastic else a_training_job(workers=2))
    await world.running()
    for turn in range(100):
        condition_of_the_node(world, ("Unknown", "True")[turn % 2])
        await world.pass_seconds(3)
    # The first files, the first loss, and each time that it joined and was lost again.
    assert world.count("HostsPublished") <= 2 + 2 * 300 // GROW
    assert world.count("JobRestarting") == 0
    assert {"resnet-worker-0", "resnet-worker-1"} == {*world.pods()} - {"resnet-launcher"}
    condition_of_the_node(world, "True")
    await world.until(lambda: training(world) == 2, "it trains with both")


@pytest.mark.parametrize("elastic", [True, False])
async def test_the_workers_of_a_scale_out_join_while_others_are_about_to_go(elastic: bool):
    async with World(drain_seconds=5) as world:
        for node in (SILENT, OTHER):
            world.store.create(NODES, "", {"metadata": {"name": node}, "spec": {}})
        world.homes = {f"resnet-{name}": OTHER for name in ("launcher", *(f"worker-{index}" for index in range(3, 9)))}
        world.stuck.update(f"resnet-worker-{index}" for index in range(4, 8))
        world.apply(TRAININGJOBS, a_job(workers=4) if elastic else a_training_job(workers=4))
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.phase("Scaling", SCALEOUTS, "out")
        going = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        world.store.patch(NODES, "", SILENT, {"spec": {"taints": [going]}})
        await world.until(lambda: world.count("DisruptionNoticed") > 0)
        world.stuck.discard("resnet-worker-4")
        await world.until(lambda: world.count("HostsPublished") == 2)
        assert "resnet-worker-4" in world.hosts()
