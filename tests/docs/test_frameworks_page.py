"""`docs/frameworks.md`: its framework is complete, and trains as it stands; its package can be installed."""

import json
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from zipfile import ZipFile

import pytest

import muster.frameworks
import shared.frameworks
import shared.job
from muster.frameworks import REPLICATED, KubeflowJob, ReplicaType
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUEST_DEFINITIONS
from shared.frameworks.schemas import Definition
from shared.installation import plugins
from shared.job.naming import Slot
from shared.job.spec import Succeeds
from tests.frameworks.documents import changed, custom, mx_job, mx_replicas
from tests.kit.pods import pod_for
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import World

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
OWN_KIND = PAGE.parents[1] / "examples" / "own_kind"
COMPATIBILITY = PAGE.with_name("compatibility.md")
TRAINER = PAGE.with_name("trainer.md")
"""The fields of TrainJob, which are many."""
FEW = 30
"""Lines that a complete framework may have."""

MANIFEST: dict[str, Any] = {
    "metadata": {"name": "resnet"},
    "spec": {
        "flaxReplicaSpecs": {
            "Worker": {
                "replicas": 3,
                "restartPolicy": "OnFailure",
                "template": {"spec": {"containers": [{"name": "flax", "image": "flax"}]}},
            }
        }
    },
}


def run_file(name: str) -> dict[str, Any]:
    """The names of a file that the page links to, and users copy."""
    return runpy.run_path(str(OWN_KIND / name))


def the_framework() -> Framework:
    framework: Framework = run_file("flaxjob.py")["FlaxJob"]()
    return framework


@pytest.mark.parametrize("kind", [*BUILT_IN], ids=lambda kind: kind.name)
def test_a_built_in_kind_has_a_row_here_and_a_section_in_the_page_about_compatibility(kind: Framework):
    for version in (kind, *kind.others):
        resource = version.resource
        row = rf"^\| {resource.kind}\b.*`{resource.group}/.*\b{resource.version}`"
        assert re.search(row, PAGE.read_text(), re.MULTILINE), (
            f"write a row `| {resource.kind} | `{resource.api_version}` | file |` into the first table of {PAGE.name}"
        )
        # The section of TrainingJob names its kinds in the first line below the heading.
        section = rf"^(# )?{resource.kind}\b.*`{resource.group}/.*\b{resource.version}`"
        assert re.search(section, COMPATIBILITY.read_text(), re.MULTILINE), (
            f"write a section `# {resource.kind} (`{resource.api_version}`)` into {COMPATIBILITY.name}: what its users "
            "keep, and what differs"
        )


def fields(schema: dict[str, Any]) -> Iterator[str]:
    """The names of all fields of a spec; a pod template's are Kubernetes' own."""
    for name, field in schema.get("properties", {}).items():
        yield name
        if name != "template":
            yield from fields(field)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from fields(inner)


@pytest.mark.parametrize(
    "definition",
    [
        *(pytest.param(version.definition, id=version.name) for kind in BUILT_IN for version in (kind, *kind.others)),
        *(pytest.param(definition, id=kind.kind) for kind, definition in REQUEST_DEFINITIONS.items()),
    ],
)
def test_the_page_about_compatibility_says_of_every_field_whether_it_is_acted_upon(definition: Definition):
    page = COMPATIBILITY.read_text() + TRAINER.read_text()
    unsaid = {name for name in fields(definition.spec) if not re.search(rf"`[^`]*\b{name}\b[^`]*`", page)}
    assert not unsaid, f"say of these fields in {COMPATIBILITY.name} what they do"


