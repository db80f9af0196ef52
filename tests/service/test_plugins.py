"""Frameworks of other packages: found by entry points, and no trouble for other kinds if they are broken."""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from inspect import getmembers
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from shared.cluster import Resource
from shared.cluster.objects import Custom, Pod
from shared.errors import Refused
from shared.frameworks.framework import Framework, PodContext
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.runtimes import Reference
from shared.frameworks.scale_requests import GROUP
from shared.frameworks.schemas import Definition, Document
from shared.frameworks.trainjob import TrainJob
from shared.installation import plugins
from shared.installation.plugins import Guarded, GuardedReferring, Plugins, chosen, find
from shared.job.naming import JobKey, Slot, Uid, WorkerName
from shared.job.reasons import FRAMEWORK_FAILED as FAILED
from shared.job.spec import JobSpec, Problem, RoleSpec, Wishes
from shared.job.state import Job
from tests.kit.swarm import SWARMJOB, SWARMJOBS, SwarmJob, a_swarm_job
from tests.kit.world import NAMESPACE, World

HERE = __name__
KEY = JobKey(NAMESPACE, "resnet", Uid("uid-1"))
SECRET = "hunter2"
"""Stands in the resources here, and must stand nowhere else."""


class NoArguments(SwarmJob):
    def __init__(self, size: int) -> None:
        self.size = size


class Abstract(Framework):
    resource = SWARMJOBS


class Kindless(SwarmJob):
    group = ""


class OfPods(SwarmJob):
    resource = Resource("test.muster.dev", "v1", "swarmjobs", "SwarmJob", Pod)  # type: ignore[assignment]


class WithoutDefinition(SwarmJob):
    @property
    def definition(self) -> Definition:
        return None  # type: ignore[return-value]


class BrokenDefinition(SwarmJob):
    @property
    def definition(self) -> Definition:
        raise KeyError("columns")


class AnotherTrainingJob(SwarmJob):
    job_type, group = "TrainingJob", GROUP


class ARequest(SwarmJob):
    job_type, group = "ScaleOut", GROUP


class SamePlural(SwarmJob):
    job_type, plural = "Bee", "swarmjobs"


def entry(value: str, name: str = "swarm") -> EntryPoint:
    return EntryPoint(name, f"{HERE}:{value}" if ":" not in value else value, plugins.GROUP)


def names(found: Plugins) -> list[str]:
    return [framework.name for framework in found.kinds][len([*BUILT_IN]) :]


@pytest.mark.parametrize("value", ["SWARMJOB", "SwarmJob"], ids=["an instance", "a class"])
def test_what_a_package_names_is_a_kind_like_any_other(value: str):
    found = find([entry(value)])
    assert names(found) == ["SwarmJob.test.muster.dev"]
    assert found.left_out == ()
    known = found.kinds.find("test.muster.dev/v1", "SwarmJob")
    assert known is not None
    assert known.definition == SWARMJOB.definition


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(
            "no.such.package:X", r"cannot be imported \(ModuleNotFoundError: No module named 'no'", id="missing"
        ),
        pytest.param("NoSuchName", "cannot be imported .AttributeError", id="no such name in it"),
        pytest.param("NoArguments", "cannot be made without arguments", id="a class that wants arguments"),
        pytest.param(
            "Abstract", "cannot be made without arguments .TypeError: Can't instantiate", id="an unfinished one"
        ),
        pytest.param("HERE", "is no Framework", id="a text"),
        pytest.param("World", "is no Framework", id="another class"),
        pytest.param("Kindless", "needs a group, a version, a plural and a kind", id="without a group"),
        pytest.param("OfPods", "not a Resource of type Custom", id="of another type"),
        pytest.param("WithoutDefinition", "its definition is no Definition", id="without a definition"),
        pytest.param("BrokenDefinition", "its kind or its definition .KeyError", id="a definition that fails"),
        pytest.param("AnotherTrainingJob", "there is a TrainingJob of kai.* already", id="a kind that Muster has"),
        pytest.param("ARequest", "there is a ScaleOut of kai.* already", id="a kind of request"),
    ],
)
def test_one_that_cannot_be_used_is_told_of_and_left_out(value: str, why: str):
    found = find([entry(value, "broken"), entry("SWARMJOB", "whole")])
    assert names(found) == ["SwarmJob.test.muster.dev"]
    (sentence,) = found.left_out
    assert sentence.startswith("the framework broken (")
    assert re.search(why, sentence), sentence


@pytest.mark.parametrize("second", ["SwarmJob", "SamePlural"], ids=["one kind", "one plural"])
def test_of_two_that_are_one_the_first_by_name_is_taken(second: str):
    found = find([entry(second, "b"), entry("SWARMJOB", "a")])
    assert names(found) == ["SwarmJob.test.muster.dev"]
    (sentence,) = found.left_out
    assert "the framework b " in sentence
    assert "there is a SwarmJob of test.muster.dev already" in sentence


