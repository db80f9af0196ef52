"""What PyTorchJobs promise beside what all kinds of the training operator do: elastic groups above all."""

import asyncio

import pytest

from shared.cluster.kinds import AUTOSCALERS, PODS
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.job.spec import JobSpec
from tests.frameworks.documents import Document, custom, pytorch_job
from tests.kit.services import AUTHORS
from tests.kit.world import NAMESPACE
from tests.service.kubeflow import Play, applied

TWO_TO_FOUR: Document = {"minReplicas": 2, "maxReplicas": 4}


def a_job(*, restart: str = "", elastic: Document | None = None, **replicas: int) -> Document:
    return applied(pytorch_job(policy=elastic, **replicas), restart=restart)


RENDEZVOUS = "mnist-rdzv-0"


def workers(*indices: int) -> list[str]:
    return [f"mnist-worker-{index}" for index in indices]


def group(*indices: int) -> list[str]:
    """The pods of an elastic job."""
    return [RENDEZVOUS, *workers(*indices)]


class TestElastic:
    async def test_it_grows_and_shrinks_and_its_names_stay_the_same(self):
        async with Play(PYTORCHJOB) as world:
            world.play(a_job(elastic=TWO_TO_FOUR, Worker=3))
            await world.runs(3)
            first = world.uid("mnist-worker-0")
            for size in (4, 2, 4, 3):
                world.scale(size)
                await world.has_workers(size)
                await world.until(lambda size=size: sorted(world.pods()) == group(*range(size)))  # type: ignore[misc]
                await world.until(lambda: world.services() == sorted(world.pods()))
                await world.quiet()
                assert world.state() == "Running"
            assert world.uid("mnist-worker-0") == first
            assert world.count("ScaleSucceeded") == 4
            assert "ScalingOutSucceeded" in world.told()

    async def test_a_rendezvous_that_is_lost_comes_back_and_is_no_worker(self):
        async with Play(PYTORCHJOB) as world:
            world.play(a_job(elastic=TWO_TO_FOUR, Worker=2))
            await world.runs(2)
            first = world.uid(RENDEZVOUS)
            world.delete(PODS, RENDEZVOUS)
            await world.until(lambda: RENDEZVOUS in world.pods() and world.uid(RENDEZVOUS) != first)
            await world.until(lambda: world.state() == "Running")
            assert world.counts("Worker")[0] == 2
            assert "Rendezvous" not in world.shown()["replicaStatuses"]

    async def test_a_rendezvous_that_cannot_run_ends_the_job_by_its_limit_and_in_its_own_words(self):
        async with Play(PYTORCHJOB) as world:
            world.play(applied(a_job(elastic=TWO_TO_FOUR, Worker=2), run={"backoffLimit": 1}))
            await world.runs(2)
            first = world.uid(RENDEZVOUS)
            world.exit_codes[RENDEZVOUS] = 1
            await world.until(lambda: RENDEZVOUS in world.pods() and world.uid(RENDEZVOUS) != first)
            world.exit_codes[RENDEZVOUS] = 1
            await world.comes_to("Failed")
            assert world.why().startswith(f"BackoffLimitExceeded: {RENDEZVOUS} exited with 1")

    async def test_workers_that_end_because_the_rendezvous_was_lost_come_back_at_once_and_count_against_no_limit(self):
        async with Play(PYTORCHJOB) as world:
            world.play(applied(a_job(elastic=TWO_TO_FOUR, restart="Never", Worker=3), run={"backoffLimit": 0}))
            await world.runs(3)
            before = {name: world.uid(name) for name in group(0, 1, 2)}
            world.delete(PODS, RENDEZVOUS)
            await world.until(lambda: world.count("PodsGone") == 1)
            for name in workers(0, 1, 2):
                world.exit_codes[name] = 1
            await world.until(
                lambda: (
                    sorted(world.pods()) == group(0, 1, 2)
                    and all(world.uid(name) != uid for name, uid in before.items())
                )
            )
            await world.runs(3)
            assert world.state() == "Running"

    @pytest.mark.parametrize("policy", ["None", "Running", "All"])
    async def test_the_rendezvous_ends_with_the_last_worker_whatever_stays(self, policy: str):
        async with Play(PYTORCHJOB) as world:
            world.play(applied(a_job(elastic=TWO_TO_FOUR, Worker=2), run={"cleanPodPolicy": policy}))
            await world.runs(2)
            world.exit_codes["mnist-worker-0"] = 0
            await world.comes_to("Succeeded")
            if policy == "None":
                await world.quiet()
                # The other worker still runs, and may need it.
                assert RENDEZVOUS in world.pods()
                world.exit_codes["mnist-worker-1"] = 0
            await world.until(lambda: RENDEZVOUS not in world.pods())
            await world.quiet()
            assert ("mnist-worker-0" in world.pods()) is (policy != "All")

    @pytest.mark.parametrize(("size", "reason"), [(5, "AboveMaximum"), (1, "BelowMinimum")])
    async def test_beyond_its_bounds_it_stays_as_it_is_and_says_why(self, size: int, reason: str):
        async with Play(PYTORCHJOB) as world:
            world.play(a_job(elastic=TWO_TO_FOUR, Worker=3))
            await world.runs(3)
            world.scale(size)
            await world.until(lambda: reason in world.told(), "an Event tells")
            await world.quiet()
            assert sorted(world.pods()) == group(0, 1, 2)
            assert world.why("Created").startswith(f"{reason}: spec.pytorchReplicaSpecs.Worker.replicas: ")
            world.scale(4)
            await world.has_workers(4)
            assert not world.why("Created").startswith(reason)

    async def test_a_scale_out_takes_what_starts_in_time_and_the_rest_joins_later(self):
        async with Play(PYTORCHJOB) as world:
            world.play(a_job(elastic=TWO_TO_FOUR, Worker=2))
            await world.runs(2)
            world.stuck |= {"mnist-worker-3"}
            world.scale(4)
            await world.has_workers(3)
            await world.pass_seconds(590)
            assert world.count("ScaleFailed") == 0
            await world.pass_seconds(20)
            assert "ScalingOutSucceeded" in world.told()
            assert world.state() == "Running"
            world.stuck.clear()
            await world.has_workers(4)


