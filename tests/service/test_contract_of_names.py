"""The names, labels and owners that users, scripts and selectors rely on."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out, a_training_job
from tests.memory.watching import Held

GROUP = "kai.alibabacloud.com"


def owner(job: Held) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainingJob",
        "name": job.at[1],
        "uid": job.metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def test_every_child_has_the_names_labels_and_owner_of_the_contract(world: World):
    job = await world.trains(workers=2)
    world.apply(SCALEOUTS, a_scale_out(1, name="more"))
    await world.phase("ScaleSucceeded", SCALEOUTS, "more")
    ours = {"group-name": GROUP, "training-job-name": "resnet", "muster.dev/job-uid": job.metadata["uid"]}
    pod = ours | {"muster.dev/attempt": "0"}
    worker = pod | {"training-job-role": "worker"}
    found = {
        (resource.kind, held.at[1]): held.metadata.get("labels")
        for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS)
        for held in world.store.find(resource)
    }
    assert found == {
        ("Pod", "resnet-launcher"): pod | {"training-job-role": "launcher", "replica-index": "0"},
        ("Pod", "resnet-worker-0"): worker | {"replica-index": "0"},
        ("Pod", "resnet-worker-1"): worker | {"replica-index": "1"},
        ("Pod", "resnet-worker-2"): worker | {"replica-index": "2", "scaleout-name": "more"},
        ("Service", "resnet"): ours,
        ("ConfigMap", "resnet-config"): ours,
        ("Secret", f"resnet-ssh-{job.metadata['uid']}-0"): ours,
    }
    for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS):
        for held in world.store.find(resource):
            assert held.metadata["ownerReferences"] == [owner(job)], held.at


@pytest.mark.parametrize(
    ("resource", "name", "kind"), [(SCALEOUTS, "out", "ScaleOut"), (SCALEINS, "in", "ScaleIn")], ids=["out", "in"]
)
async def test_a_request_that_is_acted_upon_has_the_job_as_controller_owner(
    world: World, resource: Any, name: str, kind: str
):
    job = await world.trains(workers=2)
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kept", "uid": "another"}
    world.store.create(CONFIGMAPS, NAMESPACE, {"metadata": {"name": "kept"}, "data": {}})
    kept = world.store.get(CONFIGMAPS, NAMESPACE, "kept")
    assert kept is not None
    foreign["uid"] = kept.metadata["uid"]
    request = a_scale_out() if kind == "ScaleOut" else a_scale_in()
    request["metadata"]["ownerReferences"] = [foreign]
    world.apply(resource, request)
    await world.phase("ScaleSucceeded", resource, name)
    held = world.store.get(resource, NAMESPACE, name)
    assert held is not None
    assert held.metadata["ownerReferences"] == [foreign, owner(job)]


@pytest.mark.parametrize(
    ("resource", "manifest", "name"),
    [
        pytest.param(PODS, {"spec": {"containers": []}}, "resnet-worker-1", id="a worker's name"),
        pytest.param(PODS, {"spec": {"containers": []}}, "resnet-launcher", id="the launcher's name"),
        pytest.param(SERVICES, {"spec": {}}, "resnet", id="the Service's name"),
        pytest.param(CONFIGMAPS, {"data": {"hostfile": "mine"}}, "resnet-config", id="the ConfigMap's name"),
    ],
)
async def test_19_what_others_hold_is_never_touched_and_the_job_goes_on_when_it_is_gone(
    world: World, resource: Any, manifest: dict[str, Any], name: str
):
    # Labels can be copied by anybody: they make nothing ours.
    labels = {"training-job-name": "resnet", "muster.dev/job-uid": "00000002-0000-4000-8000-000000000000"}
    world.apply(resource, {**manifest, "metadata": {"name": name, "labels": labels}})
    job = world.apply(TRAININGJOBS, a_training_job(workers=2))
    assert job.metadata["uid"] == labels["muster.dev/job-uid"]
    shown = "WorkersCreated" if "worker" in name else "LauncherCreated"
    await world.shows(shown, "NameConflict")
    await world.quiet()
    assert world.condition(TRAININGJOBS, "resnet", shown) == ("False", "NameConflict")
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Created"
    held = world.store.get(resource, NAMESPACE, name)
    assert held is not None
    assert "ownerReferences" not in held.metadata
    assert "hosts-version" not in str(held.metadata)
    assert ("NameConflict", "resnet") in world.kubernetes_events()
    world.delete(resource, name)
    await world.running()
    assert world.condition(TRAININGJOBS, "resnet", shown)[0] == "True"  # type: ignore[index]
