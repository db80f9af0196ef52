"""Published manifests: those of training-operator 1.9 make the pods that it makes; all of ours can be acted upon."""

from pathlib import Path

import pytest
import yaml

from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.job.naming import Slot
from shared.job.spec import RENDEZVOUS, JobSpec
from tests.crds import admission
from tests.frameworks.documents import Document, changed, custom
from tests.kit.pods import pod_for, service_for
from tests.kit.published import PUBLISHED, Published


@pytest.mark.parametrize("example", PUBLISHED, ids=lambda example: example.file)
def test_an_example_is_admitted_and_makes_the_pods_that_training_operator_makes(example: Published):
    manifest = example.manifest
    assert admission.refusals(manifest) == []
    assert admission.pruned(manifest) == []
    framework = BUILT_IN.find(manifest["apiVersion"], manifest["kind"])
    assert framework is not None
    job = custom(changed(changed(manifest, "metadata.uid", "uid-1"), "metadata.namespace", "kubeflow"))
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    # The rendezvous of an elastic group is Muster's own.
    roles = [role for role in spec.roles if role.name != RENDEZVOUS]
    slots = [Slot(0, role.name, index) for role in roles for index in range(role.replicas)]
    pods = [pod_for(job, slot, framework) for slot in slots]
    assert sorted(pod["metadata"]["name"] for pod in pods) == example.pods


def test_all_examples_of_the_small_kinds_are_there():
    kinds = [example.kind for example in PUBLISHED]
    assert (kinds.count("JAXJob"), kinds.count("PaddleJob"), kinds.count("XGBoostJob")) == (2, 2, 8)


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