def a_package(folder: Path, name: str, code: str) -> None:
    """As an installer leaves it."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {name}:FRAMEWORK\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages; what this process found is looked for anew, and afterwards too."""
    monkeypatch.syspath_prepend(tmp_path)
    plugins.installed.cache_clear()
    yield tmp_path
    plugins.installed.cache_clear()


def test_packages_that_are_installed_are_found(packages: Path):
    a_package(packages, "hives", "from tests.kit.swarm import SwarmJob as FRAMEWORK")
    a_package(packages, "wasps", "raise SystemExit(3)")
    with capture_logs() as said:
        plugins.log_frameworks()
    assert names(plugins.installed()) == ["SwarmJob.test.muster.dev"]
    assert [line["event"] for line in said] == ["framework found", "framework left out"]
    assert "the framework wasps of the package wasps (wasps:FRAMEWORK)" in said[1]["why"]
    assert [line["log_level"] for line in said] == ["info", "error"]


def test_without_packages_there_is_what_muster_brings_along(packages: Path):
    assert [*plugins.kinds()] == [*BUILT_IN]


def test_an_administrator_may_choose_some_of_the_kinds():
    assert [kind.name for kind in chosen(BUILT_IN, ())] == [kind.name for kind in BUILT_IN]
    some = chosen(BUILT_IN, ("tfjob.kubeflow.org", "TrainingJob.kai.alibabacloud.com", "TFJob.kubeflow.org"))
    assert [kind.name for kind in some] == ["TFJob.kubeflow.org", "TrainingJob.kai.alibabacloud.com"]


def test_an_unknown_kind_is_told_with_the_known_ones():
    with pytest.raises(
        Refused, match=r"MUSTER_KINDS: no kind of jobs is called tfjob; there are .*tfjob\.kubeflow\.org"
    ):
        chosen(BUILT_IN, ("tfjob",))


