"""`docs/frameworks.md`: its framework is complete, and trains as it stands there."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.frameworks import REPLICATED, ReplicaType
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN, Kinds
from tests.kit.virtual_time import in_virtual_time
from tests.service.stage import Stage

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
COMPATIBILITY = PAGE.with_name("compatibility.md")
FEW = 30
"""Lines that a complete framework may have."""

MANIFEST: dict[str, Any] = {
    "metadata": {"name": "resnet"},
    "spec": {
        "jaxReplicaSpecs": {
            "Worker": {
                "replicas": 3,
                "restartPolicy": "OnFailure",
                "template": {"spec": {"containers": [{"name": "jax", "image": "jax"}]}},
            }
        }
    },
}


def the_code() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def the_framework() -> Framework:
    names: dict[str, Any] = {}
    exec(the_code(), names)  # noqa: S102 -- the text of our own page, which users copy
    framework: Framework = names["JAXJob"]()
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


def test_another_leader_is_written_as_the_page_says():
    found = re.search(r"`handling = (.*?)`", PAGE.read_text())
    assert found
    handling = eval(found[1], {"msgspec": msgspec, "REPLICATED": REPLICATED})  # noqa: S307 -- our own page, too
    assert handling.leader == ReplicaType("Master").role


def test_a_complete_framework_is_a_few_lines():
    assert len(the_code().splitlines()) < FEW


@in_virtual_time
async def test_a_job_of_it_runs_loses_a_worker_and_succeeds():
    jax = the_framework()
    async with Stage(kinds=Kinds([*BUILT_IN, jax])) as stage:
        stage.apply(jax.resource, MANIFEST)

        def conditions() -> dict[str, str]:
            known = stage.status(jax.resource, "resnet").get("conditions", ())
            return {condition["type"]: condition["status"] for condition in known}

        def uid() -> str:
            pod = stage.pods().get("resnet-worker-1")
            return pod.metadata["uid"] if pod else ""

        await stage.until(lambda: conditions().get("Running") == "True", "it runs")
        await stage.quiet()
        (container,) = stage.pods()["resnet-worker-1"].manifest["spec"]["containers"]
        assert {variable["name"]: variable["value"] for variable in container["env"]} == {
            "COORDINATOR_ADDRESS": "resnet-worker-0:6666",
            "NUM_PROCESSES": "3",
            "PROCESS_ID": "1",
        }
        first = uid()
        stage.exit_codes["resnet-worker-1"] = 1
        await stage.until(lambda: uid() not in ("", first), "the lost worker is back under its name")
        await stage.quiet()
        stage.exit_codes["resnet-worker-0"] = 0
        await stage.until(lambda: conditions().get("Succeeded") == "True", "it succeeds")
