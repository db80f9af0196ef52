"""The examples that training-operator 1.9 publishes are admitted, lose no field, and make the pods that it makes."""

import pytest

from shared.frameworks.kinds import BUILT_IN
from shared.job.naming import Slot
from shared.job.spec import RENDEZVOUS, JobSpec
from tests.crds import admission
from tests.frameworks.documents import changed, custom
from tests.kit.pods import pod_for
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
