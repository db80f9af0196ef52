"""A ConfigMap that pods mount is not there: the kubelet's words are told, and the job goes on once it is."""

import json

import pytest

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS, NODE
from tests.kit.operator import FOR_EVER, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = [HOSTS[0], HOSTS[2], NODE]
"""What keeps a pod from its volumes is a kubelet's to tell."""

SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}


async def test_a_volume_that_cannot_be_mounted_is_told_in_the_words_of_the_kubelet(operator: Operator):
    job = a_job("lacking", FOR_EVER)
    template = job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]
    template["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    template["containers"][0]["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
    await operator.apply(job)
    words = 'MountVolume.SetUp failed for volume "settings" : configmap "settings" not found'
    told = f"lacking-worker-0: FailedMount: {words}"
    status = await operator.shows(TRAININGJOBS, "lacking", lambda status: told in str(status), told)
    (ready,) = (known for known in status["conditions"] if known["type"] == "WorkersReady")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "FailedMount", told)
    assert told in " ".join((await operator.muster("why", "trainingjob/lacking")).split())

    async def announced() -> bool:
        about = "involvedObject.name=lacking,involvedObject.kind=TrainingJob,reason=FailedMount"
        return json.dumps(words)[1:-1] in await operator.kubectl(
            "get", "events", f"--field-selector={about}", "-o", "json"
        )

    await operator.until(announced, lambda: "no Kubernetes Event tells it")
    await operator.apply(SETTINGS)
    status = await operator.phase("Running", TRAININGJOBS, "lacking")
    assert words not in str(status)
    await operator.delete("lacking")