def one_of_your_own() -> str:
    """The section for those who write a framework."""
    found = re.search(r"^## One of your own\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def attributes() -> dict[str, str]:
    """The table of attributes: what the page says of each."""
    rows: list[tuple[str, str]] = re.findall(r"^\| `(\w+)` \| (.*) \|$", one_of_your_own(), re.MULTILINE)
    assert rows
    return dict(rows)


def test_another_leader_is_written_as_the_page_says():
    row = attributes()["handling"]
    found = re.search(r"`(import msgspec)`.*`handling = (.*?)`", row)
    assert found
    names: dict[str, Any] = {"REPLICATED": REPLICATED}
    exec(f"{found[1]}\nhandling = {found[2]}", names)  # noqa: S102 -- our own page
    assert names["handling"].leader == ReplicaType("Master").role
    assert names["handling"].succeeds in get_args(Succeeds)
    assert {f"`{word}`" for word in get_args(Succeeds)} <= {*re.findall(r"`\w+`", row)}


def test_every_attribute_of_the_table_is_one_of_the_base():
    known = {name for base in KubeflowJob.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    assert attributes().keys() <= known


def test_every_name_of_ours_in_the_section_for_authors_is_exported():
    modules = [
        import_module(f"{package.__name__}.{found.name}")
        for package in (shared.frameworks, shared.job)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    # A constant of a built-in type has no module of its own.
    ours = {
        name
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", "shared").startswith("shared")
    }
    said = {*re.findall(r"\b[A-Z]\w+", " ".join(re.findall(r"`([^`\n]+)`", one_of_your_own())))}
    assert {"KubeflowJob", "REPLICATED"} <= said & ours
    # The kinds that Muster brings along stand in BUILT_IN; a package needs no place there.
    assert (said & ours) - {"BUILT_IN"} <= {*muster.frameworks.__all__}


def test_a_complete_framework_is_a_few_lines():
    assert len((OWN_KIND / "flaxjob.py").read_text().splitlines()) < FEW


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package, built by its own `pyproject.toml` and installed for this process."""
    installed = tmp_path / "installed"
    source = shutil.copytree(OWN_KIND, tmp_path / "source")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=source, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with ZipFile(wheel) as files:
        files.extractall(installed)
    monkeypatch.syspath_prepend(installed)
    plugins.installed.cache_clear()
    yield installed
    plugins.installed.cache_clear()
    sys.modules.pop("flaxjob", None)


def test_its_package_brings_the_kind(package: Path):
    assert (package / "flaxjob.py").is_file()
    assert plugins.installed().left_out == ()
    assert "FlaxJob.kubeflow.org" in [kind.name for kind in plugins.kinds()]


def test_its_own_test_passes(package: Path):
    [run] = [value for name, value in run_file("test_flaxjob.py").items() if name.startswith("test_")]
    run()
    assert sys.modules["flaxjob"].__file__ == str(package / "flaxjob.py")


@in_virtual_time
async def test_a_job_of_it_runs_loses_a_worker_and_succeeds():
    flax = the_framework()
    async with World(kinds=Kinds([*BUILT_IN, flax])) as world:
        world.apply(flax.resource, MANIFEST)

        def conditions() -> dict[str, str]:
            known = world.status(flax.resource, "resnet").get("conditions", ())
            return {condition["type"]: condition["status"] for condition in known}

        def uid() -> str:
            pod = world.pods().get("resnet-worker-1")
            return pod.metadata["uid"] if pod else ""

        await world.until(lambda: conditions().get("Running") == "True", "it runs")
        await world.quiet()
        (container,) = world.pods()["resnet-worker-1"].manifest["spec"]["containers"]
        assert {variable["name"]: variable["value"] for variable in container["env"]} == {
            "COORDINATOR_ADDRESS": "resnet-worker-0:6666",
            "NUM_PROCESSES": "3",
            "PROCESS_ID": "1",
        }
        first = uid()
        world.exit_codes["resnet-worker-1"] = 1
        await world.until(lambda: uid() not in ("", first), "the lost worker is back under its name")
        await world.quiet()
        world.exit_codes["resnet-worker-0"] = 0
        await world.until(lambda: conditions().get("Succeeded") == "True", "it succeeds")


def test_the_tensorflow_example_of_dl_operator_is_carried_over_as_the_page_says():
    job = custom(mx_job("mpba.fbk.eu/v1", mx_replicas("replicaType", PS=1, WORKER=2), kind="TFJob"))
    (container,) = pod_for(job, Slot(0, "worker", 1), run_file("tfjob.py")["TFJob"]())["spec"]["containers"]
    (variable,) = container["env"]
    assert json.loads(variable["value"]) == {
        "cluster": {"ps": ["ps-mnist-0:2222"], "worker": ["worker-mnist-0:2222", "worker-mnist-1:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    assert container["ports"] == [{"name": "dlport0", "containerPort": 2222}]


def test_a_framework_mounts_a_volume_where_its_container_expects_it():
    flax = the_framework()
    type(flax).container_properties = type(flax).container_properties._replace(mount_paths={"data": "/data"})
    job = changed(MANIFEST, "metadata.uid", "uid-1")
    spec = "spec.flaxReplicaSpecs.Worker.template.spec"

    def pod(manifest: dict[str, Any]) -> tuple[object, object]:
        made = pod_for(custom(manifest), Slot(0, "worker", 0), flax)["spec"]
        return made["containers"][0].get("volumeMounts"), made.get("volumes")

    mount = {"name": "data", "mountPath": "/data"}
    assert pod(job) == ([mount], [{"name": "data", "emptyDir": {}}])
    theirs = {"name": "data", "persistentVolumeClaim": {"claimName": "digits"}}
    assert pod(changed(job, f"{spec}.volumes", [theirs])) == ([mount], [theirs])
    own = {"name": "other", "mountPath": "/data"}
    mounted = changed(job, f"{spec}.containers[0].volumeMounts", [own])
    assert pod(changed(mounted, f"{spec}.volumes", [{"name": "other"}, theirs])) == ([own], [{"name": "other"}, theirs])
