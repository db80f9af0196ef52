"""Many kinds of job side by side: each is seen by its own watch, and one that is not served harms no other."""

import asyncio

import pytest
from structlog.testing import capture_logs

from services.watcher.core.cache import Cache
from services.watcher.core.lists import VANISHED_AT_ONCE
from shared.cluster.kinds import PODS
from shared.frameworks.scale_requests import REQUESTS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JobKey, Uid
from tests.kit.histories import KEY
from tests.kit.swarm import SWARMJOBS, WITH_SWARMS, a_swarm_job
from tests.kit.world import NAMESPACE, a_scale_out, a_training_job
from tests.watcher.test_shell import Cluster
from tests.watcher.watching import a_request, a_resource

AT = (KEY.namespace, KEY.name)
SWARM = JobKey(KEY.namespace, KEY.name, Uid("uid-of-swarm"))


class TestOfOneName:
    async def test_they_are_two_jobs(self):
        cluster = Cluster()
        async with cluster.watched(kinds=WITH_SWARMS):
            cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
            cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
            await cluster.quiet()
        jobs = cluster.jobs()
        assert {(job.key.name, job.resource.kind) for job in jobs} == {
            ("resnet", "TrainingJob"),
            ("resnet", "SwarmJob"),
        }
        assert len({job.key for job in jobs}) == 2
        assert cluster.kinds() == ["JobObserved"] * 2

    @pytest.mark.parametrize("gone", ["TrainingJob", "SwarmJob"])
    async def test_the_end_of_one_is_not_the_others(self, gone: str):
        cluster = Cluster()
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
        cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
        resource = SWARMJOBS if gone == "SwarmJob" else TRAININGJOBS
        async with cluster.watched(kinds=WITH_SWARMS):
            await cluster.quiet()
            cluster.store.delete(resource, NAMESPACE, "resnet")
            await cluster.quiet()
        assert [job.resource.kind for job in cluster.jobs() if job.resource.gone] == [gone]

    def test_a_request_is_about_the_training_job(self):
        cache = Cache(WITH_SWARMS)
        cache.set_job(SWARMJOBS, AT, a_resource(key=SWARM))
        cache.set_request("ScaleOut", (KEY.namespace, "out"), a_request("out"))
        assert not cache.requests_of(SWARM)
        assert cache.set_job(SWARMJOBS, AT, None) == (SWARM,)
        cache.set_job(TRAININGJOBS, AT, a_resource())
        assert cache.requests_of(KEY)

    async def test_a_request_that_claims_another_kind_of_job_as_its_owner_is_none_of_that_jobs(self):
        cluster = Cluster()
        swarm = cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
        owner = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", "name": "resnet", "controller": True}
        request = a_scale_out(name="forged")
        request["metadata"]["ownerReferences"] = [owner | {"uid": swarm.metadata["uid"]}]
        cluster.store.create(SCALEOUTS, NAMESPACE, request)
        async with cluster.watched(kinds=WITH_SWARMS):
            await cluster.quiet()
        assert cluster.kinds() == ["JobObserved"]