@pytest.mark.parametrize("author", AUTHORS)
async def test_a_group_comes_to_the_wanted_size_with_a_crash_at_every_event(author: str):
    async with Play(PYTORCHJOB) as world:

        async def a_life() -> None:
            world.play(a_job(elastic=TWO_TO_FOUR, Worker=2))
            await world.has_workers(2)
            for size in (4, 3):
                world.scale(size)
                await world.until(lambda size=size: sorted(world.pods()) == group(*range(size)))  # type: ignore[misc]
                await world.has_workers(size)
            await world.until(lambda: world.count("PodsGone") == 1)
            world.delete(PODS, "mnist-worker-0")
            await world.until(lambda: world.count("PodsGone") == 2)
            await world.has_workers(3)
            world.exit_codes["mnist-worker-1"] = 0
            await world.comes_to("Succeeded")

        # Virtual time stands still during repeated reads: the journal tells.
        happened = asyncio.Event()
        world.journal.listeners.append(lambda _: happened.set())
        living = asyncio.create_task(a_life())
        living.add_done_callback(lambda _: happened.set())
        while not living.done():
            await happened.wait()
            happened.clear()
            await world.kill(author)
            await world.start(author)
        await living
        await world.quiet()
        assert {kind: world.count(kind) for kind in ("JobSucceeded", "ScaleSucceeded", "ScaleAccepted")} == {
            "JobSucceeded": 1,
            "ScaleSucceeded": 2,
            "ScaleAccepted": 2,
        }


METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]


def autoscalers(world: Play) -> list[Document]:
    return [held.manifest for held in world.store.find(AUTOSCALERS)]


class TestAutoscaled:
    async def test_metrics_become_an_autoscaler_that_lives_as_long_as_the_job_trains(self):
        async with Play(PYTORCHJOB) as world:
            uid = world.play(a_job(elastic=TWO_TO_FOUR | {"metrics": METRICS}, Worker=2))
            await world.runs(2)
            await world.until(lambda: len(autoscalers(world)) == 1)
            (made,) = autoscalers(world)
            assert made["spec"] == {
                "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "mnist"},
                "minReplicas": 2,
                "maxReplicas": 4,
                "metrics": METRICS,
            }
            assert made["metadata"]["ownerReferences"][0]["uid"] == uid
            for suspended in (True, False):
                patch = {"spec": {"runPolicy": {"suspend": suspended}}}
                world.store.patch(PYTORCHJOB.resource, NAMESPACE, "mnist", patch)
                await world.until(lambda wanted=not suspended: len(autoscalers(world)) == wanted)  # type: ignore[misc]
            await world.runs(2)
            for index in range(2):
                world.exit_codes[f"mnist-worker-{index}"] = 0
            await world.until(lambda: not autoscalers(world), "with the training it goes")
            assert (world.count("AutoscalerMade"), world.count("AutoscalerGone")) == (2, 2)

    async def test_an_autoscaler_of_another_is_left_alone_and_told(self):
        async with Play(PYTORCHJOB) as world:
            theirs = {"metadata": {"name": "mnist"}, "spec": {"maxReplicas": 3}}
            world.apply(AUTOSCALERS, theirs)
            world.play(a_job(elastic=TWO_TO_FOUR | {"metrics": METRICS}, Worker=2))
            await world.runs(2)
            await world.until(lambda: world.count("EffectRefused") > 0)
            assert [made["spec"] for made in autoscalers(world)] == [theirs["spec"]]
            assert "horizontalpodautoscaler" in world.why().lower()
            world.delete(AUTOSCALERS, "mnist")
            await world.until(lambda: world.count("AutoscalerMade") == 1, "it is made once the name is free")

    def test_a_job_of_one_size_has_no_autoscaler(self):
        job = pytorch_job(policy={"minReplicas": 2, "maxReplicas": 2, "metrics": METRICS}, Worker=2)
        spec = PYTORCHJOB.parse(custom(job))
        assert isinstance(spec, JobSpec)
        assert not spec.autoscaled