class Broken(SwarmJob):
    """Some of its methods fail, or answer what is no answer."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def _answer(self, method: str, right: Callable[[], Any]) -> Any:
        if method not in self.answers:
            return right()
        answer = self.answers[method]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        return self._answer("parse", lambda: super(Broken, self).parse(manifest))

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        return self._answer("pod", lambda: super(Broken, self).pod(manifest, spec, context))

    def service(self, manifest: Custom, spec: JobSpec, key: JobKey, context: PodContext | None) -> Document:
        return self._answer("service", lambda: super(Broken, self).service(manifest, spec, key, context))

    def status(self, job: Job) -> Document:
        return self._answer("status", lambda: super(Broken, self).status(job))

    def autoscaler(self, manifest: Custom, spec: JobSpec, key: JobKey) -> Document:
        return self._answer("autoscaler", dict)

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        return self._answer("hosts_files", dict)

    def labels(self, key: JobKey) -> dict[str, str]:
        return self._answer("labels", lambda: super(Broken, self).labels(key))


ROLE = RoleSpec(name="bee", replicas=1)
BAD = [
    pytest.param(RuntimeError(SECRET), r"fails \(RuntimeError in test_plugins.py, line \d+\)", id="an exception"),
    pytest.param(SystemExit(SECRET), "fails .SystemExit", id="an exit"),
    pytest.param(RecursionError(SECRET), "fails .RecursionError", id="no end"),
    pytest.param(None, "gives a wrong answer", id="nothing"),
    pytest.param([SECRET], "gives a wrong answer", id="a list of texts"),
    pytest.param({"a": object()}, "gives a wrong answer", id="what is not JSON"),
]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        *BAD,
        pytest.param((), "neither a spec nor a problem", id="no problem either"),
        pytest.param((SECRET,), "gives a wrong answer", id="texts for problems"),
        pytest.param(JobSpec(framework="x", roles=(SECRET,)), "Expected `object`, got `str`", id="a text for a role"),  # type: ignore[arg-type]
        pytest.param(
            JobSpec(framework="x", roles=(ROLE,), backoff_limit="many"), "Expected `int`", id="a text as number"
        ),  # type: ignore[arg-type]
    ],
)
def test_what_goes_wrong_in_parse_is_a_problem_of_the_job(answer: object, why: str):
    (problem,) = Guarded(Broken(parse=answer)).parse(Custom())  # type: ignore[misc]
    assert problem.reason == FAILED
    assert re.search(why, problem.message), problem
    assert SECRET not in problem.message


@pytest.mark.parametrize("method", ["pod", "service", "status", "autoscaler", "hosts_files", "labels"])
@pytest.mark.parametrize(("answer", "why"), BAD)
def test_what_goes_wrong_elsewhere_is_a_refusal(method: str, answer: object, why: str):
    guarded, spec = Guarded(Broken(**{method: answer})), JobSpec(framework="x", roles=(ROLE,))
    context = PodContext(key=KEY, slot=Slot(0, "bee", 0), name=WorkerName("resnet-bee-0"), sizes={"bee": 1})
    calls: dict[str, Callable[[], object]] = {
        "pod": lambda: guarded.pod(Custom(), spec, context),
        "service": lambda: guarded.service(Custom(), spec, KEY, context),
        "status": lambda: guarded.status(Job(key=KEY)),
        "autoscaler": lambda: guarded.autoscaler(Custom(), spec, KEY),
        "hosts_files": lambda: guarded.hosts_files(KEY, spec, ()),
        "labels": lambda: guarded.labels(KEY),
    }
    with capture_logs() as said, pytest.raises(Refused, match=why) as refusal:
        calls[method]()
    assert refusal.value.reason == FAILED
    assert SECRET not in f"{refusal.value}{said}"


@pytest.mark.parametrize("document", [{}, {"metadata": {}}, {"metadata": {"name": 5}}, {"metadata": []}])
def test_an_object_needs_a_name(document: object):
    spec = JobSpec(framework="x", roles=(ROLE,))
    with pytest.raises(Refused, match="an object without a name"):
        Guarded(Broken(service=document)).service(Custom(), spec, KEY, None)


def test_the_same_is_told_once():
    guarded = Guarded(Broken(parse=RuntimeError()))
    with capture_logs() as said:
        for _ in range(3):
            guarded.parse(Custom())
    assert [line["event"] for line in said] == ["framework failed"]


class FailingTrainJob(TrainJob):
    def refers_to(self, manifest: Custom) -> Reference | None:
        raise RecursionError

    def wishes(self, manifest: Custom) -> Wishes | None:
        raise RecursionError


def test_a_kind_with_runtimes_fails_its_own_job_alone():
    guarded = GuardedReferring(FailingTrainJob())
    assert guarded.runtimes
    assert (guarded.refers_to(Custom()), guarded.wishes(Custom())) == (None, None)
    (problem,) = guarded.parse(Custom())  # type: ignore[misc]
    assert problem.reason == FAILED


def test_everything_that_a_framework_does_is_guarded():
    methods = {name for name, _ in getmembers(Framework) if not name.startswith("_")}
    # The name follows from the resource.
    assert methods - {"name"} <= {*vars(Guarded), *vars(Guarded(SWARMJOB))}


def with_broken(**answers: Any) -> Kinds:
    return Kinds((*BUILT_IN, Guarded(Broken(**answers))))


def a_swarm_with_a_secret() -> dict[str, Any]:
    job = a_swarm_job(bees=1)
    container = job["spec"]["replicaSpecs"]["Bee"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PASSWORD", "value": SECRET}]
    return job


@pytest.mark.parametrize("method", ["parse", "pod", "service", "status", "labels"])
async def test_jobs_of_other_kinds_live_beside_a_framework_that_fails(method: str):
    async with World(kinds=with_broken(**{method: ValueError(SECRET)})) as world:
        world.apply(SWARMJOBS, a_swarm_with_a_secret())
        await world.trains(workers=1)
        await world.pass_seconds(60)
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        assert not any(runtime.held() for runtime, _ in world._running.values())
        assert not any(SECRET.encode() in stored.body for stored in world.journal.events)


async def test_a_job_whose_framework_was_mended_goes_on_after_the_restart():
    async with World(kinds=with_broken(parse=ValueError())) as world:
        world.apply(SWARMJOBS, a_swarm_job(bees=1))
        await world.until(lambda: world.status(SWARMJOBS, "resnet") != {})
        (problem,) = world.job().resource.problems
        assert problem.reason == FAILED
    async with World(kinds=with_broken(), of=world, journal=world.journal) as later:
        await later.until(lambda: later.status(SWARMJOBS, "resnet").get("state") == "Running")


async def test_a_status_that_cannot_be_made_is_told_once_in_a_phase_and_is_shown_once_its_framework_was_mended():
    async with World(kinds=with_broken(status=ValueError())) as world:
        world.apply(SWARMJOBS, a_swarm_job(bees=1))
        await world.until(lambda: world.job().status.phase == "Running")
        world.exit_codes["resnet-bee-0"] = 0
        await world.until(lambda: world.job().status.phase == "Succeeded")
        await world.pass_seconds(3_600)
        assert world.status(SWARMJOBS, "resnet") == {}
        bodies = [msgspec.json.decode(each.body) for each in world.journal.events]
        refused = [each for each in bodies if each["type"] == "EffectRefused"]
        assert {(each["effect"], each["reason"], each["permanent"]) for each in refused} == {
            ("PatchStatus", FAILED, True)
        }
        assert all("status fails (ValueError in" in each["message"] for each in refused)
        phases = [each["type"] for each in bodies if each["type"] in ("JobCreated", "JobRunning", "JobSucceeded")]
        assert len(refused) == len(phases) == 3
    async with World(kinds=with_broken(), of=world, journal=world.journal) as later:
        await later.until(lambda: later.status(SWARMJOBS, "resnet").get("state") == "Succeeded")