class TestAKindThatIsNotServed:
    async def test_it_is_told_once_and_taken_up_when_it_comes(self):
        cluster = Cluster()
        cluster.store.withdraw(SWARMJOBS)
        with capture_logs() as said:
            async with cluster.watched(kinds=WITH_SWARMS):
                cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
                await cluster.quiet()
                cluster.store.outage.cut_watches()
                await cluster.quiet()
                assert cluster.kinds() == ["JobObserved"]
                cluster.store.install(SWARMJOBS)
                cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
                await cluster.quiet()
        about = [(line["event"], line["log_level"]) for line in said if line.get("kind") == "swarmjobs.test.muster.dev"]
        assert about == [("kind is not served", "info"), ("kind is served", "info")]
        assert {job.resource.kind for job in cluster.jobs()} == {"TrainingJob", "SwarmJob"}

    @pytest.mark.parametrize("when", ["before", "afterwards"])
    async def test_the_time_of_other_kinds_goes_on(self, when: str):
        cluster = Cluster()
        if when == "before":
            cluster.store.withdraw(SWARMJOBS)
        job = a_training_job()
        async with cluster.watched(kinds=WITH_SWARMS) as runtime:
            cluster.store.create(TRAININGJOBS, NAMESPACE, job)
            await cluster.quiet()
            if when == "afterwards":
                cluster.store.withdraw(SWARMJOBS)
            await asyncio.sleep(5)
            cache = runtime.service._cache
            assert cache.sees(TRAININGJOBS)
            assert not cache.sees(SWARMJOBS)
            assert cache.jobs[SWARMJOBS].absent == (when == "before")

    async def test_jobs_of_a_kind_that_was_served_are_not_believed_gone_with_it(self):
        cluster = Cluster()
        cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
        async with cluster.watched(kinds=WITH_SWARMS):
            await cluster.quiet()
            cluster.store.withdraw(SWARMJOBS)
            await asyncio.sleep(60)
            assert cluster.kinds() == ["JobObserved"]
            # Its definition is back, and now it is known that the job is not.
            cluster.store.install(SWARMJOBS)
            await cluster.quiet()
        assert cluster.kinds() == ["JobObserved", "JobGone"]

    async def test_without_training_jobs_missing_requests_make_no_watch_blind(self):
        cluster = Cluster()
        for resource in (TRAININGJOBS, *REQUESTS.values()):
            cluster.store.withdraw(resource)
        async with cluster.watched(kinds=WITH_SWARMS) as runtime:
            cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
            await cluster.quiet()
            assert runtime.service._cache.sees(SWARMJOBS)
        assert cluster.kinds() == ["JobObserved"]


class TestAKindThatThisProcessDoesNotKnow:
    async def test_its_jobs_are_left_as_they_are(self):
        cluster = Cluster()
        cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
        async with cluster.watched(kinds=WITH_SWARMS):
            await cluster.quiet()
        cluster.store.delete(SWARMJOBS, NAMESPACE, "resnet")
        async with cluster.watched():
            await cluster.quiet()
        assert cluster.kinds() == ["JobObserved"]


async def test_jobs_that_vanish_at_once_are_counted_over_all_kinds():
    cluster = Cluster()
    half = VANISHED_AT_ONCE // 2 + 1
    for number in range(half):
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job(f"job-{number}"))
        cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job(f"job-{number}"))
    async with cluster.watched(kinds=WITH_SWARMS):
        await cluster.quiet()
    cluster.restored(version=9_000)
    cluster.store.create(PODS, NAMESPACE, {"metadata": {"name": "stranger"}, "spec": {"containers": []}})
    async with cluster.watched(kinds=WITH_SWARMS):
        await cluster.quiet()
    assert cluster.kinds().count("JobGone") == 0


async def test_they_are_counted_before_anyone_is_asked_for():
    cluster = Cluster()
    for number in range(VANISHED_AT_ONCE + 1):
        cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job(f"job-{number}"))
    async with cluster.watched(kinds=WITH_SWARMS):
        await cluster.quiet()
        cluster.store.outage.begin("ConnectionLost")
        for held in cluster.store.find(SWARMJOBS):
            cluster.store.delete(SWARMJOBS, *held.at)
        cluster.store.compact()
        cluster.store.outage.end()
        await cluster.quiet()
    assert cluster.kinds().count("JobGone") == 0


async def test_a_kind_that_may_not_be_listed_keeps_no_job_of_another_alive():
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    cluster.store.create(SWARMJOBS, NAMESPACE, a_swarm_job())
    async with cluster.watched(kinds=WITH_SWARMS):
        await cluster.quiet()
    cluster.store.withdraw(SWARMJOBS)
    cluster.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
    async with cluster.watched(kinds=WITH_SWARMS):
        await cluster.quiet()
    assert cluster.kinds() == ["JobObserved", "JobObserved", "JobGone"]
