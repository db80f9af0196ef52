"""Every published manifest of a job is one that can be acted upon, and all its pods can be made."""

from pathlib import Path

import pytest
import yaml

from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.job.naming import Slot
from shared.job.spec import JobSpec
from tests.frameworks.documents import Document, changed, custom
from tests.kit.pods import pod_for, service_for

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = [
    pytest.param(framework, document, id=f"{path.parent.name}/{path.stem}")
    for path in sorted(EXAMPLES.glob("*/*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if (framework := BUILT_IN.find(document["apiVersion"], document["kind"])) is not None
]


@pytest.mark.parametrize(("framework", "document"), JOBS)
def test_an_example_can_be_acted_upon(framework: Framework, document: Document):
    job = custom(changed(document, "metadata.uid", "uid-1"))
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    for role in spec.roles:
        for index in range(role.replicas):
            assert pod_for(job, Slot(0, role.name, index), framework)["spec"]["containers"]


@pytest.mark.parametrize(("framework", "document"), JOBS)
def test_the_service_of_a_pod_selects_that_pod_alone(framework: Framework, document: Document):
    job = custom(changed(document, "metadata.uid", "uid-1"))
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    slots = [Slot(0, role.name, index) for role in spec.roles for index in range(role.replicas)]
    labels = {slot: pod_for(job, slot, framework)["metadata"]["labels"] for slot in slots}
    for slot in slots:
        selector = service_for(job, slot, framework)["spec"]["selector"]
        assert [known for known in slots if selector.items() <= labels[known].items()] == [slot]
