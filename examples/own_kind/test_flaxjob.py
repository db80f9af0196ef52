"""A test of a kind of your own: it needs no cluster."""

import msgspec
from flaxjob import FlaxJob

from muster.frameworks import Custom, JobKey, JobSpec, PodContext, Slot


def test_a_process_gets_its_number():
    worker = {"replicas": 2, "template": {"spec": {"containers": [{"name": "flax", "image": "flax"}]}}}
    job = msgspec.convert({"metadata": {"name": "resnet"}, "spec": {"flaxReplicaSpecs": {"Worker": worker}}}, Custom)
    spec = FlaxJob().parse(job)
    assert isinstance(spec, JobSpec), spec
    key, slot = JobKey("team-a", "resnet", "uid-1"), Slot(0, "worker", 1)
    pod = FlaxJob().pod(job, spec, PodContext(key=key, slot=slot, name="resnet-worker-1", sizes={"worker": 2}))
    assert {"name": "PROCESS_ID", "value": "1"} in pod["spec"]["containers"][0]["env"]
