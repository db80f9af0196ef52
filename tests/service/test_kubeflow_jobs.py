"""What every kind of the training operator promises, from a job's creation to its end, with all four services."""

from typing import Any, NamedTuple

import pytest

from shared.cluster.kinds import PODS
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.kubeflow import KubeflowJob
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.paddlejob import PADDLEJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.xgboostjob import XGBOOSTJOB
from shared.job.naming import RESTART
from tests.frameworks.documents import kubeflow_mx_job, mpi_job, paddle_job, pytorch_job, tf_job, xgboost_job
from tests.kit.world import Document
from tests.service.kubeflow import Play, applied


class Kind(NamedTuple):
    """A kind, and a job of it with two workers."""

    framework: KubeflowJob
    document: Document
    leader: str
    """The pod whose end is the job's."""
    others: tuple[str, ...]

    @property
    def pods(self) -> list[str]:
        return sorted((self.leader, *self.others))

    @property
    def word(self) -> str:
        """How the kind's reasons begin."""
        return str(self.framework.resource.kind)

    def world(self) -> Play:
        return Play(self.framework, kinds=BUILT_IN.served({self.framework.resource}))

    def job(self, *, restart: str | None = None, **run: Any) -> Document:
        return applied(self.document, run=run, restart=restart)


def workers(name: str) -> tuple[str, str]:
    return f"{name}-worker-0", f"{name}-worker-1"


TF = Kind(TFJOB, tf_job(Chief=1, PS=1, Worker=2), "mnist-chief-0", ("mnist-ps-0", *workers("mnist")))
PYTORCH = Kind(PYTORCHJOB, pytorch_job(), "mnist-master-0", workers("mnist"))
MX = Kind(MXJOB, kubeflow_mx_job(), "mnist-scheduler-0", ("mnist-server-0", *workers("mnist")))
PADDLE = Kind(PADDLEJOB, paddle_job(Master=1, Worker=2), "mnist-master-0", workers("mnist"))
XGBOOST = Kind(XGBOOSTJOB, xgboost_job(), "mnist-master-0", workers("mnist"))
MPI_V1 = Kind(MPIJOB, mpi_job(), "pi-launcher", workers("pi"))
MPI = Kind(MPIJOB_V2BETA1, mpi_job(v2beta1=True), "pi-launcher", workers("pi"))
each_kind = pytest.mark.parametrize(
    "kind",
    [TF, PYTORCH, MX, PADDLE, XGBOOST, MPI_V1, MPI],
    ids=lambda kind: f"{kind.word} {kind.framework.resource.version}",
)


@each_kind
async def test_the_leaders_end_is_the_jobs_and_after_its_time_the_job_goes_with_all_that_it_had(kind: Kind):
    async with kind.world() as world:
        uid = world.play(kind.job(ttlSecondsAfterFinished=60))
        await world.runs()
        assert sorted(world.pods()) == kind.pods
        world.exit_codes |= dict.fromkeys(workers(kind.document["metadata"]["name"]), 0)
        await world.until(lambda: world.counts("Worker") == (0, 2, 0))
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes[kind.leader] = 0
        await world.comes_to("Succeeded")
        await world.quiet()
        # cleanPodPolicy None, which is the default: everything stays.
        assert sorted(world.pods()) == kind.pods
        assert world.shown()["completionTime"]
        assert {f"{kind.word}Running", f"{kind.word}Succeeded"} <= world.told()
        await world.pass_seconds(50)
        assert world.state() == "Succeeded"
        await world.pass_seconds(20)
        await world.until(world.gone)
        await world.until(lambda: world.owned_by(uid) == [])
        await world.quiet()
        assert not world.pods(), "it does not come back"


@each_kind
@pytest.mark.parametrize("policy", ["Running", "All"])
async def test_pods_that_never_end_by_themselves_go_by_the_clean_up(policy: str, kind: Kind):
    async with kind.world() as world:
        world.play(kind.job(cleanPodPolicy=policy))
        await world.runs()
        world.exit_codes[kind.leader] = 0
        await world.comes_to("Succeeded")
        # Workers of a parameter server have half a minute to end.
        await world.pass_seconds(40)
        await world.quiet()
        assert sorted(world.pods()) == {"Running": [kind.leader], "All": []}[policy]


@each_kind
async def test_a_job_that_takes_too_long_fails_when_its_time_is_over_and_not_before(kind: Kind):
    async with kind.world() as world:
        world.play(kind.job(activeDeadlineSeconds=60))
        await world.runs()
        await world.pass_seconds(55)
        assert world.state() == "Running"
        await world.pass_seconds(10)
        await world.comes_to("Failed")
        assert world.why().startswith("DeadlineExceeded")
        assert world.count("JobRestarted") == 0


@each_kind
async def test_a_pause_takes_the_pods_and_brings_them_back_and_a_person_may_have_them_begin_again(kind: Kind):
    async with kind.world() as world:
        world.play(kind.job(suspend=True))
        await world.comes_to("Suspended")
        await world.quiet()
        assert not world.pods()
        world.suspend(suspend=False)
        await world.runs()
        world.suspend(suspend=True)
        await world.comes_to("Suspended")
        await world.until(lambda: not world.pods() and world.counts("Worker")[0] == 0)
        assert world.known("Running") == ("False", f"{kind.word}Suspended")
        world.suspend(suspend=False)
        await world.runs()
        assert sorted(world.pods()) == kind.pods
        assert world.known("Suspended") == ("False", f"{kind.word}Resumed")
        before, restarts = world.uids(), world.count("JobRestarted")
        world.patch({"metadata": {"annotations": {RESTART: "once more"}}})
        await world.until(lambda: world.count("JobRestarted") == restarts + 1)
        await world.runs()
        await world.until(lambda: world.uids().keys() == before.keys())
        assert not {*before.values()} & {*world.uids().values()}
        assert world.known("Restarting") == ("False", f"{kind.word}Running")


@each_kind
async def test_a_job_that_cannot_run_says_why_and_runs_once_it_is_corrected(kind: Kind):
    async with kind.world() as world:
        world.play(kind.job(cleanPodPolicy="Some"))
        await world.comes_to("Failed")
        assert world.known("Failed") == ("True", f"{kind.word}FailedValidation")
        assert world.why().startswith("UnknownCleanPodPolicy: ")
        await world.quiet()
        assert not world.pods()
        world.edit({"runPolicy": {"cleanPodPolicy": "None"}})
        await world.runs()
        assert world.known("Failed") is None


@each_kind
@pytest.mark.parametrize("how", ["fails", "is deleted by a person"])
async def test_a_worker_that_goes_comes_back_in_its_place(how: str, kind: Kind):
    async with kind.world() as world:
        world.play(kind.job(restart="OnFailure"))
        await world.runs()
        before, services = world.uids(), world.services()
        lost, _ = workers(kind.document["metadata"]["name"])
        if how == "fails":
            world.exit_codes[lost] = 1
        else:
            world.delete(PODS, lost)
        await world.until(lambda: world.uids().get(lost, before[lost]) != before[lost], "another pod")
        await world.runs()
        assert {name for name, uid in world.uids().items() if uid != before[name]} == {lost}
        assert world.services() == services


@each_kind
async def test_a_job_that_another_controller_manages_is_not_ours_to_touch(kind: Kind):
    async with kind.world() as world:
        world.play(kind.job(managedBy="kueue.x-k8s.io/multikueue"))
        await world.quiet()
        assert not world.pods()
        assert world.shown() == {}
        assert [*world.types()] == ["LogCreated"]


@pytest.mark.parametrize("kind", [TF, PYTORCH, MX], ids=lambda kind: kind.word)
async def test_a_job_that_is_not_elastic_keeps_its_size_and_says_why(kind: Kind):
    async with kind.world() as world:
        world.play(kind.job())
        await world.runs()
        world.scale(3)
        await world.until(lambda: world.count("ScaleRejected") == 1 and "ScalingOutFailed" in world.told())
        await world.quiet()
        assert sorted(world.pods()) == kind.pods
        assert world.state() == "Running"
